// SPDX-License-Identifier: GPL-2.0-or-later
// Turns what the verifier finds into trust, log lines and the time of the next comparison.
#pragma once

#include "trust.hpp"
#include "verifier.hpp"

#include <chrono>
#include <optional>

namespace singularity {

class Verification {
  public:
    using Duration = std::chrono::milliseconds;

    // Before the first comparison, after a suspicion, and while there is nothing to compare.
    static constexpr Duration kSoon = std::chrono::seconds(1);

    // `interval`: between comparisons while all is well, and the most that is waited for an unreachable
    // controller.
    Verification(Shared &shared, Controller &controller, std::size_t sample, Duration interval)
        : shared_(shared), verifier_(controller, sample), interval_(interval) {}

    // One comparison and what follows from it. The time until the next one; nothing: there will be none.
    [[nodiscard]] std::optional<Duration> step();

  private:
    [[nodiscard]] std::optional<Duration> act(const found::Nothing &nothing);
    [[nodiscard]] std::optional<Duration> act(const found::Agreement &agreement);
    [[nodiscard]] std::optional<Duration> act(const found::Suspicion &suspicion);
    [[nodiscard]] std::optional<Duration> act(const found::Unreachable &unreachable);
    [[nodiscard]] std::optional<Duration> act(const found::Wrong &wrong);

    Shared &shared_;
    Verifier verifier_;
    Duration interval_;
    Duration backoff_ = kSoon;
};

} // namespace singularity
