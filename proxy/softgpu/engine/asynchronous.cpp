// SPDX-License-Identifier: GPL-2.0-or-later
// cp.async and mbarrier. A copy is made when it is asked for, which is one of the times at which it may be
// made; what waits for copies then has nothing to wait for.
//
// An mbarrier is opaque to programs. Here its 64 bits are: 0..19 arrivals still missing in this phase, 20..39
// arrivals of a phase, 40..61 bytes of transactions still missing, 63 the parity of the phase.
#include "engine/context.hpp"
#include "engine/handlers.hpp"

#include <atomic>
#include <bit>
#include <cstring>

#include <fmt/core.h>

namespace singularity::softgpu::engine {

namespace {

using ptx::Instruction;
using ptx::Mode;
using ptx::Opcode;

// cp.async dst, src, bytes [, source bytes]: what the source does not give is zero.
void copy(Context &context, const Op &op) {
    const std::uint32_t bytes = op.key;
    Access to;
    resolve_general(context, op, bytes, true, to);
    const std::uint64_t *base = row<std::uint64_t>(context, op.o[1]);
    const std::uint64_t offset = row<std::uint64_t>(context, op.o[2])[0];
    const std::uint32_t all = context.mask;
    for (std::uint32_t lanes = all; lanes != 0; lanes &= lanes - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
        const std::uint32_t given = op.o[3] == kAbsent ? bytes : row<std::uint32_t>(context, op.o[3])[lane];
        const std::uint32_t taken = given < bytes ? given : bytes;
        std::memset(to.at[lane], 0, bytes);
        if (taken == 0)
            continue; // the source is not looked at
        const std::uint64_t address = base[lane] + offset;
        if (address % bytes != 0)
            raise_address_fault(FaultKind::misaligned_address, lane, address, bytes, Place::global, false);
        if (find_range(context, op, address, address + taken - 1) == nullptr)
            raise_address_fault(FaultKind::illegal_address, lane, address, taken, Place::global, false);
        std::memcpy(to.at[lane], std::bit_cast<const std::byte *>(address), taken);
    }
}

struct PhaseState {
    static constexpr std::uint64_t kCountMask = 0xFFFFF;
    static constexpr std::uint64_t kBytesMask = 0x3FFFFF;
    std::uint64_t missing = 0;
    std::uint64_t count = 0;
    std::int64_t bytes = 0;
    bool parity = false;

    explicit PhaseState(std::uint64_t bits)
        : missing(bits & kCountMask), count((bits >> 20U) & kCountMask),
          bytes(std::bit_cast<std::int64_t>(((bits >> 40U) & kBytesMask) << 42U) >> 42),
          parity(bits >> 63U != 0) {}
    [[nodiscard]] std::uint64_t bits() const {
        return (missing & kCountMask) | (count & kCountMask) << 20U |
               (std::bit_cast<std::uint64_t>(bytes) & kBytesMask) << 40U |
               (parity ? std::uint64_t{1} << 63U : 0);
    }
    void settle() {
        if (missing == 0 && bytes == 0) {
            missing = count;
            parity = !parity;
        }
    }
};

template <class F>
void on_barriers(Context &context, const Op &op, F action) {
    Access access;
    resolve_general(context, op, sizeof(std::uint64_t), true, access);
    for (std::uint32_t lanes = context.mask; lanes != 0; lanes &= lanes - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
        std::uint64_t bits = 0;
        std::memcpy(&bits, access.at[lane], sizeof(bits));
        PhaseState state(bits);
        action(lane, state, bits);
        bits = state.bits();
        std::memcpy(access.at[lane], &bits, sizeof(bits));
    }
}

// What the compiler put into op: o[0] the result, o[1].. the values; access: 2 parity, 4 expect_tx, 8 noinc.
constexpr unsigned kParity = 2;
constexpr unsigned kExpect = 4;
constexpr unsigned kNoIncrement = 8;

std::uint32_t value_of(const Context &context, const Op &op, unsigned lane, std::uint32_t otherwise) {
    return op.o[1] == kAbsent ? otherwise : row<std::uint32_t>(context, op.o[1])[lane];
}

void initialise(Context &context, const Op &op) {
    on_barriers(context, op, [&](unsigned lane, PhaseState &state, std::uint64_t) {
        const std::uint32_t count = value_of(context, op, lane, 1);
        if (count == 0 || count > PhaseState::kCountMask)
            raise_fault(FaultKind::illegal_instruction, lane,
                        fmt::format("an mbarrier of {} arrivals", count));
        state = PhaseState(0);
        state.missing = state.count = count;
    });
}

void arrive(Context &context, const Op &op) {
    on_barriers(context, op, [&](unsigned lane, PhaseState &state, std::uint64_t before) {
        const bool expects = (op.access & kExpect) != 0;
        const std::uint32_t value = value_of(context, op, lane, expects ? 0 : 1);
        const std::uint64_t arrivals = expects ? 1 : value;
        if (arrivals > state.missing)
            raise_fault(FaultKind::illegal_instruction, lane,
                        fmt::format("{} arrivals at an mbarrier that waits for {}", arrivals, state.missing));
        if (expects)
            state.bytes += value;
        state.missing -= arrivals;
        if (static_cast<Mode>(op.mode) == Mode::arrive_drop)
            state.count -= arrivals;
        state.settle();
        if (op.o[0] != kAbsent)
            row<std::uint64_t>(context, op.o[0])[lane] = before;
    });
}

// cp.async.mbarrier.arrive: its copies are made already. Without .noinc the arrival was not counted before.
void arrive_for_copies(Context &context, const Op &op) {
    if ((op.access & kNoIncrement) == 0)
        return; // one more is awaited, and comes
    on_barriers(context, op, [&](unsigned, PhaseState &state, std::uint64_t) {
        state.missing -= state.missing != 0 ? 1 : 0;
        state.settle();
    });
}

void transactions(Context &context, const Op &op) {
    on_barriers(context, op, [&](unsigned lane, PhaseState &state, std::uint64_t) {
        const std::uint32_t bytes = value_of(context, op, lane, 0);
        state.bytes +=
            static_cast<Mode>(op.mode) == Mode::expect_tx ? std::int64_t{bytes} : -std::int64_t{bytes};
        state.settle();
    });
}

// Has the phase ended that the token (or the parity) names?
void test(Context &context, const Op &op) {
    charge_spin(context);
    std::uint32_t bits = 0;
    on_barriers(context, op, [&](unsigned lane, PhaseState &state, std::uint64_t) {
        const bool named = (op.access & kParity) != 0
                               ? (row<std::uint32_t>(context, op.o[1])[lane] & 1U) != 0
                               : row<std::uint64_t>(context, op.o[1])[lane] >> 63U != 0;
        bits |= named != state.parity ? 1U << lane : 0U;
    });
    set_predicate(context, op.o[0], bits);
}

void pending(Context &context, const Op &op) {
    const std::uint64_t *tokens = row<std::uint64_t>(context, op.o[1]);
    for (unsigned lane = 0; lane < kLanes; ++lane)
        if ((context.mask & (1U << lane)) != 0)
            row<std::uint32_t>(context, op.o[0])[lane] =
                static_cast<std::uint32_t>(PhaseState(tokens[lane]).missing);
}

void invalidate(Context &, const Op &) {}

} // namespace

Handler select_asynchronous(const Instruction &instruction) {
    if (instruction.opcode == Opcode::cp) {
        switch (instruction.mode) {
        case Mode::commit_group:
        case Mode::wait_group:
        case Mode::wait_all:
            return control::nothing;
        case Mode::arrive:
            return arrive_for_copies;
        default:
            return copy;
        }
    }
    switch (instruction.mode) {
    case Mode::init:
        return initialise;
    case Mode::inval:
        return invalidate;
    case Mode::arrive:
    case Mode::arrive_drop:
        return arrive;
    case Mode::expect_tx:
    case Mode::complete_tx:
        return transactions;
    case Mode::test_wait:
    case Mode::try_wait:
        return test;
    case Mode::pending_count:
        return pending;
    default:
        return nullptr;
    }
}

} // namespace singularity::softgpu::engine
