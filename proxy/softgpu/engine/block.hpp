// SPDX-License-Identifier: GPL-2.0-or-later
// One thread block while it runs: its warps, shared memory, barriers and what it printed.
#pragma once

#include "engine/warp.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace singularity::softgpu::engine {

// What is the same for all blocks of a launch.
struct LaunchRun {
    const Launch *launch = nullptr;
    const Kernel *kernel = nullptr;
    const Ranges *memory = nullptr;
    std::uint64_t shared_size = 0;
    std::uint64_t threads = 0; // of a block
    std::uint64_t grid_workspace =
        0; // address of what cooperative groups keep for a grid; 0: not cooperative
    std::uint64_t heap_epoch = 0;
};

inline constexpr unsigned kBarriers = 16;
inline constexpr unsigned kClusterBarrier = kBarriers; // a cluster is one block here
inline constexpr unsigned kMaxWarps = 32;

struct Barrier {
    std::array<std::uint32_t, kMaxWarps> arrived{}; // lanes, by warp
    std::uint32_t count = 0;                        // threads it waits for; 0: all of the block
    bool used = false;
    std::uint32_t population = 0; // of what bar.red counts
    std::uint32_t participants = 0;
};

struct BlockRun {
    const LaunchRun *run = nullptr;
    Dim3 index;
    std::uint64_t linear = 0;
    std::vector<Warp> warps;
    unsigned warp_count = 0;
    AlignedBytes shared;
    std::array<Barrier, kBarriers + 1> barriers;
    std::string printed;
    std::vector<std::size_t> printed_ends; // of each call's text
    CalledFrames called;
    unsigned released = 0; // barriers that were passed: progress

    void start(const LaunchRun &launch, std::uint64_t block_index);
    [[nodiscard]] bool finished() const;

    // One turn for every warp that can run. False when none can.
    enum class Turn : std::uint8_t { finished, progress, spinning };
    Turn turn(Context &context, std::int64_t budget);

    void barrier_arrive(unsigned id, unsigned warp, std::uint32_t lanes, std::uint32_t count,
                        std::uint32_t predicate);
    void check_barriers(); // lanes exited: some barrier may be complete now
    void check_barrier(unsigned id);
    void print(std::string_view text);
};

// Runs one lane fault's message: kernel, block, thread, line and instruction.
[[nodiscard]] Fault describe(const LaneFault &fault, const Context &context);

} // namespace singularity::softgpu::engine
