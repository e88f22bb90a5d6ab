// SPDX-License-Identifier: GPL-2.0-or-later
#include "changes.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

namespace singularity::test {

namespace {

constexpr std::size_t kLongestMessage = 60000; // a part's length has 16 bits

// Numbers at the edge of something, and words that mean something to one parser or another.
constexpr std::array<std::uint64_t, 16> kEdges{0,
                                               1,
                                               2,
                                               0x7f,
                                               0x80,
                                               0xff,
                                               0xffff,
                                               0x10000,
                                               0x7fffffff,
                                               0x80000000,
                                               0xffffffff,
                                               0x100000001,
                                               0x7fffffffffffffff,
                                               0x8000000000000000,
                                               0xfffffffffffff000,
                                               0xffffffffffffffff};
constexpr std::array<std::string_view, 26> kWords{"/",
                                                  "//",
                                                  "..",
                                                  "/../",
                                                  ",",
                                                  "-",
                                                  "0",
                                                  "4294967295",
                                                  "4294967296",
                                                  "18446744073709551615",
                                                  "99999999999999999999",
                                                  "\n",
                                                  " ",
                                                  "\t",
                                                  "=",
                                                  ":",
                                                  "(",
                                                  ")",
                                                  "[",
                                                  "]",
                                                  "\\040",
                                                  "\xff",
                                                  "#",
                                                  "'",
                                                  "*",
                                                  "%s"};

std::ptrdiff_t offset(std::uint64_t at) { return static_cast<std::ptrdiff_t>(at); }

} // namespace

std::vector<Part> Changes::input() {
    auto parts = any_good();
    for (auto changes = below(5); changes > 0; --changes)
        change(parts);
    return parts;
}

const std::vector<Part> &Changes::any_good() {
    static const std::vector<Part> kNone;
    const auto &good = good_inputs();
    return good.empty() ? kNone : good[below(good.size())];
}

void Changes::change(std::vector<Part> &parts) {
    constexpr unsigned kOneOf = 8;
    if (parts.empty() || below(kOneOf) == 0)
        return change_row(parts);
    change_bytes(parts[below(parts.size())].message);
}

void Changes::change_row(std::vector<Part> &parts) {
    const auto &other = any_good();
    const auto what = parts.empty() ? 0 : below(5);
    const auto at = below(parts.size());
    switch (what) {
    case 0:
        if (!other.empty())
            parts.insert(parts.begin() + offset(below(parts.size() + 1)), other[below(other.size())]);
        break;
    case 1:
        parts.erase(parts.begin() + offset(at));
        break;
    case 2:
        parts.insert(parts.begin() + offset(at), Part(parts[at]));
        break;
    case 3:
        std::swap(parts[at], parts[below(parts.size())]);
        break;
    default: // what is meant for one is given to another
        if (below(2) == 0)
            parts[at].flags = static_cast<std::uint8_t>(random_());
        else if (!other.empty())
            parts[at].slot = other[below(other.size())].slot;
        break;
    }
}

void Changes::change_bytes(Bytes &bytes) {
    if (bytes.empty())
        bytes.push_back(static_cast<std::uint8_t>(random_()));
    const auto at = below(bytes.size());
    const auto begin = bytes.begin() + offset(at);
    const auto end = begin + offset(std::min<std::uint64_t>(bytes.size() - at, 1 + below(40)));
    switch (below(8)) {
    case 0:
        *begin = static_cast<std::uint8_t>(*begin ^ (1U << below(8)));
        break;
    case 1:
        *begin = static_cast<std::uint8_t>(random_());
        break;
    case 2:
        bytes.erase(begin, end);
        break;
    case 3: {
        const Bytes copy(begin, end);
        bytes.insert(bytes.begin() + offset(below(bytes.size() + 1)), copy.begin(), copy.end());
        break;
    }
    case 4:
        bytes.resize(at);
        break;
    case 5: {
        const auto word = kWords.at(below(kWords.size()));
        bytes.insert(begin, word.begin(), word.end());
        break;
    }
    default:
        change_number(bytes);
        break;
    }
    bytes.resize(std::min(bytes.size(), kLongestMessage));
}

void Changes::change_number(Bytes &bytes) {
    const auto value = kEdges.at(below(kEdges.size()));
    const std::size_t size = std::size_t{1} << below(4);
    if (bytes.size() < size)
        return;
    std::memcpy(bytes.data() + below(bytes.size() - size + 1), &value, size);
}

std::vector<Part> made_input(std::uint64_t seed) { return Changes(seed).input(); }

void change(std::vector<Part> &parts, std::uint64_t seed, unsigned changes) {
    Changes changer(seed);
    for (; changes > 0; --changes)
        changer.change(parts);
}

} // namespace singularity::test
