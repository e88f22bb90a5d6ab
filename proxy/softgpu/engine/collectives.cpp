// SPDX-License-Identifier: GPL-2.0-or-later
// What lanes of a warp do together: shfl, vote, match, redux, elect, bar.warp.sync, activemask. Each lane
// names the lanes that take part. If they are all in its group the result is there at once; else the group
// waits until all that are named and have not exited execute the same, wherever in the program.
#include "engine/block.hpp"
#include "engine/handlers.hpp"

#include <bit>

namespace singularity::softgpu::engine {

namespace {

using ptx::Instruction;
using ptx::Mode;
using ptx::Opcode;
using ptx::Operation;
using ptx::Type;

// The operands and results of the lanes that take part.
struct Exchange {
    std::uint32_t lanes = 0;
    std::array<std::uint64_t, kLanes> value{};
    std::array<std::uint32_t, kLanes> second{};
    std::array<std::uint32_t, kLanes> third{};
    std::array<std::uint64_t, kLanes> result{};
    std::uint32_t flags = 0; // results that are predicates
};

enum class Shape : std::uint8_t { none, predicate, row32, row64 };

struct Collective {
    void (*compute)(Exchange &, std::uint8_t mode);
    Shape value;  // o[3]
    Shape result; // o[0]
};

template <class F>
void each_lane(std::uint32_t lanes, F visit) {
    for (; lanes != 0; lanes &= lanes - 1)
        visit(static_cast<unsigned>(std::countr_zero(lanes)));
}

// PTX ISA, shfl.sync: where lane reads from; c holds the bound and the mask of the segment.
struct ShuffleSource {
    unsigned lane;
    bool in_range;
};
[[gnu::always_inline]] inline ShuffleSource shuffle_source(Mode mode, unsigned lane, std::uint32_t b,
                                                           std::uint32_t c) {
    const unsigned segment = (c >> 8U) & 31U;
    const unsigned bound = c & 31U;
    b &= 31U;
    const unsigned highest = (lane & segment) | (bound & ~segment);
    const unsigned lowest = lane & segment;
    unsigned from = 0;
    bool in_range = false;
    switch (mode) {
    case Mode::up: { // the bound is the lowest lane here
        const int source = static_cast<int>(lane) - static_cast<int>(b);
        in_range = source >= static_cast<int>(highest);
        from = static_cast<unsigned>(source);
        break;
    }
    case Mode::down:
        from = lane + b;
        in_range = from <= highest;
        break;
    case Mode::bfly:
        from = lane ^ b;
        in_range = from <= highest;
        break;
    default:
        from = lowest | (b & ~segment);
        in_range = from <= highest;
        break;
    }
    return {in_range ? from : lane, in_range};
}

void shuffle(Exchange &exchange, std::uint8_t mode) {
    each_lane(exchange.lanes, [&](unsigned lane) {
        const ShuffleSource source =
            shuffle_source(static_cast<Mode>(mode), lane, exchange.second[lane], exchange.third[lane]);
        // What a lane that does not take part would give is not said: the lane's own value.
        const bool there = (exchange.lanes & (1U << source.lane)) != 0;
        exchange.result[lane] = exchange.value[there ? source.lane : lane];
        exchange.flags |= source.in_range ? 1U << lane : 0U;
    });
}

void vote(Exchange &exchange, std::uint8_t mode) {
    std::uint32_t yes = 0;
    each_lane(exchange.lanes, [&](unsigned lane) { yes |= exchange.value[lane] != 0 ? 1U << lane : 0U; });
    bool result = false;
    switch (static_cast<Mode>(mode)) {
    case Mode::all:
        result = yes == exchange.lanes;
        break;
    case Mode::any:
        result = yes != 0;
        break;
    case Mode::uni:
        result = yes == 0 || yes == exchange.lanes;
        break;
    default:
        break;
    }
    each_lane(exchange.lanes, [&](unsigned lane) {
        exchange.result[lane] =
            static_cast<Mode>(mode) == Mode::ballot ? yes : static_cast<std::uint64_t>(result);
    });
}

void match_any(Exchange &exchange, std::uint8_t) {
    each_lane(exchange.lanes, [&](unsigned lane) {
        std::uint32_t same = 0;
        each_lane(exchange.lanes, [&](unsigned other) {
            same |= exchange.value[other] == exchange.value[lane] ? 1U << other : 0U;
        });
        exchange.result[lane] = same;
    });
}
void match_all(Exchange &exchange, std::uint8_t) {
    const auto first = static_cast<unsigned>(std::countr_zero(exchange.lanes));
    bool same = true;
    each_lane(exchange.lanes, [&](unsigned lane) { same &= exchange.value[lane] == exchange.value[first]; });
    exchange.flags = same ? exchange.lanes : 0;
    each_lane(exchange.lanes, [&](unsigned lane) { exchange.result[lane] = same ? exchange.lanes : 0; });
}

template <auto F>
void reduce(Exchange &exchange, std::uint8_t) {
    const auto first = static_cast<unsigned>(std::countr_zero(exchange.lanes));
    auto total = static_cast<std::uint32_t>(exchange.value[first]);
    each_lane(exchange.lanes & (exchange.lanes - 1),
              [&](unsigned lane) { total = F(total, static_cast<std::uint32_t>(exchange.value[lane])); });
    each_lane(exchange.lanes, [&](unsigned lane) { exchange.result[lane] = total; });
}
using U = std::uint32_t;
constexpr std::int32_t signed_of(U bits) { return std::bit_cast<std::int32_t>(bits); }

// redux of f32: mode bits 1 abs, 2 NaN.
template <bool Largest, bool Absolute, bool Nan>
U extreme(U a, U b) {
    if (Absolute) {
        a &= 0x7FFFFFFFU;
        b &= 0x7FFFFFFFU;
    }
    const auto x = std::bit_cast<float>(a);
    const auto y = std::bit_cast<float>(b);
    if (x != x || y != y)
        return Nan || (x != x && y != y) ? 0x7FFFFFFFU : (x != x ? b : a);
    // As numbers of sign and magnitude, so that -0 is below +0.
    const auto key = [](U bits) {
        return (bits & 0x80000000U) != 0 ? -static_cast<std::int64_t>(bits & 0x7FFFFFFFU) - 1
                                         : std::int64_t{bits};
    };
    return Largest == (key(a) > key(b)) ? a : b;
}

void elect(Exchange &exchange, std::uint8_t) {
    const auto leader = static_cast<unsigned>(std::countr_zero(exchange.lanes));
    exchange.flags = 1U << leader;
    each_lane(exchange.lanes, [&](unsigned lane) { exchange.result[lane] = leader; });
}
void synchronise(Exchange &, std::uint8_t) {}

struct Known {
    Opcode opcode;
    Operation operation;
    Type type; // none: any
    Mode mode; // none: any
    Collective collective;
};

constexpr Known kCollectives[] = {
    {Opcode::shfl, Operation::none, Type::none, Mode::none, {shuffle, Shape::row32, Shape::row32}},
    {Opcode::vote, Operation::none, Type::none, Mode::ballot, {vote, Shape::predicate, Shape::row32}},
    {Opcode::vote, Operation::none, Type::none, Mode::none, {vote, Shape::predicate, Shape::predicate}},
    {Opcode::match, Operation::none, Type::b32, Mode::any, {match_any, Shape::row32, Shape::row32}},
    {Opcode::match, Operation::none, Type::b64, Mode::any, {match_any, Shape::row64, Shape::row32}},
    {Opcode::match, Operation::none, Type::b32, Mode::all, {match_all, Shape::row32, Shape::row32}},
    {Opcode::match, Operation::none, Type::b64, Mode::all, {match_all, Shape::row64, Shape::row32}},
    {Opcode::elect, Operation::none, Type::none, Mode::none, {elect, Shape::none, Shape::row32}},
    {Opcode::bar, Operation::none, Type::none, Mode::warp, {synchronise, Shape::none, Shape::none}},
    {Opcode::redux,
     Operation::and_,
     Type::b32,
     Mode::none,
     {reduce<[](U a, U b) { return a & b; }>, Shape::row32, Shape::row32}},
    {Opcode::redux,
     Operation::or_,
     Type::b32,
     Mode::none,
     {reduce<[](U a, U b) { return a | b; }>, Shape::row32, Shape::row32}},
    {Opcode::redux,
     Operation::xor_,
     Type::b32,
     Mode::none,
     {reduce<[](U a, U b) { return a ^ b; }>, Shape::row32, Shape::row32}},
    {Opcode::redux,
     Operation::add,
     Type::u32,
     Mode::none,
     {reduce<[](U a, U b) { return a + b; }>, Shape::row32, Shape::row32}},
    {Opcode::redux,
     Operation::add,
     Type::s32,
     Mode::none,
     {reduce<[](U a, U b) { return a + b; }>, Shape::row32, Shape::row32}},
    {Opcode::redux,
     Operation::min,
     Type::u32,
     Mode::none,
     {reduce<[](U a, U b) { return a < b ? a : b; }>, Shape::row32, Shape::row32}},
    {Opcode::redux,
     Operation::max,
     Type::u32,
     Mode::none,
     {reduce<[](U a, U b) { return a < b ? b : a; }>, Shape::row32, Shape::row32}},
    {Opcode::redux,
     Operation::min,
     Type::s32,
     Mode::none,
     {reduce<[](U a, U b) { return signed_of(a) < signed_of(b) ? a : b; }>, Shape::row32, Shape::row32}},
    {Opcode::redux,
     Operation::max,
     Type::s32,
     Mode::none,
     {reduce<[](U a, U b) { return signed_of(a) < signed_of(b) ? b : a; }>, Shape::row32, Shape::row32}},
};
// redux.f32, by operation, .abs and .NaN: behind the others in the numbering.
constexpr Collective kFloatReductions[] = {{reduce<extreme<false, false, false>>, Shape::row32, Shape::row32},
                                           {reduce<extreme<false, false, true>>, Shape::row32, Shape::row32},
                                           {reduce<extreme<false, true, false>>, Shape::row32, Shape::row32},
                                           {reduce<extreme<false, true, true>>, Shape::row32, Shape::row32},
                                           {reduce<extreme<true, false, false>>, Shape::row32, Shape::row32},
                                           {reduce<extreme<true, false, true>>, Shape::row32, Shape::row32},
                                           {reduce<extreme<true, true, false>>, Shape::row32, Shape::row32},
                                           {reduce<extreme<true, true, true>>, Shape::row32, Shape::row32}};

const Collective &collective_at(std::uint64_t index) {
    return index < std::size(kCollectives) ? kCollectives[index].collective
                                           : kFloatReductions[index - std::size(kCollectives)];
}

void gather(const Context &context, const Op &op, std::uint32_t lanes, Exchange &exchange) {
    const Collective &collective = collective_at(op.immediate);
    const std::uint32_t bits = collective.value == Shape::predicate ? predicate(context, op.o[3]) : 0;
    each_lane(lanes, [&](unsigned lane) {
        switch (collective.value) {
        case Shape::predicate:
            exchange.value[lane] = (bits >> lane) & 1U;
            break;
        case Shape::row32:
            exchange.value[lane] = row<std::uint32_t>(context, op.o[3])[lane];
            break;
        case Shape::row64:
            exchange.value[lane] = row<std::uint64_t>(context, op.o[3])[lane];
            break;
        case Shape::none:
            break;
        }
        if (op.o[4] != kAbsent)
            exchange.second[lane] = row<std::uint32_t>(context, op.o[4])[lane];
        if (op.o[5] != kAbsent)
            exchange.third[lane] = row<std::uint32_t>(context, op.o[5])[lane];
    });
}

void scatter(const Context &context, const Op &op, std::uint32_t lanes, const Exchange &exchange) {
    const Collective &collective = collective_at(op.immediate);
    std::uint32_t bits = 0;
    each_lane(lanes, [&](unsigned lane) {
        if (collective.result == Shape::row32)
            row<std::uint32_t>(context, op.o[0])[lane] = static_cast<std::uint32_t>(exchange.result[lane]);
        bits |= exchange.result[lane] != 0 ? 1U << lane : 0U;
    });
    const auto merge = [&](Ref ref, std::uint32_t value) {
        std::uint32_t &target = predicate(context, ref);
        target = (target & ~lanes) | (value & lanes);
    };
    if (collective.result == Shape::predicate)
        merge(op.o[0], bits);
    if (op.o[1] != kAbsent)
        merge(op.o[1], exchange.flags);
}

// The lanes named by those that execute, if all of these name the same ones.
bool same_members(const Context &context, const Op &op, std::uint32_t &members) {
    if (op.o[2] == kAbsent) { // the forms without .sync: whoever executes
        members = context.mask;
        return true;
    }
    const std::uint32_t *named = row<std::uint32_t>(context, op.o[2]);
    members = named[std::countr_zero(context.mask)];
    std::uint32_t different = 0;
    for (unsigned i = 0; i < kLanes; ++i)
        different |= (context.mask & (1U << i)) != 0 ? named[i] ^ members : 0;
    return different == 0;
}

void enter_collective(Context &context, const Op &op) {
    std::uint32_t members = 0;
    if (same_members(context, op, members) && (members & context.warp->live & ~context.mask) == 0 &&
        (members & context.mask) == context.mask) [[likely]] {
        Exchange exchange;
        exchange.lanes = context.mask;
        gather(context, op, context.mask, exchange);
        collective_at(op.immediate).compute(exchange, op.mode);
        scatter(context, op, context.mask, exchange);
        return;
    }
    Warp &warp = *context.warp;
    warp.wait(context, op, Group::State::collective);
    warp.complete_collectives(context);
}

// All lanes take part and stay in one group: what reductions over a warp are made of.
void enter_shuffle(Context &context, const Op &op) {
    std::uint32_t members = 0;
    if (context.mask != kAllLanes || !same_members(context, op, members) || members != kAllLanes) {
        enter_collective(context, op);
        return;
    }
    const std::uint32_t *a = row<std::uint32_t>(context, op.o[3]);
    const std::uint32_t *b = row<std::uint32_t>(context, op.o[4]);
    const std::uint32_t *c = row<std::uint32_t>(context, op.o[5]);
    std::uint32_t result[kLanes];
    std::uint32_t flags = 0;
    const auto mode = static_cast<Mode>(op.mode);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        const ShuffleSource source = shuffle_source(mode, lane, b[lane], c[lane]);
        result[lane] = a[source.lane];
        flags |= source.in_range ? 1U << lane : 0U;
    }
    auto *out = row<std::uint32_t>(context, op.o[0]);
    for (unsigned lane = 0; lane < kLanes; ++lane)
        out[lane] = result[lane];
    if (op.o[1] != kAbsent)
        predicate(context, op.o[1]) = flags;
}

void active_mask(Context &context, const Op &op) {
    each_lane(context.mask,
              [&](unsigned lane) { row<std::uint32_t>(context, op.o[0])[lane] = context.mask; });
}

} // namespace

void Warp::complete_collectives(Context &context) {
    // Of every lane that waits: its group and the lanes it names.
    std::array<Group *, kLanes> group_of{};
    std::array<std::uint32_t, kLanes> members{};
    std::uint32_t waiting = 0;
    for (Group &group : groups) {
        if (group.state != Group::State::collective)
            continue;
        waiting |= group.pending;
        each_lane(group.pending, [&](unsigned lane) {
            group_of[lane] = &group;
            const Ref named = group.waiting->o[2];
            const std::byte *rows = (named & kConstant) != 0 ? group.frame->code->constants.bytes.get()
                                                             : group.frame->rows.bytes.get();
            members[lane] = named == kAbsent
                                ? group.mask
                                : reinterpret_cast<const std::uint32_t *>(rows + (named & ~kConstant))[lane];
        });
    }
    while (waiting != 0) {
        const auto lane = static_cast<unsigned>(std::countr_zero(waiting));
        const std::uint32_t needed = (members[lane] | 1U << lane) & live;
        const Op &op = *group_of[lane]->waiting;
        bool all = true;
        each_lane(needed, [&](unsigned other) {
            all &= group_of[other] != nullptr && members[other] == members[lane] &&
                   group_of[other]->waiting->key == op.key;
        });
        if (!all) {
            waiting &= waiting - 1;
            continue;
        }
        waiting &= ~needed;
        Exchange exchange;
        exchange.lanes = needed;
        const auto in_group = [&](Group &group, auto action) {
            Context its = context;
            its.frame = group.frame;
            its.bases = {group.frame->rows.bytes.get(), group.frame->code->constants.bytes.get()};
            action(its, *group.waiting, needed & group.pending);
        };
        for (Group &group : groups)
            if (group.state == Group::State::collective && (needed & group.pending) != 0)
                in_group(group, [&](Context &its, const Op &its_op, std::uint32_t lanes) {
                    gather(its, its_op, lanes, exchange);
                });
        collective_at(op.immediate).compute(exchange, op.mode);
        for (Group &group : groups)
            if (group.state == Group::State::collective && (needed & group.pending) != 0) {
                in_group(group, [&](Context &its, const Op &its_op, std::uint32_t lanes) {
                    scatter(its, its_op, lanes, exchange);
                });
                group.pending &= ~needed;
                if (group.pending == 0)
                    group.state = Group::State::ready;
            }
        each_lane(needed, [&](unsigned done) { group_of[done] = nullptr; });
    }
}

Handler select_collective(const Instruction &instruction) {
    switch (instruction.opcode) {
    case Opcode::shfl:
        return enter_shuffle;
    case Opcode::activemask:
        return active_mask;
    default:
        return collective_index(instruction) != UINT64_MAX ? enter_collective : nullptr;
    }
}

std::uint64_t collective_index(const Instruction &instruction) {
    if (instruction.opcode == Opcode::redux && instruction.types[0] == Type::f32) {
        const std::uint64_t form = (instruction.operation == Operation::max ? 4U : 0U) |
                                   (instruction.has(ptx::Flag::abs) ? 2U : 0U) |
                                   (instruction.has(ptx::Flag::nan) ? 1U : 0U);
        return std::size(kCollectives) + form;
    }
    for (std::size_t i = 0; i < std::size(kCollectives); ++i) {
        const Known &known = kCollectives[i];
        if (known.opcode == instruction.opcode &&
            (known.operation == Operation::none || known.operation == instruction.operation) &&
            (known.type == Type::none || known.type == instruction.types[0]) &&
            (known.mode == Mode::none || known.mode == instruction.mode))
            return i;
    }
    return UINT64_MAX;
}

} // namespace singularity::softgpu::engine
