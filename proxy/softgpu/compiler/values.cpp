// SPDX-License-Identifier: GPL-2.0-or-later
// Values from values. Each says in LLVM's words what a handler of engine/lanes_*.cpp says in C++, and what is
// not known here is left to those.
#include "compiler/emitter.hpp"

#include <algorithm>

namespace singularity::softgpu::compiler {

using ptx::Comparison;
using ptx::Flag;
using ptx::Instruction;
using ptx::Mode;
using ptx::Operation;
using ptx::Rounding;

namespace {

constexpr std::uint32_t kNan32 = 0x7FFFFFFFU;
constexpr std::uint64_t kNan64 = 0xFFF8000000000000ULL;

bool is_word(Type type) {
    switch (type) {
    case Type::u32:
    case Type::s32:
    case Type::b32:
    case Type::u64:
    case Type::s64:
    case Type::b64:
        return true;
    default:
        return false;
    }
}
bool is_bits(Type type) { // and, or, xor, mov, selp do not look at what is in them
    return ptx::type_size(type) == 2 || ptx::type_size(type) == 4 || ptx::type_size(type) == 8;
}
bool is_real(Type type) { return type == Type::f32 || type == Type::f64; }

bool knows_conversion(const Instruction &instruction, const Op &op) {
    const Type to = instruction.types[0];
    const Type from = instruction.types[1];
    if (instruction.mode != Mode::none || (op.mode & ~1U) != 0 || op.rounding != 0)
        return false;
    if (knows_small_float(instruction, op))
        return true;
    const auto integer = [](Type type) {
        return is_word(type) || type == Type::u16 || type == Type::s16 || type == Type::b16 ||
               type == Type::u8 || type == Type::s8;
    };
    if (integer(to) && integer(from))
        return true;
    if (is_real(to) && is_word(from))
        return true;
    if (is_real(to) && is_real(from)) {
        const Rounding rounding = instruction.rounding;
        return to != from && (rounding == Rounding::none || rounding == Rounding::rn);
    }
    if (is_real(from) && (to == Type::s32 || to == Type::u32))
        switch (instruction.rounding) {
        case Rounding::rni:
        case Rounding::rzi:
        case Rounding::rmi:
        case Rounding::rpi:
            return true;
        default:
            return false;
        }
    return false;
}

bool knows_comparison(const Instruction &instruction) {
    switch (instruction.comparison) {
    case Comparison::eq:
    case Comparison::ne:
    case Comparison::lt:
    case Comparison::le:
    case Comparison::gt:
    case Comparison::ge:
        return true;
    case Comparison::lo:
    case Comparison::ls:
    case Comparison::hi:
    case Comparison::hs:
        return is_word(instruction.types[0]);
    case Comparison::equ:
    case Comparison::neu:
    case Comparison::ltu:
    case Comparison::leu:
    case Comparison::gtu:
    case Comparison::geu:
    case Comparison::num:
    case Comparison::nan:
        return is_real(instruction.types[0]);
    default:
        return false;
    }
}

bool knows_plain(const Instruction &instruction, const Op &op) {
    const Type type = instruction.types[0];
    switch (instruction.opcode) {
    case Opcode::add:
    case Opcode::sub:
        if (is_real(type))
            return op.rounding == 0;
        return is_word(type) && !instruction.has(Flag::sat);
    case Opcode::mul:
    case Opcode::mad:
        if (is_real(type))
            return op.rounding == 0;
        if (instruction.has(Flag::sat))
            return false;
        if (instruction.mode == Mode::wide)
            return type == Type::u32 || type == Type::s32;
        return is_word(type) &&
               (instruction.mode == Mode::lo || (instruction.mode == Mode::hi && ptx::type_size(type) == 4));
    case Opcode::fma:
    case Opcode::div:
    case Opcode::rcp:
    case Opcode::sqrt:
        if (type == Type::f64 && instruction.mode == Mode::approx)
            return false;
        return is_real(type) && op.rounding == 0;
    case Opcode::neg:
    case Opcode::abs:
        return is_word(type) || is_real(type);
    case Opcode::min:
    case Opcode::max:
        if (is_real(type))
            return op.o[3] == kAbsent && !instruction.has(Flag::xorsign);
        return is_word(type) && !instruction.has(Flag::relu);
    case Opcode::and_:
    case Opcode::or_:
    case Opcode::xor_:
    case Opcode::not_:
        return type == Type::pred || (is_bits(type) && !is_real(type));
    case Opcode::mov:
        return type == Type::pred || is_bits(type);
    case Opcode::selp:
        return is_bits(type);
    case Opcode::shl:
    case Opcode::shr:
        return is_word(type);
    case Opcode::lop3:
        return instruction.operation == Operation::none;
    case Opcode::cvt:
        return knows_conversion(instruction, op);
    default:
        return knows_bits(instruction, op);
    }
}

} // namespace

bool knows_value(const Code &code, std::uint32_t at) {
    const Op &op = code.ops[at];
    const Instruction &instruction = code.instruction(op);
    if (code.kinds[at] == OpKind::pair)
        return instruction.opcode == Opcode::setp &&
               (is_word(instruction.types[0]) || is_real(instruction.types[0])) &&
               knows_comparison(instruction) &&
               (op.mode == 0 || static_cast<Operation>(op.mode) == Operation::and_ ||
                static_cast<Operation>(op.mode) == Operation::or_ ||
                static_cast<Operation>(op.mode) == Operation::xor_);
    return code.kinds[at] == OpKind::plain && knows_plain(instruction, op);
}

// Numbers and their bits

llvm::Value *Emitter::as_float(llvm::Value *bits) {
    llvm::Type *type = bits->getType();
    const bool wide = type->getScalarSizeInBits() == 64;
    llvm::Type *number = wide ? build_.getDoubleTy() : build_.getFloatTy();
    if (type->isVectorTy())
        number = llvm::FixedVectorType::get(number, engine::kLanes);
    return build_.CreateBitCast(bits, number);
}

llvm::Value *Emitter::as_bits(llvm::Value *number) {
    llvm::Type *type = number->getType();
    llvm::Type *bits = build_.getIntNTy(type->getScalarSizeInBits());
    if (type->isVectorTy())
        bits = llvm::FixedVectorType::get(bits, engine::kLanes);
    return build_.CreateBitCast(number, bits);
}

llvm::Value *Emitter::flushed(llvm::Value *value) { // of f32
    llvm::Value *bits = as_bits(value);
    llvm::Type *type = bits->getType();
    llvm::Value *small = build_.CreateICmpEQ(
        build_.CreateAnd(bits, llvm::ConstantInt::get(type, 0x7F800000U)), llvm::ConstantInt::get(type, 0));
    return as_float(
        build_.CreateSelect(small, build_.CreateAnd(bits, llvm::ConstantInt::get(type, 0x80000000U)), bits));
}

llvm::Value *Emitter::canonical(llvm::Value *value) {
    llvm::Value *bits = as_bits(value);
    return as_float(build_.CreateSelect(build_.CreateFCmpORD(value, value), bits,
                                        llvm::ConstantInt::get(bits->getType(), kNan32)));
}

llvm::Value *Emitter::chosen_nan(llvm::Value *result, const std::vector<llvm::Value *> &in) {
    llvm::Value *bits = as_bits(result);
    llvm::Type *type = bits->getType();
    llvm::Value *nan = llvm::ConstantInt::get(type, kNan64);
    for (std::size_t i = in.size(); i-- > 0;) {
        llvm::Value *quiet =
            build_.CreateOr(as_bits(in[i]), llvm::ConstantInt::get(type, 0x0008000000000000ULL));
        nan = build_.CreateSelect(build_.CreateFCmpUNO(in[i], in[i]), quiet, nan);
    }
    return as_float(build_.CreateSelect(build_.CreateFCmpORD(result, result), bits, nan));
}

llvm::Value *Emitter::saturated(llvm::Value *value) {
    llvm::Value *zero = llvm::ConstantFP::get(value->getType(), 0.);
    llvm::Value *one = llvm::ConstantFP::get(value->getType(), 1.);
    llvm::Value *below = build_.CreateSelect(build_.CreateFCmpOLT(value, one), value, one);
    return build_.CreateSelect(build_.CreateFCmpOGT(value, zero), below, zero);
}

// -0 is less than +0; of a number and a NaN the number, unless .NaN.
llvm::Value *Emitter::extreme(const Instruction &instruction, llvm::Value *a, llvm::Value *b) {
    const bool largest = instruction.opcode == Opcode::max;
    llvm::Value *both =
        largest ? build_.CreateAnd(as_bits(a), as_bits(b)) : build_.CreateOr(as_bits(a), as_bits(b));
    llvm::Value *first = largest ? build_.CreateFCmpOGT(a, b) : build_.CreateFCmpOLT(a, b);
    llvm::Value *value = build_.CreateSelect(first, as_bits(a), as_bits(b));
    value = build_.CreateSelect(build_.CreateFCmpOEQ(a, b), both, value);
    if (instruction.has(Flag::nan)) {
        const std::uint64_t nan = instruction.types[0] == Type::f32 ? kNan32 : 0x7FFFFFFFFFFFFFFFULL;
        return as_float(build_.CreateSelect(build_.CreateFCmpUNO(a, b),
                                            llvm::ConstantInt::get(value->getType(), nan), value));
    }
    value = build_.CreateSelect(build_.CreateFCmpUNO(a, a), as_bits(b), value);
    value = build_.CreateSelect(build_.CreateFCmpUNO(b, b), as_bits(a), value);
    return instruction.types[0] == Type::f32 ? canonical(as_float(value)) : as_float(value);
}

// Instructions

llvm::Value *Emitter::floating(const Instruction &instruction, const Op &op,
                               const std::vector<llvm::Value *> &in) {
    const bool single = instruction.types[0] == Type::f32;
    const bool ftz = single && instruction.has(Flag::ftz);
    llvm::Type *bits = in[0]->getType();
    llvm::Value *sign = llvm::ConstantInt::get(bits, single ? 0x80000000ULL : 0x8000000000000000ULL);
    std::vector<llvm::Value *> numbers;
    for (llvm::Value *each : in)
        numbers.push_back(ftz ? flushed(as_float(each)) : as_float(each));
    if (instruction.opcode == Opcode::neg)
        return build_.CreateXor(as_bits(numbers[0]), sign);
    if (instruction.opcode == Opcode::abs)
        return build_.CreateAnd(as_bits(numbers[0]), build_.CreateNot(sign));
    if (instruction.opcode == Opcode::min || instruction.opcode == Opcode::max)
        return as_bits(extreme(instruction, numbers[0], numbers[1]));
    llvm::Value *result = nullptr;
    switch (instruction.opcode) {
    case Opcode::add:
        result = build_.CreateFAdd(numbers[0], numbers[1]);
        break;
    case Opcode::sub:
        result = build_.CreateFSub(numbers[0], numbers[1]);
        break;
    case Opcode::mul:
        result = build_.CreateFMul(numbers[0], numbers[1]);
        break;
    case Opcode::div:
        result = build_.CreateFDiv(numbers[0], numbers[1]);
        break;
    case Opcode::rcp:
        result = build_.CreateFDiv(llvm::ConstantFP::get(numbers[0]->getType(), 1.), numbers[0]);
        break;
    case Opcode::sqrt:
        result = build_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, numbers[0]);
        break;
    default: // fma, mad
        result = build_.CreateIntrinsic(numbers[0]->getType(), llvm::Intrinsic::fma,
                                        {numbers[0], numbers[1], numbers[2]});
        break;
    }
    if (ftz)
        result = flushed(result);
    if ((op.mode & 2U) != 0)
        return as_bits(saturated(result));
    // Of f32: loose; see Known.
    return as_bits(single ? result : chosen_nan(result, numbers));
}

llvm::Value *Emitter::integer(const Instruction &instruction, const std::vector<llvm::Value *> &in) {
    const Type type = instruction.types[0];
    const bool is_signed = ptx::is_signed(type);
    llvm::Type *bits = in[0]->getType();
    const auto twice = [&](llvm::Value *value) {
        llvm::Type *wide = bits->getWithNewBitWidth(2 * bits->getScalarSizeInBits());
        return is_signed ? build_.CreateSExt(value, wide) : build_.CreateZExt(value, wide);
    };
    switch (instruction.opcode) {
    case Opcode::add:
        return build_.CreateAdd(in[0], in[1]);
    case Opcode::sub:
        return build_.CreateSub(in[0], in[1]);
    case Opcode::mul:
    case Opcode::mad: {
        llvm::Value *product = nullptr;
        if (instruction.mode == Mode::wide)
            product = build_.CreateMul(twice(in[0]), twice(in[1]));
        else if (instruction.mode == Mode::hi)
            product = build_.CreateTrunc(
                build_.CreateLShr(build_.CreateMul(twice(in[0]), twice(in[1])), bits->getScalarSizeInBits()),
                bits);
        else
            product = build_.CreateMul(in[0], in[1]);
        return instruction.opcode == Opcode::mad ? build_.CreateAdd(product, in[2]) : product;
    }
    case Opcode::neg:
        return build_.CreateNeg(in[0]);
    case Opcode::abs:
        return build_.CreateSelect(build_.CreateICmpSLT(in[0], llvm::ConstantInt::get(bits, 0)),
                                   build_.CreateNeg(in[0]), in[0]);
    case Opcode::min:
        return build_.CreateSelect(is_signed ? build_.CreateICmpSLT(in[0], in[1])
                                             : build_.CreateICmpULT(in[0], in[1]),
                                   in[0], in[1]);
    case Opcode::max:
        return build_.CreateSelect(is_signed ? build_.CreateICmpSLT(in[0], in[1])
                                             : build_.CreateICmpULT(in[0], in[1]),
                                   in[1], in[0]);
    case Opcode::and_:
        return build_.CreateAnd(in[0], in[1]);
    case Opcode::or_:
        return build_.CreateOr(in[0], in[1]);
    case Opcode::xor_:
        return build_.CreateXor(in[0], in[1]);
    case Opcode::not_:
        return build_.CreateNot(in[0]);
    case Opcode::shl:
    case Opcode::shr: { // in[1]: 32 bits; too far shifts everything out
        const unsigned width = bits->getScalarSizeInBits();
        llvm::Value *far = build_.CreateICmpUGE(in[1], llvm::ConstantInt::get(in[1]->getType(), width));
        llvm::Value *near = build_.CreateAnd(in[1], llvm::ConstantInt::get(in[1]->getType(), width - 1));
        if (width == 64)
            near = build_.CreateZExt(near, bits);
        if (instruction.opcode == Opcode::shl)
            return build_.CreateSelect(far, llvm::ConstantInt::get(bits, 0), build_.CreateShl(in[0], near));
        if (is_signed)
            return build_.CreateAShr(in[0],
                                     build_.CreateSelect(far, llvm::ConstantInt::get(bits, width - 1), near));
        return build_.CreateSelect(far, llvm::ConstantInt::get(bits, 0), build_.CreateLShr(in[0], near));
    }
    default:
        return nullptr;
    }
}

llvm::Value *Emitter::convert(const Instruction &instruction, const Op &op, llvm::Value *in) {
    const Type to = instruction.types[0];
    const Type from = instruction.types[1];
    const bool ftz = (op.mode & 1U) != 0;
    const auto with = [&](llvm::Type *element) -> llvm::Type * {
        return in->getType()->isVectorTy() ? llvm::FixedVectorType::get(element, engine::kLanes) : element;
    };
    const auto resized = [&](llvm::Value *value, unsigned width, bool is_signed) {
        llvm::Type *type = with(build_.getIntNTy(width));
        return is_signed ? build_.CreateSExtOrTrunc(value, type) : build_.CreateZExtOrTrunc(value, type);
    };
    const unsigned to_bits = 8 * ptx::type_size(to);
    if (!ptx::is_float(to) && !ptx::is_float(from)) {
        llvm::Value *value = resized(in, 8 * ptx::type_size(from), false); // what is read
        value = resized(value, to_bits, ptx::is_signed(from));
        return resized(value, std::max(to_bits, 32U), ptx::is_signed(to)); // to the whole row
    }
    if (!ptx::is_float(from)) {
        llvm::Type *number = with(to == Type::f32 ? build_.getFloatTy() : build_.getDoubleTy());
        return as_bits(ptx::is_signed(from) ? build_.CreateSIToFP(in, number)
                                            : build_.CreateUIToFP(in, number));
    }
    llvm::Value *value = as_float(in);
    llvm::Type *wide = with(build_.getDoubleTy());
    if (from == Type::f32) {
        if (ftz)
            value = flushed(value);
        value = build_.CreateFPExt(value, wide);
    }
    if (to == Type::f32) {
        value = build_.CreateFPTrunc(value, with(build_.getFloatTy()));
        return as_bits(canonical(ftz ? flushed(value) : value));
    }
    if (to == Type::f64) {
        llvm::Value *bits = as_bits(value);
        return build_.CreateSelect(build_.CreateFCmpORD(value, value), bits,
                                   llvm::ConstantInt::get(bits->getType(), 0x7FFFFFFFE0000000ULL));
    }
    switch (instruction.rounding) {
    case Rounding::rni:
        value = build_.CreateUnaryIntrinsic(llvm::Intrinsic::rint, value);
        break;
    case Rounding::rzi:
        value = build_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, value);
        break;
    case Rounding::rmi:
        value = build_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, value);
        break;
    default:
        value = build_.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, value);
        break;
    }
    llvm::Value *low = llvm::ConstantFP::get(wide, to == Type::s32 ? -2147483648. : 0.);
    llvm::Value *high = llvm::ConstantFP::get(wide, to == Type::s32 ? 2147483647. : 4294967295.);
    llvm::Value *inside = build_.CreateSelect(build_.CreateFCmpOLT(value, high), value, high);
    inside = build_.CreateSelect(build_.CreateFCmpOGT(value, low), inside, low);
    inside = build_.CreateSelect(build_.CreateFCmpORD(value, value), inside, llvm::ConstantFP::get(wide, 0.));
    return build_.CreateTrunc(build_.CreateFPToSI(inside, with(build_.getInt64Ty())),
                              with(build_.getInt32Ty()));
}

// i1 of what is compared: numbers as bits.
llvm::Value *Emitter::compare(const Instruction &instruction, llvm::Value *a, llvm::Value *b) {
    using llvm::CmpInst;
    struct Row {
        Comparison how;
        CmpInst::Predicate integer_signed;
        CmpInst::Predicate integer_unsigned;
        CmpInst::Predicate floating;
    };
    constexpr auto none = CmpInst::BAD_ICMP_PREDICATE;
    static constexpr Row table[] = {
        {Comparison::eq, CmpInst::ICMP_EQ, CmpInst::ICMP_EQ, CmpInst::FCMP_OEQ},
        {Comparison::ne, CmpInst::ICMP_NE, CmpInst::ICMP_NE, CmpInst::FCMP_ONE},
        {Comparison::lt, CmpInst::ICMP_SLT, CmpInst::ICMP_ULT, CmpInst::FCMP_OLT},
        {Comparison::le, CmpInst::ICMP_SLE, CmpInst::ICMP_ULE, CmpInst::FCMP_OLE},
        {Comparison::gt, CmpInst::ICMP_SGT, CmpInst::ICMP_UGT, CmpInst::FCMP_OGT},
        {Comparison::ge, CmpInst::ICMP_SGE, CmpInst::ICMP_UGE, CmpInst::FCMP_OGE},
        {Comparison::lo, CmpInst::ICMP_ULT, CmpInst::ICMP_ULT, none},
        {Comparison::ls, CmpInst::ICMP_ULE, CmpInst::ICMP_ULE, none},
        {Comparison::hi, CmpInst::ICMP_UGT, CmpInst::ICMP_UGT, none},
        {Comparison::hs, CmpInst::ICMP_UGE, CmpInst::ICMP_UGE, none},
        {Comparison::equ, none, none, CmpInst::FCMP_UEQ},
        {Comparison::neu, none, none, CmpInst::FCMP_UNE},
        {Comparison::ltu, none, none, CmpInst::FCMP_ULT},
        {Comparison::leu, none, none, CmpInst::FCMP_ULE},
        {Comparison::gtu, none, none, CmpInst::FCMP_UGT},
        {Comparison::geu, none, none, CmpInst::FCMP_UGE},
        {Comparison::num, none, none, CmpInst::FCMP_ORD},
        {Comparison::nan, none, none, CmpInst::FCMP_UNO},
    };
    const Row &row = *std::ranges::find(table, instruction.comparison, &Row::how);
    const Type type = instruction.types[0];
    if (!is_real(type))
        return build_.CreateICmp(ptx::is_signed(type) ? row.integer_signed : row.integer_unsigned, a, b);
    a = as_float(a);
    b = as_float(b);
    if (type == Type::f32 && instruction.has(Flag::ftz)) {
        a = flushed(a);
        b = flushed(b);
    }
    return build_.CreateFCmp(row.floating, a, b);
}

void Emitter::value(const Step &step) {
    const Op &op = code_.ops[step.op];
    const OpKind kind = code_.kinds[step.op];
    const Instruction &instruction = code_.instruction(op);
    const Type type = instruction.types[0];
    const bool same = std::ranges::all_of(step.reads, [&](Ref ref) { return uniform(ref); });
    const auto read = [&](Ref ref, unsigned width, bool loose = false) {
        if (!same)
            return lanes(ref, width, loose);
        const Value value = get(ref, width);
        return loose ? value.scalar : exact(value).scalar;
    };
    const auto made = [&](llvm::Value *value) {
        return same ? Value{true, value} : Value{false, nullptr, value};
    };
    switch (kind) {
    case OpKind::invert: {
        const Value in = get(op.o[1], 0);
        define(step, 0, made(build_.CreateNot(same ? in.scalar : bits_of(in))));
        return;
    }
    case OpKind::widen_unsigned:
    case OpKind::widen_signed: {
        llvm::Value *in = read(op.o[1], 4);
        llvm::Type *wide = in->getType()->getWithNewBitWidth(64);
        define(
            step, 0,
            made(kind == OpKind::widen_signed ? build_.CreateSExt(in, wide) : build_.CreateZExt(in, wide)));
        return;
    }
    case OpKind::narrow: {
        llvm::Value *in = read(op.o[1], 8);
        define(step, 0, made(build_.CreateTrunc(in, in->getType()->getWithNewBitWidth(32))));
        return;
    }
    case OpKind::pack:
    case OpKind::unpack:
        return tuple(step);
    case OpKind::mask:
        define(step, 0, made(build_.CreateAnd(read(op.o[1], 8), read(op.o[2], 8))));
        return;
    default:
        break;
    }
    // A vector and what is added to all lanes of it.
    const bool sum =
        kind == OpKind::add || (kind == OpKind::plain && !ptx::is_float(type) &&
                                (instruction.opcode == Opcode::add || instruction.opcode == Opcode::sub));
    if (sum) {
        const unsigned width = kind == OpKind::add ? 8 : ptx::type_size(type);
        const bool minus = kind == OpKind::plain && instruction.opcode == Opcode::sub;
        const Known result = results_of(region_, step, known_)[0];
        if (!same && !step.guarded && result.kind == Known::Kind::vector &&
            result.anchor != region_.step_anchor(step, 0)) {
            const bool first = !uniform(op.o[1]);
            Value value = get(op.o[first ? 1 : 2], width);
            llvm::Value *more = scalar(op.o[first ? 2 : 1], width);
            llvm::Value *before = value.scalar == nullptr ? build_.getIntN(8 * width, 0) : value.scalar;
            value.scalar = minus ? build_.CreateSub(before, more) : build_.CreateAdd(before, more);
            define(step, 0, value);
            return;
        }
        llvm::Value *a = read(op.o[1], width);
        llvm::Value *b = read(op.o[2], width);
        define(step, 0, made(minus ? build_.CreateSub(a, b) : build_.CreateAdd(a, b)));
        return;
    }
    if (kind == OpKind::pair) { // setp
        const unsigned width = ptx::type_size(type);
        llvm::Value *truth =
            compare(instruction, read(op.o[2], width, is_real(type)), read(op.o[3], width, is_real(type)));
        llvm::Value *bits = same ? truth : mask_bits(truth);
        llvm::Value *inverse = build_.CreateNot(bits);
        if (op.mode != 0) {
            const Value with = get(op.o[4], 0);
            llvm::Value *other = same ? with.scalar : bits_of(with);
            for (llvm::Value **each : {&bits, &inverse})
                switch (static_cast<Operation>(op.mode)) {
                case Operation::and_:
                    *each = build_.CreateAnd(*each, other);
                    break;
                case Operation::or_:
                    *each = build_.CreateOr(*each, other);
                    break;
                default:
                    *each = build_.CreateXor(*each, other);
                    break;
                }
        }
        define_pair(step, made(bits), made(inverse));
        return;
    }
    if (type == Type::pred) {
        const auto in = [&](std::size_t i) {
            const Value value = get(op.o[i], 0);
            return same ? value.scalar : bits_of(value);
        };
        llvm::Value *result = nullptr;
        switch (instruction.opcode) {
        case Opcode::and_:
            result = build_.CreateAnd(in(1), in(2));
            break;
        case Opcode::or_:
            result = build_.CreateOr(in(1), in(2));
            break;
        case Opcode::xor_:
            result = build_.CreateXor(in(1), in(2));
            break;
        case Opcode::not_:
            result = build_.CreateNot(in(1));
            break;
        default:
            result = in(1);
            break;
        }
        define(step, 0, made(result));
        return;
    }
    const unsigned width = std::max<unsigned>(ptx::type_size(type), 4);
    switch (instruction.opcode) {
    case Opcode::mov:
        define(step, 0, made(read(op.o[1], width)));
        return;
    case Opcode::selp: {
        llvm::Value *a = read(op.o[1], width);
        llvm::Value *b = read(op.o[2], width);
        const Value predicate = get(op.o[3], 0);
        llvm::Value *chosen = predicate.uniform ? predicate.scalar : lane_mask(predicate.vector);
        define(step, 0, made(build_.CreateSelect(chosen, a, b)));
        return;
    }
    case Opcode::lop3: {
        llvm::Value *in[3] = {read(op.o[1], 4), read(op.o[2], 4), read(op.o[3], 4)};
        llvm::Value *result = llvm::ConstantInt::get(in[0]->getType(), 0);
        for (unsigned term = 0; term < 8; ++term)
            if ((op.immediate >> term & 1U) != 0) {
                llvm::Value *all = (term & 4U) != 0 ? in[0] : build_.CreateNot(in[0]);
                all = build_.CreateAnd(all, (term & 2U) != 0 ? in[1] : build_.CreateNot(in[1]));
                all = build_.CreateAnd(all, (term & 1U) != 0 ? in[2] : build_.CreateNot(in[2]));
                result = build_.CreateOr(result, all);
            }
        define(step, 0, made(result));
        return;
    }
    case Opcode::cvt: {
        if (knows_small_float(instruction, op)) {
            std::vector<llvm::Value *> in{read(op.o[1], 4)};
            if (op.o[2] != kAbsent)
                in.push_back(read(op.o[2], 4));
            define(step, 0, made(small_float(instruction, in)));
            return;
        }
        const unsigned source = std::max<unsigned>(ptx::type_size(instruction.types[1]), 4);
        define(step, 0, made(convert(instruction, op, read(op.o[1], source))));
        return;
    }
    default:
        break;
    }
    std::vector<llvm::Value *> in;
    if (knows_bits(instruction, op)) {
        for (std::size_t i = 1; i < op.o.size() && op.o[i] != kAbsent; ++i)
            in.push_back(read(op.o[i], bits_operand_width(instruction, i)));
        define(step, 0, made(bits(instruction, in)));
        return;
    }
    const bool real = is_real(type);
    const bool moves = instruction.opcode == Opcode::neg || instruction.opcode == Opcode::abs ||
                       instruction.opcode == Opcode::min || instruction.opcode == Opcode::max;
    for (std::size_t i = 1; i < op.o.size() && op.o[i] != kAbsent; ++i) {
        unsigned its = width;
        if (!real && i == 2 && (instruction.opcode == Opcode::shl || instruction.opcode == Opcode::shr))
            its = 4;
        if (!real && i == 3 && instruction.mode == Mode::wide)
            its = 8;
        in.push_back(read(op.o[i], its, real && !moves));
    }
    Value result = made(real ? floating(instruction, op, in) : integer(instruction, in));
    result.loose = type == Type::f32 && !moves && (op.mode & 2U) == 0;
    define(step, 0, result);
}

void Emitter::define_pair(const Step &step, const Value &first, const Value &second) {
    const bool both = step.writes.size() > 1;
    if (!both || !step.guarded) {
        define(step, 0, first);
        if (both)
            define(step, 1, second);
        return;
    }
    // The guard is looked at once, before either is written.
    const std::uint32_t rows[] = {region_.rows.of(step.writes[0]), region_.rows.of(step.writes[1])};
    const std::vector<Value> before = values_;
    define(step, 0, first);
    const Value defined = rows[0] == kNone ? Value{} : values_[rows[0]];
    values_ = before;
    define(step, 1, second);
    if (rows[0] != kNone && rows[0] != rows[1])
        values_[rows[0]] = defined;
}

} // namespace singularity::softgpu::compiler
