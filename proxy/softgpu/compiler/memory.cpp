// SPDX-License-Identifier: GPL-2.0-or-later
// Loads and stores. Where the addresses of the lanes are known to lie well the access is checked as one and
// made with vectors; where they do not, the engine checks each lane. An access that may not be made is left
// to the interpreter, which says what is wrong with it.
#include "compiler/emitter.hpp"

#include <algorithm>
#include <cstddef>

namespace singularity::softgpu::compiler {

using engine::Base;
using engine::Context;
using engine::kLanes;
using engine::Place;
using softgpu::Range;

namespace {

constexpr unsigned kHalf = kLanes / 2;

} // namespace

// From how it is in memory to how it is in a row.
llvm::Value *Emitter::widened(const Access &access, llvm::Value *part) {
    llvm::Type *type = part->getType()->getWithNewBitWidth(access.part == 8 ? 64 : 32);
    return access.is_signed ? build_.CreateSExt(part, type) : build_.CreateZExt(part, type);
}

// All lanes of what is stored, as it is in memory.
llvm::Value *Emitter::element(Access &access, std::size_t k) {
    llvm::Value *value = lanes_of(access.values[k], access.part == 8 ? 8 : 4);
    return build_.CreateTrunc(value, llvm::FixedVectorType::get(part_type(access), kLanes));
}

void Emitter::keep(Access &access, std::size_t k, llvm::Value *value) {
    if (access.results[k] != nullptr)
        build_.CreateStore(widened(access, value), access.results[k]);
}

// Where each lane has its own address: `all` of them, or those of the mask.
void Emitter::at_pointers(Access &access, llvm::Value *pointers, bool all) {
    llvm::Value *mask =
        all ? llvm::ConstantInt::getTrue(llvm::FixedVectorType::get(build_.getInt1Ty(), kLanes))
            : lane_mask(access.mask);
    const std::size_t count = access.write ? access.values.size() : access.results.size();
    auto *type = llvm::FixedVectorType::get(part_type(access), kLanes);
    const llvm::Align aligned(access.part);
    for (std::size_t k = 0; k < count; ++k) {
        llvm::Value *at =
            k == 0 ? pointers
                   : build_.CreateGEP(build_.getInt8Ty(), pointers, build_.getInt64(k * access.part));
        // A scatter goes from the first lane to the last.
        if (access.write)
            build_.CreateMaskedScatter(element(access, k), at, aligned, mask);
        else if (access.results[k] != nullptr)
            keep(access, k,
                 build_.CreateMaskedGather(type, at, aligned, mask, llvm::Constant::getNullValue(type)));
    }
}

// All lanes access, those of a half at one place or one right after the other.
void Emitter::halves(Access &access, llvm::Value *low, llvm::Value *high, bool contiguous) {
    const std::size_t count = access.write ? access.values.size() : access.results.size();
    const auto elements = static_cast<unsigned>(count);
    const llvm::Align aligned(access.part);
    llvm::Value *const places[] = {low, high};
    if (!contiguous) {
        for (std::size_t k = 0; k < count; ++k) {
            if (!access.write && access.results[k] == nullptr)
                continue;
            llvm::Value *both[2] = {};
            llvm::Value *all = access.write ? element(access, k) : nullptr;
            for (unsigned h = 0; h < 2; ++h) {
                llvm::Value *at =
                    build_.CreateConstInBoundsGEP1_64(build_.getInt8Ty(), places[h], k * access.part);
                if (access.write) // the last lane's stays
                    build_.CreateAlignedStore(
                        build_.CreateExtractElement(all, std::uint64_t{kHalf * h + kHalf - 1}), at, aligned);
                else
                    both[h] = build_.CreateVectorSplat(
                        kHalf, build_.CreateAlignedLoad(part_type(access), at, aligned));
            }
            if (!access.write) {
                std::vector<int> order;
                for (int i = 0; i < static_cast<int>(kLanes); ++i)
                    order.push_back(i);
                keep(access, k, build_.CreateShuffleVector(both[0], both[1], order));
            }
        }
        return;
    }
    auto *block = llvm::FixedVectorType::get(part_type(access), kHalf * elements);
    if (access.write) {
        for (unsigned h = 0; h < 2; ++h) {
            // Element k of lane i is at i * count + k.
            llvm::Value *joined = nullptr;
            if (elements == 1) {
                std::vector<int> order;
                for (unsigned i = 0; i < kHalf; ++i)
                    order.push_back(static_cast<int>(kHalf * h + i));
                joined = build_.CreateShuffleVector(element(access, 0), order);
            } else {
                joined = llvm::PoisonValue::get(block);
                for (unsigned k = 0; k < elements; ++k) {
                    std::vector<int> spread(std::size_t{kHalf} * elements, -1);
                    for (unsigned i = 0; i < kHalf; ++i)
                        spread[i * elements + k] = static_cast<int>(kHalf * h + i);
                    llvm::Value *placed = build_.CreateShuffleVector(element(access, k), spread);
                    std::vector<int> merge;
                    for (unsigned i = 0; i < kHalf * elements; ++i)
                        merge.push_back(static_cast<int>(i % elements == k ? kHalf * elements + i : i));
                    joined = build_.CreateShuffleVector(joined, placed, merge);
                }
            }
            build_.CreateAlignedStore(joined, places[h], aligned);
        }
        return;
    }
    llvm::Value *const parts[] = {build_.CreateAlignedLoad(block, low, aligned),
                                  build_.CreateAlignedLoad(block, high, aligned)};
    for (unsigned k = 0; k < elements; ++k) {
        std::vector<int> order;
        for (unsigned i = 0; i < kLanes; ++i)
            order.push_back(static_cast<int>((i / kHalf * kHalf + i % kHalf) * elements + k));
        keep(access, k, build_.CreateShuffleVector(parts[0], parts[1], order));
    }
}

void Emitter::check_range(const Access &access, llvm::Value *lowest, llvm::Value *span, llvm::Value *extra,
                          llvm::BasicBlock *otherwise) {
    const auto within = [&](llvm::Value *offset, llvm::Value *size) {
        return build_.CreateAnd(build_.CreateICmpULT(offset, size),
                                build_.CreateICmpULT(span, build_.CreateSub(size, offset)));
    };
    llvm::BasicBlock *fine = new_block("fine");
    if (access.op->place == Place::shared) {
        llvm::Value *size = field(offsetof(Context, shared_size), build_.getInt64Ty());
        build_.CreateCondBr(build_.CreateAnd(extra, within(lowest, size)), fine, otherwise);
        build_.SetInsertPoint(fine);
        return;
    }
    const std::size_t slot = (reinterpret_cast<std::uintptr_t>(access.op) / sizeof(Op)) % engine::kRangeCache;
    llvm::Value *cached = field(offsetof(Context, ranges) + slot * sizeof(void *), build_.getPtrTy());
    llvm::BasicBlock *known = new_block("known");
    llvm::BasicBlock *search = new_block("search");
    llvm::BasicBlock *look = new_block("look");
    llvm::AllocaInst *range = room(build_.getPtrTy());
    build_.CreateStore(cached, range);
    build_.CreateCondBr(build_.CreateIsNull(cached), search, known);
    build_.SetInsertPoint(known);
    const auto at = [&](llvm::Value *its, std::size_t offset, llvm::Type *type) {
        return build_.CreateLoad(type, build_.CreateConstInBoundsGEP1_64(build_.getInt8Ty(), its, offset));
    };
    llvm::Value *begin = at(cached, offsetof(Range, begin), build_.getInt64Ty());
    llvm::Value *end = at(cached, offsetof(Range, end), build_.getInt64Ty());
    llvm::Value *in = within(build_.CreateSub(lowest, begin), build_.CreateSub(end, begin));
    build_.CreateCondBr(build_.CreateAnd(extra, in), fine, search);
    build_.SetInsertPoint(search);
    build_.CreateCondBr(extra, look, otherwise);
    build_.SetInsertPoint(look);
    llvm::Value *found = call(reinterpret_cast<const void *>(host_.find_range), build_.getPtrTy(),
                              {context_, pointer(access.op), lowest, build_.CreateAdd(lowest, span)});
    build_.CreateStore(found, range);
    build_.CreateCondBr(build_.CreateIsNull(found), otherwise, fine);
    build_.SetInsertPoint(fine);
    if (!access.write)
        return;
    llvm::BasicBlock *writable = new_block("writable");
    llvm::Value *its = build_.CreateLoad(build_.getPtrTy(), range);
    build_.CreateCondBr(
        build_.CreateICmpNE(at(its, offsetof(Range, writable), build_.getInt8Ty()), build_.getInt8(0)),
        writable, otherwise);
    build_.SetInsertPoint(writable);
}

bool Emitter::checked(const Access &access) const {
    const auto found = checked_.find(access.op->o[5]);
    if (access.op->base == Base::none || found == checked_.end())
        return false;
    const Checked &its = found->second;
    const auto added = static_cast<std::int64_t>(access.op->immediate);
    return its.place == access.op->place && its.bytes == access.bytes && (its.write || !access.write) &&
           added >= its.first && added <= its.last && !access.step->guarded;
}

std::optional<Emitter::Checked> Emitter::together(const Access &access) const {
    const Op &op = *access.op;
    if (op.base == Base::none || access.step->guarded ||
        (op.place != Place::global && op.place != Place::shared))
        return std::nullopt;
    const auto added = static_cast<std::int64_t>(op.immediate);
    Checked all{added, added, 0, access.bytes, access.write, op.place};
    std::size_t others = 0;
    constexpr std::int64_t kFarthest = 1 << 20; // what is added
    const auto here = static_cast<std::size_t>(access.step - block_->steps.data());
    for (std::size_t i = here; i < block_->steps.size(); ++i) {
        const Step &each = block_->steps[i];
        const Op &its = code_.ops[each.op];
        const bool memory = each.form == Form::load || each.form == Form::store;
        const std::uint64_t bytes =
            memory ? std::uint64_t{ptx::type_size(code_.instruction(its).types[0])} * its.count : 0;
        const auto more = static_cast<std::int64_t>(its.immediate);
        if (i != here && memory && !each.guarded && its.base == op.base && its.o[5] == op.o[5] &&
            its.place == op.place && bytes == access.bytes && more > -kFarthest && more < kFarthest) {
            all.first = std::min(all.first, more);
            all.last = std::max(all.last, more);
            all.differences |= static_cast<std::uint64_t>(more - added);
            all.write |= each.form == Form::store;
            ++others;
        }
        if (std::ranges::find(each.writes, op.o[5]) != each.writes.end())
            break;
    }
    if (others == 0 || added <= -kFarthest || added >= kFarthest)
        return std::nullopt;
    return all;
}

// The engine accesses lane by lane.
void Emitter::general(Access &access, llvm::Value *addresses, llvm::BasicBlock *done) {
    const std::size_t count = access.write ? access.values.size() : access.results.size();
    const unsigned width = access.part == 8 ? 8 : 4;
    llvm::AllocaInst *asked = room(lanes_type(8));
    llvm::AllocaInst *values = room(llvm::ArrayType::get(lanes_type(width), count));
    build_.CreateStore(addresses, asked);
    const auto at = [&](std::size_t k) {
        return build_.CreateConstInBoundsGEP1_64(lanes_type(width), values, k);
    };
    for (std::size_t k = 0; access.write && k < count; ++k)
        build_.CreateStore(lanes_of(access.values[k], width), at(k));
    const std::uint32_t how = static_cast<std::uint32_t>(access.part) |
                              static_cast<std::uint32_t>(count) << 8U | (access.is_signed ? 1U << 16U : 0U) |
                              (access.write ? 1U << 24U : 0U);
    llvm::Value *good =
        call(reinterpret_cast<const void *>(host_.access), build_.getInt8Ty(),
             {context_, pointer(access.op), access.mask, asked, values, build_.getInt32(how)});
    llvm::BasicBlock *go_on = new_block("resolved");
    build_.CreateCondBr(build_.CreateTrunc(good, build_.getInt1Ty()), go_on, exit_here());
    build_.SetInsertPoint(go_on);
    for (std::size_t k = 0; !access.write && k < count; ++k)
        if (access.results[k] != nullptr)
            build_.CreateStore(build_.CreateLoad(lanes_type(width), at(k)), access.results[k]);
    build_.CreateBr(done);
}

// The host's address of the first lane's access, by the engine.
void Emitter::resolve_one(const Access &access, llvm::Value *address, llvm::Value *host,
                          llvm::BasicBlock *there) {
    llvm::AllocaInst *asked = room(lanes_type(8));
    llvm::AllocaInst *hosts = room(lanes_type(8));
    build_.CreateStore(splat(address), asked);
    llvm::Value *one = build_.CreateShl(build_.getInt32(1), first_);
    llvm::Value *good = call(reinterpret_cast<const void *>(host_.resolve), build_.getInt8Ty(),
                             {context_, pointer(access.op), one, asked, hosts, build_.getInt64(access.bytes),
                              build_.getInt8(access.write ? 1 : 0)});
    llvm::BasicBlock *go_on = new_block("resolved");
    build_.CreateCondBr(build_.CreateTrunc(good, build_.getInt1Ty()), go_on, exit_here());
    build_.SetInsertPoint(go_on);
    build_.CreateStore(build_.CreateExtractElement(build_.CreateLoad(lanes_type(8), hosts), first_), host);
    build_.CreateBr(there);
}

// Checks all of a group at once. base: where the access at hand begins, as arithmetic has it; lowest: its
// lowest lane's; reach: from there to the highest lane's. Gives the block where they are all fine.
llvm::BasicBlock *Emitter::group_check(const Access &access, const Checked &group, llvm::Value *base,
                                       llvm::Value *lowest, llvm::Value *reach, llvm::Value *low_bits,
                                       llvm::Value *extra, llvm::BasicBlock *leave) {
    const auto added = static_cast<std::int64_t>(access.op->immediate);
    // All of them are aligned if the first is, and the differences are.
    llvm::Value *bits = build_.CreateOr(build_.CreateOr(base, low_bits), build_.getInt64(group.differences));
    llvm::Value *aligned =
        build_.CreateICmpEQ(build_.CreateAnd(bits, build_.getInt64(access.bytes - 1)), build_.getInt64(0));
    Access whole = access;
    whole.write = group.write;
    lowest = build_.CreateAdd(lowest, build_.getInt64(static_cast<std::uint64_t>(group.first - added)));
    llvm::Value *span = build_.CreateAdd(
        reach, build_.getInt64(static_cast<std::uint64_t>(group.last - group.first) + access.bytes - 1));
    check_range(whole, lowest, span, build_.CreateAnd(extra, aligned), leave);
    return build_.GetInsertBlock();
}

// All lanes at one address.
void Emitter::access_uniform(Access &access, llvm::Value *address, llvm::BasicBlock *done) {
    const Op &op = *access.op;
    llvm::BasicBlock *otherwise = new_block("otherwise");
    llvm::AllocaInst *host = room(build_.getPtrTy());
    llvm::BasicBlock *there = new_block("there");
    bool only = false; // nothing goes another way
    if (op.place == Place::parameter) {
        build_.CreateStore(build_.CreateGEP(build_.getInt8Ty(),
                                            field(offsetof(Context, parameters), build_.getPtrTy()), address),
                           host);
        build_.CreateBr(there);
        build_.SetInsertPoint(otherwise);
        build_.CreateUnreachable();
    } else {
        const bool sure = checked(access);
        const std::optional<Checked> group = sure ? std::nullopt : together(access);
        if (group) {
            llvm::BasicBlock *leave = exit_here();
            build_.SetInsertPoint(group_check(access, *group, address, address, build_.getInt64(0),
                                              build_.getInt64(0), build_.getInt1(true), leave));
            checked_[op.o[5]] = *group;
        } else if (!sure) {
            llvm::Value *aligned = build_.CreateICmpEQ(
                build_.CreateAnd(address, build_.getInt64(access.bytes - 1)), build_.getInt64(0));
            check_range(access, address, build_.getInt64(access.bytes - 1), aligned, otherwise);
        }
        only = sure || group;
        build_.CreateStore(op.place == Place::shared
                               ? build_.CreateGEP(build_.getInt8Ty(),
                                                  field(offsetof(Context, shared), build_.getPtrTy()),
                                                  address)
                               : build_.CreateIntToPtr(address, build_.getPtrTy()),
                           host);
        build_.CreateBr(there);
        build_.SetInsertPoint(otherwise);
        if (only) {
            build_.CreateUnreachable();
        } else if (op.place == Place::generic) {
            // Not in local memory, where one address is another place for each lane.
            llvm::BasicBlock *elsewhere = new_block("elsewhere");
            build_.CreateCondBr(
                build_.CreateICmpEQ(build_.CreateAnd(address, build_.getInt64(~engine::kWindowMask)),
                                    build_.getInt64(engine::kLocalWindow)),
                exit_here(), elsewhere);
            build_.SetInsertPoint(elsewhere);
        }
        if (!only)
            resolve_one(access, address, host, there);
    }
    build_.SetInsertPoint(there);
    llvm::Value *at = build_.CreateLoad(build_.getPtrTy(), host);
    const std::size_t count = access.write ? access.values.size() : access.results.size();
    for (std::size_t k = 0; k < count; ++k) {
        llvm::Value *place = build_.CreateConstInBoundsGEP1_64(build_.getInt8Ty(), at, k * access.part);
        const llvm::Align aligned(op.place == Place::parameter ? 1 : access.part);
        if (access.write) { // the last lane's stays
            llvm::Value *last = build_.CreateSub(
                build_.getInt32(kLanes - 1),
                build_.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, access.mask, build_.getInt1(false)));
            build_.CreateAlignedStore(build_.CreateExtractElement(element(access, k), last), place, aligned);
        } else if (access.results[k] != nullptr) {
            llvm::Value *value = widened(access, build_.CreateAlignedLoad(part_type(access), place, aligned));
            build_.CreateStore(access.uniform ? value : splat(value), access.results[k]);
        }
    }
    build_.CreateBr(done);
}

// Each lane has a stack of its own.
void Emitter::access_local(Access &access, llvm::Value *address, llvm::BasicBlock *done) {
    llvm::Value *at = address;
    if (access.op->place == Place::frame)
        at = build_.CreateAdd(at, field(offsetof(Context, local_base), build_.getInt64Ty()));
    llvm::Value *stride = field(offsetof(Context, local_stride), build_.getInt64Ty());
    llvm::Value *good =
        build_.CreateICmpEQ(build_.CreateAnd(at, build_.getInt64(access.bytes - 1)), build_.getInt64(0));
    good = build_.CreateAnd(good, build_.CreateICmpULT(at, stride));
    good = build_.CreateAnd(
        good, build_.CreateICmpULE(build_.getInt64(access.bytes), build_.CreateSub(stride, at)));
    llvm::BasicBlock *fine = new_block("fine");
    build_.CreateCondBr(good, fine, exit_here());
    build_.SetInsertPoint(fine);
    llvm::Value *base = build_.CreateAdd(field(offsetof(Context, local), build_.getInt64Ty()), at);
    llvm::Value *all = build_.CreateAdd(splat(base), build_.CreateMul(splat(stride), numbered(1, false)));
    at_pointers(access, build_.CreateIntToPtr(all, llvm::FixedVectorType::get(build_.getPtrTy(), kLanes)),
                false);
    build_.CreateBr(done);
}

void Emitter::access_lanes(Access &access, const Value &address, llvm::BasicBlock *done) {
    const Op &op = *access.op;
    const bool narrow = op.base == Base::row32;
    const unsigned width = narrow ? 4 : 8;
    // All addresses, for the engine.
    const auto each = [&] {
        llvm::Value *all = build_.CreateAdd(
            lanes_of(address, width),
            splat(build_.getIntN(8 * width, op.immediate & (narrow ? UINT32_MAX : UINT64_MAX))));
        return narrow ? build_.CreateZExt(all, lanes_type(8)) : all;
    };
    const auto shaped = shapes_.find(address.anchor);
    if (shaped == shapes_.end() || op.place == Place::local || op.place == Place::frame) {
        general(access, each(), done);
        return;
    }
    const AddressShape &shape = shaped->second;
    llvm::BasicBlock *otherwise = new_block("otherwise");
    llvm::Value *more = address.scalar == nullptr ? build_.getIntN(8 * width, 0) : address.scalar;
    more =
        build_.CreateAdd(more, build_.getIntN(8 * width, op.immediate & (narrow ? UINT32_MAX : UINT64_MAX)));
    llvm::Value *base = nullptr;
    if (narrow)
        base = build_.CreateZExt(build_.CreateAdd(build_.CreateTrunc(shape.first, build_.getInt32Ty()), more),
                                 build_.getInt64Ty());
    else
        base = build_.CreateAdd(shape.first, more);
    llvm::Value *aligned = build_.CreateICmpEQ(
        build_.CreateAnd(build_.CreateOr(base, shape.low_bits), build_.getInt64(access.bytes - 1)),
        build_.getInt64(0));
    llvm::Value *lowest = build_.CreateAdd(base, shape.least);
    llvm::Value *span =
        build_.CreateAdd(build_.CreateSub(shape.most, shape.least), build_.getInt64(access.bytes - 1));
    llvm::Value *extra = build_.CreateAnd(aligned, shape.regular);
    // Only if all lanes that are here access: the shape is that of all.
    extra = build_.CreateAnd(extra, build_.CreateICmpEQ(access.mask, mask_));
    const bool sure = checked(access);
    const std::optional<Checked> group = sure ? std::nullopt : together(access);
    if (group) {
        build_.SetInsertPoint(group_check(access, *group, base, lowest,
                                          build_.CreateSub(shape.most, shape.least), shape.low_bits,
                                          shape.regular, exit_here()));
        checked_[op.o[5]] = *group;
    } else if (!sure) {
        check_range(access, lowest, span, extra, otherwise);
    }
    if (op.place == Place::shared)
        base = build_.CreateAdd(base, field(offsetof(Context, shared), build_.getInt64Ty()));
    if (const auto fixed = shape.fixed.find(access.bytes); fixed != shape.fixed.end()) {
        halves(access, build_.CreateIntToPtr(base, build_.getPtrTy()),
               build_.CreateIntToPtr(build_.CreateAdd(base, shape.half), build_.getPtrTy()),
               fixed->second == kHalvesContiguous);
        build_.CreateBr(done);
        build_.SetInsertPoint(otherwise);
        if (sure || group)
            build_.CreateUnreachable();
        else
            general(access, each(), done);
        return;
    }
    llvm::BasicBlock *ways[] = {new_block("same"), new_block("contiguous"), new_block("irregular")};
    auto *choice = build_.CreateSwitch(shape.pattern.at(access.bytes), ways[kIrregular], 2);
    choice->addCase(build_.getInt32(kHalvesUniform), ways[kHalvesUniform]);
    if (region_.full)
        choice->addCase(build_.getInt32(kHalvesContiguous), ways[kHalvesContiguous]);
    llvm::Value *low = nullptr;
    for (const std::uint32_t way : {kHalvesUniform, kHalvesContiguous}) {
        build_.SetInsertPoint(ways[way]);
        if (!region_.full && way == kHalvesContiguous) {
            build_.CreateUnreachable();
            continue;
        }
        if (region_.full) {
            low = build_.CreateIntToPtr(base, build_.getPtrTy());
            halves(access, low, build_.CreateIntToPtr(build_.CreateAdd(base, shape.half), build_.getPtrTy()),
                   way == kHalvesContiguous);
        } else {
            low = build_.CreateIntToPtr(base, build_.getPtrTy());
            const std::size_t count = access.write ? access.values.size() : access.results.size();
            for (std::size_t k = 0; k < count; ++k) {
                llvm::Value *place =
                    build_.CreateConstInBoundsGEP1_64(build_.getInt8Ty(), low, k * access.part);
                if (access.write) {
                    llvm::Value *last =
                        build_.CreateSub(build_.getInt32(kLanes - 1),
                                         build_.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, access.mask,
                                                                      build_.getInt1(false)));
                    build_.CreateAlignedStore(build_.CreateExtractElement(element(access, k), last), place,
                                              llvm::Align(access.part));
                } else {
                    keep(access, k,
                         splat(build_.CreateAlignedLoad(part_type(access), place, llvm::Align(access.part))));
                }
            }
        }
        build_.CreateBr(done);
    }
    build_.SetInsertPoint(ways[kIrregular]);
    llvm::Value *pointers = build_.CreateIntToPtr(build_.CreateAdd(shape.deltas, splat(base)),
                                                  llvm::FixedVectorType::get(build_.getPtrTy(), kLanes));
    at_pointers(access, pointers, region_.full);
    build_.CreateBr(done);
    build_.SetInsertPoint(otherwise);
    if (sure || group)
        build_.CreateUnreachable();
    else
        general(access, each(), done);
}

void Emitter::memory(const Step &step) {
    const Op &op = code_.ops[step.op];
    const Type type = code_.instruction(op).types[0];
    Access access;
    access.step = &step;
    access.op = &op;
    access.write = step.form == Form::store;
    access.part = ptx::type_size(type);
    access.bytes = access.part * op.count;
    access.is_signed = access.part < 4 && ptx::is_signed(type);
    const unsigned width = access.part == 8 ? 8 : 4;
    const auto results = results_of(region_, step, known_);
    const bool own_place = op.place == Place::local || op.place == Place::frame;
    access.uniform = !own_place && (op.base == Base::none || uniform(op.o[5]));
    const auto row_of = [&](unsigned k) {
        return op.count > 1 ? code_.extra[op.extra + k] : op.o[access.write ? 1 : 0];
    };
    for (unsigned k = 0; k < op.count; ++k) {
        const Ref ref = row_of(k);
        if (access.write) {
            access.values.push_back(exact(get(ref, width)));
            continue;
        }
        const std::uint32_t row = region_.rows.of(ref);
        access.rows.push_back(row);
        llvm::Type *kept =
            access.uniform ? static_cast<llvm::Type *>(build_.getIntNTy(8 * width)) : lanes_type(width);
        access.results.push_back(row == kNone ? nullptr : room(kept));
        if (row != kNone && step.guarded)
            build_.CreateStore(llvm::Constant::getNullValue(kept), access.results.back());
    }
    llvm::BasicBlock *done = new_block("done");
    access.mask = mask_;
    if (step.guarded) {
        bool is_uniform = false;
        llvm::Value *let = guard_of(step, is_uniform);
        if (is_uniform) {
            llvm::BasicBlock *some = new_block("some");
            build_.CreateCondBr(let, some, done);
            build_.SetInsertPoint(some);
        } else {
            access.mask = build_.CreateAnd(let, mask_);
            llvm::BasicBlock *some = new_block("some");
            build_.CreateCondBr(build_.CreateICmpEQ(access.mask, build_.getInt32(0)), done, some);
            build_.SetInsertPoint(some);
        }
    }
    const bool narrow = op.base == Base::row32;
    const auto one_address = [&]() -> llvm::Value * {
        if (op.base == Base::none)
            return build_.getInt64(op.immediate);
        llvm::Value *address = scalar(op.o[5], narrow ? 4 : 8);
        address = build_.CreateAdd(
            address, build_.getIntN(narrow ? 32 : 64, op.immediate & (narrow ? UINT32_MAX : UINT64_MAX)));
        return narrow ? build_.CreateZExt(address, build_.getInt64Ty()) : address;
    };
    if (own_place && (op.base == Base::none || uniform(op.o[5])))
        access_local(access, one_address(), done);
    else if (access.uniform)
        access_uniform(access, one_address(), done);
    else
        access_lanes(access, exact(get(op.o[5], narrow ? 4 : 8)), done);
    build_.SetInsertPoint(done);
    if (access.write)
        return;
    std::vector<Value> loaded;
    for (std::size_t k = 0; k < access.results.size(); ++k) {
        Value value;
        if (access.results[k] != nullptr) {
            llvm::Value *made = build_.CreateLoad(
                access.uniform ? static_cast<llvm::Type *>(build_.getIntNTy(8 * width)) : lanes_type(width),
                access.results[k]);
            value = access.uniform ? Value{true, made} : Value{false, nullptr, made};
        }
        loaded.push_back(value);
    }
    // Into the rows, in order; the guard is looked at before any of them is written.
    std::size_t result = 0;
    const std::vector<Value> before = values_;
    std::map<std::uint32_t, Value> defined;
    for (std::size_t k = 0; k < loaded.size(); ++k) {
        if (row_of(static_cast<unsigned>(k)) == kAbsent)
            continue;
        const std::uint32_t row = access.rows[k];
        if (row != kNone) {
            values_ = before;
            define(step, result, loaded[k]);
            defined[row] = values_[row];
        }
        ++result;
    }
    values_ = before;
    for (const auto &[row, value] : defined)
        values_[row] = value;
}

} // namespace singularity::softgpu::compiler
