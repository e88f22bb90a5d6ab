// SPDX-License-Identifier: GPL-2.0-or-later
#include "engine/warp.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/core.h>

namespace singularity::softgpu::engine {

namespace {

// A group's turn while there are others; many turns without coming to a meeting point let those go that wait
// there for it.
constexpr std::int64_t kSlice = 5000;
constexpr std::uint32_t kPatience = 200;
constexpr std::uint64_t kMaxFrameBytes = std::uint64_t{256} << 20U; // of a block's called functions
constexpr std::uint64_t kMaxLocalBytes = std::uint64_t{16} << 20U;  // of one lane
constexpr std::size_t kMaxSpareFrames = 64;
constexpr std::uint64_t kCallCharge = 16; // what a call takes of the stack beyond its variables

} // namespace

void Warp::start(const Kernel &kernel, std::uint32_t lanes) {
    exists = live = lanes;
    for (Group &group : groups)
        group = Group{};
    group_count = 0;
    splits.clear();
    calls.clear();
    operations = 0;
    if (base == nullptr || base->code != kernel.entry) {
        base = std::make_unique<Frame>();
        base->code = kernel.entry;
        base->rows = AlignedBytes(kernel.entry->rows);
        spare.clear();
    } else {
        std::memset(base->rows.bytes.get(), 0, base->rows.size);
    }
    base->local_base = 0;
    base->local_end = kernel.entry->frame;
    base->charged = 0;
    base->depth = 0;
    std::ranges::fill(local, std::byte{0});
    reserve_local(base->local_end);
    add_group(lanes, kernel.entry->ops.data(), base.get(), -1);
}

Group *Warp::ready_group() const {
    for (std::uint32_t i = 0; i < group_count; ++i)
        if (groups[order[i]].state == Group::State::ready)
            return const_cast<Group *>(&groups[order[i]]); // NOLINT: the warp is the caller's
    return nullptr;
}

Group &Warp::add_group(std::uint32_t mask, const Op *next, Frame *frame, std::int32_t split) {
    std::uint8_t at = 0;
    while (groups[at].state != Group::State::none)
        ++at; // lanes are in one group each, so there is room
    groups[at] =
        Group{.state = Group::State::ready, .mask = mask, .next = next, .frame = frame, .split = split};
    std::copy_backward(order.begin(), order.begin() + group_count, order.begin() + group_count + 1);
    order[0] = at;
    ++group_count;
    return groups[at];
}

void Warp::remove_group(Group &group) {
    const auto number = static_cast<std::uint8_t>(&group - groups.data());
    group.state = Group::State::none;
    group.mask = 0;
    auto *const end = std::remove(order.begin(), order.begin() + group_count, number);
    group_count = static_cast<std::uint32_t>(end - order.begin());
}

std::int32_t Warp::add_split(const Op *meeting, Frame *frame, std::int32_t parent, std::uint32_t expected) {
    std::size_t at = 0;
    while (at < splits.size() && splits[at].meeting != nullptr)
        ++at;
    if (at == splits.size())
        splits.emplace_back();
    splits[at] = Split{.meeting = meeting, .frame = frame, .parent = parent, .expected = expected};
    return static_cast<std::int32_t>(at);
}

void Warp::free_split(std::int32_t split) {
    Split &freed = split_at(split);
    if (freed.callee != nullptr)
        pop_frame(freed.callee);
    freed = Split{};
}

void Warp::settle(std::int32_t split) {
    const Split done = split_at(split);
    if (done.arrived != done.expected)
        return;
    free_split(split);
    if (done.expected != 0)
        add_group(done.expected, done.meeting, done.frame, done.parent);
}

// The lanes will not come to the splits from `from` outwards up to, without, `until`.
void Warp::drop_lanes(std::int32_t from, std::int32_t until, std::uint32_t lanes) {
    for (std::int32_t at = from; at != until && at >= 0;) {
        const std::int32_t parent = split_at(at).parent;
        split_at(at).expected &= ~lanes;
        settle(at);
        at = parent;
    }
}

bool Warp::release(std::int32_t split) {
    Split &held = split_at(split);
    const std::uint32_t lanes = held.arrived;
    if (lanes == 0)
        return false;
    held.arrived = 0;
    held.expected &= ~lanes;
    add_group(lanes, held.meeting, held.frame, held.parent);
    return true;
}

bool Warp::release_innermost() {
    for (auto at = static_cast<std::int32_t>(splits.size()); at-- > 0;)
        if (split_at(at).meeting != nullptr && release(at))
            return true;
    return false;
}

void Warp::count(Context &context) {
    const std::int64_t executed = (context.mark - context.budget) - (context.spins - context.spin_mark);
    operations += static_cast<std::uint64_t>(executed);
    thread_instructions += static_cast<std::uint64_t>(executed) * lanes_in(context.mask);
    context.mark = context.budget;
    context.spin_mark = context.spins;
}

void Warp::enter(Context &context, Group &group) {
    context.group = &group;
    context.frame = group.frame;
    context.code = group.frame->code;
    context.ops = context.code->ops.data();
    context.bases = {group.frame->rows.bytes.get(), context.code->constants.bytes.get()};
    context.mask = group.mask;
    context.next = group.next;
    context.local = local.data();
    context.local_stride = local_stride;
    context.local_base = group.frame->local_base;
}

void Warp::stop(Context &context) {
    count(context);
    context.unspent = context.budget;
    context.budget = 0;
    context.stopped = true;
    context.group = nullptr;
}

bool Warp::run(Context &context, std::int64_t budget) {
    context.warp = this;
    std::int64_t left = budget;
    std::int64_t spins = 0;
    while (left > 0) {
        Group *group = ready_group();
        if (group == nullptr)
            break;
        const bool alone = group_count == 1 && splits.empty();
        const std::int64_t slice = alone ? left : std::min(left, kSlice);
        context.budget = context.mark = slice;
        context.spins = context.spin_mark = 0;
        context.stopped = false;
        enter(context, *group);
        while (context.budget > 0) {
            --context.budget;
            const Op &op = *context.next++;
            op.run(context, op);
        }
        if (!context.stopped) {
            count(context);
            context.unspent = context.budget;
            // The turn is over, but the group is not at its end: others come first now.
            Group &current = *context.group;
            current.next = context.next;
            const auto number = static_cast<std::uint8_t>(&current - groups.data());
            auto *const at = std::find(order.begin(), order.begin() + group_count, number);
            std::rotate(at, at + 1, order.begin() + group_count);
            const bool spun = context.spins * 2 >= slice;
            if (spun || ++current.slices >= kPatience)
                for (std::int32_t split = current.split; split >= 0; split = split_at(split).parent)
                    if (release(split)) {
                        current.slices = 0;
                        break;
                    }
        }
        spins += context.spins;
        left -= slice - context.unspent;
    }
    return spins * 2 >= budget;
}

void Warp::diverge(Context &context, std::uint32_t taken, const Op *target, const Op *other,
                   const Op *meeting) {
    count(context);
    Group &group = *context.group;
    const std::uint32_t rest = context.mask & ~taken;
    if (meeting != nullptr) {
        const bool known = group.split >= 0 && split_at(group.split).meeting == meeting &&
                           split_at(group.split).frame == group.frame &&
                           split_at(group.split).callee == nullptr;
        if (!known)
            group.split = add_split(meeting, group.frame, group.split, context.mask);
    }
    if (target == meeting) {
        split_at(group.split).arrived |= taken;
        group.mask = rest;
        context.next = other;
    } else if (other == meeting) {
        split_at(group.split).arrived |= rest;
        group.mask = taken;
        context.next = target;
    } else {
        add_group(taken, target, group.frame, group.split);
        group.mask = rest;
        context.next = other;
    }
    context.mask = group.mask;
    // From now on turns are short.
    if (context.budget > kSlice) {
        group.next = context.next;
        const std::int64_t saved = context.budget;
        stop(context);
        context.unspent = saved;
    }
}

void Warp::arrive(Context &context) {
    count(context);
    Group &group = *context.group;
    const Op *here = split_at(group.split).meeting;
    group.slices = 0;
    while (group.split >= 0 && split_at(group.split).meeting == here &&
           split_at(group.split).frame == group.frame && split_at(group.split).callee == nullptr) {
        Split &split = split_at(group.split);
        split.arrived |= group.mask;
        if (split.arrived != split.expected) {
            remove_group(group);
            stop(context);
            return;
        }
        group.mask = split.expected;
        const std::int32_t parent = split.parent;
        free_split(group.split);
        group.split = parent;
    }
    context.mask = group.mask;
}

void Warp::leave(Context &context, std::uint32_t lanes) {
    count(context);
    Group &group = *context.group;
    const std::int32_t split = group.split;
    live &= ~lanes;
    remove_group(group);
    stop(context);
    drop_lanes(split, -1, lanes);
    complete_collectives(context);
}

void Warp::wait(Context &context, const Op &op, Group::State state) {
    Group &group = *context.group;
    group.next = context.next;
    group.state = state;
    group.waiting = &op;
    group.pending = group.mask;
    stop(context);
}

void Warp::reserve_local(std::uint64_t bytes) {
    if (bytes <= local_stride && !local.empty())
        return;
    const std::uint64_t stride = std::max(bytes, 2 * local_stride);
    const std::uint64_t rounded = stride == 0 ? 64 : (stride + 63) / 64 * 64;
    std::vector<std::byte> larger(rounded * kLanes);
    for (std::uint64_t lane = 0; lane < kLanes && local_stride != 0; ++lane)
        std::memcpy(larger.data() + lane * rounded, local.data() + lane * local_stride, local_stride);
    local = std::move(larger);
    local_stride = rounded;
}

Frame &Warp::push_frame(Context &context, const Code &callee, std::uint32_t call) {
    Frame *caller = context.frame;
    const std::uint64_t charged = caller->charged + callee.function->local_size + kCallCharge;
    const std::uint64_t begin = caller->local_end;
    const auto lane = static_cast<unsigned>(std::countr_zero(context.mask));
    if (charged > called->stack_limit || begin + callee.frame > kMaxLocalBytes)
        raise_fault(FaultKind::stack_overflow, lane,
                    fmt::format("{} calls deep, {} bytes of stack: more than the limit of {}",
                                caller->depth + 1, charged, called->stack_limit));
    if (called->bytes + callee.rows > kMaxFrameBytes)
        raise_fault(FaultKind::stack_overflow, lane, "the calls of the block hold too many registers");
    std::unique_ptr<Frame> frame;
    const auto same = std::ranges::find(spare, &callee, [](const auto &old) { return old->code; });
    if (same != spare.end()) {
        frame = std::move(*same);
        spare.erase(same);
        std::memset(frame->rows.bytes.get(), 0, frame->rows.size);
    } else {
        frame = std::make_unique<Frame>();
        frame->rows = AlignedBytes(callee.rows);
    }
    frame->code = &callee;
    frame->caller = caller;
    frame->call = call;
    frame->local_base = begin;
    frame->local_end = begin + callee.frame;
    frame->charged = charged;
    frame->depth = caller->depth + 1;
    called->bytes += callee.rows;
    reserve_local(frame->local_end);
    return *calls.emplace_back(std::move(frame));
}

void Warp::pop_frame(Frame *frame) {
    const auto at = std::ranges::find(calls, frame, [](const auto &each) { return each.get(); });
    called->bytes -= frame->code->rows;
    if (spare.size() < kMaxSpareFrames)
        spare.push_back(std::move(*at));
    calls.erase(at);
}

void Warp::enter_call(Context &context, const Code &callee, std::uint32_t call) {
    count(context);
    Group &group = *context.group;
    Frame *caller = context.frame;
    Frame &frame = push_frame(context, callee, call);
    const CallSite &site = context.code->calls[call];
    const auto row_of = [&](const Frame &of, Ref ref) {
        return ((ref & kConstant) != 0 ? of.code->constants.bytes.get() : of.rows.bytes.get()) +
               (ref & ~kConstant);
    };
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        if ((context.mask & (1U << lane)) == 0)
            continue;
        std::byte *stack = local.data() + lane * local_stride;
        // What earlier activations left there must not be seen.
        std::memset(stack + frame.local_base, 0, callee.frame);
        std::byte *to = stack + frame.local_base + callee.parameters;
        for (const Argument &argument : site.arguments) {
            const std::byte *from = argument.row == kAbsent ? stack + caller->local_base + argument.from
                                                            : row_of(*caller, argument.row) +
                                                                  std::size_t{lane} * (argument.wide ? 8 : 4);
            std::memcpy(to + argument.to, from, argument.size);
        }
    }
    group.split = add_split(context.next, caller, group.split, context.mask);
    split_at(group.split).callee = &frame;
    group.frame = &frame;
    group.next = callee.ops.data();
    enter(context, group);
}

void Warp::return_from_call(Context &context) {
    count(context);
    Frame *frame = context.frame;
    Frame *caller = frame->caller;
    const std::uint32_t lanes = context.mask;
    const CallSite &site = caller->code->calls[frame->call];
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        if ((lanes & (1U << lane)) == 0)
            continue;
        std::byte *stack = local.data() + lane * local_stride;
        const std::byte *results = stack + frame->local_base + frame->code->results;
        for (const Argument &result : site.results) {
            std::byte *to = result.row == kAbsent ? stack + caller->local_base + result.to
                                                  : caller->rows.bytes.get() + result.row +
                                                        std::size_t{lane} * (result.wide ? 8 : 4);
            std::memcpy(to, results + result.from, result.size);
        }
    }
    std::int32_t home = context.group->split;
    while (split_at(home).callee != frame)
        home = split_at(home).parent;
    Group &group = *context.group;
    const std::int32_t inner = group.split;
    split_at(home).arrived |= lanes;
    if (split_at(home).arrived == split_at(home).expected && inner == home) {
        // All are back: they go on as this group.
        group.mask = split_at(home).expected;
        group.next = split_at(home).meeting;
        group.frame = caller;
        group.split = split_at(home).parent;
        free_split(home);
        enter(context, group);
        return;
    }
    remove_group(group);
    stop(context);
    drop_lanes(inner, home, lanes);
    settle(home);
}

} // namespace singularity::softgpu::engine
