// SPDX-License-Identifier: GPL-2.0-or-later
// f16 and bf16, one or two in a word. They are computed in f64, where sums and products of them are so exact
// that rounding once more gives what rounding the exact result gives.
#include "engine/lanes_float.hpp"

namespace singularity::softgpu::engine::SINGULARITY_LANES {

namespace {

using std::uint32_t;
using std::uint64_t;

// Op::mode of the instructions here.
constexpr unsigned kFtz = 1;
constexpr unsigned kSat = 2;
constexpr unsigned kRelu = 4;
constexpr unsigned kNanWins = 8;
constexpr unsigned kXorSign = 16;
constexpr unsigned kAbs = 32;
constexpr unsigned kOob = 64;

template <class Format>
[[gnu::always_inline]] inline uint32_t finished(uint32_t bits, unsigned mode) {
    constexpr uint32_t one =
        static_cast<uint32_t>(Format::kBias) * ((Format::kInfinity & (0U - Format::kInfinity)));
    if ((mode & kFtz) != 0)
        bits = Format::flush(bits);
    const bool nan = Format::is_nan(bits);
    const bool negative = (bits & Format::kSign) != 0;
    if ((mode & kSat) != 0)
        bits = nan || negative ? 0 : (bits > one ? one : bits);
    if ((mode & kRelu) != 0)
        bits = negative && !nan ? 0 : bits;
    return bits;
}

template <class Format>
[[gnu::always_inline]] inline double taken(uint32_t bits, unsigned mode) {
    bits &= 0xFFFFU;
    return Format::to_double((mode & kFtz) != 0 ? Format::flush(bits) : bits);
}

enum class What : std::uint8_t { add, subtract, multiply, fma, exp2, tanh };

template <class Format, What W>
[[gnu::always_inline]] inline uint32_t computed(uint32_t a, uint32_t b, uint32_t c, unsigned mode) {
    const double x = taken<Format>(a, mode);
    const double y = taken<Format>(b, mode);
    double value = 0;
    switch (W) {
    case What::add:
        value = x + y;
        break;
    case What::subtract:
        value = x - y;
        break;
    case What::multiply:
        value = x * y;
        break;
    case What::fma:
        value = exact_fma_odd(x, y, taken<Format>(c, mode));
        break;
    default:
        break;
    }
    const uint32_t bits = finished<Format>(Format::template from_double<Round::nearest>(value), mode);
    if (W == What::fma && (mode & kOob) != 0 && ((a & 0xFFFFU) == 0xFFFFU || (b & 0xFFFFU) == 0xFFFFU))
        return 0;
    return bits;
}

template <class Format, What W, bool Pair>
void arithmetic(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const uint32_t *b = op.o[2] == kAbsent ? a : row<uint32_t>(context, op.o[2]);
    const uint32_t *c = op.o[3] == kAbsent ? a : row<uint32_t>(context, op.o[3]);
    const unsigned mode = op.mode;
    each<uint32_t>(context, op.o[0], [=](unsigned i) {
        const uint32_t low = computed<Format, W>(a[i], b[i], c[i], mode);
        if constexpr (!Pair)
            return low;
        return low | (computed<Format, W>(a[i] >> 16U, b[i] >> 16U, c[i] >> 16U, mode) << 16U);
    });
}

// The functions are evaluated one lane at a time in f64 and rounded.
template <class Format, What W, bool Pair>
void function(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const unsigned mode = op.mode;
    uint32_t values[kLanes];
    const auto one = [=](uint32_t bits) {
        const double x = taken<Format>(bits, mode);
        const double value = W == What::exp2 ? __builtin_exp2(x) : __builtin_tanh(x);
        return finished<Format>(Format::template from_double<Round::nearest>(value), mode);
    };
    for (unsigned i = 0; i < kLanes; ++i)
        if ((context.mask & (1U << i)) != 0)
            values[i] = one(a[i]) | (Pair ? one(a[i] >> 16U) << 16U : 0U);
        else
            values[i] = 0;
    each<uint32_t>(context, op.o[0], [&](unsigned i) { return values[i]; });
}

template <class Format, bool Largest>
[[gnu::always_inline]] inline uint32_t extreme(uint32_t a, uint32_t b, unsigned mode) {
    a &= 0xFFFFU;
    b &= 0xFFFFU;
    const uint32_t sign = (a ^ b) & Format::kSign;
    if ((mode & kFtz) != 0) {
        a = Format::flush(a);
        b = Format::flush(b);
    }
    if ((mode & kXorSign) != 0 || (mode & kAbs) != 0) {
        a &= ~Format::kSign;
        b &= ~Format::kSign;
    }
    // Order of the encodings as numbers: -0 below +0.
    const auto key = [](uint32_t bits) {
        return (bits & Format::kSign) != 0 ? -static_cast<int>(bits & (Format::kSign - 1)) - 1
                                           : static_cast<int>(bits);
    };
    const bool first = Largest ? key(a) > key(b) : key(a) < key(b);
    uint32_t value = first ? a : b;
    const bool nan_a = Format::is_nan(a);
    const bool nan_b = Format::is_nan(b);
    value = nan_a ? b : nan_b ? a : value;
    if ((mode & kNanWins) != 0 ? nan_a || nan_b : nan_a && nan_b)
        value = Format::kNan;
    if ((mode & kXorSign) != 0)
        value = (value & ~Format::kSign) | sign;
    return value;
}
template <class Format, bool Largest, bool Pair>
void extremes(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const uint32_t *b = row<uint32_t>(context, op.o[2]);
    const uint32_t *c = op.o[3] == kAbsent ? nullptr : row<uint32_t>(context, op.o[3]);
    const unsigned mode = op.mode;
    const auto one = [=](unsigned i, unsigned shift) {
        uint32_t value = extreme<Format, Largest>(a[i] >> shift, b[i] >> shift, mode);
        if (c != nullptr)
            value = extreme<Format, Largest>(value, c[i] >> shift, mode);
        return value << shift;
    };
    each<uint32_t>(context, op.o[0], [=](unsigned i) { return Pair ? one(i, 0) | one(i, 16) : one(i, 0); });
}

template <class Format>
[[gnu::always_inline]] inline uint32_t pair_flush(uint32_t bits) {
    return Format::flush(bits & 0xFFFFU) | (Format::flush(bits >> 16U) << 16U);
}
template <class Format>
void absolute(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const bool ftz = (op.mode & kFtz) != 0;
    each<uint32_t>(context, op.o[0],
                   [=](unsigned i) { return (ftz ? pair_flush<Format>(a[i]) : a[i]) & 0x7FFF7FFFU; });
}
template <class Format>
void negated(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const bool ftz = (op.mode & kFtz) != 0;
    each<uint32_t>(context, op.o[0],
                   [=](unsigned i) { return (ftz ? pair_flush<Format>(a[i]) : a[i]) ^ 0x80008000U; });
}

// add.f32.f16 and the like: halves taken into an f32 operation.
template <class Format, What W>
void mixed(Context &context, const Op &op) {
    const HostRounding rounding(op.rounding);
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const uint32_t *b = row<uint32_t>(context, op.o[2]);
    const uint32_t *c = op.o[3] == kAbsent ? a : row<uint32_t>(context, op.o[3]);
    const bool sat = (op.mode & kSat) != 0;
    each<uint32_t>(context, op.o[0], [=](unsigned i) {
        const auto x = static_cast<float>(taken<Format>(a[i], 0));
        float value = 0;
        if constexpr (W == What::fma)
            value = __builtin_fmaf(x, static_cast<float>(taken<Format>(b[i], 0)), unpack<float>(c[i]));
        else
            value = W == What::add ? x + unpack<float>(b[i]) : x - unpack<float>(b[i]);
        return pack<float>(canonical(sat ? saturated(value) : value));
    });
}

template <class Format, bool Pair>
Handler select_format(const Instruction &instruction) {
    switch (instruction.opcode) {
    case Opcode::add:
        return arithmetic<Format, What::add, Pair>;
    case Opcode::sub:
        return arithmetic<Format, What::subtract, Pair>;
    case Opcode::mul:
        return arithmetic<Format, What::multiply, Pair>;
    case Opcode::fma:
        return arithmetic<Format, What::fma, Pair>;
    case Opcode::min:
        return extremes<Format, false, Pair>;
    case Opcode::max:
        return extremes<Format, true, Pair>;
    case Opcode::abs:
        return absolute<Format>;
    case Opcode::neg:
        return negated<Format>;
    case Opcode::ex2:
        return function<Format, What::exp2, Pair>;
    case Opcode::tanh:
        return function<Format, What::tanh, Pair>;
    default:
        return nullptr;
    }
}

template <class Format>
Handler select_mixed(const Instruction &instruction) {
    switch (instruction.opcode) {
    case Opcode::add:
        return mixed<Format, What::add>;
    case Opcode::sub:
        return mixed<Format, What::subtract>;
    case Opcode::fma:
        return mixed<Format, What::fma>;
    default:
        return nullptr;
    }
}

} // namespace

Handler select_half(const Instruction &instruction, const Op &) {
    switch (instruction.types[0]) {
    case Type::f16:
        return select_format<Half, false>(instruction);
    case Type::f16x2:
        return select_format<Half, true>(instruction);
    case Type::bf16:
        return select_format<Brain, false>(instruction);
    case Type::bf16x2:
        return select_format<Brain, true>(instruction);
    case Type::f32:
        if (instruction.types[1] == Type::f16)
            return select_mixed<Half>(instruction);
        if (instruction.types[1] == Type::bf16)
            return select_mixed<Brain>(instruction);
        return nullptr;
    default:
        return nullptr;
    }
}

} // namespace singularity::softgpu::engine::SINGULARITY_LANES
