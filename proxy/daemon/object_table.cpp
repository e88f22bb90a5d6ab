// SPDX-License-Identifier: GPL-2.0-or-later
#include "object_table.hpp"

#include "address_book.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

constexpr std::uint64_t kHandleBase = std::uint64_t{0x0C} << 40;
constexpr std::uint64_t kKindMask = std::uint64_t{0x3f} << 36;
constexpr std::uint64_t kIndexMask = std::uint64_t{0xffff'ffff} << 4;
constexpr std::uint64_t kDaemonsChoice = std::uint64_t{1} << 35; // bit 31 of the index
// Below it: 64 devices, and so many names of each before they begin anew.
constexpr std::uint64_t kDevices = 64;
constexpr std::uint64_t kNames = std::uint64_t{1} << 25;

// Objects that end with their context, whatever else refers to them.
constexpr std::array kOfContext{
    driver_api::kHandleModule,  driver_api::kHandleFunction, driver_api::kHandleStream,
    driver_api::kHandleEvent,   driver_api::kHandleArray,    driver_api::kHandleMipmap,
    driver_api::kHandleTexture, driver_api::kHandleSurface,  driver_api::kHandleLink};

thread_local std::uint64_t made_in_context = 0;
thread_local std::uint64_t made_of_parent = 0;

constexpr bool is_handle(std::uint64_t handle) { return (handle & ~(kKindMask | kIndexMask)) == kHandleBase; }

} // namespace

ObjectTable::Origin::Origin(std::uint64_t context, std::uint64_t parent)
    : context_before_(std::exchange(made_in_context, context)),
      parent_before_(std::exchange(made_of_parent, parent)) {}

ObjectTable::Origin::~Origin() {
    made_in_context = context_before_;
    made_of_parent = parent_before_;
}

std::optional<std::uint64_t> ObjectTable::real(unsigned kind, std::uint64_t handle) {
    if (handle == 0)
        return 0;
    if (kind == driver_api::kHandleStream && handle == 1)
        return handle;
    const unsigned own = kind_of(handle);
    if (own != kind && !(kind == driver_api::kHandleFunction && own == driver_api::kHandleKernel))
        return std::nullopt;
    const std::scoped_lock lock(lock_);
    const auto found = entries_.find(handle);
    if (found == entries_.end())
        return std::nullopt;
    trace_used(handle);
    return found->second.real;
}

void ObjectTable::add(unsigned kind, std::uint64_t handle, std::uint64_t real) {
    const std::scoped_lock lock(lock_);
    const auto known = entries_.find(handle);
    // The graph of a capture comes out under the name that it has already, the program's own or one that was
    // invented while the graph grew.
    if (kind == driver_api::kHandleGraph && kind_of(handle) == kind && known != entries_.end() &&
        known->second.real == real) {
        if (std::exchange(known->second.made, true))
            trace_used(handle);
        else
            trace_made(handle);
        return;
    }
    const bool valid = is_handle(handle) && kind_of(handle) == kind && (handle & kDaemonsChoice) == 0;
    if (!valid || known != entries_.end()) {
        lost_.emplace_back(kind, real);
        if (!broken_)
            broken_ = fmt::format("it chose {:#x} as the handle of a new {}: {}", handle,
                                  driver_api::handle_kind_name(kind),
                                  valid ? "it is taken" : "it is none of its own");
        return;
    }
    put(kind, handle, real, true);
    trace_made(handle);
}

void ObjectTable::put(unsigned kind, std::uint64_t handle, std::uint64_t real, bool made) {
    Entry entry{
        .real = real, .context = made_in_context, .parent = made_of_parent, .made = made, .children = {}};
    // One graph under two handles, where a client has not asked what its capture is called: one of them owns
    // it, the other goes with it.
    auto &name = names_[reverse_key(kind, real)];
    if (const auto known = entries_.find(name);
        made && kind == driver_api::kHandleGraph && known != entries_.end()) {
        if (known->second.made) {
            entry.made = false;
            entry.parent = name;
        } else {
            known->second.parent = handle;
            entry.children.push_back(name);
        }
    }
    name = handle;
    if (const auto parent = entries_.find(entry.parent); parent != entries_.end())
        parent->second.children.push_back(handle);
    if (kind == driver_api::kHandleStream)
        streams_[entry.context].push_back(real);
    entries_[handle] = std::move(entry);
}

void ObjectTable::remove(unsigned kind, std::uint64_t handle) {
    const std::scoped_lock lock(lock_);
    if (kind_of(handle) == kind)
        take_out(handle);
}

void ObjectTable::take_out(std::uint64_t handle) {
    // Children of children are few and shallow (graphs in graphs); a list instead of recursion all the same.
    std::vector<std::uint64_t> going{handle};
    while (!going.empty()) {
        const auto found = entries_.find(going.back());
        const auto gone = going.back();
        going.pop_back();
        if (found == entries_.end())
            continue;
        going.insert(going.end(), found->second.children.begin(), found->second.children.end());
        if (const auto parent = entries_.find(found->second.parent); parent != entries_.end())
            std::erase(parent->second.children, gone);
        if (const auto name = names_.find(reverse_key(kind_of(gone), found->second.real));
            name != names_.end() && name->second == gone)
            names_.erase(name);
        if (const auto streams = streams_.find(found->second.context);
            kind_of(gone) == driver_api::kHandleStream && streams != streams_.end())
            std::erase(streams->second, found->second.real);
        entries_.erase(found);
        trace_gone(gone);
    }
}

// The next one that is free; it is taken with invented_.
std::uint64_t ObjectTable::invent(unsigned kind) {
    const auto first = kHandleBase | (static_cast<std::uint64_t>(kind) << 36) | kDaemonsChoice |
                       (ordinal_ % kDevices * kNames) << 4;
    while (entries_.contains(first | (invented_[kind] % kNames) << 4))
        ++invented_[kind];
    return first | (invented_[kind] % kNames) << 4;
}

std::uint64_t ObjectTable::name_of(unsigned kind, std::uint64_t real) {
    if (real == 0)
        return 0;
    const std::scoped_lock lock(lock_);
    auto *const trace = active_trace;
    if (const auto known = names_.find(reverse_key(kind, real)); known != names_.end()) {
        if (trace != nullptr)
            (void)name_again(*trace, known->second); // noted; it has its name already
        return known->second;
    }
    const auto handle = invent(kind);
    if (trace != nullptr) {
        const auto wanted = name_again(*trace, handle);
        // What it was called before, unless that is something else now.
        if (trace->repeating && is_handle(wanted) && kind_of(wanted) == kind && !entries_.contains(wanted)) {
            put(kind, wanted, real, false);
            trace->invented.push_back(wanted);
            return wanted;
        }
        if (trace->repeating && !trace->differs)
            trace->differs =
                fmt::format("a new {} cannot be {:#x} again", driver_api::handle_kind_name(kind), wanted);
        trace->invented.push_back(handle);
    }
    ++invented_[kind];
    put(kind, handle, real, false);
    return handle;
}

// Notes the name; while repeating, the name that it had.
std::uint64_t ObjectTable::name_again(Trace &trace, std::uint64_t handle) {
    const auto at = trace.named.size();
    const auto wanted = !trace.repeating ? handle : at < trace.names.size() ? trace.names[at] : 0;
    trace.named.push_back(wanted);
    if (!trace.repeating)
        return handle;
    const bool new_name = (handle & kDaemonsChoice) != 0 && !entries_.contains(handle);
    if (wanted != handle && !(new_name && wanted != 0) && !trace.differs)
        trace.differs = fmt::format("output {} is {:#x} and was {:#x}", at, handle, wanted);
    return wanted;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> ObjectTable::handles(unsigned kind) {
    const std::scoped_lock lock(lock_);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> found;
    for (const auto &[handle, entry] : entries_)
        if (kind_of(handle) == kind)
            found.emplace_back(handle, entry.real);
    std::ranges::sort(found);
    return found;
}

std::uint64_t ObjectTable::names_invented() {
    const std::scoped_lock lock(lock_);
    return *std::ranges::max_element(invented_);
}

void ObjectTable::invent_from(std::uint64_t index) {
    const std::scoped_lock lock(lock_);
    invented_.fill(index);
}

void *ObjectTable::host(const driver_api::HostRange &range) {
    return addresses_.host(range.address, range.size);
}

std::uint64_t ObjectTable::context_of(std::uint64_t handle) {
    const std::scoped_lock lock(lock_);
    const auto found = entries_.find(handle);
    return found == entries_.end() ? 0 : found->second.context;
}

void ObjectTable::forget_context(std::uint64_t context) {
    const std::scoped_lock lock(lock_);
    std::vector<std::uint64_t> going;
    for (const auto &[handle, entry] : entries_)
        if (entry.context == context && std::ranges::find(kOfContext, kind_of(handle)) != kOfContext.end())
            going.push_back(handle);
    for (const auto handle : going)
        take_out(handle);
    streams_.erase(context);
}

std::vector<std::uint64_t> ObjectTable::streams_of(std::uint64_t context) {
    const std::scoped_lock lock(lock_);
    const auto found = streams_.find(context);
    return found == streams_.end() ? std::vector<std::uint64_t>() : found->second;
}

std::vector<std::uint64_t> ObjectTable::all(unsigned kind) {
    const std::scoped_lock lock(lock_);
    std::vector<std::uint64_t> found;
    for (const auto &[handle, entry] : entries_)
        if (kind_of(handle) == kind)
            found.push_back(entry.real);
    return found;
}

std::vector<std::uint64_t> ObjectTable::made(unsigned kind) {
    const std::scoped_lock lock(lock_);
    std::vector<std::uint64_t> found;
    for (const auto &[handle, entry] : entries_)
        if (kind_of(handle) == kind && entry.made && entry.parent == 0)
            found.push_back(entry.real);
    for (const auto &[lost_kind, real] : lost_)
        if (lost_kind == kind)
            found.push_back(real);
    return found;
}

std::size_t ObjectTable::size() {
    const std::scoped_lock lock(lock_);
    return entries_.size();
}

std::optional<std::string> ObjectTable::broken_rule() {
    const std::scoped_lock lock(lock_);
    return broken_;
}

} // namespace singularity::proxyd
