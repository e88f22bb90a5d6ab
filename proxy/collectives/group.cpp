// SPDX-License-Identifier: GPL-2.0-or-later
#include "group.hpp"

#include "log.hpp"

#include <algorithm>
#include <utility>

namespace singularity::collectives {

namespace {

struct PartName {
    const char *what;
    const char *why_not;
};
constexpr std::array<PartName, 2> kParts{{{"collectives", "collectives go"}, {"sends", "sends go"}}};

} // namespace

Group::Group(Instance instance, std::vector<Place> places, std::shared_ptr<Device> device, bool may_link)
    : instance_(instance), places_(std::move(places)), device_(std::move(device)), may_link_(may_link) {
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

std::size_t Group::begin_of(Part part) const {
    return part == Part::rounds ? shape().data_at : shape().slots_at();
}

std::size_t Group::end_of(Part part) const {
    return part == Part::rounds ? shape().slots_at() : shape().slot_at(shape().members, 0);
}

std::size_t Group::device_stride(Part part) const {
    constexpr std::size_t kAligned = 256; // as a device's own allocations are
    return Shape::up(end_of(part) - begin_of(part), kAligned);
}

void Group::ask_for(Part part) {
    const auto bytes = device_stride(part) * size();
    const auto &name = kParts[std::to_underlying(part)];
    auto made = device_->stage(bytes);
    if (!made) {
        kLog.warning("a communicator of {} ranks: {} through memory of the host: {}", size(), name.why_not,
                     made.error().message());
        return;
    }
    kLog.info("a communicator of {} ranks: {} on the device, through {} KiB of its memory", size(), name.what,
              bytes >> 10);
    staged_[std::to_underlying(part)].memory = std::move(*made);
}

bool Group::staged_on_device(Part part) {
    if (device_ == nullptr)
        return false;
    auto &staged = staged_[std::to_underlying(part)];
    std::call_once(staged.asked, [&] { ask_for(part); });
    return staged.memory != nullptr;
}

std::uint64_t Group::device_address(Part part, std::uint32_t rank, std::size_t at) const {
    return staged_[std::to_underlying(part)].memory->address() + (rank * device_stride(part)) +
           (at - begin_of(part));
}

void Group::is_over() {
    if (over_.fetch_add(1, std::memory_order_acq_rel) + 1 != size())
        return;
    for (auto &staged : staged_)
        staged.memory = nullptr;
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
