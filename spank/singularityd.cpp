// SPDX-License-Identifier: GPL-2.0-or-later
// The node agent, one per node, as root. Today it watches over what elastic jobs will need of the node and
// says in its log when something is missing or comes back; the virtual nodes of jobs are not made yet.
#include "common/config.hpp"
#include "common/log.hpp"
#include "guarded_main.hpp"
#include "node_checks.hpp"

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <vector>

#include <CLI/CLI.hpp>
#include <signal.h>

namespace {

namespace spank = singularity::spank;

constexpr singularity::log::Channel kLog("agent");
constexpr auto kBetweenChecks = std::chrono::seconds(60);

// For people and monitoring: one line per check, exit status 1 if any fails.
int check_once() {
    bool all_passed = true;
    for (const auto &check : spank::node_checks()) {
        const auto found = check.run();
        all_passed &= found.has_value();
        std::cout << (found ? "ok      " : "FAILED  ") << check.name << ": "
                  << (found ? *found : found.error().message()) << '\n';
    }
    return all_passed ? EXIT_SUCCESS : EXIT_FAILURE;
}

// Logs each check's first result and from then on only changes. Ends on SIGTERM or SIGINT.
int serve() {
    sigset_t ends{};
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, nullptr);

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
        const timespec pause{kBetweenChecks.count(), 0};
        const int signal = sigtimedwait(&ends, nullptr, &pause);
        if (signal > 0) {
            kLog.info("ending on signal {}", signal);
            return EXIT_SUCCESS;
        }
    }
}

int run(int argc, char **argv) {
    CLI::App app("singularityd: slurm-singularity's node agent");
    app.set_version_flag("--version", SINGULARITY_VERSION);
    bool once = false;
    app.add_flag("--check", once,
                 "check once whether this node can hold elastic jobs, print the result, and end");
    CLI11_PARSE(app, argc, argv);

    if (once)
        return check_once();
    const auto settings = singularity::config::load_or_default(singularity::config::default_path());
    if (!settings) {
        kLog.error("{}", settings.error().message());
        return EXIT_FAILURE;
    }
    singularity::log::set_level(settings->log_level);
    return serve();
}

} // namespace

int main(int argc, char **argv) { return singularity::spank::guarded_main(run, argc, argv); }
