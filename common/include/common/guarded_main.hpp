// SPDX-License-Identifier: GPL-2.0-or-later
// What the main() of each program here does: an exception that nobody expected ends in a message and a
// failure.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace singularity {

// run: the program; its result, or EXIT_FAILURE after an exception, is the exit status.
inline int guarded_main(int (*run)(int, char **), int argc, char **argv) noexcept {
    try {
        return run(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
        return EXIT_FAILURE;
    }
}

} // namespace singularity
