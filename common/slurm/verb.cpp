// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/slurm/verb.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>

#include <fmt/format.h>

namespace singularity::slurm {

namespace {

constexpr std::string_view kPrefix = "singularity:";
constexpr std::string_view kAnswer = "singularity: ";
constexpr std::string_view kVerbs =
    "singularity:migrate, singularity:migrate=NODE, singularity:resize=GPUS or singularity:checkpoint";
constexpr std::size_t kLongestName = 255;
constexpr std::uint32_t kMostGpus = 1U << 20;

bool is_node_name(std::string_view text) {
    const auto fits = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
               c == '_' || c == '.';
    };
    return !text.empty() && text.size() <= kLongestName && std::ranges::all_of(text, fits);
}

std::unexpected<Error> wrong(std::string_view comment, std::string_view why) {
    return failure("understand", "the comment", fmt::format("{} {}", quote(comment), why), EINVAL);
}

} // namespace

Expected<std::optional<Verb>> parse_verb(std::string_view comment) {
    if (!comment.starts_with(kPrefix) || is_answer(comment))
        return std::nullopt;
    const auto text = comment.substr(kPrefix.size());
    const auto equals = text.find('=');
    const auto word = text.substr(0, equals);
    const bool has_value = equals != std::string_view::npos;
    const auto value = has_value ? text.substr(equals + 1) : std::string_view();
    if (word == "migrate" && has_value && !is_node_name(value))
        return wrong(comment, "names no node: give one node's NodeName");
    if (word == "migrate")
        return Verb{.kind = Verb::Kind::kMigrate, .node = std::string(value), .gpus = 0};
    if (word == "checkpoint" && !has_value)
        return Verb{.kind = Verb::Kind::kCheckpoint, .node = {}, .gpus = 0};
    if (word != "resize")
        return wrong(comment, fmt::format("asks for nothing that there is: {}", kVerbs));
    std::uint32_t gpus = 0;
    const auto [end, error] = std::from_chars(value.begin(), value.end(), gpus);
    if (error != std::errc() || end != value.end() || gpus == 0 || gpus > kMostGpus)
        return wrong(comment, fmt::format("gives no number of GPUs: 1 to {}", kMostGpus));
    return Verb{.kind = Verb::Kind::kResize, .node = {}, .gpus = gpus};
}

std::string to_comment(const Verb &verb) {
    switch (verb.kind) {
    case Verb::Kind::kResize:
        return fmt::format("{}resize={}", kPrefix, verb.gpus);
    case Verb::Kind::kCheckpoint:
        return fmt::format("{}checkpoint", kPrefix);
    default:
        return fmt::format("{}migrate{}{}", kPrefix, verb.node.empty() ? "" : "=", verb.node);
    }
}

std::string in_words(const Verb &verb) {
    switch (verb.kind) {
    case Verb::Kind::kResize:
        return fmt::format("resize to {} GPUs", verb.gpus);
    case Verb::Kind::kCheckpoint:
        return "checkpoint";
    default:
        return fmt::format("migrate{}{}", verb.node.empty() ? "" : " to ", verb.node);
    }
}

std::string answer(std::string_view words) { return fmt::format("{}{}", kAnswer, escaped(words)); }

bool is_answer(std::string_view comment) { return comment.starts_with(kAnswer); }

} // namespace singularity::slurm
