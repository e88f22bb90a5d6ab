// SPDX-License-Identifier: GPL-2.0-or-later
// Units of the scheduling policy. Whole numbers only: a plan must be the same on every machine.
#pragma once

#include <cstdint>

namespace singularity::policy {

// A moment or a length of time. Moments count from any origin, the same for a whole snapshot; never negative.
using Milliseconds = std::int64_t;

constexpr Milliseconds kSecond = 1000;
constexpr Milliseconds kMinute = 60 * kSecond;
constexpr Milliseconds kHour = 60 * kMinute;

// Millionths: a GPU fraction, a guarantee, or a speed relative to the job's speed at the size it asked for.
using Fraction = std::int64_t;

constexpr Fraction kOne = 1'000'000;

// Milliseconds at full size times kOne: (speed as Fraction) x (Milliseconds), summed without rounding. 64
// bits hold 290 years of it.
using Work = std::int64_t;

} // namespace singularity::policy
