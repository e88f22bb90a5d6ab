// SPDX-License-Identifier: GPL-2.0-or-later
// Settings as a table: one row per key says its name, type, default and where the value goes. Reading,
// checking, printing and the words of every error come from the row.
//
//     constexpr std::tuple kKeys{
//         Key{"elastic.enabled", Boolean{}, true, [](auto &c) -> auto & { return c.elastic.enabled; }},
//         Key{"elastic.min_gpus", Integer{1, 1024}, 1, [](auto &c) -> auto & { return c.elastic.min_gpus; }},
//     };
#pragma once

#include "common/error.hpp"
#include "common/text.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace singularity::settings {

// A value as the file has it. `quoted`: in quotes or in a block, which YAML takes for a string whatever it
// says.
struct Scalar {
    std::string_view text;
    bool quoted = false;
};

// A type is a struct T with three functions beside it:
//     std::string expected(const T &)                          completes "expected ..."
//     std::optional<Value> value_of(const T &, const Scalar &)  nothing if the scalar is not as expected
//     std::string to_yaml(const T &, const Value &)             value_of() makes the same value of it

// true or false; not yes, on and the like, about which YAML 1.1 and 1.2 disagree.
struct Boolean {};
[[nodiscard]] std::string expected(const Boolean &type);
[[nodiscard]] std::optional<bool> value_of(const Boolean &type, const Scalar &scalar);
[[nodiscard]] std::string to_yaml(const Boolean &type, bool value);

// Decimal without leading zeros, which YAML 1.1 takes for octal.
struct Integer {
    std::int64_t least;
    std::int64_t most;
};
[[nodiscard]] std::string expected(const Integer &type);
[[nodiscard]] std::optional<std::int64_t> value_of(const Integer &type, const Scalar &scalar);
[[nodiscard]] std::string to_yaml(const Integer &type, std::int64_t value);

// A whole number with one of the units ms, s, m, h.
struct Duration {
    std::chrono::milliseconds least;
    std::chrono::milliseconds most;
};
[[nodiscard]] std::string expected(const Duration &type);
[[nodiscard]] std::optional<std::chrono::milliseconds> value_of(const Duration &type, const Scalar &scalar);
[[nodiscard]] std::string to_yaml(const Duration &type, std::chrono::milliseconds value);

struct AbsolutePath {
    bool may_be_empty = false;
};
[[nodiscard]] std::string expected(const AbsolutePath &type);
[[nodiscard]] std::optional<std::filesystem::path> value_of(const AbsolutePath &type, const Scalar &scalar);
[[nodiscard]] std::string to_yaml(const AbsolutePath &type, const std::filesystem::path &value);

// As in PATH: with colons between them. None, or at most `most`, each once.
struct AbsolutePaths {
    std::size_t most;
};
[[nodiscard]] std::string expected(const AbsolutePaths &type);
[[nodiscard]] std::optional<std::vector<std::filesystem::path>> value_of(const AbsolutePaths &type,
                                                                         const Scalar &scalar);
[[nodiscard]] std::string to_yaml(const AbsolutePaths &type, const std::vector<std::filesystem::path> &value);

// UTF-8 without control characters.
struct Text {
    std::size_t least_bytes;
    std::size_t most_bytes;
};
[[nodiscard]] std::string expected(const Text &type);
[[nodiscard]] std::optional<std::string> value_of(const Text &type, const Scalar &scalar);
[[nodiscard]] std::string to_yaml(const Text &type, std::string_view value);

// One of some words, each with its value.
template <class Value, std::size_t N>
struct Choice {
    std::array<std::pair<std::string_view, Value>, N> words;
};
template <class Value, std::size_t N>
[[nodiscard]] std::string expected(const Choice<Value, N> &type) {
    std::string list;
    for (const auto &[word, value] : type.words)
        list.append(list.empty() ? "one of " : ", ").append(word);
    return list;
}
template <class Value, std::size_t N>
[[nodiscard]] std::optional<Value> value_of(const Choice<Value, N> &type, const Scalar &scalar) {
    for (const auto &[word, value] : type.words) {
        if (word == scalar.text)
            return value;
    }
    return std::nullopt;
}
template <class Value, std::size_t N>
[[nodiscard]] std::string to_yaml(const Choice<Value, N> &type, const Value &value) {
    for (const auto &[word, candidate] : type.words) {
        if (candidate == value)
            return std::string(word);
    }
    return {};
}

// One row. The section comes before the dot; a key without one stands at the top. Member: Settings & -> the
// member.
template <class Type, class Default, class Member>
struct Key {
    std::string_view name;
    Type type;
    Default default_value;
    Member member;
};
template <class Type, class Default, class Member>
Key(std::string_view, Type, Default, Member) -> Key<Type, Default, Member>;

// A key with its type taken away: what the reader needs of a row.
struct Row {
    std::string_view name;
    std::string expected;
    std::function<bool(const Scalar &)> assign; // false: the scalar is not as expected
};

// The keys that a file sets, each with its line.
using Lines = std::map<std::string, std::size_t, std::less<>>;

// Reads the text and assigns what it sets. The error names file, line, key, what was expected and what was
// found; for a key that no row has, also the nearest that one has. `file_name` is for messages. After an
// error some values may have been assigned.
[[nodiscard]] Expected<Lines> read(std::span<const Row> rows, std::string_view text,
                                   std::string_view file_name);

template <class Settings, class... Keys>
[[nodiscard]] Expected<Lines> read(const std::tuple<Keys...> &keys, Settings &settings, std::string_view text,
                                   std::string_view file_name) {
    const auto row = [&settings](const auto &key) {
        return Row{key.name, expected(key.type), [&settings, &key](const Scalar &scalar) {
                       auto value = value_of(key.type, scalar);
                       if (!value)
                           return false;
                       key.member(settings) = *std::move(value);
                       return true;
                   }};
    };
    const auto rows = std::apply([&row](const auto &...key) { return std::vector<Row>{row(key)...}; }, keys);
    return read(std::span(rows), text, file_name);
}

template <class Settings, class... Keys>
void set_defaults(const std::tuple<Keys...> &keys, Settings &settings) {
    std::apply([&settings](const auto &...key) { ((key.member(settings) = key.default_value), ...); }, keys);
}

// The text that sets these names to these values, keys of one section under its name. Keys of a section must
// be neighbours.
[[nodiscard]] std::string to_yaml(std::span<const std::pair<std::string_view, std::string>> values);

template <class Settings, class... Keys>
[[nodiscard]] std::string to_yaml(const std::tuple<Keys...> &keys, const Settings &settings) {
    using Values = std::vector<std::pair<std::string_view, std::string>>;
    const auto values = std::apply(
        [&settings](const auto &...key) {
            return Values{{key.name, to_yaml(key.type, key.member(settings))}...};
        },
        keys);
    return to_yaml(std::span(values));
}

} // namespace singularity::settings
