// SPDX-License-Identifier: GPL-2.0-or-later
// What must never be, whatever the input: the program ends, and the fuzzer keeps the input.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace singularity::test {

inline void expect(bool condition, const char *what, const char *file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
    if (condition)
        return;
    std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
    std::abort();
}

} // namespace singularity::test
