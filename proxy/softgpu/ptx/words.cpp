// SPDX-License-Identifier: GPL-2.0-or-later
#include "ptx/words.hpp"

#include <array>
#include <span>

namespace singularity::ptx {

namespace {

// NOLINTBEGIN(bugprone-macro-parentheses): NAME is declared
#define SINGULARITY_PTX_LIST(NAME, LIST)                                                                     \
    constexpr auto NAME = std::to_array<std::string_view>({std::string_view(), LIST(SINGULARITY_PTX_WORD)})
// NOLINTEND(bugprone-macro-parentheses)
SINGULARITY_PTX_LIST(kTypes, SINGULARITY_PTX_TYPES);
SINGULARITY_PTX_LIST(kRoundings, SINGULARITY_PTX_ROUNDINGS);
SINGULARITY_PTX_LIST(kComparisons, SINGULARITY_PTX_COMPARISONS);
SINGULARITY_PTX_LIST(kOperations, SINGULARITY_PTX_OPERATIONS);
SINGULARITY_PTX_LIST(kModes, SINGULARITY_PTX_MODES);
SINGULARITY_PTX_LIST(kSpaces, SINGULARITY_PTX_SPACES);
SINGULARITY_PTX_LIST(kSemantics, SINGULARITY_PTX_SEMANTICS);
SINGULARITY_PTX_LIST(kScopes, SINGULARITY_PTX_SCOPES);
SINGULARITY_PTX_LIST(kCaches, SINGULARITY_PTX_CACHES);
SINGULARITY_PTX_LIST(kHints, SINGULARITY_PTX_HINTS);
SINGULARITY_PTX_LIST(kVectors, SINGULARITY_PTX_VECTORS);
SINGULARITY_PTX_LIST(kShapes, SINGULARITY_PTX_SHAPES);
SINGULARITY_PTX_LIST(kGeometries, SINGULARITY_PTX_GEOMETRIES);
SINGULARITY_PTX_LIST(kFlags, SINGULARITY_PTX_FLAGS);
static_assert(kFlags.size() - 1 <= kMostFlags, "flags are bits of a word");

// In the order of Field.
constexpr std::array<std::span<const std::string_view>, 14> kFieldWords = {
    kTypes,  kRoundings, kComparisons, kOperations, kModes,  kSpaces,     kSemantics,
    kScopes, kCaches,    kHints,       kVectors,    kShapes, kGeometries, kFlags};
static_assert(kFieldWords.size() == static_cast<std::size_t>(Field::flag) + 1);

struct TypeTraits {
    std::uint8_t size;
    char number; // u, s, f or b
};

constexpr TypeTraits traits(std::string_view name) {
    std::size_t digits = name.find_first_of("0123456789");
    if (name == "pred")
        return {1, 'b'};
    if (name.ends_with("ref") || digits == std::string_view::npos)
        return {0, 'b'};
    const bool small = name.starts_with('e') || name.starts_with("ue"); // e4m3x2: eight bits each
    if (small)
        return {static_cast<std::uint8_t>(name.ends_with("x4") ? 4 : name.ends_with("x2") ? 2 : 1), 'f'};
    unsigned bits = 0;
    for (; digits < name.size() && name[digits] != 'x'; ++digits)
        bits = bits * 10 + static_cast<unsigned>(name[digits] - '0');
    if (name.ends_with("x2"))
        bits *= 2;
    const char number = name.find('f') != std::string_view::npos ? 'f' : name.front();
    return {static_cast<std::uint8_t>((bits + 7) / 8), number};
}

constexpr auto kTraits = [] {
    std::array<TypeTraits, kTypes.size()> all{};
    for (std::size_t i = 1; i < all.size(); ++i)
        all[i] = traits(kTypes[i]);
    return all;
}();
static_assert(kTraits[static_cast<std::size_t>(Type::bf16x2)].size == 4);
static_assert(kTraits[static_cast<std::size_t>(Type::b128)].size == 16);
static_assert(kTraits[static_cast<std::size_t>(Type::tf32)].size == 4);

} // namespace

std::optional<std::uint8_t> word_value(Field field, std::string_view word) {
    const auto &list = kFieldWords[static_cast<std::size_t>(field)];
    for (std::size_t i = 1; i < list.size(); ++i)
        if (list[i] == word)
            return static_cast<std::uint8_t>(i);
    return std::nullopt;
}

std::string_view word_text(Field field, std::uint8_t value) {
    const auto &list = kFieldWords[static_cast<std::size_t>(field)];
    return value < list.size() ? list[value] : std::string_view("?");
}

std::uint32_t type_size(Type type) { return kTraits[static_cast<std::size_t>(type)].size; }
bool is_float(Type type) { return kTraits[static_cast<std::size_t>(type)].number == 'f'; }
bool is_signed(Type type) { return kTraits[static_cast<std::size_t>(type)].number == 's'; }

} // namespace singularity::ptx
