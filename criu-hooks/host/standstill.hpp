// SPDX-License-Identifier: GPL-2.0-or-later
// Whether processes still do anything. criu waits for ever where one that it restores was killed at the wrong
// moment, and nobody but an observer can know.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"

#include <chrono>
#include <cstdint>
#include <vector>

#include <sys/types.h>

namespace singularity::host {

class Standstill {
  public:
    explicit Standstill(std::chrono::seconds patience) : patience_(patience) {}

    // To be asked again and again. An error, code ETIMEDOUT: none of them and of their descendants has used a
    // processor, touched a new page or waited for a disk for so long; or for three seconds, and one is dead.
    [[nodiscard]] Expected<void> look(const std::vector<pid_t> &roots);

  private:
    std::chrono::seconds patience_;
    std::uint64_t done_ = 0;
    Deadline::Clock::time_point since_ = Deadline::Clock::now();
};

} // namespace singularity::host
