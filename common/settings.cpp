// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/settings.hpp"

#include "yaml.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <iterator>
#include <limits>
#include <ranges>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h> // join, since fmt 11

namespace singularity::settings {
namespace {

using std::chrono::milliseconds;

bool is_null(const Scalar &scalar) {
    return !scalar.quoted && (scalar.text.empty() || scalar.text == "~" || scalar.text == "null");
}

std::optional<std::int64_t> whole_number(std::string_view text) {
    const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
    if (digits.empty() || (digits.front() == '0' && text != "0"))
        return std::nullopt;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size())
        return std::nullopt;
    return value;
}

// Longest first: the first that divides a duration is the one to print it in. The last whose suffix a text
// ends with is the one it is written in ("s" ends "ms" as well).
struct Unit {
    std::string_view suffix;
    milliseconds length;
};
constexpr std::array<Unit, 4> kUnits{{{"h", std::chrono::hours(1)},
                                      {"m", std::chrono::minutes(1)},
                                      {"s", std::chrono::seconds(1)},
                                      {"ms", milliseconds(1)}}};

std::string printed(milliseconds value) {
    for (const Unit &unit : kUnits) {
        if (value != milliseconds::zero() && value % unit.length == milliseconds::zero())
            return fmt::format("{}{}", value / unit.length, unit.suffix);
    }
    return "0s";
}

// In YAML's double quotes. Control characters are not in it: no type accepts them.
std::string in_quotes(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            out += '\\';
        out += c;
    }
    return out + '"';
}

bool is_one_line(std::string_view text) { return escaped(text) == text; }

std::string_view section_of(std::string_view name) {
    const auto dot = name.find('.');
    return dot == std::string_view::npos ? std::string_view{} : name.substr(0, dot);
}

std::string_view key_of(std::string_view name) { return name.substr(name.find('.') + 1); }

std::string found(const yaml::Node &node) {
    switch (node.kind) {
    case yaml::Node::Kind::kMapping:
        return "a section";
    case yaml::Node::Kind::kSequence:
        return "a list";
    case yaml::Node::Kind::kScalar:
        break;
    }
    if (is_null({node.text, node.quoted}))
        return "nothing";
    return node.quoted ? fmt::format("the string {}", quote(node.text)) : quote(node.text);
}

// The names that may stand where the node stands: sections for a section, keys for anything else. A key is
// also looked for by its own name alone, for one that was written in the wrong section.
std::string suggestion(std::span<const Row> rows, const yaml::Node &node) {
    std::vector<std::string_view> names;
    for (const Row &row : rows) {
        if (node.kind != yaml::Node::Kind::kMapping)
            names.push_back(row.name);
        else if (!section_of(row.name).empty())
            names.push_back(section_of(row.name));
    }
    const auto own_name =
        std::ranges::find_if(names, [&node](auto name) { return key_of(name) == key_of(node.name); });
    const std::string_view name = own_name != names.end() ? *own_name : nearest(node.name, names);
    if (name == node.name)
        return fmt::format("write '{}:' indented under '{}:'", key_of(name), section_of(name));
    return fmt::format("did you mean {}?", name);
}

std::string keys_of_section(std::span<const Row> rows, std::string_view section) {
    std::vector<std::string_view> keys;
    for (const Row &row : rows) {
        if (section_of(row.name) == section)
            keys.push_back(key_of(row.name));
    }
    return fmt::format("{}", fmt::join(keys, ", "));
}

// Why the node is refused, nothing if it is not.
std::optional<std::string> refusal(std::span<const Row> rows, const yaml::Node &node) {
    // A name with a dot in one key would be taken for a key in a section.
    const bool dotted = node.key.contains('.');
    if (const auto row = std::ranges::find(rows, node.name, &Row::name); row != rows.end() && !dotted) {
        const Scalar scalar{node.text, node.quoted};
        if (node.kind == yaml::Node::Kind::kScalar && !is_null(scalar) && row->assign(scalar))
            return std::nullopt;
        return fmt::format("expected {}, found {}", row->expected, found(node));
    }
    // Rows at the top have the section "", which no file can name.
    const auto in_section = [&node](const Row &row) { return section_of(row.name) == node.name; };
    const bool section = !dotted && !node.name.empty() && std::ranges::any_of(rows, in_section);
    if (!section)
        return fmt::format("unknown key, {}", suggestion(rows, node));
    // A section whose keys are all commented out is a null.
    const bool empty = node.kind == yaml::Node::Kind::kScalar && is_null({node.text, node.quoted});
    if (node.kind == yaml::Node::Kind::kMapping || empty)
        return std::nullopt;
    return fmt::format("expected a section with the keys {}, found {}", keys_of_section(rows, node.name),
                       found(node));
}

} // namespace

std::string expected(const Boolean & /*type*/) { return "true or false"; }

std::optional<bool> value_of(const Boolean & /*type*/, const Scalar &scalar) {
    if (scalar.quoted || (scalar.text != "true" && scalar.text != "false"))
        return std::nullopt;
    return scalar.text == "true";
}

std::string to_yaml(const Boolean & /*type*/, bool value) { return value ? "true" : "false"; }

std::string expected(const Integer &type) {
    return fmt::format("a whole number from {} to {}", type.least, type.most);
}

std::optional<std::int64_t> value_of(const Integer &type, const Scalar &scalar) {
    const auto value = scalar.quoted ? std::nullopt : whole_number(scalar.text);
    return value && *value >= type.least && *value <= type.most ? value : std::nullopt;
}

std::string to_yaml(const Integer & /*type*/, std::int64_t value) { return fmt::format("{}", value); }

std::string expected(const Duration &type) {
    return fmt::format("a duration from {} to {}, a whole number with the unit ms, s, m or h",
                       printed(type.least), printed(type.most));
}

std::optional<milliseconds> value_of(const Duration &type, const Scalar &scalar) {
    const auto by_suffix = [&scalar](const Unit &unit) { return scalar.text.ends_with(unit.suffix); };
    const auto units = std::views::reverse(kUnits);
    const auto unit = std::ranges::find_if(units, by_suffix);
    if (unit == units.end())
        return std::nullopt;
    const auto count = whole_number(scalar.text.substr(0, scalar.text.size() - unit->suffix.size()));
    // The range is compared in the unit: the product of a large number and the unit would overflow.
    if (!count || *count > type.most / unit->length)
        return std::nullopt;
    if (*count < 0 || *count * unit->length < type.least)
        return std::nullopt;
    return *count * unit->length;
}

std::string to_yaml(const Duration & /*type*/, milliseconds value) { return printed(value); }

std::string expected(const AbsolutePath &type) {
    return type.may_be_empty ? "an absolute path, or ''" : "an absolute path";
}

std::optional<std::filesystem::path> value_of(const AbsolutePath &type, const Scalar &scalar) {
    if (type.may_be_empty && scalar.text.empty())
        return std::filesystem::path();
    if (!scalar.text.starts_with('/') || scalar.text.size() >= PATH_MAX || !is_one_line(scalar.text))
        return std::nullopt;
    return scalar.text;
}

std::string to_yaml(const AbsolutePath & /*type*/, const std::filesystem::path &value) {
    return in_quotes(value.native());
}

std::string expected(const AbsolutePaths &type) {
    return fmt::format("at most {} different absolute paths, with colons between them, or ''", type.most);
}

std::optional<std::vector<std::filesystem::path>> value_of(const AbsolutePaths &type, const Scalar &scalar) {
    std::vector<std::filesystem::path> out;
    for (auto left = scalar.text; !left.empty();) {
        const auto end = std::min(left.find(':'), left.size());
        const auto path = value_of(AbsolutePath{}, Scalar{.text = left.substr(0, end), .quoted = true});
        if (!path || end + 1 == left.size() || std::ranges::find(out, *path) != out.end() ||
            out.size() == type.most)
            return std::nullopt;
        out.push_back(*path);
        left.remove_prefix(std::min(end + 1, left.size()));
    }
    return out;
}

std::string to_yaml(const AbsolutePaths & /*type*/, const std::vector<std::filesystem::path> &value) {
    std::string list;
    for (const auto &path : value)
        list.append(list.empty() ? "" : ":").append(path.native());
    return in_quotes(list);
}

std::string expected(const Text &type) {
    return fmt::format("one line of {} to {} bytes without control characters", type.least_bytes,
                       type.most_bytes);
}

std::optional<std::string> value_of(const Text &type, const Scalar &scalar) {
    if (scalar.text.size() < type.least_bytes || scalar.text.size() > type.most_bytes ||
        !is_one_line(scalar.text))
        return std::nullopt;
    return std::string(scalar.text);
}

std::string to_yaml(const Text & /*type*/, std::string_view value) { return in_quotes(value); }

Expected<Lines> read(std::span<const Row> rows, std::string_view text, std::string_view file_name) {
    auto nodes = yaml::read(text, file_name);
    if (!nodes)
        return propagate(nodes);
    Lines lines;
    for (const yaml::Node &node : *nodes) {
        if (const auto why = refusal(rows, node))
            return std::unexpected(yaml::error_at(file_name, node.line, node.name, *why));
        lines.emplace(node.name, node.line);
    }
    return lines;
}

std::string to_yaml(std::span<const std::pair<std::string_view, std::string>> values) {
    std::string out;
    std::string_view open_section;
    for (const auto &[name, value] : values) {
        const std::string_view section = section_of(name);
        if (section != open_section && !section.empty())
            fmt::format_to(std::back_inserter(out), "{}:\n", section);
        open_section = section;
        fmt::format_to(std::back_inserter(out), "{}{}: {}\n", section.empty() ? "" : "  ", key_of(name),
                       value);
    }
    return out;
}

} // namespace singularity::settings
