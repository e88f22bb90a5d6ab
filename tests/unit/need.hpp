// SPDX-License-Identifier: GPL-2.0-or-later
// What a test cannot do without.
#pragma once

#include "cmocka.hpp"
#include "common/error.hpp"

#include <type_traits>
#include <utility>

namespace singularity::test {

// The value; the error ends the test.
template <class T>
T need(Expected<T> value, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    if (!value)
        fail(value.error().message(), file, line);
    if constexpr (!std::is_void_v<T>)
        return std::move(*value);
}

} // namespace singularity::test
