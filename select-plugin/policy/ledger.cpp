// SPDX-License-Identifier: GPL-2.0-or-later
#include "select-plugin/policy/ledger.hpp"

#include <algorithm>

namespace singularity::policy {

void Ledger::turn_to(std::int64_t minute) {
    if (minute <= minute_)
        return;
    const std::int64_t first = minute_ < 0 ? minute : std::max(minute_ + 1, minute - kSlots + 1);
    for (std::int64_t turned = first; turned <= minute; ++turned) {
        const auto slot = static_cast<std::size_t>(turned % kSlots);
        hour_work_ -= slot_work_[slot];
        hour_moves_ -= slot_moves_[slot];
        slot_work_[slot] = 0;
        slot_moves_[slot] = 0;
    }
    minute_ = minute;
}

void Ledger::advance(Milliseconds now, Fraction speed, std::uint32_t gpus) {
    if (now <= until_)
        return;
    work_ += (now - until_) * speed;
    gpu_time_ += (now - until_) * gpus;
    // What is more than an hour ago is in no slot.
    Milliseconds from = std::max(until_, (now / kSlot - kSlots + 1) * kSlot);
    while (from < now) {
        const std::int64_t minute = from / kSlot;
        turn_to(minute);
        const Milliseconds to = std::min(now, (minute + 1) * kSlot);
        slot_work_[static_cast<std::size_t>(minute % kSlots)] += (to - from) * speed;
        hour_work_ += (to - from) * speed;
        from = to;
    }
    turn_to(now / kSlot);
    until_ = now;
}

void Ledger::moved(Milliseconds now) {
    turn_to(now / kSlot);
    ++moves_;
    ++hour_moves_;
    ++slot_moves_[static_cast<std::size_t>(minute_ % kSlots)];
}

Milliseconds Ledger::hour_elapsed() const {
    const Milliseconds begin = (until_ / kSlot - kSlots + 1) * kSlot;
    return until_ - std::max(begin, eligible_);
}

} // namespace singularity::policy
