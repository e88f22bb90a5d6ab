// SPDX-License-Identifier: GPL-2.0-or-later
#include "shared_events.hpp"

#include <algorithm>

namespace singularity::proxyd {

SharedEvents &SharedEvents::all() {
    static SharedEvents instance;
    return instance;
}

SharedEvents::Event *SharedEvents::find(const Holder &holder) {
    const auto name = names_.find({holder.session, holder.handle});
    if (name == names_.end())
        return nullptr;
    const auto event = events_.find(name->second);
    return event == events_.end() ? nullptr : &event->second;
}

void SharedEvents::join(const Key &key, Event &event, const Holder &holder) {
    event.holders.push_back(holder);
    names_[{holder.session, holder.handle}] = key;
    count_ = names_.size();
}

bool SharedEvents::share(const Key &key, std::uint32_t device, const Holder &maker) {
    const std::scoped_lock lock(lock_);
    if (names_.contains({maker.session, maker.handle}))
        return false;
    auto &event = events_[key];
    if (event.maker || (!event.holders.empty() && event.device != device))
        return false;
    event.device = device;
    event.maker = maker;
    // The maker may have recorded it before it had a handle for others.
    if (!event.last)
        event.last = maker;
    join(key, event, maker);
    return true;
}

bool SharedEvents::open(const Key &key, std::uint32_t device, const Holder &holder, bool again) {
    const std::scoped_lock lock(lock_);
    const auto known = events_.find(key);
    if (names_.contains({holder.session, holder.handle}) || (known == events_.end() && !again))
        return false;
    auto &event = known == events_.end() ? events_[key] : known->second;
    if (known == events_.end())
        event.device = device;
    if (event.device != device || (!event.maker && !again))
        return false;
    join(key, event, holder);
    return true;
}

bool SharedEvents::can_open(const Key &key, std::uint32_t device) {
    const std::scoped_lock lock(lock_);
    const auto event = events_.find(key);
    return event != events_.end() && event->second.maker && event->second.device == device;
}

void SharedEvents::recorded(const Holder &holder) {
    const std::scoped_lock lock(lock_);
    auto *const event = find(holder);
    if (event == nullptr)
        return;
    const auto mine = std::ranges::find(event->holders, holder);
    if (mine != event->holders.end())
        event->last = *mine;
}

void SharedEvents::take_out(std::map<Name, Key>::iterator name) {
    const Holder holder{.session = name->first.first, .handle = name->first.second};
    if (const auto event = events_.find(name->second); event != events_.end()) {
        auto &[device, maker, holders, last] = event->second;
        std::erase(holders, holder);
        if (maker == holder)
            maker.reset();
        if (last == holder)
            last.reset();
        if (holders.empty())
            events_.erase(event);
    }
    names_.erase(name);
    count_ = names_.size();
}

void SharedEvents::leave(const Holder &holder) {
    const std::scoped_lock lock(lock_);
    if (const auto name = names_.find({holder.session, holder.handle}); name != names_.end())
        take_out(name);
}

void SharedEvents::leave_all(const Session &session) {
    const std::scoped_lock lock(lock_);
    for (auto name = names_.lower_bound({&session, 0});
         name != names_.end() && name->first.first == &session;)
        take_out(name++);
}

std::optional<CUresult> SharedEvents::with_last(const Holder &holder,
                                                const std::function<CUresult(CUevent)> &what) {
    const std::scoped_lock lock(lock_);
    const auto *const event = find(holder);
    if (event == nullptr || !event->last || *event->last == holder)
        return std::nullopt;
    return what(event->last->real);
}

} // namespace singularity::proxyd
