// SPDX-License-Identifier: GPL-2.0-or-later
// Subjects that are tables of parsers: a part's slot says which parser reads its message. table.cpp makes of
// such a table what subject.hpp asks for.
#pragma once

#include "expect.hpp"

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::test {

struct Parser {
    std::string name;
    // Whether it believes them; then what it has made of them has been used as its callers do.
    bool (*reads)(std::string_view bytes);
    std::vector<std::string> good;
};

// At most 255, each with a good input.
[[nodiscard]] std::vector<Parser> parsers();

// For parsers that take several texts: what zeros separate. The last has the rest.
[[nodiscard]] std::vector<std::string_view> texts_in(std::string_view bytes, std::size_t count);
[[nodiscard]] std::string texts(std::initializer_list<std::string_view> all);

} // namespace singularity::test
