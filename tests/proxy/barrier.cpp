// SPDX-License-Identifier: GPL-2.0-or-later
// A barrier over the clients of some proxies, from the command line, for tests:
//     singularity-barrier [--within MS] [--patience MS] CONTROL_SOCKET...
// When the cut is there: one line "rounds N processes N microseconds N", gates stay closed
// until standard input ends, and status 0. Else why not on stderr, and status 1.
#include "proxy/control/barrier.hpp"

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <unistd.h>

using namespace singularity;

namespace {

int fail(const std::string &why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return EXIT_FAILURE;
}

} // namespace

int main(int argc, char **argv) {
    std::vector<std::filesystem::path> sockets;
    auto within = std::chrono::milliseconds(30'000);
    auto patience = std::chrono::milliseconds(1'000);
    for (int at = 1; at < argc; ++at) {
        const std::string_view word = argv[at];
        if (word == "--within" && at + 1 < argc)
            within = std::chrono::milliseconds(std::atol(argv[++at]));
        else if (word == "--patience" && at + 1 < argc)
            patience = std::chrono::milliseconds(std::atol(argv[++at]));
        else
            sockets.emplace_back(word);
    }
    const auto begin = Deadline::Clock::now();
    const auto deadline = Deadline::after(within);
    auto node = proxy_control::NodeBarrier::open(sockets, deadline);
    if (!node)
        return fail(node.error().message());
    const auto cut = node->acquire(patience, deadline, [] { return Expected<void>(); });
    if (!cut)
        return fail(cut.error().message());
    const auto span = std::chrono::duration_cast<std::chrono::microseconds>(Deadline::Clock::now() - begin);
    std::printf("rounds %llu processes %zu microseconds %lld\n", static_cast<unsigned long long>(cut->rounds),
                cut->processes, static_cast<long long>(span.count()));
    std::fflush(stdout);
    char byte = 0;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    return EXIT_SUCCESS;
}
