// SPDX-License-Identifier: GPL-2.0-or-later
// Values from the bits of others: fields and counts of bits, bytes of words, tuples, floats of 16 bits. Each
// says what a handler of engine/lanes_*.cpp does. No shift here is as wide as what it shifts: LLVM's would be
// of no value then.
#include "compiler/emitter.hpp"

#include <algorithm>

namespace singularity::softgpu::compiler {

using ptx::Flag;
using ptx::Instruction;
using ptx::Mode;
using ptx::Rounding;

namespace {

constexpr std::uint64_t kByte = 0xFF;

bool is_small_pair(Type type) { return type == Type::f16x2 || type == Type::bf16x2; }
bool is_small(Type type) { return type == Type::f16 || type == Type::bf16; }

llvm::Value *like(llvm::Value *value, std::uint64_t bits) {
    return llvm::ConstantInt::get(value->getType(), bits);
}

} // namespace

bool knows_bits(const Instruction &instruction, const Op &op) {
    switch (instruction.opcode) {
    case Opcode::popc:
    case Opcode::clz:
    case Opcode::brev:
    case Opcode::bfe:
    case Opcode::bfi:
    case Opcode::shf:
        return true;
    case Opcode::prmt:
        return op.mode == 0;
    default:
        return false;
    }
}

unsigned bits_operand_width(const Instruction &instruction, std::size_t operand) {
    const std::size_t narrow =
        instruction.opcode == Opcode::bfe ? 2 : 3; // from there on: position and length
    const bool field = instruction.opcode == Opcode::bfe || instruction.opcode == Opcode::bfi;
    return field && operand >= narrow ? 4 : ptx::type_size(instruction.types[0]);
}

bool knows_small_float(const Instruction &instruction, const Op &op) {
    const Type to = instruction.types[0];
    const Type from = instruction.types[1];
    if (op.mode != 0 || op.rounding != 0)
        return false;
    if (to == Type::f32)
        return is_small(from) && instruction.rounding == Rounding::none;
    return from == Type::f32 && instruction.rounding == Rounding::rn &&
           (is_small(to) || (is_small_pair(to) && op.o[2] != kAbsent && op.o[3] == kAbsent));
}

llvm::Value *Emitter::bit_field(const Instruction &instruction, const std::vector<llvm::Value *> &in) {
    const bool inserts = instruction.opcode == Opcode::bfi;
    llvm::Value *a = in[0];
    llvm::Type *type = a->getType();
    const unsigned width = type->getScalarSizeInBits();
    const unsigned top = width - 1;
    llvm::Value *position = in[inserts ? 2 : 1];
    llvm::Value *length = in[inserts ? 3 : 2];
    llvm::Value *at = build_.CreateAnd(position, like(position, kByte));
    llvm::Value *size = build_.CreateAnd(length, like(length, kByte));
    const auto least = [&](llvm::Value *value, unsigned limit) {
        return build_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, value, like(value, limit));
    };
    const auto amount = [&](llvm::Value *value) { return build_.CreateZExt(least(value, top), type); };
    llvm::Value *zero = llvm::ConstantInt::get(type, 0);
    llvm::Value *all = llvm::Constant::getAllOnesValue(type);
    // The lowest bits, so many.
    const auto ones = [&](llvm::Value *count) {
        return build_.CreateSelect(build_.CreateICmpUGT(count, like(count, top)), all,
                                   build_.CreateNot(build_.CreateShl(all, amount(count))));
    };
    llvm::Value *outside = build_.CreateICmpUGT(at, like(at, top));
    if (inserts) {
        llvm::Value *chosen = build_.CreateShl(ones(size), amount(at));
        llvm::Value *moved = build_.CreateAnd(build_.CreateShl(a, amount(at)), chosen);
        llvm::Value *result = build_.CreateOr(build_.CreateAnd(in[1], build_.CreateNot(chosen)), moved);
        return build_.CreateSelect(outside, in[1], result);
    }
    llvm::Value *shifted = build_.CreateSelect(outside, zero, build_.CreateLShr(a, amount(at)));
    llvm::Value *value = build_.CreateAnd(shifted, ones(size));
    if (!ptx::is_signed(instruction.types[0]))
        return value;
    llvm::Value *last = build_.CreateSub(build_.CreateAdd(at, size), like(at, 1)); // of the field
    llvm::Value *sign = build_.CreateTrunc(build_.CreateLShr(a, amount(last)), type->getWithNewBitWidth(1));
    sign = build_.CreateAnd(sign, build_.CreateICmpNE(size, like(size, 0)));
    llvm::Value *there = build_.CreateSub(like(at, width), at); // bits from the position on
    llvm::Value *present = build_.CreateSelect(
        outside, like(at, 0), build_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, there, size));
    llvm::Value *above = build_.CreateNot(ones(present));
    return build_.CreateSelect(sign, build_.CreateOr(value, above), value);
}

llvm::Value *Emitter::permuted(const std::vector<llvm::Value *> &in) {
    llvm::Type *wide = in[0]->getType()->getWithNewBitWidth(64);
    llvm::Value *pair =
        build_.CreateOr(build_.CreateShl(build_.CreateZExt(in[1], wide), 32), build_.CreateZExt(in[0], wide));
    llvm::Value *result = like(in[0], 0);
    for (unsigned k = 0; k < 4; ++k) {
        llvm::Value *selector = build_.CreateLShr(in[2], like(in[2], std::uint64_t{4} * k));
        llvm::Value *place = build_.CreateShl(build_.CreateAnd(selector, like(selector, 7)), 3);
        llvm::Value *byte = build_.CreateTrunc(build_.CreateLShr(pair, build_.CreateZExt(place, wide)),
                                               in[0]->getType()->getWithNewBitWidth(8));
        llvm::Value *repeats =
            build_.CreateICmpNE(build_.CreateAnd(selector, like(selector, 8)), like(selector, 0));
        byte = build_.CreateSelect(repeats, build_.CreateAShr(byte, like(byte, 7)), byte);
        result = build_.CreateOr(
            result, build_.CreateShl(build_.CreateZExt(byte, in[0]->getType()), std::uint64_t{8} * k));
    }
    return result;
}

llvm::Value *Emitter::bits(const Instruction &instruction, const std::vector<llvm::Value *> &in) {
    llvm::Type *type = in[0]->getType();
    llvm::Type *word = type->getWithNewBitWidth(32);
    switch (instruction.opcode) {
    case Opcode::popc:
        return build_.CreateZExtOrTrunc(build_.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, in[0]), word);
    case Opcode::clz:
        return build_.CreateZExtOrTrunc(
            build_.CreateIntrinsic(llvm::Intrinsic::ctlz, {type}, {in[0], build_.getFalse()}), word);
    case Opcode::brev:
        return build_.CreateUnaryIntrinsic(llvm::Intrinsic::bitreverse, in[0]);
    case Opcode::bfe:
    case Opcode::bfi:
        return bit_field(instruction, in);
    case Opcode::prmt:
        return permuted(in);
    default: { // shf: in[1] is the upper word
        const bool left = instruction.has(Flag::left);
        if (instruction.mode != Mode::clamp) // by what is left of 32
            return build_.CreateIntrinsic(left ? llvm::Intrinsic::fshl : llvm::Intrinsic::fshr, {type},
                                          {in[1], in[0], in[2]});
        llvm::Type *wide = type->getWithNewBitWidth(64);
        llvm::Value *both = build_.CreateOr(build_.CreateShl(build_.CreateZExt(in[1], wide), 32),
                                            build_.CreateZExt(in[0], wide));
        llvm::Value *by = build_.CreateZExt(
            build_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, in[2], like(in[2], 32)), wide);
        return build_.CreateTrunc(
            left ? build_.CreateLShr(build_.CreateShl(both, by), 32) : build_.CreateLShr(both, by), type);
    }
    }
}

// The first element is the lowest.
void Emitter::tuple(const Step &step) {
    const Op &op = code_.ops[step.op];
    const bool packs = code_.kinds[step.op] == OpKind::pack;
    const bool same = std::ranges::all_of(step.reads, [&](Ref ref) { return uniform(ref); });
    const unsigned part = op.mode / op.count; // bytes; a part below 4 has a row of 4
    const auto read = [&](Ref ref, unsigned width) { return same ? scalar(ref, width) : lanes(ref, width); };
    const auto made = [&](llvm::Value *value) {
        return same ? Value{true, value} : Value{false, nullptr, value};
    };
    const unsigned whole_width = std::max<unsigned>(op.mode, 4);
    const unsigned row_width = std::max<unsigned>(part, 4);
    if (packs) {
        llvm::Value *whole = nullptr;
        for (unsigned k = 0; k < op.count; ++k) {
            llvm::Value *element = read(code_.extra[op.extra + k], row_width);
            element = build_.CreateTrunc(element, element->getType()->getWithNewBitWidth(8 * part));
            element = build_.CreateZExt(element, element->getType()->getWithNewBitWidth(8 * whole_width));
            element = build_.CreateShl(element, std::uint64_t{8} * part * k);
            whole = whole == nullptr ? element : build_.CreateOr(whole, element);
        }
        return define(step, 0, made(whole));
    }
    llvm::Value *whole = read(op.o[0], whole_width);
    std::vector<llvm::Value *> elements;
    for (unsigned k = 0; k < op.count; ++k) {
        llvm::Value *element = build_.CreateLShr(whole, std::uint64_t{8} * part * k);
        element = build_.CreateTrunc(element, element->getType()->getWithNewBitWidth(8 * part));
        elements.push_back(build_.CreateZExt(element, element->getType()->getWithNewBitWidth(8 * row_width)));
    }
    std::size_t result = 0;
    for (unsigned k = 0; k < op.count; ++k)
        if (code_.extra[op.extra + k] != kAbsent)
            define(step, result++, made(elements[k]));
}

// By arithmetic of f32 and of its bits: not every processor has these conversions.
llvm::Value *Emitter::from_small(Type from, llvm::Value *in) {
    llvm::Value *low = build_.CreateAnd(in, like(in, 0xFFFF));
    if (from == Type::bf16)
        return as_bits(canonical(as_float(build_.CreateShl(low, 16))));
    llvm::Value *sign = build_.CreateShl(build_.CreateAnd(low, like(low, 0x8000)), 16);
    llvm::Value *magnitude = build_.CreateShl(build_.CreateAnd(low, like(low, 0x7FFF)), 13);
    llvm::Value *number = as_float(magnitude);
    llvm::Value *finite =
        as_bits(build_.CreateFMul(number, llvm::ConstantFP::get(number->getType(), 0x1p112)));
    llvm::Value *special = build_.CreateOr(magnitude, like(magnitude, 0x7F800000U));
    llvm::Value *is_special = build_.CreateICmpUGE(magnitude, like(magnitude, 0x7C00U << 13U));
    return as_bits(
        canonical(as_float(build_.CreateOr(build_.CreateSelect(is_special, special, finite), sign))));
}

// To nearest, ties to even.
llvm::Value *Emitter::to_small(Type to, llvm::Value *in) {
    llvm::Value *number = as_float(in);
    llvm::Value *is_number = build_.CreateFCmpORD(number, number);
    const auto rounded = [&](llvm::Value *value, unsigned cut) {
        llvm::Value *odd = build_.CreateAnd(build_.CreateLShr(value, cut), like(value, 1));
        const std::uint64_t below_half = (std::uint64_t{1} << (cut - 1)) - 1;
        return build_.CreateLShr(build_.CreateAdd(build_.CreateAdd(value, odd), like(value, below_half)),
                                 cut);
    };
    if (to == Type::bf16)
        return build_.CreateSelect(is_number, rounded(in, 16), like(in, 0x7FFF));
    llvm::Value *sign = build_.CreateLShr(build_.CreateAnd(in, like(in, 0x80000000U)), 16);
    llvm::Value *magnitude = build_.CreateAnd(in, like(in, 0x7FFFFFFF));
    llvm::Value *normal = build_.CreateSub(rounded(magnitude, 13), like(in, 112U << 10U));
    // A number of half's least subnormal: that is the last place of a float from 0.5 to 1.
    llvm::Value *half = llvm::ConstantFP::get(number->getType(), 0.5);
    llvm::Value *subnormal =
        build_.CreateSub(as_bits(build_.CreateFAdd(as_float(magnitude), half)), as_bits(half));
    llvm::Value *result =
        build_.CreateSelect(build_.CreateICmpULT(magnitude, like(magnitude, 0x38800000U)), subnormal, normal);
    result = build_.CreateSelect(build_.CreateICmpUGE(magnitude, like(magnitude, 0x477FF000U)),
                                 like(in, 0x7C00), result);
    return build_.CreateSelect(is_number, build_.CreateOr(result, sign), like(in, 0x7FFF));
}

llvm::Value *Emitter::small_float(const Instruction &instruction, const std::vector<llvm::Value *> &in) {
    const Type to = instruction.types[0];
    if (to == Type::f32)
        return from_small(instruction.types[1], in[0]);
    if (is_small(to))
        return to_small(to, in[0]);
    const Type each = to == Type::f16x2 ? Type::f16 : Type::bf16;
    return build_.CreateOr(build_.CreateShl(to_small(each, in[0]), 16), to_small(each, in[1]));
}

} // namespace singularity::softgpu::compiler
