// SPDX-License-Identifier: GPL-2.0-or-later
// Started by the agent, with a listening socket at descriptor 3 and standard error for what there is to say.
#include "common/guarded_main.hpp"
#include "common/log.hpp"
#include "service.hpp"

#include <csignal>
#include <cstdlib>

namespace {

constexpr singularity::log::Channel kLog("network");
constexpr int kListener = 3;

int run(int /*argc*/, char ** /*argv*/) {
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
    const auto served = singularity::network::Service(singularity::UniqueFd(kListener)).serve();
    if (served)
        return EXIT_SUCCESS;
    kLog.error("{}", served.error().message());
    return EXIT_FAILURE;
}

} // namespace

int main(int argc, char **argv) { return singularity::guarded_main(run, argc, argv); }
