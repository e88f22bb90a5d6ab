// SPDX-License-Identifier: GPL-2.0-or-later
// Matrix instructions of a whole warp: mma.sync, wmma, ldmatrix, stmatrix, movmatrix. Which lane holds which
// element is in the PTX ISA's figures ("Matrix Fragments for mma"); here it is a function per operand.
//
// Sums: the ISA leaves the order and the precision of the additions open. Each element is the products in the
// order of k, summed in f64 (exactly, for f16), rounded once to the type of the accumulator.
#include "engine/context.hpp"
#include "engine/handlers.hpp"
#include "engine/small_floats.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cstring>

namespace singularity::softgpu::engine {

namespace {

using ptx::Instruction;
using ptx::Opcode;
using ptx::Type;

struct Place2 {
    unsigned lane;
    unsigned reg;  // counted in elements for C and D
    unsigned part; // of the register
};

struct ShapeSize {
    unsigned m, n, k;
};
ShapeSize size_of(ptx::Shape shape) {
    switch (shape) {
    case ptx::Shape::m8n8k4:
        return {8, 8, 4};
    case ptx::Shape::m8n8k16:
        return {8, 8, 16};
    case ptx::Shape::m8n8k32:
        return {8, 8, 32};
    case ptx::Shape::m8n8k128:
        return {8, 8, 128};
    case ptx::Shape::m16n8k4:
        return {16, 8, 4};
    case ptx::Shape::m16n8k8:
        return {16, 8, 8};
    case ptx::Shape::m16n8k16:
        return {16, 8, 16};
    case ptx::Shape::m16n8k32:
        return {16, 8, 32};
    case ptx::Shape::m16n8k64:
        return {16, 8, 64};
    case ptx::Shape::m16n8k128:
        return {16, 8, 128};
    case ptx::Shape::m16n8k256:
        return {16, 8, 256};
    case ptx::Shape::m16n16k8:
        return {16, 16, 8};
    case ptx::Shape::m16n16k16:
        return {16, 16, 16};
    case ptx::Shape::m32n8k16:
        return {32, 8, 16};
    case ptx::Shape::m8n32k16:
        return {8, 32, 16};
    default:
        return {0, 0, 0};
    }
}

// What the elements of D, A, B and C are.
struct ElementTypes {
    Type d, a, b, c;
};
ElementTypes element_types(const Instruction &instruction) {
    const auto &types = instruction.types;
    if (types[2] == Type::none) // wmma of halves does not say what A and B are
        return {types[0], Type::f16, Type::f16, types[1]};
    return {types[0], types[1], types[2], types[3]};
}

// mma.m8n8k4 of halves: four products, by four lanes and the four that are 16 further on.
bool by_quarters(const Instruction &instruction) {
    return instruction.opcode == Opcode::mma && instruction.shape == ptx::Shape::m8n8k4 &&
           instruction.types[1] == Type::f16;
}

unsigned width_of(Type type) {
    switch (type) {
    case Type::f64:
        return 64;
    case Type::tf32:
    case Type::f32:
    case Type::s32:
        return 32;
    case Type::f16:
    case Type::bf16:
        return 16;
    case Type::u4:
    case Type::s4:
        return 4;
    case Type::b1:
        return 1;
    default:
        return 8;
    }
}

// Each of these says where a lane has an element: a(row, k), b(k, column), c(row, column). `pack` elements of
// A and B are in a register.

// "Matrix Fragments for mma".
struct MmaPlaces {
    ShapeSize size;

    // A row of A (m x k): groups of four lanes hold a row; each register holds `pack` neighbours in k, the
    // lanes of the group 4 * pack of them; registers go down by 8 rows, then on by 4 * pack columns.
    [[nodiscard]] Place2 a(unsigned row, unsigned k, unsigned pack) const {
        const unsigned rows = size.m / 8;
        const unsigned column = k / (4 * pack);
        return {(row % 8) * 4 + k % (4 * pack) / pack, column * rows + row / 8, k % pack};
    }
    // B (k x n): columns are what rows are of A.
    [[nodiscard]] Place2 b(unsigned k, unsigned column, unsigned pack) const {
        return {column * 4 + k % (4 * pack) / pack, k / (4 * pack), k % pack};
    }
    // C and D: two neighbouring columns per lane, the same for the rows 8 further down.
    [[nodiscard]] Place2 c(unsigned row, unsigned column, bool /*half*/) const {
        return {(row % 8) * 4 + column / 2, row / 8 * 2 + column % 2, 0};
    }
};

// Of one quarter.
struct QuarterPlaces {
    unsigned quarter;
    bool a_by_columns;
    bool b_by_columns;

    // Rows of A and C, and columns of B, from the fifth on are in the upper half of the warp.
    [[nodiscard]] unsigned first_lane(unsigned line) const { return (4 * quarter) + (line >= 4 ? 16 : 0); }
    [[nodiscard]] Place2 a(unsigned row, unsigned k, unsigned pack) const {
        const unsigned lane = a_by_columns ? k : row % 4;
        const unsigned at = a_by_columns ? row % 4 : k;
        return {first_lane(row) + lane, at / pack, at % pack};
    }
    [[nodiscard]] Place2 b(unsigned k, unsigned column, unsigned pack) const {
        const unsigned lane = b_by_columns ? column % 4 : k;
        const unsigned at = b_by_columns ? k : column % 4;
        return {first_lane(column) + lane, at / pack, at % pack};
    }
    [[nodiscard]] Place2 c(unsigned row, unsigned column, bool half) const {
        if (half)
            return {first_lane(row) + (row % 4), column, 0};
        return {first_lane(row) + (row & 1U) + (column & 2U), (row & 2U) | (column & 4U) | (column & 1U), 0};
    }
};

// wmma: which lane holds what is nobody's business but that of load, mma and store. Here the elements go
// through the lanes in order, each holding as many as its registers take: A and C by rows, B by columns.
// Halves of A and B are there more than once (their registers take 16 for each lane, whatever the shape):
// whoever reads takes the first. Accumulators of all types are spread alike, so that a program can convert
// one to another.
unsigned wmma_elements(Type type, unsigned lines, unsigned depth) {
    return type == Type::f16 ? 16 : lines * depth / kLanes;
}
struct WmmaPlaces {
    ShapeSize size;
    Type type;

    [[nodiscard]] Place2 a(unsigned row, unsigned k, unsigned pack) const {
        return place((row * size.k) + k, wmma_elements(type, size.m, size.k), pack);
    }
    [[nodiscard]] Place2 b(unsigned k, unsigned column, unsigned pack) const {
        return place((column * size.k) + k, wmma_elements(type, size.n, size.k), pack);
    }
    [[nodiscard]] Place2 c(unsigned row, unsigned column, bool /*half*/) const {
        return place((row * size.n) + column, size.m * size.n / kLanes, 1);
    }

  private:
    static Place2 place(unsigned element, unsigned in_lane, unsigned pack) {
        const unsigned at = element % in_lane;
        return {element / in_lane, at / pack, at % pack};
    }
};

template <class T>
T &element(const Context &context, Ref ref, unsigned lane) {
    return row<T>(context, ref)[lane];
}

double float_of(Type type, std::uint32_t bits) {
    switch (type) {
    case Type::f16:
        return SmallFloat<5, 10>::to_double(bits & 0xFFFFU);
    case Type::bf16:
        return SmallFloat<8, 7>::to_double(bits & 0xFFFFU);
    case Type::tf32: // the lower 13 bits are not looked at
        return static_cast<double>(std::bit_cast<float>(bits & 0xFFFFE000U));
    case Type::e5m2:
        return SmallFloat<5, 2>::to_double(bits & 0xFFU);
    case Type::e4m3: {
        if ((bits & 0x7FU) == 0x7FU)
            return std::bit_cast<double>(0x7FF8000000000000ULL);
        // One binade more than IEEE's shape has, where infinity would be.
        if ((bits & 0x78U) == 0x78U)
            return std::ldexp(8. + (bits & 7U), 5) * ((bits & 0x80U) != 0 ? -1. : 1.);
        return SmallFloat<4, 3>::to_double(bits & 0xFFU);
    }
    default:
        return static_cast<double>(std::bit_cast<float>(bits));
    }
}
std::int32_t integer_of(Type type, std::uint32_t bits) {
    switch (type) {
    case Type::u8:
        return static_cast<std::int32_t>(bits & 0xFFU);
    case Type::s8:
        return static_cast<std::int8_t>(bits);
    case Type::u4:
        return static_cast<std::int32_t>(bits & 0xFU);
    default: // s4
        return static_cast<std::int32_t>(bits << 28U) >> 28;
    }
}

constexpr unsigned kMostLines = 32;
constexpr unsigned kMostDepth = 64;

template <class T>
struct Operands {
    T a[kMostLines][kMostDepth];
    T b[kMostDepth][kMostLines];
};
template <class T>
using Results = T[kMostLines][kMostLines];

// Where the tuples begin in Code::extra: d, a, b, c, by the lengths that the compiler counted.
struct Tuples {
    const Ref *d;
    const Ref *a;
    const Ref *b;
    const Ref *c;
};
Tuples tuples_of(const Context &context, const Op &op) {
    const Ref *first = &context.code->extra[op.extra];
    const unsigned d = op.key & 15U;
    const unsigned a = (op.key >> 4U) & 15U;
    const unsigned b = (op.key >> 8U) & 15U;
    return {first, first + d, first + d + a, first + d + a + b};
}

template <class T, class Places, class F>
void gather(const Context &context, const Tuples &tuples, const Places &places, const ShapeSize &size,
            Type type_a, Type type_b, F value, Operands<T> &operands) {
    const unsigned width_a = width_of(type_a);
    const unsigned width_b = width_of(type_b);
    for (unsigned i = 0; i < size.m; ++i)
        for (unsigned k = 0; k < size.k; ++k) {
            const Place2 at = places.a(i, k, 32 / width_a);
            operands.a[i][k] = value(type_a, element<std::uint32_t>(context, tuples.a[at.reg], at.lane) >>
                                                 (at.part * width_a));
        }
    for (unsigned k = 0; k < size.k; ++k)
        for (unsigned j = 0; j < size.n; ++j) {
            const Place2 at = places.b(k, j, 32 / width_b);
            operands.b[k][j] = value(type_b, element<std::uint32_t>(context, tuples.b[at.reg], at.lane) >>
                                                 (at.part * width_b));
        }
}

void require_warp(const Context &context) {
    if (context.mask != kAllLanes)
        raise_fault(FaultKind::illegal_instruction, static_cast<unsigned>(std::countr_zero(context.mask)),
                    "a matrix instruction that not all lanes of the warp execute");
}

const Instruction &instruction_of(const Context &context, const Op &op) {
    return context.code->instruction(op);
}

std::uint32_t single(double sum) {
    const auto value = static_cast<float>(sum);
    return value == value ? std::bit_cast<std::uint32_t>(value) : 0x7FFFFFFFU;
}

template <class Places>
void multiply_floats(const Context &context, const Tuples &tuples, const Places &places,
                     const ShapeSize &size, const ElementTypes &types) {
    Operands<double> operands;
    gather(context, tuples, places, size, types.a, types.b, float_of, operands);
    const bool half_c = types.c == Type::f16;
    const bool half_d = types.d == Type::f16;
    Results<std::uint32_t> results;
    for (unsigned i = 0; i < size.m; ++i)
        for (unsigned j = 0; j < size.n; ++j) {
            const Place2 at = places.c(i, j, half_c);
            // Two halves share a register.
            double sum =
                half_c ? float_of(Type::f16, element<std::uint32_t>(context, tuples.c[at.reg / 2], at.lane) >>
                                                 (16 * (at.reg % 2)))
                       : static_cast<double>(std::bit_cast<float>(
                             element<std::uint32_t>(context, tuples.c[at.reg], at.lane)));
            for (unsigned k = 0; k < size.k; ++k)
                sum += operands.a[i][k] * operands.b[k][j];
            results[i][j] = half_d ? SmallFloat<5, 10>::from_double(sum) : single(sum);
        }
    for (unsigned i = 0; i < size.m; ++i)
        for (unsigned j = 0; j < size.n; ++j) {
            const Place2 at = places.c(i, j, half_d);
            if (!half_d) {
                element<std::uint32_t>(context, tuples.d[at.reg], at.lane) = results[i][j];
                continue;
            }
            auto &word = element<std::uint32_t>(context, tuples.d[at.reg / 2], at.lane);
            word = at.reg % 2 == 0 ? (word & 0xFFFF0000U) | results[i][j]
                                   : (word & 0xFFFFU) | (results[i][j] << 16U);
        }
}

template <class Places, class T, class Product>
void multiply_integers(const Context &context, const Tuples &tuples, const Places &places,
                       const ShapeSize &size, const Operands<T> &operands, bool saturates, Product product) {
    Results<std::uint32_t> results;
    for (unsigned i = 0; i < size.m; ++i)
        for (unsigned j = 0; j < size.n; ++j) {
            const Place2 at = places.c(i, j, false);
            std::int64_t sum =
                std::bit_cast<std::int32_t>(element<std::uint32_t>(context, tuples.c[at.reg], at.lane));
            for (unsigned k = 0; k < size.k; ++k)
                sum += product(operands.a[i][k], operands.b[k][j]);
            if (saturates)
                sum = std::clamp<std::int64_t>(sum, INT32_MIN, INT32_MAX);
            results[i][j] = static_cast<std::uint32_t>(sum);
        }
    for (unsigned i = 0; i < size.m; ++i)
        for (unsigned j = 0; j < size.n; ++j) {
            const Place2 at = places.c(i, j, false);
            element<std::uint32_t>(context, tuples.d[at.reg], at.lane) = results[i][j];
        }
}

// f64: one element of A and B per register, fused multiply-adds in the order of k. Not inlined: the host's
// rounding is another while it runs.
template <class Places>
[[gnu::noinline]] void multiply_doubles(const Context &context, const Tuples &tuples, const Places &places,
                                        const ShapeSize &size) {
    Results<double> results;
    for (unsigned i = 0; i < size.m; ++i)
        for (unsigned j = 0; j < size.n; ++j) {
            const Place2 at = places.c(i, j, false);
            double sum = element<double>(context, tuples.c[at.reg], at.lane);
            for (unsigned k = 0; k < size.k; ++k) {
                const Place2 a = places.a(i, k, 1);
                const Place2 b = places.b(k, j, 1);
                sum = std::fma(element<double>(context, tuples.a[a.reg], a.lane),
                               element<double>(context, tuples.b[b.reg], b.lane), sum);
            }
            results[i][j] = sum;
        }
    for (unsigned i = 0; i < size.m; ++i)
        for (unsigned j = 0; j < size.n; ++j) {
            const Place2 at = places.c(i, j, false);
            element<double>(context, tuples.d[at.reg], at.lane) = results[i][j];
        }
}

int host_rounding(ptx::Rounding rounding) {
    switch (rounding) {
    case ptx::Rounding::rz:
        return FE_TOWARDZERO;
    case ptx::Rounding::rm:
        return FE_DOWNWARD;
    case ptx::Rounding::rp:
        return FE_UPWARD;
    default:
        return FE_TONEAREST;
    }
}

// What is multiplied, whatever the layout.
struct Floats {
    template <class Places>
    static void multiply(const Context &context, const Op &op, const Places &places, const ShapeSize &size) {
        multiply_floats(context, tuples_of(context, op), places, size,
                        element_types(instruction_of(context, op)));
    }
};
struct Integers {
    template <class Places>
    static void multiply(const Context &context, const Op &op, const Places &places, const ShapeSize &size) {
        const Instruction &instruction = instruction_of(context, op);
        const ElementTypes types = element_types(instruction);
        const Tuples tuples = tuples_of(context, op);
        Operands<std::int32_t> operands;
        gather(context, tuples, places, size, types.a, types.b, integer_of, operands);
        multiply_integers(context, tuples, places, size, operands, instruction.has(ptx::Flag::satfinite),
                          [](std::int32_t a, std::int32_t b) { return std::int64_t{a} * b; });
    }
};
// Single bits: in k, the 32 of a word are one element. The sums are of bits.
struct Bits {
    template <class Places>
    static void multiply(const Context &context, const Op &op, Places places, ShapeSize size) {
        size.k /= 32;
        places.size = size;
        const Tuples tuples = tuples_of(context, op);
        Operands<std::uint32_t> operands;
        gather(
            context, tuples, places, size, Type::f32, Type::f32,
            [](Type, std::uint32_t word) { return word; }, operands);
        const bool both = instruction_of(context, op).operation == ptx::Operation::and_;
        multiply_integers(context, tuples, places, size, operands, false,
                          [both](std::uint32_t a, std::uint32_t b) {
                              return std::int64_t{std::popcount(both ? a & b : a ^ b)};
                          });
    }
};
struct Doubles {
    template <class Places>
    static void multiply(const Context &context, const Op &op, const Places &places, const ShapeSize &size) {
        const int rounding = host_rounding(instruction_of(context, op).rounding);
        if (rounding != FE_TONEAREST)
            std::fesetround(rounding);
        multiply_doubles(context, tuples_of(context, op), places, size);
        if (rounding != FE_TONEAREST)
            std::fesetround(FE_TONEAREST);
    }
};

template <class Kind>
void multiply(Context &context, const Op &op) {
    require_warp(context);
    const ShapeSize size = size_of(instruction_of(context, op).shape);
    Kind::multiply(context, op, MmaPlaces{size}, size);
}
template <class Kind>
void multiply_wmma(Context &context, const Op &op) {
    require_warp(context);
    const Instruction &instruction = instruction_of(context, op);
    const ShapeSize size = size_of(instruction.shape);
    Kind::multiply(context, op, WmmaPlaces{size, element_types(instruction).a}, size);
}
void multiply_by_quarters(Context &context, const Op &op) {
    require_warp(context);
    const Instruction &instruction = instruction_of(context, op);
    for (unsigned quarter = 0; quarter < 4; ++quarter)
        Floats::multiply(context, op,
                         QuarterPlaces{quarter, instruction.has(ptx::Flag::column),
                                       instruction.has(ptx::Flag::second_column)},
                         size_of(instruction.shape));
}

// A matrix of wmma in memory: `lines` of `length` elements, each as far from the one before it as the stride
// says.
struct StoredMatrix {
    unsigned rows, columns;
    unsigned bits;            // of an element
    unsigned in_lane;         // elements
    bool fragment_by_columns; // in which order the lanes have it
    bool stored_by_columns;

    [[nodiscard]] unsigned lines() const { return stored_by_columns ? columns : rows; }
    [[nodiscard]] unsigned length() const { return stored_by_columns ? rows : columns; }
    [[nodiscard]] unsigned pack() const { return bits < 32 ? 32 / bits : 1; }
    [[nodiscard]] unsigned registers() const { return in_lane / pack(); }
    // Where in memory element `at` of a lane is.
    struct Position {
        unsigned line, at;
    };
    [[nodiscard]] Position position(unsigned lane, unsigned at) const {
        const unsigned element = ((lane * in_lane) + at) % (rows * columns);
        const unsigned across = fragment_by_columns ? rows : columns;
        const bool same = fragment_by_columns == stored_by_columns;
        return same ? Position{element / across, element % across}
                    : Position{element % across, element / across};
    }
};
StoredMatrix stored_matrix(const Instruction &instruction) {
    const ShapeSize size = size_of(instruction.shape);
    const Type type = instruction.types[0];
    const bool by_columns = instruction.has(ptx::Flag::column);
    const unsigned bits = width_of(type);
    if (instruction.has(ptx::Flag::matrix_a))
        return {size.m, size.k, bits, wmma_elements(type, size.m, size.k), false, by_columns};
    if (instruction.has(ptx::Flag::matrix_b))
        return {size.k, size.n, bits, wmma_elements(type, size.n, size.k), true, by_columns};
    return {size.m, size.n, bits, size.m * size.n / kLanes, false, by_columns};
}

// The address and the stride are the same in all lanes: the first one's.
std::array<std::byte *, kMostLines> lines_of(Context &context, const Op &op, const StoredMatrix &matrix,
                                             const Ref *stride, bool write) {
    std::array<std::byte *, kMostLines> at{};
    const std::uint64_t elements =
        stride != nullptr ? element<std::uint32_t>(context, *stride, 0) : matrix.length();
    for (unsigned line = 0; line < matrix.lines(); ++line)
        at[line] = resolve_lane(context, op, 0, line * elements * matrix.bits / 8,
                                matrix.length() * matrix.bits / 8, std::max(matrix.bits / 8, 1U), write);
    return at;
}
void load_matrix(Context &context, const Op &op) {
    require_warp(context);
    const StoredMatrix matrix = stored_matrix(instruction_of(context, op));
    const Ref *const registers = &context.code->extra[op.extra];
    const bool strided = (op.key >> 8U & 15U) != 0;
    const auto lines =
        lines_of(context, op, matrix, strided ? registers + matrix.registers() : nullptr, false);
    const auto value = [&](StoredMatrix::Position position) {
        const std::byte *const from = lines[position.line] + (position.at * matrix.bits / 8);
        if (matrix.bits < 8)
            return std::to_integer<std::uint64_t>(*from) >> (position.at * matrix.bits % 8) &
                   ((1U << matrix.bits) - 1);
        std::uint64_t bits = 0;
        std::memcpy(&bits, from, matrix.bits / 8);
        return bits;
    };
    for (unsigned lane = 0; lane < kLanes; ++lane)
        for (unsigned reg = 0; reg < matrix.registers(); ++reg) {
            std::uint64_t word = 0;
            for (unsigned part = 0; part < matrix.pack(); ++part)
                word |= value(matrix.position(lane, (reg * matrix.pack()) + part)) << (part * matrix.bits);
            if (matrix.bits == 64)
                element<std::uint64_t>(context, registers[reg], lane) = word;
            else
                element<std::uint32_t>(context, registers[reg], lane) = static_cast<std::uint32_t>(word);
        }
}
void store_matrix(Context &context, const Op &op) {
    require_warp(context);
    const StoredMatrix matrix = stored_matrix(instruction_of(context, op));
    const Ref *const registers = &context.code->extra[op.extra];
    const bool strided = (op.key >> 8U & 15U) != 0;
    const auto lines =
        lines_of(context, op, matrix, strided ? registers + matrix.registers() : nullptr, true);
    for (unsigned lane = 0; lane < kLanes; ++lane)
        for (unsigned at = 0; at < matrix.in_lane; ++at) {
            const Ref reg = registers[at / matrix.pack()];
            const std::uint64_t word = matrix.bits == 64 ? element<std::uint64_t>(context, reg, lane)
                                                         : element<std::uint32_t>(context, reg, lane);
            const std::uint64_t bits = word >> (at % matrix.pack() * matrix.bits);
            const StoredMatrix::Position position = matrix.position(lane, at);
            std::memcpy(lines[position.line] + (position.at * matrix.bits / 8), &bits, matrix.bits / 8);
        }
}

// Matrices of 8 x 8 halves. Lane 8 * n + r has the address of row r of matrix n; lane l gets the two elements
// at row l / 4, columns 2 (l % 4) and the next; with .trans rows and columns change places.
unsigned matrices(const Instruction &instruction) {
    return instruction.vector == ptx::Vector::x4 ? 4 : instruction.vector == ptx::Vector::x2 ? 2 : 1;
}
void row_addresses(Context &context, const Op &op, bool write, Access &access) {
    require_warp(context);
    // Only the lanes whose addresses are used may be looked at.
    const unsigned used = 8 * matrices(instruction_of(context, op));
    context.mask = used == kLanes ? kAllLanes : (1U << used) - 1;
    resolve_general(context, op, 16, write, access);
    context.mask = kAllLanes;
}
void load_matrices(Context &context, const Op &op) {
    const Instruction &instruction = instruction_of(context, op);
    Access access;
    row_addresses(context, op, false, access);
    const bool transposed = instruction.has(ptx::Flag::transposed);
    const Ref *destinations = &context.code->extra[op.extra];
    std::uint16_t values[8][8];
    for (unsigned n = 0; n < matrices(instruction); ++n) {
        for (unsigned r = 0; r < 8; ++r)
            std::memcpy(values[r], access.at[8 * n + r], sizeof(values[r]));
        for (unsigned lane = 0; lane < kLanes; ++lane) {
            const unsigned i = lane / 4;
            const unsigned j = 2 * (lane % 4);
            const std::uint32_t low = transposed ? values[j][i] : values[i][j];
            const std::uint32_t high = transposed ? values[j + 1][i] : values[i][j + 1];
            element<std::uint32_t>(context, destinations[n], lane) = low | (high << 16U);
        }
    }
}
void store_matrices(Context &context, const Op &op) {
    const Instruction &instruction = instruction_of(context, op);
    Access access;
    row_addresses(context, op, true, access);
    const bool transposed = instruction.has(ptx::Flag::transposed);
    const Ref *sources = &context.code->extra[op.extra];
    std::uint16_t values[8][8];
    for (unsigned n = 0; n < matrices(instruction); ++n) {
        for (unsigned lane = 0; lane < kLanes; ++lane) {
            const unsigned i = lane / 4;
            const unsigned j = 2 * (lane % 4);
            const std::uint32_t word = element<std::uint32_t>(context, sources[n], lane);
            (transposed ? values[j][i] : values[i][j]) = static_cast<std::uint16_t>(word);
            (transposed ? values[j + 1][i] : values[i][j + 1]) = static_cast<std::uint16_t>(word >> 16U);
        }
        for (unsigned r = 0; r < 8; ++r)
            std::memcpy(access.at[8 * n + r], values[r], sizeof(values[r]));
    }
}
void transpose_matrix(Context &context, const Op &op) {
    require_warp(context);
    const Ref *refs = &context.code->extra[op.extra];
    std::uint16_t values[8][8];
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        const std::uint32_t word = element<std::uint32_t>(context, refs[1], lane);
        const std::size_t column = 2 * (lane % 4);
        values[lane / 4][column] = static_cast<std::uint16_t>(word);
        values[lane / 4][column + 1] = static_cast<std::uint16_t>(word >> 16U);
    }
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        const std::size_t row = 2 * (lane % 4);
        element<std::uint32_t>(context, refs[0], lane) =
            values[row][lane / 4] | static_cast<std::uint32_t>(values[row + 1][lane / 4]) << 16U;
    }
}

template <class Kind>
Handler product_of(const Instruction &instruction) {
    return instruction.opcode == Opcode::wmma ? multiply_wmma<Kind> : multiply<Kind>;
}

Handler select_product(const Instruction &instruction) {
    if (size_of(instruction.shape).m == 0)
        return nullptr;
    if (by_quarters(instruction))
        return multiply_by_quarters;
    switch (element_types(instruction).a) {
    case Type::f64:
        return product_of<Doubles>(instruction);
    case Type::f16:
    case Type::bf16:
    case Type::tf32:
    case Type::e4m3:
    case Type::e5m2:
        return product_of<Floats>(instruction);
    case Type::u8:
    case Type::s8:
    case Type::u4:
    case Type::s4:
        return product_of<Integers>(instruction);
    case Type::b1:
        return product_of<Bits>(instruction);
    default:
        return nullptr;
    }
}

// Registers for so many elements of the type.
TupleForm tuple_of(unsigned elements, Type type) {
    const unsigned bits = width_of(type);
    return bits == 64 ? TupleForm{elements, 8} : TupleForm{elements * bits / 32, 4};
}

} // namespace

std::array<TupleForm, 4> matrix_tuples(const Instruction &instruction) {
    const ShapeSize size = size_of(instruction.shape);
    const bool wmma = instruction.opcode == Opcode::wmma;
    if (wmma && instruction.mode != ptx::Mode::multiply) {
        const StoredMatrix matrix = stored_matrix(instruction);
        const TupleForm fragment = tuple_of(matrix.in_lane, instruction.types[0]);
        return instruction.mode == ptx::Mode::load ? std::array<TupleForm, 4>{fragment}
                                                   : std::array<TupleForm, 4>{TupleForm{}, fragment};
    }
    if (!wmma && instruction.opcode != Opcode::mma)
        return {}; // the parser has compared them with .x4
    const ElementTypes types = element_types(instruction);
    if (by_quarters(instruction))
        return {tuple_of(8, types.d), tuple_of(4, types.a), tuple_of(4, types.b), tuple_of(8, types.c)};
    const auto factor = [&](Type type, unsigned lines) {
        return tuple_of(wmma ? wmma_elements(type, lines, size.k) : lines * size.k / kLanes, type);
    };
    const unsigned results = size.m * size.n / kLanes;
    return {tuple_of(results, types.d), factor(types.a, size.m), factor(types.b, size.n),
            tuple_of(results, types.c)};
}

Handler select_matrix(const Instruction &instruction) {
    switch (instruction.opcode) {
    case Opcode::mma:
        return select_product(instruction);
    case Opcode::wmma:
        return instruction.mode == ptx::Mode::load    ? load_matrix
               : instruction.mode == ptx::Mode::store ? store_matrix
                                                      : select_product(instruction);
    case Opcode::ldmatrix:
        return instruction.shape == ptx::Shape::m8n8 && instruction.types[0] == Type::b16 ? load_matrices
                                                                                          : nullptr;
    case Opcode::stmatrix:
        return store_matrices;
    case Opcode::movmatrix:
        return transpose_matrix;
    default:
        return nullptr;
    }
}

} // namespace singularity::softgpu::engine
