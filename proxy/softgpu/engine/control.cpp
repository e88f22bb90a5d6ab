// SPDX-License-Identifier: GPL-2.0-or-later
// Branches, calls, barriers, special registers and other operations that are not arithmetic on lanes.
#include "engine/block.hpp"
#include "engine/handlers.hpp"

#include <array>
#include <bit>
#include <chrono>
#include <cstring>

#include <fmt/core.h>

namespace singularity::softgpu::engine::control {

namespace {

[[nodiscard]] unsigned first_lane(const Context &context) {
    return static_cast<unsigned>(std::countr_zero(context.mask));
}

void write_row(const Context &context, Ref to, std::uint64_t width, auto value_of_lane) {
    for (unsigned i = 0; i < kLanes; ++i)
        if ((context.mask & (1U << i)) != 0) {
            if (width == 8)
                row<std::uint64_t>(context, to)[i] = value_of_lane(i);
            else
                row<std::uint32_t>(context, to)[i] = static_cast<std::uint32_t>(value_of_lane(i));
        }
}

} // namespace

void guard(Context &context, const Op &op) {
    const std::uint32_t all = context.mask;
    std::uint32_t let = predicate(context, op.o[0]);
    let = all & (op.mode != 0 ? ~let : let);
    const Op &guarded = *context.next++;
    if (let == 0)
        return;
    context.mask = let;
    guarded.run(context, guarded);
    context.mask = all;
}

void branch(Context &context, const Op &op) { context.next = context.ops + op.target; }

void branch_if(Context &context, const Op &op) {
    std::uint32_t taken = predicate(context, op.o[0]);
    taken = context.mask & (op.mode != 0 ? ~taken : taken);
    if (taken == 0)
        return;
    const Op *target = context.ops + op.target;
    if (taken == context.mask) {
        context.next = target;
        return;
    }
    context.warp->diverge(context, taken, target, context.next,
                          op.meeting == ptx::kNone ? nullptr : context.ops + op.meeting);
}

void branch_table(Context &context, const Op &op) {
    const std::uint32_t *index = row<std::uint32_t>(context, op.o[0]);
    const auto target_of = [&](unsigned lane) {
        if (index[lane] >= op.immediate)
            raise_fault(FaultKind::illegal_instruction, lane,
                        fmt::format("entry {} of a table of {} targets", index[lane], op.immediate));
        return context.code->extra[op.extra + index[lane]];
    };
    // One target after the other is split off; the last is where the group itself goes.
    Warp &warp = *context.warp;
    const Op *meeting = op.meeting == ptx::kNone ? nullptr : context.ops + op.meeting;
    std::uint32_t left = context.mask;
    const std::uint32_t target = target_of(first_lane(context));
    std::uint32_t same = 0;
    for (std::uint32_t lanes = left; lanes != 0; lanes &= lanes - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
        if (target_of(lane) == target)
            same |= 1U << lane;
    }
    left &= ~same;
    if (left == 0) {
        context.next = context.ops + target;
        return;
    }
    warp.diverge(context, same, context.ops + target, &op, meeting); // the rest comes here again
}

void meet(Context &context, const Op &op) {
    const Group &group = *context.group;
    if (group.split < 0) [[likely]]
        return;
    const Split &split = context.warp->split_at(group.split);
    if (split.meeting == &op && split.frame == context.frame && split.callee == nullptr)
        context.warp->arrive(context);
}

void call(Context &context, const Op &op) {
    context.warp->enter_call(context, *context.block->run->kernel->codes[op.target], op.extra);
}

void call_indirect(Context &context, const Op &op) {
    // Lanes that call the same function call it together; the others come here again.
    const std::uint64_t *targets = row<std::uint64_t>(context, op.o[0]);
    const unsigned first = first_lane(context);
    const std::uint64_t target = targets[first];
    std::uint32_t same = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane)
        if ((context.mask & (1U << lane)) != 0 && targets[lane] == target)
            same |= 1U << lane;
    const auto &codes = context.block->run->kernel->codes;
    const std::uint64_t index = (target & kWindowMask) >> 4U;
    if ((target & ~kWindowMask) != kFunctionWindow || (target & 15U) != 0 || index >= codes.size() ||
        codes[index] == nullptr)
        raise_fault(FaultKind::invalid_pc, first,
                    fmt::format("{:#x} is not the address of a function", target));
    if (same != context.mask) {
        // Those who go apart here meet right behind the call.
        Warp &warp = *context.warp;
        warp.count(context);
        Group &group = *context.group;
        const Op *behind = context.next;
        const bool known = group.split >= 0 && warp.split_at(group.split).meeting == behind &&
                           warp.split_at(group.split).frame == group.frame &&
                           warp.split_at(group.split).callee == nullptr;
        if (!known)
            group.split = warp.add_split(behind, group.frame, group.split, context.mask);
        warp.add_group(context.mask & ~same, &op, group.frame, group.split);
        group.mask = context.mask = same;
    }
    context.warp->enter_call(context, *codes[index], op.extra);
}

void exit_lanes(Context &context, const Op &) {
    context.warp->leave(context, context.mask);
    context.block->check_barriers();
}

void leave_function(Context &context, const Op &op) {
    if (context.frame->caller == nullptr)
        exit_lanes(context, op);
    else
        context.warp->return_from_call(context);
}

void trap(Context &context, const Op &) { raise_fault(FaultKind::trap, first_lane(context), "trap"); }
void breakpoint(Context &context, const Op &) {
    raise_fault(FaultKind::trap, first_lane(context), "a breakpoint, and no debugger");
}
void nothing(Context &, const Op &) {}
void fence(Context &, const Op &) { std::atomic_thread_fence(std::memory_order_seq_cst); }
void yield_turn(Context &context, const Op &) { charge_spin(context); }

void special(Context &context, const Op &op) {
    using ptx::SpecialRegister;
    const BlockRun &block = *context.block;
    const Launch &launch = *block.run->launch;
    const Dim3 &threads = launch.block;
    const unsigned warp = context.warp->index;
    // Of the threads of the warp, in order: one division, then counting.
    const auto coordinate = [&](unsigned which) {
        const std::uint32_t first = warp * kLanes;
        std::array<std::uint32_t, 3> at{first % threads.x, first / threads.x % threads.y,
                                        first / threads.x / threads.y};
        std::array<std::uint32_t, kLanes> all{};
        for (std::uint32_t &each : all) {
            each = at[which];
            if (++at[0] == threads.x) {
                at[0] = 0;
                if (++at[1] == threads.y) {
                    at[1] = 0;
                    ++at[2];
                }
            }
        }
        return write_row(context, op.o[0], op.immediate, [&](unsigned lane) { return all[lane]; });
    };
    const auto same = [&](std::uint64_t value) {
        write_row(context, op.o[0], op.immediate, [=](unsigned) { return value; });
    };
    const auto lanes = [&](auto value) { write_row(context, op.o[0], op.immediate, value); };
    const auto nanoseconds = [] {
        return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                              std::chrono::system_clock::now().time_since_epoch())
                                              .count());
    };
    const auto clock = [&] {
        context.warp->count(context);
        return context.warp->operations;
    };
    switch (static_cast<SpecialRegister>(op.mode)) {
    case SpecialRegister::tid_x:
        return coordinate(0);
    case SpecialRegister::tid_y:
        return coordinate(1);
    case SpecialRegister::tid_z:
        return coordinate(2);
    case SpecialRegister::ntid_x:
        return same(threads.x);
    case SpecialRegister::ntid_y:
        return same(threads.y);
    case SpecialRegister::ntid_z:
        return same(threads.z);
    case SpecialRegister::ctaid_x:
    case SpecialRegister::clusterid_x: // a cluster is one block
        return same(block.index.x);
    case SpecialRegister::ctaid_y:
    case SpecialRegister::clusterid_y:
        return same(block.index.y);
    case SpecialRegister::ctaid_z:
    case SpecialRegister::clusterid_z:
        return same(block.index.z);
    case SpecialRegister::nctaid_x:
    case SpecialRegister::nclusterid_x:
        return same(launch.grid.x);
    case SpecialRegister::nctaid_y:
    case SpecialRegister::nclusterid_y:
        return same(launch.grid.y);
    case SpecialRegister::nctaid_z:
    case SpecialRegister::nclusterid_z:
        return same(launch.grid.z);
    case SpecialRegister::cluster_nctaid_x:
    case SpecialRegister::cluster_nctaid_y:
    case SpecialRegister::cluster_nctaid_z:
    case SpecialRegister::cluster_nctarank:
        return same(1);
    case SpecialRegister::laneid:
        return lanes([](unsigned lane) { return lane; });
    case SpecialRegister::warpid:
        return same(warp);
    case SpecialRegister::nwarpid:
        return same(kMaxWarps);
    case SpecialRegister::smid:
        return same(block.linear % std::max(launch.sm_count, 1U));
    case SpecialRegister::nsmid:
        return same(launch.sm_count);
    case SpecialRegister::lanemask_eq:
        return lanes([](unsigned lane) { return 1U << lane; });
    case SpecialRegister::lanemask_lt:
        return lanes([](unsigned lane) { return (1U << lane) - 1; });
    case SpecialRegister::lanemask_le:
        return lanes([](unsigned lane) { return ((1U << lane) - 1) | (1U << lane); });
    case SpecialRegister::lanemask_ge:
        return lanes([](unsigned lane) { return ~((1U << lane) - 1); });
    case SpecialRegister::lanemask_gt:
        return lanes([](unsigned lane) { return ~(((1U << lane) - 1) | (1U << lane)); });
    case SpecialRegister::clock:
    case SpecialRegister::clock64: // operations of the warp: the same in every run
        return same(clock());
    case SpecialRegister::clock_hi:
        return same(clock() >> 32U);
    case SpecialRegister::globaltimer:
    case SpecialRegister::globaltimer_lo:
        charge_spin(context);
        return same(nanoseconds());
    case SpecialRegister::globaltimer_hi:
        return same(nanoseconds() >> 32U);
    case SpecialRegister::dynamic_smem_size:
        return same(launch.dynamic_shared);
    case SpecialRegister::total_smem_size:
    case SpecialRegister::aggr_smem_size:
        return same(block.run->shared_size);
    case SpecialRegister::envreg1: // where cooperative groups find the grid's barrier: high and low half
        return same(block.run->grid_workspace >> 32U);
    case SpecialRegister::envreg2:
        return same(block.run->grid_workspace & UINT32_MAX);
    default: // gridid, is_explicit_cluster, cluster_ctaid, current_graph_exec, the reserved shared memory
        return same(0);
    }
}

void frame_address(Context &context, const Op &op) {
    const std::uint64_t address = context.local_base + op.immediate;
    write_row(context, op.o[0], op.mode, [=](unsigned) { return address; });
}
void parameter_address(Context &context, const Op &op) {
    const std::uint64_t address = reinterpret_cast<std::uintptr_t>(context.parameters) + op.immediate;
    write_row(context, op.o[0], op.mode, [=](unsigned) { return address; });
}

void allocate_stack(Context &context, const Op &op) {
    const std::uint64_t *wide = row<std::uint64_t>(context, op.o[1]);
    const std::uint32_t *narrow = row<std::uint32_t>(context, op.o[1]);
    std::uint64_t most = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane)
        if ((context.mask & (1U << lane)) != 0)
            most = std::max<std::uint64_t>(most, op.mode == 8 ? wide[lane] : narrow[lane]);
    Frame &frame = *context.frame;
    const std::uint64_t limit = context.block->run->launch->stack_limit;
    if (most > limit || frame.charged + most > limit)
        raise_fault(FaultKind::stack_overflow, first_lane(context),
                    fmt::format("alloca of {} bytes: more than the limit of {}", most, limit));
    const std::uint64_t begin = (frame.local_end + op.immediate - 1) / op.immediate * op.immediate;
    frame.local_end = (begin + most + 15) / 16 * 16;
    frame.charged += most;
    context.warp->reserve_local(frame.local_end);
    context.local = context.warp->local.data();
    context.local_stride = context.warp->local_stride;
    write_row(context, op.o[0], op.mode, [=](unsigned) { return begin; });
}
void save_stack(Context &context, const Op &op) {
    const std::uint64_t end = context.frame->local_end;
    write_row(context, op.o[0], op.mode, [=](unsigned) { return end; });
}

void is_space(Context &context, const Op &op) {
    const std::uint64_t *addresses = row<std::uint64_t>(context, op.o[1]);
    const auto space = static_cast<ptx::Space>(op.mode);
    const Kernel &kernel = *context.block->run->kernel;
    const auto within = [](std::uint64_t address, std::uint64_t begin, std::uint64_t size) {
        return address - begin < size;
    };
    std::uint32_t bits = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        const std::uint64_t address = addresses[lane];
        const std::uint64_t window = address & ~kWindowMask;
        bool constant = false;
        for (const Range &range : kernel.constants)
            constant |= within(address, range.begin, range.end - range.begin);
        const bool parameter =
            within(address, reinterpret_cast<std::uintptr_t>(context.parameters), context.parameters_size);
        bool is = false;
        switch (space) {
        case ptx::Space::shared:
        case ptx::Space::shared_cta:
        case ptx::Space::shared_cluster:
            is = window == kSharedWindow;
            break;
        case ptx::Space::local:
            is = window == kLocalWindow;
            break;
        case ptx::Space::constant:
            is = constant;
            break;
        case ptx::Space::param:
        case ptx::Space::param_entry:
            is = parameter;
            break;
        default:
            is = window == 0 && !constant && !parameter;
            break;
        }
        bits |= is ? 1U << lane : 0U;
    }
    set_predicate(context, op.o[0], bits);
}

void barrier(Context &context, const Op &op) {
    const unsigned first = first_lane(context);
    const std::uint32_t *ids = row<std::uint32_t>(context, op.o[1]);
    const std::uint32_t id = ids[first];
    const std::uint32_t count = op.o[2] == kAbsent ? 0 : row<std::uint32_t>(context, op.o[2])[first];
    // A number that is in the program is the same for all.
    const bool named = (op.o[1] & kConstant) != 0 && (op.o[2] == kAbsent || (op.o[2] & kConstant) != 0);
    for (unsigned lane = named ? kLanes : 0; lane < kLanes; ++lane)
        if ((context.mask & (1U << lane)) != 0 &&
            (ids[lane] != id || (op.o[2] != kAbsent && row<std::uint32_t>(context, op.o[2])[lane] != count)))
            raise_fault(FaultKind::illegal_instruction, lane, "lanes of a warp name different barriers");
    if (id >= kBarriers)
        raise_fault(FaultKind::illegal_instruction, first, fmt::format("there is no barrier {}", id));
    if (count % kLanes != 0)
        raise_fault(FaultKind::illegal_instruction, first,
                    fmt::format("a barrier of {} threads: not a multiple of {}", count, kLanes));
    BlockRun &block = *context.block;
    const std::uint32_t lanes = context.mask;
    const std::uint32_t bits = op.o[3] == kAbsent ? 0 : predicate(context, op.o[3]);
    const unsigned warp = context.warp->index;
    if (static_cast<ptx::Mode>(op.mode) != ptx::Mode::arrive) {
        context.group->barrier = id;
        context.warp->wait(context, op, Group::State::barrier);
    }
    block.barrier_arrive(id, warp, lanes, count, bits);
}

void cluster_arrive(Context &context, const Op &) {
    context.block->barrier_arrive(kClusterBarrier, context.warp->index, context.mask, 0, 0);
}
void cluster_wait(Context &context, const Op &op) {
    if ((context.block->barriers[kClusterBarrier].arrived[context.warp->index] & context.mask) == 0)
        return; // all have arrived already
    context.group->barrier = kClusterBarrier;
    context.warp->wait(context, op, Group::State::barrier);
}

} // namespace singularity::softgpu::engine::control
