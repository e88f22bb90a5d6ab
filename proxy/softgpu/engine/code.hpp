// SPDX-License-Identifier: GPL-2.0-or-later
// A function of PTX in the form in which it runs: a flat list of operations, each a handler and where its
// operands lie. A register is a row: its value in each of the 32 lanes of a warp, 4, 8 or 16 bytes each; a
// predicate is one bit per lane. Immediates are rows too, in a pool of the function, so that a handler never
// asks what kind of operand it has. A value narrower than its row has undefined bits above it: handlers cut
// what they read to the width they need.
#pragma once

#include "engine/engine.hpp"
#include "ptx/ir.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace singularity::softgpu::engine {

// 128 bits are no ISO C++; the compilers know them.
__extension__ using Signed128 = __int128;
__extension__ using Unsigned128 = unsigned __int128;

inline constexpr unsigned kLanes = 32;
inline constexpr std::uint32_t kAllLanes = UINT32_MAX;
inline constexpr std::size_t kRowAlignment = 64;

struct Context;
struct Op;
using Handler = void (*)(Context &, const Op &);

// Where a row lies: a byte offset from the frame's rows, or from the function's pool of constants.
using Ref = std::uint32_t;
inline constexpr Ref kConstant = 1U << 31U;
inline constexpr Ref kAbsent = UINT32_MAX;

// Which memory an access goes to, and so how its address is checked and translated.
enum class Place : std::uint8_t {
    global,    // an address of this process: global, constant, the parameters of a kernel
    shared,    // from the start of the block's shared memory
    local,     // from the start of the lane's stack
    frame,     // the same, from the start of the activation's part of it
    parameter, // from the start of the kernel's parameter buffer
    generic,   // any of the first three: the high bits say which
};

// How the address of an access is made.
enum class Base : std::uint8_t { none, row32, row64 };

struct Op {
    Handler run = nullptr;
    std::array<Ref, 6> o{kAbsent, kAbsent, kAbsent,
                         kAbsent, kAbsent, kAbsent}; // by operand of the instruction
    std::uint64_t immediate = 0;        // of an access: what is added to the address; else the handler's own
    std::uint32_t extra = 0;            // first in Code::extra: the elements of a tuple
    std::uint32_t instruction = 0;      // in the Function, for messages
    std::uint32_t target = 0;           // of branches: an operation of the same function
    std::uint32_t meeting = ptx::kNone; // where lanes that go apart here meet again
    std::uint8_t rounding = 0;          // ptx::Rounding of floating-point operations, when it is not .rn
    Place place = Place::global;
    Base base = Base::none;
    std::uint8_t count = 1;  // elements of the tuple
    std::uint8_t access = 0; // these two are the handler's own
    std::uint8_t mode = 0;
    std::uint16_t key = 0; // of what waits for other lanes: what they must execute as well
};

// What an operation is, for native code: see native.hpp.
enum class OpKind : std::uint8_t {
    other, // the interpreter's alone
    plain, // values from values, lane by lane: o[0] from the rest, by its instruction
    pair,  // likewise, with a predicate as a second result in o[1]
    carry, // likewise, with the carries in `extra`
    pack,  // o[0] of the tuple
    unpack,
    copy,   // o[0] = o[1]
    invert, // likewise, of a predicate
    mask,   // o[0] = o[1] & o[2], 64 bits
    add,    // o[0] = o[1] + o[2], 64 bits
    widen_unsigned,
    widen_signed,
    narrow,
    load,
    store,
    special,
    frame_address,
    parameter_address,
    guard,
    branch,
    branch_if,
    branch_table,
    meet,
    nothing,
    end, // lanes that come here do not come behind it
};

// A row of a frame.
struct RowOfFrame {
    Ref ref = kAbsent;
    unsigned width = 0; // bytes per lane; 0: a predicate
    std::uint32_t slot =
        ptx::kNone; // the register whose it is; none: a temporary, used within one instruction
};

// A pool of rows. Its address never changes once the function is compiled.
struct AlignedBytes {
    struct Free {
        void operator()(std::byte *bytes) const;
    };
    std::unique_ptr<std::byte, Free> bytes;
    std::size_t size = 0;

    AlignedBytes() = default;
    explicit AlignedBytes(std::size_t bytes_wanted); // zeroed
};

struct Argument {
    Ref row = kAbsent;      // the value, when it is not in memory
    std::uint64_t from = 0; // in the caller's frame, when it is in memory
    std::uint64_t to = 0;   // in the callee's frame, from the start of its parameters
    std::uint32_t size = 0; // bytes
    bool wide = false;      // the row is of 8 bytes per lane
};

struct CallSite {
    std::vector<Argument> arguments;
    std::vector<Argument> results; // `from`: in the callee's frame from its results, `to`: in the caller's
};

struct NativeCode;
struct NativeCodeEnd {
    void operator()(NativeCode *native) const;
};

struct Code {
    const ptx::Function *function = nullptr;
    std::uint32_t index = 0; // in the module
    std::vector<Op> ops;
    std::vector<Ref> extra;
    std::vector<CallSite> calls;
    AlignedBytes constants;
    std::uint64_t rows = 0; // bytes of a frame's rows
    // The lane's stack holds .local variables, .param variables of calls, parameters, results.
    std::uint64_t parameters = 0; // where in the frame
    std::uint64_t results = 0;
    std::uint64_t frame = 0;                           // bytes of all
    std::vector<OpKind> kinds;                         // by operation
    std::vector<RowOfFrame> row_list;                  // all rows of a frame
    std::unique_ptr<NativeCode, NativeCodeEnd> native; // the last member: it ends first. nullptr: interpreted

    [[nodiscard]] const ptx::Instruction &instruction(const Op &op) const {
        return function->instructions[op.instruction];
    }
};

// A kernel with everything that it can call. Offsets in shared memory are the kernel's own, so each kernel
// has its own code of a function that several call.
struct Kernel {
    std::uint32_t index = 0;
    std::vector<std::unique_ptr<Code>> codes; // by function of the module; nullptr: cannot be reached
    Code *entry = nullptr;
    std::vector<Range> constants;    // where .const variables of the module are
    std::uint64_t static_shared = 0; // bytes; dynamic shared memory begins here, rounded up to 16
    bool independent = true;         // blocks may run side by side
    bool grid_barrier = false;
    std::string unsupported; // why it cannot be launched
};

} // namespace singularity::softgpu::engine
