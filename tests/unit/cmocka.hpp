// SPDX-License-Identifier: GPL-2.0-or-later
// cmocka 1.1.5 to 2.0 for C++. Every test includes this and never <cmocka.h>:
//   - before 2.0 cmocka.h needs C headers in front of it and extern "C" around it;
//   - its macros fail(), skip(), stop() and mock() are names of members in the standard library, whose
//     headers may come after this one: functions replace them.
// A failed assertion leaves the test by longjmp: what the test's objects own stays behind.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

// The C headers by their C names: cmocka.h uses jmp_buf and the like without std::.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

#undef fail
#undef fail_msg
#undef mock
#undef skip
#undef stop

namespace singularity::test {

[[noreturn]] inline void fail(std::string_view why, const char *file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
    print_error("%s\n", std::string(why).c_str());
    _fail(file, line);
    __builtin_unreachable();
}

// Ends the test as skipped; the reason is printed.
[[noreturn]] inline void skip(std::string_view why, const char *file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
    print_message("skipped: %s\n", std::string(why).c_str());
    _skip(file, line);
    __builtin_unreachable();
}

// Whether a share of the cases is enough, of every kind some: under sanitizers, where all would take minutes.
// Without them all are gone through.
inline bool is_short() noexcept { return std::getenv("SINGULARITY_TEST_SHORT") != nullptr; }

inline void expect_contains(std::string_view text, std::string_view part, const char *file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
    if (!text.contains(part))
        fail("'" + std::string(text) + "' does not contain '" + std::string(part) + "'", file, line);
}

inline void expect_equal(std::string_view found, std::string_view expected,
                         const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    if (found != expected)
        fail("found    '" + std::string(found) + "'\nexpected '" + std::string(expected) + "'", file, line);
}

} // namespace singularity::test
