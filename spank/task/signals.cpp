// SPDX-License-Identifier: GPL-2.0-or-later
#include "signals.hpp"

#include <algorithm>
#include <array>
#include <csignal>

#include <unistd.h>

namespace singularity::task {
namespace {

constexpr std::array kNeverTaken{SIGKILL, SIGSTOP};
constexpr std::array kEnding{SIGHUP, SIGINT,  SIGQUIT, SIGILL,  SIGTRAP,   SIGABRT, SIGBUS,
                             SIGFPE, SIGSEGV, SIGTERM, SIGXFSZ, SIGSTKFLT, SIGSYS};
// The kernel sends them for reasons of the wrapper's own; what a user has sent is for the program.
constexpr std::array kOfWrapper{SIGCHLD, SIGWINCH, SIGTTIN, SIGTTOU};

template <class Numbers>
bool is_among(const Numbers &numbers, int number) {
    return std::ranges::find(numbers, number) != numbers.end();
}

} // namespace

std::vector<int> forwarded_signals() {
    std::vector<int> out;
    for (int number = 1; number <= SIGRTMAX; ++number) {
        // Those between belong to the C library.
        const bool exists = number <= SIGSYS || number >= SIGRTMIN;
        if (exists && !is_among(kNeverTaken, number))
            out.push_back(number);
    }
    return out;
}

bool is_for_program(const signalfd_siginfo &signal) {
    const int number = static_cast<int>(signal.ssi_signo);
    const bool by_process = signal.ssi_code <= 0; // SI_USER, SI_QUEUE, SI_TKILL
    if (number == SIGPIPE)                        // the kernel sends it as if the process had done so itself
        return by_process && static_cast<pid_t>(signal.ssi_pid) != getpid();
    return by_process || !is_among(kOfWrapper, number);
}

bool ends_program(int number) { return is_among(kEnding, number); }

} // namespace singularity::task
