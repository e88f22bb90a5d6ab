// SPDX-License-Identifier: GPL-2.0-or-later
#include "engine/block.hpp"

#include "engine/spelling.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/core.h>

namespace singularity::softgpu::engine {

void BlockRun::start(const LaunchRun &launch, std::uint64_t block_index) {
    run = &launch;
    linear = block_index;
    const Dim3 &grid = launch.launch->grid;
    index = {static_cast<std::uint32_t>(block_index % grid.x),
             static_cast<std::uint32_t>(block_index / grid.x % grid.y),
             static_cast<std::uint32_t>(block_index / grid.x / grid.y)};
    if (shared.size < launch.shared_size || shared.bytes == nullptr)
        shared = AlignedBytes(launch.shared_size);
    else
        std::memset(shared.bytes.get(), 0, launch.shared_size);
    barriers = {};
    called = {.stack_limit = launch.launch->stack_limit, .bytes = 0};
    released = 0;
    printed.clear();
    printed_ends.clear();
    warp_count = static_cast<unsigned>((launch.threads + kLanes - 1) / kLanes);
    if (warps.size() < warp_count)
        warps.resize(warp_count);
    for (unsigned i = 0; i < warp_count; ++i) {
        const std::uint64_t left = launch.threads - std::uint64_t{i} * kLanes;
        warps[i].called = &called;
        warps[i].index = i;
        warps[i].start(*launch.kernel, left >= kLanes ? kAllLanes : (1U << left) - 1);
    }
}

bool BlockRun::finished() const {
    return std::ranges::all_of(warps.begin(), warps.begin() + warp_count,
                               [](const Warp &warp) { return warp.live == 0; });
}

BlockRun::Turn BlockRun::turn(Context &context, std::int64_t budget) {
    context.block = this;
    context.shared = shared.bytes.get();
    context.shared_size = run->shared_size;
    bool any = false;
    bool progress = false;
    for (unsigned i = 0; i < warp_count; ++i) {
        Warp &warp = warps[i];
        if (!warp.ready())
            continue;
        any = true;
        const bool spun = warp.run(context, budget);
        progress |= !spun || !warp.ready();
    }
    if (finished())
        return Turn::finished;
    if (!any || !progress) {
        // Nobody moves: those who wait to meet others again go on without them.
        bool released_some = false;
        for (unsigned i = 0; i < warp_count; ++i)
            if (!warps[i].ready())
                released_some |= warps[i].release_innermost();
        if (!any && !released_some) {
            for (unsigned i = 0; i < warp_count; ++i)
                for (Group &group : warps[i].groups)
                    if (group.state == Group::State::barrier || group.state == Group::State::collective) {
                        warps[i].enter(context, group);
                        context.warp = &warps[i];
                        context.next = group.waiting + 1;
                        raise_fault(FaultKind::deadlock, static_cast<unsigned>(std::countr_zero(group.mask)),
                                    "it waits for threads that never come");
                    }
        }
    }
    return progress ? Turn::progress : Turn::spinning;
}

void BlockRun::barrier_arrive(unsigned id, unsigned warp, std::uint32_t lanes, std::uint32_t count,
                              std::uint32_t predicate) {
    Barrier &barrier = barriers[id];
    barrier.used = true;
    barrier.arrived[warp] |= lanes;
    barrier.count = std::max(barrier.count, count);
    barrier.population += lanes_in(predicate & lanes);
    barrier.participants += lanes_in(lanes);
    check_barrier(id);
}

void BlockRun::check_barriers() {
    for (unsigned id = 0; id < barriers.size(); ++id)
        if (barriers[id].used)
            check_barrier(id);
}

// Threads that have exited, or that the last warp never had, count as arrived with the rest of their warp.
void BlockRun::check_barrier(unsigned id) {
    Barrier &barrier = barriers[id];
    std::uint32_t arrived = 0;
    for (unsigned w = 0; w < warp_count; ++w) {
        const std::uint32_t live = warps[w].live;
        if (barrier.count == 0) {
            if ((live & ~barrier.arrived[w]) != 0)
                return;
        } else if (barrier.arrived[w] != 0) {
            arrived += lanes_in(barrier.arrived[w] | ~live);
        }
    }
    if (arrived < barrier.count)
        return;
    const Barrier done = barrier;
    barrier = Barrier{};
    ++released;
    for (unsigned w = 0; w < warp_count; ++w)
        for (std::uint32_t i = 0; i < warps[w].group_count; ++i) {
            Group &group = warps[w].groups[warps[w].order[i]];
            if (group.state != Group::State::barrier || group.barrier != id)
                continue;
            group.state = Group::State::ready;
            const Op &op = *group.waiting;
            if (op.o[0] == kAbsent || static_cast<ptx::Mode>(op.mode) != ptx::Mode::red)
                continue;
            std::byte *to = group.frame->rows.bytes.get() + op.o[0];
            if (static_cast<ptx::Operation>(op.key) == ptx::Operation::popc) {
                for (unsigned lane = 0; lane < kLanes; ++lane)
                    if ((group.mask & (1U << lane)) != 0)
                        reinterpret_cast<std::uint32_t *>(to)[lane] = done.population;
            } else {
                const bool yes = static_cast<ptx::Operation>(op.key) == ptx::Operation::and_
                                     ? done.population == done.participants
                                     : done.population != 0;
                auto &bits = *reinterpret_cast<std::uint32_t *>(to);
                bits = yes ? bits | group.mask : bits & ~group.mask;
            }
        }
}

void BlockRun::print(std::string_view text) {
    printed += text;
    printed_ends.push_back(printed.size());
}

Fault describe(const LaneFault &fault, const Context &context) {
    const Launch &launch = *context.block->run->launch;
    const ptx::Module &module = launch.program->module();
    const BlockRun &block = *context.block;
    const unsigned thread = context.warp->index * kLanes + fault.lane;
    const Op &op = *(context.next - 1);
    const Code &code = *context.code;
    std::string where;
    const bool within = &op >= code.ops.data() && &op < code.ops.data() + code.ops.size() &&
                        op.instruction < code.function->instructions.size();
    if (within) {
        const ptx::Instruction &instruction = code.instruction(op);
        where = fmt::format(", PTX line {}: {}", instruction.line, spell(instruction));
        if (!code.function->kernel)
            where = fmt::format(", in {}{}", code.function->name, where);
    }
    const auto name = module.functions[launch.function].name;
    if (fault.kind == FaultKind::assertion)
        return {fault.kind, fault.text};
    return {fault.kind, fmt::format("kernel {}, block ({},{},{}), thread ({},{},{}){}: {}", name,
                                    block.index.x, block.index.y, block.index.z, thread % launch.block.x,
                                    thread / launch.block.x % launch.block.y,
                                    thread / launch.block.x / launch.block.y, where, fault.text)};
}

} // namespace singularity::softgpu::engine
