// SPDX-License-Identifier: GPL-2.0-or-later
#include "journal.hpp"

#include "driver_api/handles.hpp"
#include "object_table.hpp"
#include "proxy/protocol/message.hpp"

#include <algorithm>
#include <utility>

namespace singularity::proxyd {

namespace {

bool is_graph(std::uint64_t handle) {
    switch (kind_of(handle)) {
    case driver_api::kHandleGraph:
    case driver_api::kHandleGraphNode:
    case driver_api::kHandleGraphExec:
    case driver_api::kHandleConditional:
        return true;
    default:
        return false;
    }
}

// Marks of addresses have bits that no handle has.
bool is_handle_of(std::uint64_t handle, unsigned kind) {
    return handle >> 62 == 0 && kind_of(handle) == kind;
}

bool any_graph(const Trace &trace) {
    const auto graph = [](std::uint64_t handle) { return handle >> 62 == 0 && is_graph(handle); };
    return std::ranges::any_of(trace.used, graph) || std::ranges::any_of(trace.made, graph) ||
           std::ranges::any_of(trace.gone, graph) || std::ranges::any_of(trace.invented, graph);
}

void append(std::vector<std::uint64_t> &to, const std::vector<std::uint64_t> &from) {
    to.insert(to.end(), from.begin(), from.end());
}

} // namespace

Journal::ObjectId Journal::find(std::uint64_t handle) const {
    if (const auto part = parts_.find(handle); part != parts_.end())
        return part->second;
    const auto found = current_.find(handle);
    return found == current_.end() ? 0 : found->second;
}

// What nodes that a call makes or names are parts of: a graph that it uses, else a node's.
Journal::ObjectId Journal::root_of(const Trace &trace) const {
    for (const unsigned kind : {driver_api::kHandleGraph, driver_api::kHandleGraphNode})
        for (const auto handle : trace.used)
            if (is_handle_of(handle, kind))
                if (const auto root = find(handle); root != 0)
                    return root;
    return 0;
}

Journal::ObjectId Journal::target_of(const Trace &trace, std::uint64_t context) const {
    for (const auto handle : trace.used)
        if (is_handle_of(handle, driver_api::kHandleGraphExec))
            return find(handle);
    for (const auto handle : trace.used)
        if (const auto object = find(handle); object != 0 && handle != context)
            return object;
    return find(context);
}

Journal::ObjectId Journal::make(std::uint64_t handle) {
    const auto id = next_object_++;
    objects_[id].handle = handle;
    current_[handle] = id;
    return id;
}

void Journal::record(const JournalRule &rule, JournalCall call, const Trace &trace) {
    const std::scoped_lock lock(lock_);
    // What is done to the graph that a capture makes is part of the capture.
    for (auto &[number, capture] : captures_)
        if (std::ranges::find_first_of(trace.used, capture.trace.invented) != trace.used.end()) {
            hold(capture, trace);
            append(capture.trace.used, trace.used);
            append(capture.trace.invented, trace.made);
            append(capture.trace.invented, trace.invented);
            capture.entry.calls.push_back(std::move(call));
            return;
        }
    const auto context = call.context;
    JournalEntry entry;
    entry.calls.push_back(std::move(call));
    record_entry(rule, std::move(entry), trace, context);
}

void Journal::record_entry(const JournalRule &rule, JournalEntry entry, const Trace &trace,
                           std::uint64_t context, ObjectId target, const std::set<ObjectId> &held) {
    entry.of_graphs = any_graph(trace);
    if (rule.effect == Effect::ends)
        return end(rule, std::move(entry), trace);
    if (rule.effect == Effect::names && trace.invented.empty())
        return;
    Kept kept;
    std::set<ObjectId> uses = held;
    for (const auto handle : trace.used)
        if (const auto object = find(handle); object != 0)
            uses.insert(object);
    if (const auto object = find(context); object != 0)
        uses.insert(object);
    const auto root = root_of(trace);
    // A graph that comes out of a node is inside of another one.
    const bool of_graph = std::ranges::any_of(
        trace.used, [](std::uint64_t handle) { return is_handle_of(handle, driver_api::kHandleGraph); });
    const auto take = [&](std::uint64_t handle, bool named) {
        const bool part = is_handle_of(handle, driver_api::kHandleGraphNode) ||
                          is_handle_of(handle, driver_api::kHandleConditional) ||
                          ((named || !of_graph) && is_handle_of(handle, driver_api::kHandleGraph));
        if (part && root != 0) {
            parts_[handle] = root;
            kept.target = root;
        } else {
            kept.makes.push_back(make(handle));
        }
    };
    for (const auto handle : trace.made)
        take(handle, false);
    for (const auto handle : trace.invented)
        take(handle, true);
    // A part that goes is no object: the call that ends it changes the whole.
    for (const auto handle : trace.gone)
        parts_.erase(handle);
    const bool change =
        rule.effect == Effect::changes || rule.effect == Effect::adds || rule.effect == Effect::updates;
    if (change)
        kept.target = target != 0 ? target : target_of(trace, context);
    if (change && kept.target == 0)
        return; // of something that is not there: it cannot be asked for again
    const auto now = next_++;
    for (const auto object : uses)
        if (object != kept.target && std::ranges::find(kept.makes, object) == kept.makes.end())
            kept.uses.push_back(object);
    std::vector<ObjectId> loose;
    if (rule.effect == Effect::updates) {
        // The whole executable graph is what the other graph says: earlier changes of nodes are void.
        const auto own = objects_[kept.target].entries;
        for (const auto sequence : own)
            if (const auto &other = kept_.at(sequence); other.target == kept.target && other.makes.empty())
                drop(sequence, loose);
    }
    if (rule.effect == Effect::changes) {
        const auto &message = entry.calls.front().message;
        const auto at = std::min<std::size_t>(rule.key_at, message.size());
        const auto size = std::min<std::size_t>(rule.key_size, message.size() - at);
        kept.key =
            Key{protocol::peek_id(message), kept.target,
                std::string(static_cast<const char *>(static_cast<const void *>(message.data() + at)), size)};
        // Where something has looked at the object since, the earlier change counted.
        if (const auto before = keys_.find(*kept.key);
            before != keys_.end() && before->second > objects_[kept.target].last_use)
            drop(before->second, loose);
        keys_[*kept.key] = now;
    }
    for (const auto object : kept.uses) {
        ++objects_[object].users;
        if (!change)
            objects_[object].last_use = now;
    }
    for (const auto object : kept.makes)
        objects_[object].entries.insert(now);
    if (kept.target != 0)
        objects_[kept.target].entries.insert(now);
    kept.entry = std::move(entry);
    kept_.emplace(now, std::move(kept));
    sweep(std::move(loose));
}

void Journal::end(const JournalRule & /*rule*/, JournalEntry entry, const Trace &trace) {
    std::vector<ObjectId> ended;
    for (const auto handle : trace.gone) {
        parts_.erase(handle);
        const auto found = current_.find(handle);
        if (found == current_.end())
            continue;
        objects_[found->second].alive = false;
        ended.push_back(found->second);
        current_.erase(found);
    }
    sweep(ended);
    // Something still needs one of them: then it has to be made, and ended, again.
    const auto remains =
        std::ranges::find_if(ended, [this](ObjectId object) { return objects_.contains(object); });
    if (remains == ended.end())
        return;
    entry.ends = true;
    keep_end({.entry = std::move(entry), .object = *remains});
}

void Journal::keep_end(DeferredEnd end) {
    for (auto &[number, capture] : captures_)
        if (capture.held.contains(end.object)) {
            capture.ends.push_back(std::move(end));
            return;
        }
    const auto now = next_++;
    objects_[end.object].entries.insert(now);
    objects_[end.object].last_use = now;
    kept_.emplace(
        now, Kept{.entry = std::move(end.entry), .makes = {}, .uses = {}, .target = end.object, .key = {}});
}

bool Journal::needed(ObjectId object) const {
    const auto found = objects_.find(object);
    return found != objects_.end() && (found->second.alive || found->second.users != 0);
}

void Journal::sweep(std::vector<ObjectId> objects) {
    while (!objects.empty()) {
        const auto id = objects.back();
        objects.pop_back();
        const auto found = objects_.find(id);
        if (found == objects_.end() || needed(id))
            continue;
        const auto own = found->second.entries;
        bool all = true;
        for (const auto sequence : own) {
            const auto &kept = kept_.at(sequence);
            const bool wanted =
                std::ranges::any_of(kept.makes, [&](ObjectId made) { return needed(made); }) ||
                (kept.target != 0 && needed(kept.target));
            if (wanted)
                all = false;
            else
                drop(sequence, objects);
        }
        if (all)
            objects_.erase(id);
    }
}

void Journal::drop(Sequence sequence, std::vector<ObjectId> &loose) {
    const auto found = kept_.find(sequence);
    if (found == kept_.end())
        return;
    const auto kept = std::move(found->second);
    kept_.erase(found);
    if (kept.key)
        if (const auto key = keys_.find(*kept.key); key != keys_.end() && key->second == sequence)
            keys_.erase(key);
    const auto leave = [&](ObjectId object) {
        if (const auto its = objects_.find(object); its != objects_.end())
            its->second.entries.erase(sequence);
    };
    for (const auto object : kept.makes) {
        leave(object);
        loose.push_back(object);
    }
    if (kept.target != 0)
        leave(kept.target);
    for (const auto object : kept.uses)
        if (const auto its = objects_.find(object); its != objects_.end()) {
            --its->second.users;
            loose.push_back(object);
        }
}

void Journal::hold(Capture &capture, const Trace &trace) {
    for (const auto handle : trace.used)
        if (const auto object = find(handle); object != 0 && capture.held.insert(object).second)
            ++objects_[object].users;
}

// It is not among captures_ any more, and its entry, if it left one, uses what it has held.
void Journal::finish_capture(Capture capture) {
    for (auto &end : capture.ends)
        keep_end(std::move(end));
    std::vector<ObjectId> loose(capture.held.begin(), capture.held.end());
    for (const auto object : loose)
        --objects_[object].users;
    sweep(std::move(loose));
}

void Journal::begin_capture(std::uint64_t capture, JournalCall call, const Trace &trace) {
    const std::scoped_lock lock(lock_);
    if (const auto before = captures_.find(capture); before != captures_.end()) {
        auto old = std::move(before->second);
        captures_.erase(before);
        finish_capture(std::move(old));
    }
    auto &begun = captures_[capture];
    begun.context = call.context;
    hold(begun, trace);
    append(begun.trace.used, trace.used);
    begun.entry.calls.push_back(std::move(call));
}

void Journal::add_to_capture(std::uint64_t capture, JournalCall call, const Trace &trace) {
    const std::scoped_lock lock(lock_);
    const auto found = captures_.find(capture);
    if (found == captures_.end())
        return;
    auto &whole = found->second;
    hold(whole, trace);
    append(whole.trace.used, trace.used);
    append(whole.trace.invented, trace.invented);
    whole.entry.calls.push_back(std::move(call));
}

void Journal::end_capture(std::uint64_t capture, JournalCall call, const Trace &trace, bool made) {
    const std::scoped_lock lock(lock_);
    const auto found = captures_.find(capture);
    if (found == captures_.end())
        return;
    auto whole = std::move(found->second);
    captures_.erase(found);
    if (made)
        record_capture(whole, std::move(call), trace);
    finish_capture(std::move(whole));
}

void Journal::record_capture(Capture &whole, JournalCall call, const Trace &trace) {
    // A graph that was there before is what changes.
    const auto is_graph_itself = [](std::uint64_t handle) {
        return is_handle_of(handle, driver_api::kHandleGraph);
    };
    const bool makes = !trace.made.empty();
    const auto &names = makes ? trace.made : trace.used;
    const auto name = std::ranges::find_if(names, is_graph_itself);
    if (name == names.end())
        return;
    const auto handle = *name;
    append(whole.trace.used, trace.used);
    append(whole.trace.invented, trace.invented);
    whole.trace.made = trace.made;
    whole.entry.calls.push_back(std::move(call));
    // What was named on the way, the graph's nodes, is part of it.
    const auto named = std::exchange(whole.trace.invented, {});
    const auto context = whole.context;
    record_entry({.effect = makes ? Effect::makes : Effect::adds}, std::move(whole.entry), whole.trace,
                 context, makes ? 0 : find(handle), whole.held);
    if (const auto graph = find(handle); graph != 0)
        for (const auto part : named)
            if (part != handle)
                parts_[part] = graph;
}

void Journal::seen(SeenVariable variable) {
    const std::scoped_lock lock(lock_);
    seen_.insert(std::move(variable));
}

bool Journal::is_seen(const SeenVariable &variable) const {
    const std::scoped_lock lock(lock_);
    return seen_.contains(variable);
}

std::vector<SeenVariable> Journal::all_seen() const {
    const std::scoped_lock lock(lock_);
    return {seen_.begin(), seen_.end()};
}

std::vector<const JournalEntry *> Journal::entries() const {
    const std::scoped_lock lock(lock_);
    std::vector<const JournalEntry *> all;
    all.reserve(kept_.size());
    for (const auto &[sequence, kept] : kept_)
        all.push_back(&kept.entry);
    return all;
}

std::size_t Journal::size() const {
    const std::scoped_lock lock(lock_);
    return kept_.size();
}

} // namespace singularity::proxyd
