// SPDX-License-Identifier: GPL-2.0-or-later
// What programs take in the agent's memory while they wait to be started, or are kept with their node or job:
// each may have megabytes of arguments and environment, and who sends them may be hostile.
#pragma once

#include "common/error.hpp"
#include "node/init_messages.hpp"
#include "node/record.hpp"
#include "peers/peer_messages.pb.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace singularity::agent {

// A user's share that is taken as long as this lives. The agent's own, for its one thread.
class ProgramMemory {
  public:
    ProgramMemory() = default;
    // Of all nodes, tasks and jobs of the user here. Error EDQUOT: it is more than Budget::program_bytes.
    [[nodiscard]] static Expected<ProgramMemory> take(std::uint32_t uid, std::size_t bytes);
    // The same for what is there already: whatever the user has.
    [[nodiscard]] static ProgramMemory count(std::uint32_t uid, std::size_t bytes);
    ProgramMemory(ProgramMemory &&other) noexcept
        : uid_(other.uid_), bytes_(std::exchange(other.bytes_, 0)) {}
    ProgramMemory &operator=(ProgramMemory &&other) noexcept {
        std::swap(uid_, other.uid_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ProgramMemory(const ProgramMemory &) = delete;
    ProgramMemory &operator=(const ProgramMemory &) = delete;
    ~ProgramMemory();

  private:
    ProgramMemory(std::uint32_t uid, std::size_t bytes) : uid_(uid), bytes_(bytes) {}

    std::uint32_t uid_ = 0;
    std::size_t bytes_ = 0;
};

// No more than Linux could ever start. What its limits leave of that (RLIMIT_STACK, 128 KiB for a string),
// execve(2) says when it is started. Error E2BIG.
[[nodiscard]] Expected<void> check_size(const node::Program &program);
// About what they take.
[[nodiscard]] std::size_t memory_of(const node::Program &program);
[[nodiscard]] std::size_t memory_of(const peers::wire::Program &program);
[[nodiscard]] std::size_t memory_of(const node::Image &image);
[[nodiscard]] std::size_t memory_of(const node::Spec &spec);

} // namespace singularity::agent
