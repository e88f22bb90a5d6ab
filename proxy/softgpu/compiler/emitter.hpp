// SPDX-License-Identifier: GPL-2.0-or-later
// A region as LLVM's IR: one function over the rows of a warp. A value is one number where it is the same in
// all lanes, else a vector of 32; an address is kept as a vector made once plus what is added to all lanes.
#pragma once

#include "compiler/region.hpp"
#include "engine/warp.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

namespace singularity::softgpu::compiler {

struct Value {
    bool uniform = false;
    // Uniform: the value, of predicates an i1. Else what is added to the vector, or nullptr.
    llvm::Value *scalar = nullptr;
    llvm::Value *vector = nullptr; // of predicates an i32, one bit per lane
    std::uint32_t anchor = kNone;
    bool loose = false;
};

// The vector that addresses are made of, looked at once for all accesses by it.
struct AddressShape {
    llvm::Value *first = nullptr; // the address of the first lane, i64
    llvm::Value *deltas = nullptr;
    llvm::Value *least = nullptr;
    llvm::Value *most = nullptr;
    llvm::Value *low_bits = nullptr;
    llvm::Value *regular = nullptr;                 // i1: close enough together for the arithmetic here
    llvm::Value *half = nullptr;                    // delta of lane 16
    std::map<std::uint64_t, llvm::Value *> pattern; // by bytes of the access; see Pattern
    std::map<std::uint64_t, std::uint32_t> fixed;   // likewise, where it is known
};
// Of each half of a warp: at one place, one lane right after the other, or anything.
enum Pattern : std::uint32_t { kHalvesUniform = 0, kHalvesContiguous = 1, kIrregular = 2 };

class Emitter {
  public:
    Emitter(const Region &region, const engine::NativeHost &host, llvm::Module &module,
            const std::string &name);
    void emit();

  private:
    using Build = llvm::IRBuilder<>;

    // emitter.cpp: blocks, entry, exits
    void find_shapes();
    void entry();
    void make_phis(std::uint32_t block);
    void begin_block(std::uint32_t block);
    void end_block(std::uint32_t block);
    void go(std::uint32_t to); // the values with which that block begins come from here
    void step(const Step &step);
    void define(const Step &step, std::size_t result, Value raw);
    void meet(const Step &step);
    void callout(const Step &step);
    void special(const Step &step);
    // The block that goes to the interpreter at the current step.
    llvm::BasicBlock *exit_here();
    llvm::BasicBlock *exit_to(std::uint32_t op, llvm::Value *budget);
    void store_row(std::uint32_t row, const Value &value);
    Value load_row(std::uint32_t row, std::uint32_t anchor);
    Value combine(const Step &step, Value raw, Value old, unsigned width);
    llvm::Value *expect_pattern(AddressShape &shape, const engine::NativeRow &seen);
    void make_shape(std::uint32_t anchor, llvm::Value *vector, unsigned width);
    void anchored(std::uint32_t anchor, llvm::Value *vector, unsigned width);
    llvm::BasicBlock *new_block(const char *name);

    // values.cpp
    void value(const Step &step);
    void define_pair(const Step &step, const Value &first, const Value &second);
    llvm::Value *integer(const ptx::Instruction &instruction, const std::vector<llvm::Value *> &in);
    llvm::Value *floating(const ptx::Instruction &instruction, const Op &op,
                          const std::vector<llvm::Value *> &in);
    llvm::Value *convert(const ptx::Instruction &instruction, const Op &op, llvm::Value *in);
    llvm::Value *compare(const ptx::Instruction &instruction, llvm::Value *a, llvm::Value *b);
    llvm::Value *flushed(llvm::Value *value);
    llvm::Value *canonical(llvm::Value *value);
    llvm::Value *chosen_nan(llvm::Value *result, const std::vector<llvm::Value *> &in);
    llvm::Value *saturated(llvm::Value *value);
    llvm::Value *extreme(const ptx::Instruction &instruction, llvm::Value *a, llvm::Value *b);
    llvm::Value *as_float(llvm::Value *bits);
    llvm::Value *as_bits(llvm::Value *number);

    // bits.cpp
    llvm::Value *bits(const ptx::Instruction &instruction, const std::vector<llvm::Value *> &in);
    llvm::Value *bit_field(const ptx::Instruction &instruction, const std::vector<llvm::Value *> &in);
    llvm::Value *permuted(const std::vector<llvm::Value *> &in);
    void tuple(const Step &step);
    llvm::Value *small_float(const ptx::Instruction &instruction, const std::vector<llvm::Value *> &in);
    llvm::Value *from_small(Type from, llvm::Value *in);
    llvm::Value *to_small(Type to, llvm::Value *in);

    // memory.cpp
    struct Access {
        const Step *step = nullptr;
        const Op *op = nullptr;
        bool write = false;
        std::uint64_t part = 0;  // bytes of one element
        std::uint64_t bytes = 0; // of all
        bool is_signed = false;
        std::vector<std::uint32_t> rows;    // of a load, by element; kNone: thrown away
        std::vector<llvm::Value *> results; // allocas
        std::vector<Value> values;          // of a store
        std::vector<llvm::Value *> lanes;   // of a store, lazily
        llvm::Value *mask = nullptr;        // i32: lanes that access
        bool uniform = false;               // results are
    };
    void memory(const Step &step);
    void access_uniform(Access &access, llvm::Value *address, llvm::BasicBlock *done);
    void access_lanes(Access &access, const Value &address, llvm::BasicBlock *done);
    void access_local(Access &access, llvm::Value *address, llvm::BasicBlock *done);
    // Accesses by one address that are sure to follow are checked with the first of them.
    struct Checked {
        std::int64_t first = 0; // what is added to the address, at least and at most
        std::int64_t last = 0;
        std::uint64_t differences = 0; // bits of what is added less what the first of them adds
        std::uint64_t bytes = 0;
        bool write = false;
        engine::Place place = engine::Place::global;
    };
    [[nodiscard]] bool checked(const Access &access) const;
    // Nothing: none that follows goes along with it.
    [[nodiscard]] std::optional<Checked> together(const Access &access) const;
    llvm::BasicBlock *group_check(const Access &access, const Checked &group, llvm::Value *base,
                                  llvm::Value *lowest, llvm::Value *reach, llvm::Value *low_bits,
                                  llvm::Value *extra, llvm::BasicBlock *leave);
    void resolve_one(const Access &access, llvm::Value *address, llvm::Value *host, llvm::BasicBlock *there);
    void general(Access &access, llvm::Value *addresses, llvm::BasicBlock *done);
    void at_pointers(Access &access, llvm::Value *pointers, bool all);
    void halves(Access &access, llvm::Value *low, llvm::Value *high, bool contiguous);
    // Leaves the builder where [lowest, lowest + span] may be accessed; else goes to `otherwise`.
    void check_range(const Access &access, llvm::Value *lowest, llvm::Value *span, llvm::Value *extra,
                     llvm::BasicBlock *otherwise);
    llvm::Value *widened(const Access &access, llvm::Value *part);
    llvm::Value *element(Access &access, std::size_t k);
    void keep(Access &access, std::size_t k, llvm::Value *value);
    llvm::Type *part_type(const Access &access) {
        return build_.getIntNTy(static_cast<unsigned>(8 * access.part));
    }

    // values of rows
    Value get(Ref ref, unsigned width);
    llvm::Value *scalar(Ref ref, unsigned width); // of what is uniform
    llvm::Value *lanes(Ref ref, unsigned width, bool loose = false);
    llvm::Value *lanes_of(const Value &value, unsigned width);
    llvm::Value *bits_of(const Value &predicate); // i32
    Value exact(const Value &value);
    [[nodiscard]] bool uniform(Ref ref) const {
        return known_of(region_, known_, ref).kind == Known::Kind::uniform;
    }
    llvm::Value *splat(llvm::Value *value) { return build_.CreateVectorSplat(engine::kLanes, value); }
    llvm::Value *lane_mask(llvm::Value *bits) {
        return build_.CreateBitCast(bits, llvm::FixedVectorType::get(build_.getInt1Ty(), engine::kLanes));
    }
    llvm::Value *mask_bits(llvm::Value *lanes) { return build_.CreateBitCast(lanes, build_.getInt32Ty()); }
    llvm::FixedVectorType *lanes_type(unsigned width) {
        return llvm::FixedVectorType::get(build_.getIntNTy(8 * width), engine::kLanes);
    }
    llvm::Value *field(std::size_t offset, llvm::Type *type); // of the context
    void set_field(std::size_t offset, llvm::Value *value);
    llvm::Value *pointer(const void *at);
    llvm::Value *row_pointer(std::uint32_t row);
    llvm::Value *numbered(std::uint64_t factor, bool halves); // lane (or lane % 16) * factor, i64
    llvm::AllocaInst *room(llvm::Type *type);
    llvm::Value *call(const void *function, llvm::Type *result, const std::vector<llvm::Value *> &arguments);
    llvm::Value *guard_of(const Step &step, bool &is_uniform);

    const Region &region_;
    const Code &code_;
    const engine::NativeHost &host_;
    llvm::Function *function_;
    Build build_;
    llvm::Value *context_ = nullptr;
    llvm::Value *rows_ = nullptr;
    llvm::Value *mask_ = nullptr;  // i32
    llvm::Value *first_ = nullptr; // the first lane that executes, i32
    llvm::Value *begin_budget_ = nullptr;
    llvm::AllocaInst *budget_ = nullptr;
    llvm::BasicBlock *entry_ = nullptr;
    std::vector<llvm::BasicBlock *> blocks_;
    std::vector<std::map<std::uint32_t, llvm::PHINode *>> phis_;
    std::map<std::uint32_t, llvm::Value *> anchors_;
    std::map<std::uint32_t, std::set<std::uint64_t>> shapes_wanted_; // by anchor: bytes of accesses
    std::map<std::uint32_t, AddressShape> shapes_;
    std::vector<Value> values_; // by row, where the builder is
    std::vector<Known> known_;
    std::vector<bool> changed_;
    const Step *step_ = nullptr;
    const Block *block_ = nullptr;
    std::map<Ref, Checked> checked_; // by the row of the address
    std::uint32_t refund_ = 0; // operations of the block that are not executed if it is left at this step
    llvm::BasicBlock *exit_ = nullptr;
};

} // namespace singularity::softgpu::compiler
