// SPDX-License-Identifier: GPL-2.0-or-later
// The policy's say in job_test: while singularity-planner makes room, Slurm's own preemption leaves alone
// whom the planner covers. A job that would preempt a thousand others does not keep slurmctld from answering
// for minutes: it finds no candidates, and starts when the planner has made room.
#pragma once

#include "common/error.hpp"
#include "host.hpp"
#include "select-plugin/hooks.hpp"
#include "select-plugin/protection.hpp"

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <sys/types.h>

namespace singularity {

class Shield final : public hooks::Hooks {
  public:
    explicit Shield(const host::Lists &lists) : lists_(lists) {}

    hooks::Candidates candidates(const hooks::JobTest &test) override;

    // By another thread, at any time.
    void learn(Protection protection) {
        protection_.store(std::make_shared<const Protection>(std::move(protection)));
    }

  private:
    host::Lists lists_;
    std::atomic<std::shared_ptr<const Protection>> protection_;
};

// Reads what the planner has written, again and again.
class ProtectionReader {
  public:
    static constexpr std::chrono::milliseconds kEvery = std::chrono::seconds(1);

    ProtectionReader(std::filesystem::path path, Shield &shield) : path_(std::move(path)), shield_(shield) {}

    // What is wrong with the file is logged once. Never ends.
    std::optional<std::chrono::milliseconds> step() noexcept;

  private:
    Expected<void> look();

    // Of the file as it was read.
    struct Version {
        ino_t inode = 0;
        std::time_t second = 0;
        long nanosecond = 0;
        bool operator==(const Version &) const = default;
    };

    std::filesystem::path path_;
    Shield &shield_;
    Version version_;
    std::string trouble_;
};

} // namespace singularity
