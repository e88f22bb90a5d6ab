// SPDX-License-Identifier: GPL-2.0-or-later
// How far a long simulation is, on stderr: a bar on a terminal; elsewhere a line now and then, so that a log
// stays short.
#pragma once

#include <chrono>
#include <string>

namespace singularity::simulator {

class Progress {
  public:
    explicit Progress(std::string what);
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;
    Progress(Progress &&) = delete;
    Progress &operator=(Progress &&) = delete;
    ~Progress(); // takes the bar away

    void show(double share); // 0 to 1

  private:
    using Clock = std::chrono::steady_clock;
    std::string what_;
    bool terminal_;
    bool shown_ = false;
    Clock::time_point begin_ = Clock::now();
    Clock::time_point last_ = begin_;
};

} // namespace singularity::simulator
