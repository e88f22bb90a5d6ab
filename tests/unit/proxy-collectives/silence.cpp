// SPDX-License-Identifier: GPL-2.0-or-later
// What counts as the other side's silence: time in which this process waited, since the last byte.
#include "cmocka.hpp"
#include "ranks.hpp"
#include "socket.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace singularity::test;
using singularity::UniqueFd;
using singularity::collectives::Silence;
using singularity::collectives::Socket;

constexpr Silence kSilence{std::chrono::seconds(3)};

std::pair<Socket, Socket> connected() {
    std::array<int, 2> fds{};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
    return {Socket(UniqueFd(fds[0])), Socket(UniqueFd(fds[1]))};
}

void say(Socket &socket) {
    const std::byte byte{1};
    need(socket.send(std::span(&byte, 1), soon()));
}

// The other side has read all that was said.
void expect_taken(const Socket &socket) {
    need(singularity::wait_until(
        [&] {
            int waiting = 0;
            return ioctl(socket.fd(), SIOCOUTQ, &waiting) == 0 && waiting == 0;
        },
        soon(), "the other side to read"));
}

// As by `scontrol suspend`, in the middle of a message, for longer than a peer may be silent.
void who_was_stopped_has_missed_nothing(void **) {
    auto [mine, theirs] = connected();
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        std::array<std::byte, 3> bytes{};
        _exit(theirs.receive(bytes, kSilence) ? 0 : 1);
    }
    say(mine);
    expect_taken(mine);
    int status = -1;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    std::this_thread::sleep_for(kSilence.most + std::chrono::seconds(1));
    say(mine);
    assert_int_equal(kill(pid, SIGCONT), 0);
    expect_taken(mine);
    say(mine);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

void who_says_nothing_in_the_middle_is_silent(void **) {
    auto [mine, theirs] = connected();
    say(theirs);
    std::array<std::byte, 2> bytes{};
    const auto got = mine.receive(bytes, Silence{std::chrono::milliseconds(50)});
    assert_false(got.has_value());
    expect_contains(got.error().message(), "a sign of life of a peer");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(who_was_stopped_has_missed_nothing),
        cmocka_unit_test(who_says_nothing_in_the_middle_is_silent),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
