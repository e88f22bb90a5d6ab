// SPDX-License-Identifier: GPL-2.0-or-later
// What one job has received since it became eligible: its GPU fraction T_ideal / T_real, over its life and
// over the last hour, what it was given in GPU time, and how often it was interrupted.
//
//     Ledger ledger(now);                     // the job became eligible
//     ledger.advance(now, 0, 0);              // ... it has waited until now
//     ledger.advance(now, 500'000, 4);        // ... it has run on 4 GPUs at half of its full speed until now
//     ledger.moved(now);                      // it is being shrunk, grown, migrated or told to yield
//
// Speed is as measured at that size, not as the number of GPUs suggests; while a job waits, checkpoints or
// restores it is 0. Plain data of fixed size, trivially copyable: it can be saved as it is and kept in a flat
// vector.
#pragma once

#include "select-plugin/policy/units.hpp"

#include <array>
#include <cstdint>

namespace singularity::policy {

class Ledger {
  public:
    Ledger() = default;
    explicit Ledger(Milliseconds eligible) : eligible_(eligible), until_(eligible) {}

    // From the last advance until `now` the job ran at `speed` on `gpus` GPUs. A `now` before the last
    // advance changes nothing: a clock that is set back must not take from a job what it had.
    void advance(Milliseconds now, Fraction speed, std::uint32_t gpus);

    // The job is interrupted at `now` by a decision of the policy (not by a failure, not by its end).
    void moved(Milliseconds now);

    // T_ideal / T_real since the job became eligible, kOne while no time has passed. What is between the last
    // advance and now is not in it: advance first.
    [[nodiscard]] Fraction life() const { return fraction(work_, elapsed()); }
    // The same over the last sixty minutes of the clock, the one that has begun included: 59 to 60 minutes,
    // less for a younger job.
    [[nodiscard]] Fraction hour() const { return fraction(hour_work_, hour_elapsed()); }

    [[nodiscard]] Milliseconds eligible() const { return eligible_; }
    [[nodiscard]] Milliseconds until() const { return until_; } // the last advance
    [[nodiscard]] Milliseconds elapsed() const { return until_ - eligible_; }
    [[nodiscard]] Work work() const { return work_; }
    [[nodiscard]] Milliseconds hour_elapsed() const;
    [[nodiscard]] Work hour_work() const { return hour_work_; }
    [[nodiscard]] Milliseconds gpu_time() const { return gpu_time_; } // GPU milliseconds held
    [[nodiscard]] std::uint32_t moves() const { return moves_; }      // in the job's life
    [[nodiscard]] std::uint32_t hour_moves() const { return hour_moves_; }

    [[nodiscard]] static Fraction fraction(Work work, Milliseconds elapsed) {
        return elapsed > 0 ? work / elapsed : kOne;
    }

  private:
    static constexpr Milliseconds kSlot = kMinute;
    static constexpr std::int64_t kSlots = 60;

    // Forgets the slots that leave the hour when the clock comes to `minute`.
    void turn_to(std::int64_t minute);

    Milliseconds eligible_ = 0;
    Milliseconds until_ = 0;
    Work work_ = 0;
    Work hour_work_ = 0; // the sum of slot_work_
    Milliseconds gpu_time_ = 0;
    std::int64_t minute_ =
        -1; // the newest slot; the one before it is that of the minute before, and so on. -1: none
    std::uint32_t moves_ = 0;
    std::uint32_t hour_moves_ = 0; // the sum of slot_moves_
    std::array<Work, kSlots> slot_work_{};
    std::array<std::uint16_t, kSlots> slot_moves_{};
};

} // namespace singularity::policy
