// SPDX-License-Identifier: GPL-2.0-or-later
// How one function becomes code; only for compile*.cpp. compile.cpp goes through the instructions, the others
// know each kind of them: what its operands are, which handler runs it.
#pragma once

#include "common/error.hpp"
#include "engine/code.hpp"
#include "engine/context.hpp"
#include "engine/handlers.hpp"
#include "engine/layout.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace singularity::softgpu::engine {

using ptx::Flag;
using ptx::Function;
using ptx::Instruction;
using ptx::kNone;
using ptx::Opcode;
using ptx::Operand;
using ptx::Space;
using ptx::Type;

// Thrown where the function turns out to be one that cannot be run; caught by compile_function().
struct Unsupported {
    Error error;
};

// Bytes per lane of the row of a value: 0 for predicates.
[[nodiscard]] unsigned row_width(Type type);
[[nodiscard]] Handler predicate_not();
// Operand 1 is a second destination of these, written `d|p`.
[[nodiscard]] bool has_predicate_pair(const Instruction &instruction);

class FunctionCompiler {
  public:
    FunctionCompiler(const Layout &layout, std::uint32_t index);
    std::unique_ptr<Code> compile();

  private:
    [[noreturn]] void unsupported(std::string why) const;
    [[nodiscard]] std::string spelled() const;
    void instruction(const Instruction &instruction, const ptx::Block &block);
    void body(const Instruction &instruction, const ptx::Block &block);

    // compile_rows.cpp
    // The lane's stack: locals, parameters of calls, own parameters, results.
    void place_frame();
    void count_uses();
    // Rows. Predicates are laid out first, when their number is known: until then their references are
    // marked.
    static constexpr Ref kPredicateMark = 1U << 30U;
    Ref new_predicate();
    Ref new_row(unsigned width);
    Ref register_row(std::uint32_t slot);
    Ref temporary(unsigned width); // until the next instruction
    void finish_rows();
    Ref constant(unsigned width, std::uint64_t value);
    std::uint32_t extra_rows(const std::vector<Ref> &rows);

    // compile.cpp
    Op &add(Op op);
    [[nodiscard]] OpKind kind_of(const Op &op) const;
    // Executed by the lanes that the guard lets, if the instruction has one.
    void add_guarded(const Op &op);
    void emit(const Op &op);
    // The destination becomes 0.
    void zero(const Instruction &instruction);
    void add_move(Handler handler, Ref destination, Ref source) {
        const OpKind before = std::exchange(kind_, OpKind::copy);
        add({.run = handler, .o = {destination, source, kAbsent, kAbsent, kAbsent, kAbsent}});
        kind_ = before;
    }

    // compile_operands.cpp
    // The address of a variable, a parameter or a function, as a value. Known: an immediate; else the
    // operation that makes it.
    struct Address {
        Handler made_by = nullptr;
        std::uint64_t value = 0;
    };
    Address address_of(const Operand &operand);
    [[nodiscard]] std::uint64_t frame_offset(const Operand &operand) const;
    Ref source(const Operand &operand);
    Ref source(const Operand &operand, Type type);
    static Handler integer_handler(Opcode opcode, Type type);
    // A destination whose register is wider than what is written to it: extended afterwards.
    struct Destination {
        Ref written = kAbsent;
        Ref wide = kAbsent;
        bool is_signed = false;
    };
    Destination destination(const Operand &operand);
    void finish(const Destination &destination);
    [[nodiscard]] const Operand &operand(const Instruction &instruction, std::uint32_t at) const {
        return function_.operands[instruction.operands + at];
    }
    // Where an access goes; Op::o[5] is the row of its address.
    void set_address(Op &op, const Operand &address, Space space, std::uint64_t bytes);
    [[nodiscard]] bool is_shared(const Operand &operand) const;

    // compile_memory.cpp
    void load(const Instruction &instruction);
    void store(const Instruction &instruction);
    void atomic(const Instruction &instruction);
    // cp.async and mbarrier.
    void asynchronous(const Instruction &instruction);
    void stack(const Instruction &instruction);
    // compile_textures.cpp
    void texture(const Instruction &instruction);
    void add_elements(const Operand &operand, std::vector<Ref> &rows);
    void convert_address(const Instruction &instruction);

    // compile_values.cpp
    // mov: from what is no plain value.
    bool move(const Instruction &instruction);
    void move_tuple(const Operand &to, const Operand &from, Type type);
    static void set_modes(const Instruction &instruction, Op &op);
    void video_parts(const Instruction &instruction, Op &op) const;
    void product_and_sum(const Instruction &instruction, Op &op) const;
    void logic_table(const Instruction &instruction, Op &op);
    // Instructions whose operands are rows: destination first, the sources after it.
    void plain(const Instruction &instruction);

    // compile_control.cpp
    void branch(const Instruction &instruction, const ptx::Block &block);
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(code_->ops.size()); }
    [[nodiscard]] std::uint32_t block_index(const ptx::Block &block) const {
        return static_cast<std::uint32_t>(&block - function_.blocks.data());
    }
    Argument argument(const Operand &operand, const ptx::Parameter &parameter);
    void call(const Instruction &instruction);

    // compile_warp.cpp
    // bar.sync a[, b]; bar.arrive a, b; bar.red d, a[, b], p
    void barrier(const Instruction &instruction);
    void collective(const Instruction &instruction, Op op);
    void collective_instruction(const Instruction &instruction);
    // The operands of mma, ldmatrix and their kin are tuples: their rows are in `extra`, one after the other.
    void matrix(const Instruction &instruction);

    const Layout &layout_;
    const ptx::Module &module_;
    const Function &function_;
    std::unique_ptr<Code> code_;
    std::vector<Ref> registers_; // by slot
    std::vector<std::uint32_t> uses_;
    struct Temporaries {
        std::vector<Ref> rows;
        std::size_t used = 0;
    };
    std::map<unsigned, Temporaries> temporaries_; // by width; free again after each instruction
    std::uint32_t predicates_ = 0;
    Ref rows_ = 0;
    Ref carry_ = kAbsent;
    std::map<std::pair<unsigned, std::uint64_t>, Ref> constant_rows_;
    std::vector<std::byte> constants_;
    std::vector<std::uint32_t> block_starts_;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> targets_, meetings_, table_targets_;
    std::vector<std::uint32_t> rows_in_extra_;
    std::map<std::uint32_t, bool> carries_;
    std::uint64_t call_parameters_ = 0;
    std::uint32_t at_ = 0;
    OpKind kind_ = OpKind::other; // of what emit() is about to add
};

} // namespace singularity::softgpu::engine
