// SPDX-License-Identifier: GPL-2.0-or-later
// The lanes of a warp, which may be at different places of the program. Lanes at one place form a group. A
// group that comes to a branch that its lanes leave by different ways becomes two, under a split that knows
// where the ways meet again; a group that arrives there waits for the rest. If the rest does not come because
// it waits for what the waiting lanes do later (a lock), those are let go: every lane of a warp makes
// progress (PTX ISA, independent thread scheduling).
#pragma once

#include "engine/context.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

namespace singularity::softgpu::engine {

// How many lanes; the oldest x86-64 has no instruction for it.
[[nodiscard]] inline std::uint32_t lanes_in(std::uint32_t mask) {
    return mask == kAllLanes ? kLanes : mask == 0 ? 0 : static_cast<std::uint32_t>(std::popcount(mask));
}

// One activation of a function, of the lanes that called it together.
struct Frame {
    const Code *code = nullptr;
    AlignedBytes rows;
    Frame *caller = nullptr;
    std::uint32_t call = 0;       // in the caller's code: which call site
    std::uint64_t local_base = 0; // in the lanes' stacks
    std::uint64_t local_end = 0;  // where the stack of what it calls begins; alloca moves it
    std::uint64_t charged = 0;    // bytes of stack that count against the limit, callers' included
    std::uint32_t depth = 0;
};

struct Group {
    enum class State : std::uint8_t { none, ready, barrier, collective };
    State state = State::none;
    std::uint32_t mask = 0;
    const Op *next = nullptr;
    Frame *frame = nullptr;
    std::int32_t split = -1;     // the innermost that its lanes belong to
    const Op *waiting = nullptr; // at a barrier or a collective: the operation
    std::uint32_t pending = 0;   // of a collective: lanes that have not yet got their result
    std::uint32_t barrier = 0;
    std::uint32_t slices = 0; // time slices used up since it last came to a meeting point
};

struct Split {
    const Op *meeting = nullptr; // nullptr: this entry is free
    Frame *frame = nullptr;
    Frame *callee = nullptr; // of a call: freed when all lanes are back
    std::int32_t parent = -1;
    std::uint32_t expected = 0; // lanes that will come or have come
    std::uint32_t arrived = 0;
};

// Of all warps of a block: what the functions that they have called may take, and what they have taken.
struct CalledFrames {
    std::uint64_t stack_limit = 0; // bytes of one lane
    std::uint64_t bytes = 0;       // of their registers
};

struct Warp {
    CalledFrames *called = nullptr; // of its block
    unsigned index = 0;
    std::uint32_t exists = 0; // lanes of the block; the last warp may have fewer
    std::uint32_t live = 0;   // lanes that have not exited
    std::array<Group, kLanes> groups;
    std::array<std::uint8_t, kLanes> order{}; // groups in the order in which they get turns
    std::uint32_t group_count = 0;
    std::vector<Split> splits;
    std::unique_ptr<Frame> base;
    std::vector<std::unique_ptr<Frame>> calls; // activations of functions, in no order
    std::vector<std::unique_ptr<Frame>> spare; // to be used again
    std::vector<std::byte> local;
    std::uint64_t local_stride = 0;
    std::uint64_t operations = 0; // executed; the clock of its lanes
    std::uint64_t thread_instructions = 0;

    // Ready to start the kernel: everything zero.
    void start(const Kernel &kernel, std::uint32_t lanes);
    // Runs until all lanes have exited, all wait, or about `budget` operations were executed. True: most of
    // what it did was to look whether others have done something.
    bool run(Context &context, std::int64_t budget);
    [[nodiscard]] bool ready() const { return ready_group() != nullptr; }
    [[nodiscard]] Group *ready_group() const;
    // Lanes wait at a meeting point for others that cannot come: lets the innermost go. False: none waits.
    bool release_innermost();

    // Of the group that executes; each leaves the context for another group.
    void diverge(Context &context, std::uint32_t taken, const Op *target, const Op *other, const Op *meeting);
    void arrive(Context &context);                     // at the meeting point of its split
    void leave(Context &context, std::uint32_t lanes); // those exit; the block looks at its barriers then
    void return_from_call(Context &context);
    void enter_call(Context &context, const Code &callee, std::uint32_t call);
    void wait(Context &context, const Op &op, Group::State state);
    void stop(Context &context);  // the group that executes does not go on
    void count(Context &context); // what was executed since it was last counted

    Group &add_group(std::uint32_t mask, const Op *next, Frame *frame, std::int32_t split);
    void remove_group(Group &group);
    std::int32_t add_split(const Op *meeting, Frame *frame, std::int32_t parent, std::uint32_t expected);
    void settle(std::int32_t split); // if all expected have arrived, they go on together
    void drop_lanes(std::int32_t from, std::int32_t until, std::uint32_t lanes);
    void free_split(std::int32_t split);
    bool release(std::int32_t split);
    Frame &push_frame(Context &context, const Code &callee, std::uint32_t call);
    void pop_frame(Frame *frame);
    void reserve_local(std::uint64_t bytes);
    void enter(Context &context, Group &group);
    void complete_collectives(Context &context); // in collectives.cpp
    [[nodiscard]] Split &split_at(std::int32_t split) { return splits[static_cast<std::size_t>(split)]; }
};

} // namespace singularity::softgpu::engine
