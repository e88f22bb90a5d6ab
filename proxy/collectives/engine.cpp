// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/collectives/engine.hpp"

#include "group.hpp"

#include <utility>

#include <fmt/format.h>

namespace singularity::collectives {

Expected<std::shared_ptr<Member>> Engine::join(const MemberPlace &place, MemberEvents events) {
    const auto refuse = [&](std::string why) {
        return failure("join", fmt::format("a communicator as rank {} of {}", place.rank, place.size),
                       std::move(why), EINVAL);
    };
    if (place.size == 0 || place.size > kMostMembers || place.rank >= place.size)
        return refuse(fmt::format("it has from 1 to {} ranks", kMostMembers));
    auto member = std::make_shared<Member>(place, std::move(events));
    const std::scoped_lock lock(lock_);
    const auto found = forming_.try_emplace(place.key).first;
    auto &forming = found->second;
    if (forming.members.empty()) {
        forming.size = place.size;
        forming.members.resize(place.size);
    }
    if (forming.size != place.size)
        return refuse(fmt::format("other ranks have joined it with {} ranks", forming.size));
    if (forming.members[place.rank] != nullptr)
        return refuse("somebody has joined it with that rank");
    forming.members[place.rank] = member;
    if (++forming.come == forming.size) {
        const auto whole = std::move(forming);
        forming_.erase(found);
        if (auto done = complete(whole); !done)
            for (const auto &each : whole.members)
                each->fail({.remote = false, .text = done.error().message()});
    }
    return member;
}

Expected<void> Engine::complete(const Forming &forming) {
    const auto shape = Shape::of(forming.size);
    std::vector<Group::Place> places;
    for (std::uint32_t rank = 0; rank < forming.size; ++rank) {
        auto area = Area::make(shape);
        if (!area)
            return propagate(area);
        places.push_back({.area = std::move(*area), .where = Where::here, .outlet = nullptr});
    }
    const auto group = std::make_shared<Group>(next_instance_++, std::move(places));
    for (const auto &member : forming.members)
        member->ready(group);
    return {};
}

void Engine::forget(const Member &member) {
    const std::scoped_lock lock(lock_);
    const auto found = forming_.find(member.place().key);
    if (found == forming_.end() || found->second.members[member.place().rank].get() != &member)
        return;
    found->second.members[member.place().rank] = nullptr;
    if (--found->second.come == 0)
        forming_.erase(found);
}

} // namespace singularity::collectives
