// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/slurm/placement.hpp"

#include "common/text.hpp"

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

constexpr const char *kPlan = "plan";
constexpr std::string_view kWait = "wait";

Expected<void> resize(Change &change, const Wishes &own, const Note &note, std::uint32_t gpus) {
    if (auto checked = check_size(gpus, note); !checked)
        return checked;
    auto wish = with_gpus(own.gpus, gpus);
    if (!wish)
        return propagate(wish);
    change.gpus = std::move(*wish);
    return {};
}

void require(Change &change, const Wishes &own, Note &note, const std::string &nodes) {
    change.required_nodes = nodes;
    note.set(kPlaced, fmt::format("{}{}", kRequired, own.required_nodes));
}

} // namespace

std::optional<Decision> decision_of(const Note &note) {
    const auto text = note.get(kPlan);
    if (text == kWait)
        return Decision{.waits = true, .gpus = 0, .nodes = {}};
    Decision out;
    const std::string_view whole(text);
    const auto at = std::min(whole.find('@'), whole.size());
    const auto [end, error] = std::from_chars(whole.begin(), whole.begin() + at, out.gpus);
    if (error != std::errc() || end != whole.begin() + at || out.gpus == 0)
        return std::nullopt;
    out.nodes = whole.substr(std::min(whole.size(), at + 1));
    return out;
}

Expected<void> decide(Note &note, const Decision &decision) {
    const auto text = decision.waits ? std::string(kWait)
                                     : fmt::format("{}{}{}", decision.gpus, decision.nodes.empty() ? "" : "@",
                                                   decision.nodes);
    note.set(kPlan, text);
    return note.get(kPlan) == text
               ? Expected<void>()
               : failure("note", quote(text), "it is too long, or has signs that a note cannot have", EINVAL);
}

void forget_decision(Note &note) { note.set(kPlan, ""); }

Expected<Placement> place(const std::optional<Verb> &verb, const Wishes &wishes, Note note) {
    Change change;
    const auto own = before_last_verb(wishes, note, change);
    note.set(kPlaced, "");
    const auto decision = verb ? std::nullopt : decision_of(note);
    forget_decision(note);
    if (verb && verb->kind == Verb::Kind::kMigrate && !verb->node.empty()) {
        require(change, own, note, verb->node);
    } else if (verb && verb->kind == Verb::Kind::kMigrate) {
        const auto left = note.get("nodes");
        if (left.empty())
            return failure("migrate", "the job", "nobody knows where it has run: name a node", ENODATA);
        change.excluded_nodes =
            fmt::format("{}{}{}", own.excluded_nodes, own.excluded_nodes.empty() ? "" : ",", left);
        note.set(kPlaced, fmt::format("{}{}", kExcluded, own.excluded_nodes));
    } else if (verb && verb->kind == Verb::Kind::kResize) {
        if (auto fits = check_memory(verb->gpus, note, own.memory); !fits)
            return propagate(fits);
        if (auto resized = resize(change, own, note, verb->gpus); !resized)
            return propagate(resized);
        // A checkpoint since then may have told that it does not fit; then it stays as it is, and is planned
        // anew.
    } else if (decision && !decision->waits && check_memory(decision->gpus, note, own.memory)) {
        if (auto resized = resize(change, own, note, decision->gpus); !resized)
            return propagate(resized);
        if (!decision->nodes.empty())
            require(change, own, note, decision->nodes);
    }
    return Placement{
        .change = std::move(change), .note = std::move(note), .waits = decision && decision->waits};
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
