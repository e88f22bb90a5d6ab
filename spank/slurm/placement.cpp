// SPDX-License-Identifier: GPL-2.0-or-later
#include "placement.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <functional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace singularity::slurm {

namespace {

// What a verb has changed, and what was there before: "required:", "excluded:n3".
constexpr const char *kPlaced = "placed";
constexpr std::string_view kRequired = "required:";
constexpr std::string_view kExcluded = "excluded:";

// The user's own wishes, without what the last verb has made of them.
Wishes before_last_verb(Wishes wishes, const Note &note, Change &change) {
    const auto placed = note.get(kPlaced);
    if (placed.starts_with(kRequired)) {
        wishes.required_nodes = placed.substr(kRequired.size());
        change.required_nodes = wishes.required_nodes;
    } else if (placed.starts_with(kExcluded)) {
        wishes.excluded_nodes = placed.substr(kExcluded.size());
        change.excluded_nodes = wishes.excluded_nodes;
    }
    return wishes;
}

} // namespace

Expected<Placement> place(const std::optional<Verb> &verb, const Wishes &wishes, Note note) {
    Change change;
    const auto own = before_last_verb(wishes, note, change);
    note.set(kPlaced, "");
    if (verb && verb->kind == Verb::Kind::kMigrate && !verb->node.empty()) {
        change.required_nodes = verb->node;
        note.set(kPlaced, fmt::format("{}{}", kRequired, own.required_nodes));
    } else if (verb && verb->kind == Verb::Kind::kMigrate) {
        const auto left = note.get("nodes");
        if (left.empty())
            return failure("migrate", "the job", "nobody knows where it has run: name a node", ENODATA);
        change.excluded_nodes =
            fmt::format("{}{}{}", own.excluded_nodes, own.excluded_nodes.empty() ? "" : ",", left);
        note.set(kPlaced, fmt::format("{}{}", kExcluded, own.excluded_nodes));
    } else if (verb && verb->kind == Verb::Kind::kResize) {
        if (auto checked = check_size(verb->gpus, note); !checked)
            return propagate(checked);
        auto gpus = with_gpus(own.gpus, verb->gpus);
        if (!gpus)
            return propagate(gpus);
        change.gpus = std::move(*gpus);
    }
    return Placement{.change = std::move(change), .note = std::move(note)};
}

Expected<void> check_size(std::uint32_t gpus, const Note &note) {
    const auto range = note.get("elastic");
    const auto hyphen = std::min(range.find('-'), range.size());
    const auto outside = [&](std::string_view text, auto compare) {
        std::uint32_t limit = 0;
        const auto [end, error] = std::from_chars(text.begin(), text.end(), limit);
        return error == std::errc() && end == text.end() && compare(gpus, limit);
    };
    const std::string_view whole(range);
    if (outside(whole.substr(0, hyphen), std::less<>()) ||
        outside(whole.substr(std::min(whole.size(), hyphen + 1)), std::greater<>()))
        return failure("resize", "the job",
                       fmt::format("to {} GPUs: it was submitted with --singularity-elastic={}", gpus, range),
                       ERANGE);
    return {};
}

} // namespace singularity::slurm
