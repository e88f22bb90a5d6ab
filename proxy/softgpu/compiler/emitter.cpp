// SPDX-License-Identifier: GPL-2.0-or-later
// Blocks of a region, how it is entered and left, and where values are in between.
#include "compiler/emitter.hpp"

#include <cstddef>
#include <cstring>

namespace singularity::softgpu::compiler {

using engine::Context;
using engine::kLanes;

namespace {

constexpr std::int64_t kFar = std::int64_t{1} << 40U; // lanes further apart are no case for arithmetic

} // namespace

Emitter::Emitter(const Region &region, const engine::NativeHost &host, llvm::Module &module,
                 const std::string &name)
    : region_(region), code_(*region.code), host_(host),
      function_(llvm::Function::Create(
          llvm::FunctionType::get(llvm::Type::getInt32Ty(module.getContext()),
                                  {llvm::PointerType::getUnqual(module.getContext())}, false),
          llvm::Function::ExternalLinkage, name, module)),
      build_(module.getContext()) {
    function_->addFnAttr("min-legal-vector-width", "512");
    function_->addFnAttr("prefer-vector-width", "512");
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    context_ = function_->getArg(0);
}

llvm::BasicBlock *Emitter::new_block(const char *name) {
    return llvm::BasicBlock::Create(build_.getContext(), name, function_);
}

llvm::Value *Emitter::pointer(const void *at) {
    return build_.CreateIntToPtr(build_.getInt64(reinterpret_cast<std::uintptr_t>(at)), build_.getPtrTy());
}

llvm::Value *Emitter::field(std::size_t offset, llvm::Type *type) {
    return build_.CreateLoad(type, build_.CreateConstInBoundsGEP1_64(build_.getInt8Ty(), context_, offset));
}
void Emitter::set_field(std::size_t offset, llvm::Value *value) {
    build_.CreateStore(value, build_.CreateConstInBoundsGEP1_64(build_.getInt8Ty(), context_, offset));
}

llvm::AllocaInst *Emitter::room(llvm::Type *type) {
    Build at(entry_, entry_->begin());
    return at.CreateAlloca(type);
}

llvm::Value *Emitter::call(const void *function, llvm::Type *result,
                           const std::vector<llvm::Value *> &arguments) {
    std::vector<llvm::Type *> types;
    for (llvm::Value *argument : arguments)
        types.push_back(argument->getType());
    return build_.CreateCall(llvm::FunctionType::get(result, types, false), pointer(function), arguments);
}

llvm::Value *Emitter::numbered(std::uint64_t factor, bool halves) {
    std::vector<llvm::Constant *> each;
    for (unsigned i = 0; i < kLanes; ++i)
        each.push_back(build_.getInt64((halves ? i % 16 : i) * factor));
    return llvm::ConstantVector::get(each);
}

llvm::Value *Emitter::row_pointer(std::uint32_t row) {
    return build_.CreateConstInBoundsGEP1_64(build_.getInt8Ty(), rows_, region_.rows.ref(row));
}

// Rows

Value Emitter::get(Ref ref, unsigned width) {
    const std::uint32_t row = region_.rows.of(ref);
    if (row != kNone)
        return values_[row];
    const std::byte *at = code_.constants.bytes.get() + (ref & ~engine::kConstant);
    std::uint64_t bits = 0;
    std::memcpy(&bits, at, width == 0 ? 4 : width);
    if (width == 0)
        return {true, build_.getInt1(bits != 0)};
    return {true, build_.getIntN(8 * width, bits)};
}

Value Emitter::exact(const Value &value) {
    if (!value.loose)
        return value;
    Value made = value;
    made.loose = false;
    llvm::Value *&bits = value.uniform ? made.scalar : made.vector;
    bits = as_bits(canonical(as_float(bits)));
    made.anchor = kNone;
    return made;
}

llvm::Value *Emitter::scalar(Ref ref, unsigned width) { return exact(get(ref, width)).scalar; }

llvm::Value *Emitter::lanes_of(const Value &value, unsigned width) {
    if (value.uniform)
        return splat(value.scalar);
    if (value.scalar == nullptr || width == 0)
        return value.vector;
    return build_.CreateAdd(value.vector, splat(value.scalar));
}

llvm::Value *Emitter::lanes(Ref ref, unsigned width, bool loose) {
    const Value value = get(ref, width);
    return lanes_of(loose ? value : exact(value), width);
}

llvm::Value *Emitter::bits_of(const Value &predicate) {
    if (predicate.uniform)
        return build_.CreateSExt(predicate.scalar, build_.getInt32Ty());
    return predicate.vector;
}

void Emitter::store_row(std::uint32_t row, const Value &value) {
    const unsigned width = region_.rows.width(row);
    llvm::Value *to = row_pointer(row);
    if (width == 0) {
        llvm::Value *bits = bits_of(value);
        if (!region_.full) {
            llvm::Value *old = build_.CreateLoad(build_.getInt32Ty(), to);
            bits = build_.CreateOr(build_.CreateAnd(old, build_.CreateNot(mask_)),
                                   build_.CreateAnd(bits, mask_));
        }
        build_.CreateStore(bits, to);
        return;
    }
    llvm::Value *all = lanes_of(exact(value), width);
    const llvm::Align aligned(engine::kRowAlignment);
    if (!region_.full)
        all =
            build_.CreateSelect(lane_mask(mask_), all, build_.CreateAlignedLoad(all->getType(), to, aligned));
    build_.CreateAlignedStore(all, to, aligned);
}

Value Emitter::load_row(std::uint32_t row, std::uint32_t anchor) {
    const unsigned width = region_.rows.width(row);
    Value value;
    value.anchor = anchor;
    if (width == 0)
        value.vector = build_.CreateLoad(build_.getInt32Ty(), row_pointer(row));
    else
        value.vector =
            build_.CreateAlignedLoad(lanes_type(width), row_pointer(row), llvm::Align(engine::kRowAlignment));
    return value;
}

// Addresses

void Emitter::find_shapes() {
    for (std::size_t b = 0; b < region_.blocks.size(); ++b) {
        std::vector<Known> state = region_.known[b];
        for (const Step &each : region_.blocks[b].steps) {
            const Op &op = code_.ops[each.op];
            const bool memory = each.form == Form::load || each.form == Form::store;
            if (memory && op.base != engine::Base::none && op.place != engine::Place::local &&
                op.place != engine::Place::frame) {
                const Known known = known_of(region_, state, op.o[5]);
                if (known.kind == Known::Kind::vector)
                    shapes_wanted_[known.anchor].insert(
                        op.count * std::uint64_t{ptx::type_size(code_.instruction(op).types[0])});
            }
            const auto results = results_of(region_, each, state);
            for (std::size_t i = 0; i < results.size(); ++i)
                if (const std::uint32_t row = region_.rows.of(each.writes[i]); row != kNone)
                    state[row] = results[i];
        }
    }
}

void Emitter::anchored(std::uint32_t anchor, llvm::Value *vector, unsigned width) {
    anchors_[anchor] = vector;
    if (width != 0 && shapes_wanted_.contains(anchor))
        make_shape(anchor, vector, width);
}

void Emitter::make_shape(std::uint32_t anchor, llvm::Value *vector, unsigned width) {
    AddressShape shape;
    llvm::Value *wide = width == 8 ? vector : build_.CreateZExt(vector, lanes_type(8));
    llvm::Value *zero = llvm::Constant::getNullValue(lanes_type(8));
    shape.first = build_.CreateExtractElement(wide, first_);
    shape.deltas = build_.CreateSub(wide, splat(shape.first));
    if (!region_.full)
        shape.deltas = build_.CreateSelect(lane_mask(mask_), shape.deltas, zero);
    shape.least = build_.CreateIntMinReduce(shape.deltas, true);
    shape.most = build_.CreateIntMaxReduce(shape.deltas, true);
    shape.low_bits = build_.CreateOrReduce(shape.deltas);
    shape.regular = build_.CreateAnd(
        build_.CreateICmpSGE(shape.least, build_.getInt64(static_cast<std::uint64_t>(-kFar))),
        build_.CreateICmpSLE(shape.most, build_.getInt64(kFar)));
    const auto all = [&](llvm::Value *wanted) {
        return build_.CreateICmpEQ(mask_bits(build_.CreateICmpEQ(shape.deltas, wanted)),
                                   build_.getInt32(UINT32_MAX));
    };
    llvm::Value *halves = zero;
    shape.half = build_.getInt64(0);
    if (region_.full) {
        shape.half = build_.CreateExtractElement(shape.deltas, build_.getInt32(16));
        halves = build_.CreateSelect(lane_mask(build_.getInt32(0xFFFF0000U)), splat(shape.half), zero);
    }
    llvm::Value *uniform = all(halves);
    for (const std::uint64_t bytes : shapes_wanted_.at(anchor)) {
        llvm::Value *other = build_.getInt32(kIrregular);
        if (region_.full)
            other = build_.CreateSelect(all(build_.CreateAdd(halves, numbered(bytes, true))),
                                        build_.getInt32(kHalvesContiguous), other);
        shape.pattern[bytes] = build_.CreateSelect(uniform, build_.getInt32(kHalvesUniform), other);
    }
    shapes_[anchor] = std::move(shape);
}

// The lanes lie as they were seen to lie: no choice where they are accessed. True if they do.
llvm::Value *Emitter::expect_pattern(AddressShape &shape, const engine::NativeRow &seen) {
    const auto wanted = static_cast<std::uint32_t>(seen.pattern);
    llvm::Value *as_seen = build_.getInt1(true);
    if (!region_.full || wanted == kIrregular)
        return as_seen;
    for (const auto &[bytes, pattern] : shape.pattern)
        if (wanted == kHalvesUniform || bytes == seen.stride) {
            shape.fixed[bytes] = wanted;
            as_seen = build_.CreateAnd(as_seen, build_.CreateICmpEQ(pattern, build_.getInt32(wanted)));
        }
    return as_seen;
}

// Entry and exits

void Emitter::entry() {
    entry_ = new_block("entry");
    build_.SetInsertPoint(entry_);
    budget_ = build_.CreateAlloca(build_.getInt64Ty());
    rows_ = field(offsetof(Context, bases), build_.getPtrTy());
    begin_budget_ =
        build_.CreateAdd(field(offsetof(Context, budget), build_.getInt64Ty()), build_.getInt64(1));
    build_.CreateStore(begin_budget_, budget_);
    if (region_.full) {
        mask_ = build_.getInt32(UINT32_MAX);
        first_ = build_.getInt32(0);
    } else {
        mask_ = field(offsetof(Context, mask), build_.getInt32Ty());
        first_ = build_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, mask_, build_.getInt1(false));
    }
    values_.assign(region_.rows.size(), {});
    llvm::Value *as_wanted = build_.getInt1(true);
    for (std::uint32_t row = 0; row < region_.rows.size(); ++row) {
        const unsigned width = region_.rows.width(row);
        if (!region_.live[0][row] || width > 8)
            continue;
        Value value = load_row(row, region_.entry_anchor(row));
        if (!region_.seen[row].uniform) {
            values_[row] = value;
            anchored(value.anchor, value.vector, width);
            if (const auto shape = shapes_.find(value.anchor); shape != shapes_.end())
                as_wanted = build_.CreateAnd(as_wanted, expect_pattern(shape->second, region_.seen[row]));
            continue;
        }
        llvm::Value *same = nullptr;
        if (width == 0) {
            llvm::Value *bits = build_.CreateAnd(value.vector, mask_);
            value.scalar = build_.CreateICmpNE(bits, build_.getInt32(0));
            same = build_.CreateOr(build_.CreateICmpEQ(bits, build_.getInt32(0)),
                                   build_.CreateICmpEQ(bits, mask_));
        } else {
            value.scalar = build_.CreateExtractElement(value.vector, first_);
            llvm::Value *equal = mask_bits(build_.CreateICmpEQ(value.vector, splat(value.scalar)));
            same = build_.CreateICmpEQ(build_.CreateAnd(equal, mask_), mask_);
        }
        as_wanted = build_.CreateAnd(as_wanted, same);
        values_[row] = {true, value.scalar};
    }
    llvm::BasicBlock *differs = new_block("differs");
    llvm::BasicBlock *begin = new_block("begin");
    build_.CreateCondBr(as_wanted, begin, differs);
    build_.SetInsertPoint(differs);
    build_.CreateRet(build_.getInt32(static_cast<std::uint32_t>(engine::NativeEnd::differs)));
    build_.SetInsertPoint(begin);
}

llvm::BasicBlock *Emitter::exit_to(std::uint32_t op, llvm::Value *budget) {
    const Build::InsertPointGuard guard(build_);
    llvm::BasicBlock *block = new_block("exit");
    build_.SetInsertPoint(block);
    for (std::uint32_t row = 0; row < region_.rows.size(); ++row)
        if (changed_[row] && region_.live_at[op][row] && region_.rows.width(row) <= 8)
            store_row(row, values_[row]);
    set_field(offsetof(Context, next), pointer(code_.ops.data() + op));
    set_field(offsetof(Context, budget), budget);
    build_.CreateRet(build_.CreateZExt(build_.CreateICmpNE(budget, begin_budget_), build_.getInt32Ty()));
    return block;
}

llvm::BasicBlock *Emitter::exit_here() {
    if (exit_ != nullptr)
        return exit_;
    const Build::InsertPointGuard guard(build_);
    llvm::BasicBlock *block = new_block("leave");
    build_.SetInsertPoint(block);
    llvm::Value *budget =
        build_.CreateAdd(build_.CreateLoad(build_.getInt64Ty(), budget_), build_.getInt64(refund_));
    build_.CreateBr(exit_to(step_ == nullptr ? 0 : step_->at, budget));
    return exit_ = block;
}

// Blocks

void Emitter::make_phis(std::uint32_t b) {
    for (std::uint32_t row = 0; row < region_.rows.size(); ++row) {
        const Known &known = region_.known[b][row];
        const unsigned width = region_.rows.width(row);
        if (!region_.live[b][row] || known.kind == Known::Kind::nothing || width > 8)
            continue;
        const bool own = known.kind == Known::Kind::vector && known.anchor == region_.block_anchor(b, row);
        llvm::Type *type =
            width == 0 ? (known.kind == Known::Kind::uniform ? build_.getInt1Ty() : build_.getInt32Ty())
                       : build_.getIntNTy(8 * width);
        if (own && width != 0)
            type = lanes_type(width);
        phis_[b][row] = build_.CreatePHI(type, static_cast<unsigned>(region_.blocks[b].from.size() + 1));
    }
}

void Emitter::begin_block(std::uint32_t b) {
    const Block &block = region_.blocks[b];
    known_ = region_.known[b];
    changed_ = region_.changed[b];
    std::vector<Value> values(region_.rows.size());
    for (const auto &[row, phi] : phis_[b]) {
        const Known &known = known_[row];
        const unsigned width = region_.rows.width(row);
        Value &value = values[row];
        value.loose = known.loose;
        const bool own = known.kind == Known::Kind::vector && known.anchor == region_.block_anchor(b, row);
        if (known.kind == Known::Kind::uniform) {
            value.uniform = true;
            value.scalar = phi;
        } else if (own) {
            value.vector = phi;
            value.anchor = known.anchor;
        } else if (width == 0) { // a predicate as it was where the region is entered
            value.vector = phi;
            value.anchor = known.anchor;
        } else {
            value.scalar = phi;
            value.vector = anchors_.at(known.anchor);
            value.anchor = known.anchor;
        }
    }
    values_ = std::move(values);
    for (std::uint32_t row = 0; row < region_.rows.size(); ++row)
        if (values_[row].vector != nullptr && values_[row].anchor == region_.block_anchor(b, row))
            anchored(values_[row].anchor, values_[row].vector, region_.rows.width(row));
    // All of the block or nothing of it.
    const std::uint32_t cost = block.cost();
    step_ = nullptr;
    if (cost == 0)
        return;
    llvm::Value *budget = build_.CreateLoad(build_.getInt64Ty(), budget_);
    llvm::BasicBlock *enough = new_block("enough");
    build_.CreateCondBr(build_.CreateICmpSGE(budget, build_.getInt64(cost)), enough,
                        exit_to(block.first, budget));
    build_.SetInsertPoint(enough);
    build_.CreateStore(build_.CreateSub(budget, build_.getInt64(cost)), budget_);
}

void Emitter::go(std::uint32_t to) {
    for (auto &[row, phi] : phis_[to]) {
        const Value &value = values_[row];
        const Known &known = region_.known[to][row];
        const unsigned width = region_.rows.width(row);
        llvm::Value *handed = nullptr;
        if (known.kind == Known::Kind::uniform)
            handed = known.loose ? value.scalar : exact(value).scalar;
        else if (width == 0)
            handed = bits_of(value);
        else if (known.anchor == region_.block_anchor(to, row))
            handed = lanes_of(known.loose ? value : exact(value), width);
        else
            handed = value.scalar == nullptr ? build_.getIntN(8 * width, 0) : value.scalar;
        phi->addIncoming(handed, build_.GetInsertBlock());
    }
}

void Emitter::end_block(std::uint32_t b) {
    const Block &block = region_.blocks[b];
    exit_ = nullptr;
    step_ = nullptr;
    if (block.end == Block::End::leave) {
        build_.CreateBr(exit_to(block.last, build_.CreateLoad(build_.getInt64Ty(), budget_)));
        return;
    }
    if (block.end == Block::End::jump) {
        go(block.target);
        build_.CreateBr(blocks_[block.target]);
        return;
    }
    const Op &op = code_.ops[block.last];
    const Value predicate = get(op.o[0], 0);
    if (block.target == block.other) { // both ways lead there
        go(block.target);
        build_.CreateBr(blocks_[block.target]);
        return;
    }
    go(block.target);
    go(block.other);
    if (predicate.uniform) {
        llvm::Value *taken = op.mode != 0 ? build_.CreateNot(predicate.scalar) : predicate.scalar;
        build_.CreateCondBr(taken, blocks_[block.target], blocks_[block.other]);
        return;
    }
    llvm::Value *taken = op.mode != 0 ? build_.CreateNot(predicate.vector) : predicate.vector;
    taken = build_.CreateAnd(taken, mask_);
    llvm::BasicBlock *some = new_block("some");
    // The phis of both ways name this block: what is known of it stays where it is.
    llvm::BasicBlock *here = build_.GetInsertBlock();
    llvm::Value *none = build_.CreateICmpEQ(taken, build_.getInt32(0));
    build_.CreateCondBr(none, blocks_[block.other], some);
    build_.SetInsertPoint(some);
    llvm::Value *budget =
        build_.CreateAdd(build_.CreateLoad(build_.getInt64Ty(), budget_), build_.getInt64(1));
    build_.CreateCondBr(build_.CreateICmpEQ(taken, mask_), blocks_[block.target],
                        exit_to(block.last, budget));
    for (auto &[row, phi] : phis_[block.target])
        phi->setIncomingBlock(static_cast<unsigned>(phi->getBasicBlockIndex(here)), some);
}

// Steps

llvm::Value *Emitter::guard_of(const Step &step, bool &is_uniform) {
    const Op &op = code_.ops[step.at];
    const Value predicate = get(op.o[0], 0);
    is_uniform = predicate.uniform;
    if (predicate.uniform)
        return op.mode != 0 ? build_.CreateNot(predicate.scalar) : predicate.scalar;
    return op.mode != 0 ? build_.CreateNot(predicate.vector) : predicate.vector;
}

// The new value where the guard lets it be.
Value Emitter::combine(const Step &step, Value raw, Value old, unsigned width) {
    if (!old.uniform && old.vector == nullptr)
        return raw; // nobody needs it
    if (raw.loose != old.loose) {
        raw = exact(raw);
        old = exact(old);
    }
    bool is_uniform = false;
    llvm::Value *let = guard_of(step, is_uniform);
    Value made;
    made.loose = raw.loose;
    if (is_uniform && raw.uniform && old.uniform) {
        made.uniform = true;
        made.scalar = build_.CreateSelect(let, raw.scalar, old.scalar);
        return made;
    }
    if (width == 0) {
        llvm::Value *bits = is_uniform ? build_.CreateSExt(let, build_.getInt32Ty()) : let;
        made.vector = build_.CreateOr(build_.CreateAnd(bits_of(raw), bits),
                                      build_.CreateAnd(bits_of(old), build_.CreateNot(bits)));
        return made;
    }
    made.vector =
        build_.CreateSelect(is_uniform ? let : lane_mask(let), lanes_of(raw, width), lanes_of(old, width));
    return made;
}

void Emitter::define(const Step &step, std::size_t result, Value raw) {
    const std::uint32_t row = region_.rows.of(step.writes[result]);
    if (row == kNone)
        return;
    const unsigned width = region_.rows.width(row);
    const Known known = results_of(region_, step, known_)[result];
    if (step.guarded)
        raw = combine(step, raw, values_[row], width);
    if (raw.loose && !known.loose)
        raw = exact(raw);
    if (known.kind == Known::Kind::vector) {
        if (raw.uniform) {
            raw.vector = width == 0 ? bits_of(raw) : splat(raw.scalar);
            raw.scalar = nullptr;
            raw.uniform = false;
        }
        if (known.anchor == region_.step_anchor(step, result)) {
            raw.vector = width == 0 ? raw.vector : lanes_of(raw, width);
            raw.scalar = nullptr;
            raw.anchor = known.anchor;
            anchored(raw.anchor, raw.vector, width);
        }
    }
    raw.loose = known.loose;
    values_[row] = raw;
}

void Emitter::meet(const Step &step) {
    llvm::Value *group = field(offsetof(Context, group), build_.getPtrTy());
    llvm::Value *split = build_.CreateLoad(
        build_.getInt32Ty(),
        build_.CreateConstInBoundsGEP1_64(build_.getInt8Ty(), group, offsetof(engine::Group, split)));
    llvm::BasicBlock *ask = new_block("ask");
    llvm::BasicBlock *on = new_block("on");
    build_.CreateCondBr(build_.CreateICmpSLT(split, build_.getInt32(0)), on, ask);
    build_.SetInsertPoint(ask);
    llvm::Value *meets = call(reinterpret_cast<const void *>(host_.meets), build_.getInt8Ty(),
                              {context_, pointer(&code_.ops[step.op])});
    build_.CreateCondBr(build_.CreateTrunc(meets, build_.getInt1Ty()), exit_here(), on);
    build_.SetInsertPoint(on);
}

// The interpreter's handler, on rows in memory.
void Emitter::callout(const Step &step) {
    bool is_uniform = false;
    llvm::Value *let = nullptr;
    if (step.guarded) {
        let = guard_of(step, is_uniform);
        if (is_uniform)
            let = build_.CreateSExt(let, build_.getInt32Ty());
        let = build_.CreateAnd(let, mask_);
    }
    std::set<std::uint32_t> needed;
    for (const Ref ref : step.reads)
        if (const std::uint32_t row = region_.rows.of(ref); row != kNone)
            needed.insert(row);
    if (step.guarded)
        for (const Ref ref : step.writes)
            if (const std::uint32_t row = region_.rows.of(ref); row != kNone)
                needed.insert(row);
    for (const std::uint32_t row : needed)
        if (values_[row].uniform || values_[row].vector != nullptr)
            store_row(row, values_[row]);
    llvm::BasicBlock *done = nullptr;
    if (step.guarded) {
        llvm::BasicBlock *some = new_block("some");
        done = new_block("done");
        build_.CreateCondBr(build_.CreateICmpEQ(let, build_.getInt32(0)), done, some);
        build_.SetInsertPoint(some);
        set_field(offsetof(Context, mask), let);
    }
    call(reinterpret_cast<const void *>(code_.native->original(step.op)), build_.getVoidTy(),
         {context_, pointer(&code_.ops[step.op])});
    if (step.guarded) {
        set_field(offsetof(Context, mask), mask_);
        build_.CreateBr(done);
        build_.SetInsertPoint(done);
    }
    const auto results = results_of(region_, step, known_);
    for (std::size_t i = 0; i < step.writes.size(); ++i) {
        const std::uint32_t row = region_.rows.of(step.writes[i]);
        if (row == kNone)
            continue;
        Value value = load_row(row, results[i].anchor);
        if (results[i].kind == Known::Kind::uniform) {
            value = {true, build_.CreateExtractElement(value.vector, first_)};
        } else {
            anchored(value.anchor, value.vector, region_.rows.width(row));
        }
        values_[row] = value;
    }
}

void Emitter::step(const Step &step) {
    const Op &op = code_.ops[step.op];
    switch (step.form) {
    case Form::nothing:
        return;
    case Form::meet:
        meet(step);
        return;
    case Form::callout:
    case Form::special:
        callout(step);
        break;
    case Form::load:
    case Form::store:
        memory(step);
        break;
    case Form::frame_address: {
        llvm::Value *address = build_.CreateAdd(field(offsetof(Context, local_base), build_.getInt64Ty()),
                                                build_.getInt64(op.immediate));
        define(step, 0, {true, op.mode == 8 ? address : build_.CreateTrunc(address, build_.getInt32Ty())});
        break;
    }
    case Form::parameter_address: {
        llvm::Value *address = build_.CreateAdd(field(offsetof(Context, parameters), build_.getInt64Ty()),
                                                build_.getInt64(op.immediate));
        define(step, 0, {true, op.mode == 8 ? address : build_.CreateTrunc(address, build_.getInt32Ty())});
        break;
    }
    case Form::copy: {
        const std::uint32_t row = region_.rows.of(step.writes[0]);
        define(step, 0, get(op.o[1], row == kNone ? 4 : region_.rows.width(row)));
        break;
    }
    case Form::value:
        value(step);
        break;
    }
    const auto results = results_of(region_, step, known_);
    for (std::size_t i = 0; i < results.size(); ++i)
        if (const std::uint32_t row = region_.rows.of(step.writes[i]); row != kNone) {
            known_[row] = results[i];
            changed_[row] = true;
            checked_.erase(step.writes[i]);
        }
}

void Emitter::emit() {
    find_shapes();
    phis_.resize(region_.blocks.size());
    entry();
    llvm::BasicBlock *begin = build_.GetInsertBlock();
    const std::vector<Value> entered = values_;
    for (std::size_t b = 0; b < region_.blocks.size(); ++b)
        blocks_.push_back(new_block("block"));
    for (std::uint32_t b = 0; b < region_.blocks.size(); ++b) {
        build_.SetInsertPoint(blocks_[b]);
        make_phis(b);
    }
    for (std::uint32_t b = 0; b < region_.blocks.size(); ++b) {
        build_.SetInsertPoint(blocks_[b]);
        begin_block(b);
        if (b == 0) {
            const std::vector<Value> inside = values_;
            const Build::InsertPointGuard guard(build_);
            build_.SetInsertPoint(begin);
            values_ = entered;
            go(0);
            build_.CreateBr(blocks_[0]);
            values_ = inside;
        }
        const Block &block = region_.blocks[b];
        block_ = &block;
        checked_.clear();
        for (std::size_t i = 0; i < block.steps.size(); ++i) {
            step_ = &block.steps[i];
            exit_ = nullptr;
            refund_ = block.cost() - static_cast<std::uint32_t>(i);
            step(block.steps[i]);
        }
        end_block(b);
    }
}

} // namespace singularity::softgpu::compiler
