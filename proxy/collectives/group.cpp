// SPDX-License-Identifier: GPL-2.0-or-later
#include "group.hpp"

#include <algorithm>
#include <utility>

namespace singularity::collectives {

Group::Group(Instance instance, std::vector<Place> places) : instance_(instance), places_(std::move(places)) {
    for (const auto &place : places_)
        if (place.outlet != nullptr && !std::ranges::contains(outlets_, place.outlet))
            outlets_.push_back(place.outlet);
}

void Group::ring() {
    for (const auto &place : places_)
        if (place.where != Where::distant)
            place.area->ring();
}

void Group::publish(std::uint32_t rank, std::uint32_t counter, std::uint64_t value) {
    places_[rank].area->write(counter, value);
    for (const auto &outlet : outlets_)
        outlet->count(instance_, rank, counter, value);
    ring();
}

void Group::offer(std::uint32_t rank, std::size_t at, std::size_t size, std::uint32_t reader) {
    if (size == 0)
        return;
    const auto &area = places_[rank].area;
    if (reader == kEverybody) {
        for (const auto &outlet : outlets_)
            outlet->write(instance_, rank, area, at, size);
    } else if (const auto &outlet = places_[reader].outlet; outlet != nullptr) {
        outlet->write(instance_, rank, area, at, size);
    }
}

void Group::arrived(std::uint32_t rank, std::uint32_t counter, std::uint64_t value) {
    places_[rank].area->write(counter, value);
    ring();
}

void Group::fail(Failure failure, bool tell) {
    const auto text = failure.text;
    {
        const std::scoped_lock lock(lock_);
        if (failure_)
            return;
        failure_ = std::move(failure);
        failed_.store(true, std::memory_order_seq_cst);
    }
    ring();
    if (tell && tell_)
        tell_(text);
}

std::optional<Failure> Group::failure() const {
    const std::scoped_lock lock(lock_);
    return failure_;
}

} // namespace singularity::collectives
