// SPDX-License-Identifier: GPL-2.0-or-later
// How fast a job was on how many GPUs, as its notes tell: "work=0:123456:c0ffee:1767225600", with every
// checkpoint, is its step, how many collective operations its ranks have issued, which lines were counted,
// and when. Two of them in one run, on as many GPUs, are a speed. Pure.
#pragma once

#include "common/slurm/controller.hpp"
#include "common/slurm/note.hpp"
#include "select-plugin/policy/snapshot.hpp"

#include <array>
#include <cstdint>
#include <ctime>
#include <optional>
#include <span>

namespace singularity::planner {

// Less is too little to be measured.
constexpr std::time_t kLeastMeasured = 30; // seconds
constexpr std::uint64_t kLeastOperations = 30;
// The note is root's, but the numbers come from the job's own processes: what is assumed of a size is
// corrected by no more than this factor.
constexpr std::uint32_t kMostCorrection = 2;

// Plain data: saved with the job's record.
class Speeds {
  public:
    void look(const slurm::Job &job, std::uint32_t has); // in GPUs, if it runs
    // Operations per 1,000 s; 0: nobody has measured it.
    [[nodiscard]] std::uint64_t rate(std::uint32_t gpus) const;
    // Corrects what is assumed of the sizes relative to the largest one that was measured. Needs two of them.
    void correct(std::span<policy::Size> sizes) const;

  private:
    struct Work {
        std::uint32_t step = 0;
        std::uint64_t operations = 0;
        std::uint64_t lines = 0;
        std::int64_t when = 0;
        bool operator==(const Work &) const = default;
    };
    struct Rate {
        std::uint32_t gpus = 0; // 0: nothing is here
        std::uint64_t rate = 0;
    };
    [[nodiscard]] static std::optional<Work> work_in(const slurm::Note &note);
    bool measure(const Work &now); // whether it was far enough from base_
    void remember(std::uint32_t gpus, std::uint64_t rate);

    Work last_;
    Work base_;                // from which is measured: the same, or an earlier one of this run
    std::int64_t resumed_ = 0; // at the last look
    std::uint32_t gpus_ = 0;   // that it had then
    std::uint32_t next_ = 0;   // in rates_, when all are taken
    std::array<Rate, 8> rates_{};
};

} // namespace singularity::planner
