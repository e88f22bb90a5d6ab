// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/config.hpp"

#include "common/settings.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <tuple>

#include <fmt/format.h>

namespace singularity::softgpu::driver {

namespace {

// A size in bytes, with K, M, G or T for powers of 1024.
struct Bytes {
    std::uint64_t least;
    std::uint64_t most;
};

constexpr std::array<std::pair<char, unsigned>, 4> kUnits{{{'K', 10}, {'M', 20}, {'G', 30}, {'T', 40}}};

[[nodiscard]] std::string to_yaml(const Bytes & /*type*/, std::uint64_t value) {
    for (auto unit = kUnits.rbegin(); unit != kUnits.rend(); ++unit)
        if (value != 0 && value % (std::uint64_t{1} << unit->second) == 0)
            return fmt::format("{}{}", value >> unit->second, unit->first);
    return fmt::format("{}", value);
}

[[nodiscard]] std::string expected(const Bytes &type) {
    return fmt::format("a number of bytes from {} to {}, with or without K, M, G or T",
                       to_yaml(type, type.least), to_yaml(type, type.most));
}

[[nodiscard]] std::optional<std::uint64_t> value_of(const Bytes &type, const settings::Scalar &scalar) {
    std::string_view digits = scalar.text;
    unsigned shift = 0;
    for (const auto &[suffix, bits] : kUnits)
        if (digits.ends_with(suffix) || digits.ends_with(static_cast<char>(suffix + ('a' - 'A'))))
            shift = bits;
    if (shift != 0)
        digits.remove_suffix(1);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() || value > (type.most >> shift))
        return std::nullopt;
    value <<= shift;
    return value < type.least ? std::nullopt : std::optional(value);
}

// major.minor
struct Version {};

[[nodiscard]] std::string expected(const Version & /*type*/) {
    return "a compute capability from 5.0 to 99.9, as in 9.0";
}

[[nodiscard]] std::optional<ComputeCapability> value_of(const Version & /*type*/,
                                                        const settings::Scalar &scalar) {
    ComputeCapability found;
    const char *const last = scalar.text.data() + scalar.text.size();
    const auto major = std::from_chars(scalar.text.data(), last, found.major);
    if (major.ec != std::errc{} || major.ptr == last || *major.ptr != '.')
        return std::nullopt;
    const auto minor = std::from_chars(major.ptr + 1, last, found.minor);
    if (minor.ec != std::errc{} || minor.ptr != last || found.major < 5 || found.major > 99 ||
        found.minor > 9)
        return std::nullopt;
    return found;
}

using settings::Choice;
using settings::Integer;
using settings::Key;
using settings::Text;

constexpr Bytes kMemory{std::uint64_t{16} << 20U, std::uint64_t{1} << 40U};
// Above every architecture that CUDA's libraries carry machine code for, so that they fall back to PTX.
constexpr ComputeCapability kCapability{13, 0};

constexpr std::array<std::pair<std::string_view, CompilerMode>, 3> kCompilers{
    {{"interpreter", CompilerMode::interpreter},
     {"compiler", CompilerMode::compiler},
     {"both", CompilerMode::both}}};

constexpr std::array<std::pair<std::string_view, Addresses>, 2> kWhoseAddresses{
    {{"own", Addresses::own}, {"system", Addresses::system}}};

// clang-format off: one line per key
constexpr std::tuple kKeys{
    Key{"devices",            Integer{1, 64},   std::int64_t{1},         [](auto &c) -> auto & { return c.devices; }},
    Key{"memory",             kMemory,          std::uint64_t{16} << 30U, [](auto &c) -> auto & { return c.memory; }},
    Key{"name",               Text{1, 255},     std::string_view("Singularity Software GPU"), [](auto &c) -> auto & { return c.name; }},
    Key{"compute_capability", Version{},        kCapability,             [](auto &c) -> auto & { return c.compute_capability; }},
    Key{"compiler",           Choice{kCompilers}, CompilerMode::interpreter, [](auto &c) -> auto & { return c.compiler; }},
    Key{"addresses",          Choice{kWhoseAddresses}, Addresses::own,        [](auto &c) -> auto & { return c.addresses; }},
    Key{"fault_file",         Text{0, 4000},    std::string_view(),      [](auto &c) -> auto & { return c.fault_file; }},
    Key{"threads",            Integer{0, 1024}, std::int64_t{0},         [](auto &c) -> auto & { return c.threads; }},
};
// clang-format on

std::string variable_of(std::string_view key) {
    std::string name = "SINGULARITY_SOFTGPU_";
    std::ranges::transform(key, std::back_inserter(name), [](char c) {
        return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    return name;
}

Expected<std::string> content(const char *path) {
    std::ifstream file(path, std::ios::binary);
    if (!file)
        return std::unexpected(errno_error("read", path));
    return std::string(std::istreambuf_iterator<char>(file), {});
}

} // namespace

Expected<Config> read_config(const Environment &environment) {
    Config config;
    settings::set_defaults(kKeys, config);
    if (const char *path = environment("SINGULARITY_SOFTGPU_CONFIG"); path != nullptr && *path != '\0') {
        auto text = content(path);
        if (!text)
            return propagate(text);
        if (auto lines = settings::read(kKeys, config, *text, path); !lines)
            return propagate(lines);
    }
    std::optional<Error> wrong;
    const auto read = [&](const auto &key) {
        const std::string variable = variable_of(key.name);
        const char *text = environment(variable.c_str());
        if (wrong || text == nullptr || *text == '\0')
            return;
        // As if in quotes where the type is text: a device may be called "true".
        auto value = value_of(key.type, settings::Scalar{text, key.name == "name"});
        if (value)
            key.member(config) = *std::move(value);
        else
            wrong = Error{"use", variable,
                          fmt::format("expected {}, found {}", expected(key.type), quote(text)), 0};
    };
    std::apply([&](const auto &...key) { (read(key), ...); }, kKeys);
    if (wrong)
        return std::unexpected(*std::move(wrong));
    return config;
}

std::vector<unsigned> visible_devices(const char *list, const std::vector<std::string> &uuids) {
    std::vector<unsigned> out;
    if (list == nullptr) {
        for (unsigned ordinal = 0; ordinal < uuids.size(); ++ordinal)
            out.push_back(ordinal);
        return out;
    }
    std::string_view rest = list;
    while (!rest.empty()) {
        std::string_view entry = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
        while (entry.starts_with(' '))
            entry.remove_prefix(1);
        while (entry.ends_with(' '))
            entry.remove_suffix(1);
        unsigned ordinal = static_cast<unsigned>(uuids.size());
        if (entry.starts_with("GPU-")) {
            // A prefix is enough if only one device has it.
            const auto matches = [&](const std::string &uuid) { return uuid.starts_with(entry); };
            if (std::ranges::count_if(uuids, matches) == 1)
                ordinal = static_cast<unsigned>(std::ranges::find_if(uuids, matches) - uuids.begin());
        } else {
            const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), ordinal);
            if (error != std::errc{} || end != entry.data() + entry.size())
                ordinal = static_cast<unsigned>(uuids.size());
        }
        if (ordinal >= uuids.size())
            break;
        if (std::ranges::contains(out, ordinal))
            return {};
        out.push_back(ordinal);
    }
    return out;
}

} // namespace singularity::softgpu::driver
