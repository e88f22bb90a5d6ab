// SPDX-License-Identifier: GPL-2.0-or-later
// What native code is made of: the operations that can be reached from its head without one that only the
// interpreter knows, as basic blocks, and what is known of each row where a block begins.
#pragma once

#include "engine/native.hpp"

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace singularity::softgpu::compiler {

using engine::Code;
using engine::kAbsent;
using engine::Op;
using engine::OpKind;
using engine::Ref;
using ptx::kNone;
using ptx::Opcode;
using ptx::Type;

// Rows of the function, numbered.
class Rows {
  public:
    explicit Rows(const Code &code);
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(code_.row_list.size()); }
    // kNone: absent, or a constant.
    [[nodiscard]] std::uint32_t of(Ref ref) const;
    [[nodiscard]] unsigned width(std::uint32_t row) const { return code_.row_list[row].width; }
    [[nodiscard]] Ref ref(std::uint32_t row) const { return code_.row_list[row].ref; }
    [[nodiscard]] std::uint32_t of_register(std::uint32_t slot) const;
    [[nodiscard]] bool temporary(std::uint32_t row) const { return code_.row_list[row].slot == kNone; }

  private:
    const Code &code_;
    std::unordered_map<Ref, std::uint32_t> index_;
    std::vector<std::uint32_t> of_slot_;
};

struct Effects {
    std::vector<Ref> reads; // rows and constants
    std::vector<Ref> writes;
};
// Of an operation that is not `other`.
[[nodiscard]] Effects effects_of(const Code &code, std::uint32_t op);

// How an operation becomes native.
enum class Form : std::uint8_t {
    nothing,
    copy,    // also its value is the same
    value,   // code of its own
    callout, // the interpreter's handler
    special,
    frame_address,
    parameter_address,
    load,
    store,
    meet,
};

// Whether there is native code for the values of this operation.
[[nodiscard]] bool knows_value(const Code &code, std::uint32_t op);
// Of these: bits.cpp.
[[nodiscard]] bool knows_bits(const ptx::Instruction &instruction, const Op &op);
// Bytes that such an instruction reads of one of its operands, from 1 on.
[[nodiscard]] unsigned bits_operand_width(const ptx::Instruction &instruction, std::size_t operand);
[[nodiscard]] bool knows_small_float(const ptx::Instruction &instruction, const Op &op); // a cvt

struct Step {
    std::uint32_t at = 0; // where the interpreter would go on: the operation or its guard
    std::uint32_t op = 0;
    bool guarded = false;
    Form form = Form::nothing;
    std::vector<Ref> reads; // without the guard's predicate
    std::vector<Ref> writes;
};

struct Block {
    std::uint32_t first = 0; // its first operation
    std::vector<Step> steps;
    enum class End : std::uint8_t { jump, branch, leave } end = End::leave;
    std::uint32_t last = 0;                    // branch: the operation; leave: where the interpreter goes on
    std::uint32_t target = kNone;              // a block: jump, or branch taken
    std::uint32_t other = kNone;               // branch not taken
    [[nodiscard]] std::uint32_t cost() const { // operations, as the interpreter counts them
        return static_cast<std::uint32_t>(steps.size()) + (end == End::branch || jump_costs ? 1 : 0);
    }
    bool jump_costs = false;         // the jump is an operation
    std::vector<std::uint32_t> from; // blocks; the head is also entered from outside
};

// What is known of the value of a row.
struct Known {
    enum class Kind : std::uint8_t {
        nothing, // not looked at yet, or not needed
        uniform, // the same in all lanes that execute
        vector,  // that of a place (`anchor`), plus something uniform
    };
    Kind kind = Kind::nothing;
    std::uint32_t anchor = kNone;
    bool loose = false; // an f32 whose NaN is not yet the one that it must be
    bool operator==(const Known &) const = default;
};

// Anchors: places where a vector is made.
struct Region {
    const Code *code = nullptr;
    bool full = true;
    Rows rows;
    std::vector<Block> blocks;              // the first is the head's; in reverse postorder
    std::vector<std::vector<bool>> live;    // by block: rows that are needed where it begins
    std::vector<std::vector<Known>> known;  // by block: where it begins
    std::vector<std::vector<bool>> changed; // by block: rows that may differ from what is in memory
    std::vector<std::vector<bool>> live_at; // by operation of the function
    std::vector<engine::NativeRow> seen;    // rows, at the entry
    std::uint32_t step_count = 0;

    explicit Region(const Code &its_code) : code(&its_code), rows(its_code) {}

    [[nodiscard]] std::uint32_t entry_anchor(std::uint32_t row) const { return row; }
    [[nodiscard]] std::uint32_t block_anchor(std::uint32_t block, std::uint32_t row) const {
        return rows.size() * (block + 1) + row;
    }
    // step: its first operation, unique in the region. result: which of its writes.
    [[nodiscard]] std::uint32_t step_anchor(const Step &step, std::size_t result) const {
        return rows.size() * (static_cast<std::uint32_t>(blocks.size()) + 1) + step.op * 16 +
               static_cast<std::uint32_t>(result);
    }
};

// What is known of a row or constant.
[[nodiscard]] Known known_of(const Region &region, const std::vector<Known> &state, Ref ref);
// What the step makes of what is known: of each of its writes.
[[nodiscard]] std::vector<Known> results_of(const Region &region, const Step &step,
                                            const std::vector<Known> &state);

// Nothing: not worth it.
[[nodiscard]] std::optional<Region> make_region(const engine::NativeJob &job);

} // namespace singularity::softgpu::compiler
