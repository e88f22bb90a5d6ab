// SPDX-License-Identifier: GPL-2.0-or-later
#include "health.hpp"

#include "agent/log.hpp"
#include "node_checks.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <sys/prctl.h>
#include <unistd.h>

namespace singularity::agent {

namespace {

constexpr auto kBetweenChecks = std::chrono::seconds(60);

[[noreturn]] void watch() {
    std::vector<std::string> said(spank::node_checks().size());
    for (;;) {
        for (std::size_t i = 0; i < said.size(); ++i) {
            const auto &check = spank::node_checks()[i];
            const auto found = check.run();
            const std::string words = found ? *found : found.error().message();
            if (words == said[i])
                continue;
            said[i] = words;
            if (found)
                kLog.info("{}: {}", check.name, words);
            else
                kLog.error("{}: {}", check.name, words);
        }
        std::this_thread::sleep_for(kBetweenChecks);
    }
}

} // namespace

bool check_once() {
    bool all_passed = true;
    for (const auto &check : spank::node_checks()) {
        const auto found = check.run();
        all_passed &= found.has_value();
        std::cout << (found ? "ok      " : "FAILED  ") << check.name << ": "
                  << (found ? *found : found.error().message()) << '\n';
    }
    return all_passed;
}

Expected<void> watch_health() {
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0)
        return std::unexpected(errno_error("start", "the watch over this machine"));
    if (child > 0)
        return {};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_SUCCESS);
    try {
        watch();
    } catch (const std::exception &error) {
        kLog.error("the watch over this machine ends: {}", error.what());
    }
    _exit(EXIT_FAILURE);
}

} // namespace singularity::agent
