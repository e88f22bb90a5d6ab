// SPDX-License-Identifier: GPL-2.0-or-later
// Video instructions: integers that are parts of a word, with results that are saturated, merged or added up.
#include "engine/lanes.hpp"

namespace singularity::softgpu::engine::SINGULARITY_LANES {

namespace {

using std::int32_t;
using std::int64_t;
using std::uint32_t;
using std::uint64_t;

// vadd2 ... vset4: Count parts of a word, each as a signed or unsigned number that may not be the other
// operand's. mode: 1 saturate, 2 add the parts' results to the third operand; 4, 8, 16: the result, the
// first, the second operand is signed. immediate: the parts of the first operand, four bits each, where those
// of the second word follow those of the first; from bit 16 on those of the second; from bit 32 on which
// parts are written: the others are the third operand's.
enum class Parts : std::uint8_t { add, subtract, average, distance, least, greatest, eq, ne, lt, le, gt, ge };
template <Parts What>
[[gnu::always_inline]] inline int32_t part_of(int32_t x, int32_t y) {
    switch (What) {
    case Parts::add:
        return x + y;
    case Parts::subtract:
        return x - y;
    case Parts::average: { // rounded away from zero if signed, up if not
        const int32_t both = x + y;
        return both >= 0 ? (both + 1) >> 1 : -((-both + 1) >> 1);
    }
    case Parts::distance:
        return x < y ? y - x : x - y;
    case Parts::least:
        return x < y ? x : y;
    case Parts::greatest:
        return x < y ? y : x;
    case Parts::eq:
        return x == y ? 1 : 0;
    case Parts::ne:
        return x != y ? 1 : 0;
    case Parts::lt:
        return x < y ? 1 : 0;
    case Parts::le:
        return x <= y ? 1 : 0;
    case Parts::gt:
        return x > y ? 1 : 0;
    case Parts::ge:
        return x >= y ? 1 : 0;
    }
    return 0;
}
template <Parts What, unsigned Count>
void parts(Context &context, const Op &op) {
    constexpr unsigned bits = 32 / Count;
    constexpr uint32_t ones = Count == 2 ? 0xFFFFU : 0xFFU;
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const uint32_t *b = row<uint32_t>(context, op.o[2]);
    const uint32_t *c = row<uint32_t>(context, op.o[3]);
    const bool signed_result = (op.mode & 4U) != 0;
    const bool signed_a = (op.mode & 8U) != 0;
    const bool signed_b = (op.mode & 16U) != 0;
    const uint64_t places = op.immediate;
    const auto part = [](uint32_t first, uint32_t second, uint64_t at, bool is_signed) {
        const unsigned k = static_cast<unsigned>(at & 15U);
        const uint32_t value = ((k < Count ? first : second) >> (k % Count * bits)) & ones;
        const bool negative = is_signed && (value >> (bits - 1)) != 0;
        return static_cast<int32_t>(negative ? value | ~ones : value);
    };
    each<uint32_t>(context, op.o[0], [=](unsigned i) {
        uint32_t word = 0;
        uint32_t sum = c[i];
        for (unsigned k = 0; k < Count; ++k) {
            if ((places >> (32 + k) & 1U) == 0) {
                word |= c[i] & ones << (k * bits);
                continue;
            }
            const int32_t x = part(a[i], b[i], places >> (4 * k), signed_a);
            const int32_t y = part(a[i], b[i], places >> (16 + 4 * k), signed_b);
            int32_t value = part_of<What>(x, y);
            if ((op.mode & 1U) != 0) {
                const int32_t low = signed_result ? -static_cast<int32_t>(ones / 2) - 1 : 0;
                const auto high = static_cast<int32_t>(signed_result ? ones / 2 : ones);
                value = value < low ? low : value > high ? high : value;
            }
            sum += static_cast<uint32_t>(value);
            word |= (static_cast<uint32_t>(value) & ones) << (k * bits);
        }
        return (op.mode & 2U) != 0 ? sum : word;
    });
}
template <unsigned Count, Parts... Kinds>
Handler one_of_parts(Parts what) {
    Handler found = nullptr;
    (void)((what == Kinds && (found = parts<Kinds, Count>) != nullptr) || ...);
    return found;
}
template <unsigned Count>
Handler parts_handler(Parts what) {
    return one_of_parts<Count, Parts::add, Parts::subtract, Parts::average, Parts::distance, Parts::least,
                        Parts::greatest, Parts::eq, Parts::ne, Parts::lt, Parts::le, Parts::gt, Parts::ge>(
        what);
}
// vset2 and vset4 by their comparison.
Parts parts_of(ptx::Comparison comparison) {
    switch (comparison) {
    case ptx::Comparison::eq:
        return Parts::eq;
    case ptx::Comparison::ne:
        return Parts::ne;
    case ptx::Comparison::lt:
        return Parts::lt;
    case ptx::Comparison::le:
        return Parts::le;
    case ptx::Comparison::gt:
        return Parts::gt;
    default:
        return Parts::ge;
    }
}

// The parts of a scalar video instruction: 0 the whole word, 1 to 4 a byte, 5 and 6 a half.
struct Piece {
    unsigned shift = 0;
    unsigned bits = 32;
};
[[gnu::always_inline]] inline Piece piece_of(uint64_t code) {
    const auto number = static_cast<unsigned>(code & 15U);
    if (number == 0)
        return {};
    return number < 5 ? Piece{8 * (number - 1), 8} : Piece{16 * (number - 5), 16};
}
[[gnu::always_inline]] inline int64_t number_in(uint32_t word, Piece piece, bool is_signed) {
    const uint64_t value = word >> piece.shift & ((uint64_t{1} << piece.bits) - 1);
    const uint64_t sign = uint64_t{1} << (piece.bits - 1);
    return is_signed ? static_cast<int64_t>((value ^ sign) - sign) : static_cast<int64_t>(value);
}

// vadd ... vset: numbers of 32 bits or parts of them, each signed or not, with the result in full before it
// is saturated: 32 bits shifted by 32 need more than 64 with a sign. mode, besides that of parts(): 32 shifts
// by the lower five bits. access: the ptx::Operation of the result and the third operand. immediate: the
// pieces of the result, the first and the second operand, four bits each; the third one's word is around a
// piece of the result.
enum class Scalar : std::uint8_t {
    add,
    subtract,
    distance,
    least,
    greatest,
    left,
    right,
    eq,
    ne,
    lt,
    le,
    gt,
    ge
};
template <Scalar What>
using Full = std::conditional_t<What == Scalar::left, Signed128, int64_t>;
template <Scalar What>
[[gnu::always_inline]] inline Full<What> scalar_of(int64_t x, int64_t y, bool wraps) {
    const int64_t shift = wraps ? y & 31 : y < 32 ? y : 32;
    switch (What) {
    case Scalar::add:
        return x + y;
    case Scalar::subtract:
        return x - y;
    case Scalar::distance:
        return x < y ? y - x : x - y;
    case Scalar::least:
        return x < y ? x : y;
    case Scalar::greatest:
        return x < y ? y : x;
    case Scalar::left:
        return Full<What>{x} << shift;
    case Scalar::right:
        return x >> shift;
    case Scalar::eq:
        return x == y ? 1 : 0;
    case Scalar::ne:
        return x != y ? 1 : 0;
    case Scalar::lt:
        return x < y ? 1 : 0;
    case Scalar::le:
        return x <= y ? 1 : 0;
    case Scalar::gt:
        return x > y ? 1 : 0;
    case Scalar::ge:
        return x >= y ? 1 : 0;
    }
    return 0;
}
template <Scalar What>
void scalar(Context &context, const Op &op) {
    const auto second = static_cast<ptx::Operation>(op.access);
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const uint32_t *b = row<uint32_t>(context, op.o[2]);
    const uint32_t *c = op.o[3] != kAbsent ? row<uint32_t>(context, op.o[3]) : a;
    const Piece written = piece_of(op.immediate);
    const Piece piece_a = piece_of(op.immediate >> 4U);
    const Piece piece_b = piece_of(op.immediate >> 8U);
    const bool signed_result = (op.mode & 4U) != 0;
    const Full<What> least_number = signed_result ? -(int64_t{1} << (written.bits - 1)) : 0;
    const Full<What> most = (int64_t{1} << (signed_result ? written.bits - 1 : written.bits)) - 1;
    const auto mask = static_cast<uint32_t>(((uint64_t{1} << written.bits) - 1) << written.shift);
    each<uint32_t>(context, op.o[0], [=](unsigned i) {
        auto value = scalar_of<What>(number_in(a[i], piece_a, (op.mode & 8U) != 0),
                                     number_in(b[i], piece_b, (op.mode & 16U) != 0), (op.mode & 32U) != 0);
        if ((op.mode & 1U) != 0)
            value = value < least_number ? least_number : value > most ? most : value;
        const auto word = static_cast<uint32_t>(value);
        if (written.bits != 32)
            return (word << written.shift & mask) | (c[i] & ~mask);
        if (second == ptx::Operation::none)
            return word;
        if (second == ptx::Operation::add)
            return word + c[i];
        const bool less = number_in(word, {}, signed_result) < number_in(c[i], {}, signed_result);
        return less == (second == ptx::Operation::min) ? word : c[i];
    });
}

// vmad: the product and the third operand, of which one may be negated, or one more, shifted. mode: 1
// saturate, 2 one more, 8 and 16 the factors are signed, 32 the product is negated, 64 the third operand.
// access: bits to shift by.
void product_and_sum(Context &context, const Op &op) {
    const uint32_t *a = row<uint32_t>(context, op.o[1]);
    const uint32_t *b = row<uint32_t>(context, op.o[2]);
    const uint32_t *c = row<uint32_t>(context, op.o[3]);
    const Piece piece_a = piece_of(op.immediate >> 4U);
    const Piece piece_b = piece_of(op.immediate >> 8U);
    const bool is_signed = (op.mode & (8U | 16U | 32U | 64U)) != 0; // the third operand and the result
    const Signed128 low = is_signed ? int64_t{INT32_MIN} : 0;
    const Signed128 high = is_signed ? int64_t{INT32_MAX} : int64_t{UINT32_MAX};
    each<uint32_t>(context, op.o[0], [=](unsigned i) {
        const Signed128 product = Signed128{number_in(a[i], piece_a, (op.mode & 8U) != 0)} *
                                  number_in(b[i], piece_b, (op.mode & 16U) != 0);
        const int64_t third = number_in(c[i], {}, is_signed);
        Signed128 value = ((op.mode & 32U) != 0 ? -product : product) +
                          ((op.mode & 64U) != 0 ? -third : third) + ((op.mode & 2U) != 0 ? 1 : 0);
        value >>= op.access;
        if ((op.mode & 1U) != 0)
            value = value < low ? low : value > high ? high : value;
        return static_cast<uint32_t>(value);
    });
}

struct PartsRow {
    Opcode opcode;
    Parts what;
    unsigned count;
};
constexpr PartsRow kParts[] = {
    {Opcode::vadd2, Parts::add, 2},      {Opcode::vsub2, Parts::subtract, 2},
    {Opcode::vavrg2, Parts::average, 2}, {Opcode::vabsdiff2, Parts::distance, 2},
    {Opcode::vmin2, Parts::least, 2},    {Opcode::vmax2, Parts::greatest, 2},
    {Opcode::vadd4, Parts::add, 4},      {Opcode::vsub4, Parts::subtract, 4},
    {Opcode::vavrg4, Parts::average, 4}, {Opcode::vabsdiff4, Parts::distance, 4},
    {Opcode::vmin4, Parts::least, 4},    {Opcode::vmax4, Parts::greatest, 4},
};

struct ScalarRow {
    Opcode opcode;
    Handler run;
};
constexpr ScalarRow kScalars[] = {
    {Opcode::vadd, scalar<Scalar::add>},          {Opcode::vsub, scalar<Scalar::subtract>},
    {Opcode::vabsdiff, scalar<Scalar::distance>}, {Opcode::vmin, scalar<Scalar::least>},
    {Opcode::vmax, scalar<Scalar::greatest>},     {Opcode::vshl, scalar<Scalar::left>},
    {Opcode::vshr, scalar<Scalar::right>},        {Opcode::vmad, product_and_sum},
};
Handler select_scalar_comparison(ptx::Comparison comparison) {
    switch (comparison) {
    case ptx::Comparison::eq:
        return scalar<Scalar::eq>;
    case ptx::Comparison::ne:
        return scalar<Scalar::ne>;
    case ptx::Comparison::lt:
        return scalar<Scalar::lt>;
    case ptx::Comparison::le:
        return scalar<Scalar::le>;
    case ptx::Comparison::gt:
        return scalar<Scalar::gt>;
    default:
        return scalar<Scalar::ge>;
    }
}

} // namespace

Handler select_video(const Instruction &instruction, const Op &) {
    switch (instruction.opcode) {
    case Opcode::vset:
        return select_scalar_comparison(instruction.comparison);
    case Opcode::vset2:
        return parts_handler<2>(parts_of(instruction.comparison));
    case Opcode::vset4:
        return parts_handler<4>(parts_of(instruction.comparison));
    default:
        break;
    }
    for (const ScalarRow &known : kScalars)
        if (known.opcode == instruction.opcode)
            return known.run;
    for (const PartsRow &known : kParts)
        if (known.opcode == instruction.opcode)
            return known.count == 2 ? parts_handler<2>(known.what) : parts_handler<4>(known.what);
    return nullptr;
}

} // namespace singularity::softgpu::engine::SINGULARITY_LANES
