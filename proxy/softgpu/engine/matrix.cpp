// SPDX-License-Identifier: GPL-2.0-or-later
// Matrix instructions of a whole warp: mma.sync, ldmatrix, stmatrix, movmatrix. Which lane holds which
// element is in the PTX ISA's figures ("Matrix Fragments for mma"); here it is a function per operand.
//
// Sums: the ISA leaves the order and the precision of the additions open. Each element is the products in the
// order of k, summed in f64 (exactly, for f16), rounded once to the type of the accumulator.
#include "engine/context.hpp"
#include "engine/handlers.hpp"
#include "engine/small_floats.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace singularity::softgpu::engine {

namespace {

using ptx::Instruction;
using ptx::Opcode;
using ptx::Type;

struct Place2 {
    unsigned lane;
    unsigned reg;
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
    default:
        return {0, 0, 0};
    }
}

// A row of A (m x k): groups of four lanes hold a row; each register holds `pack` neighbours in k, the lanes
// of the group 4 * pack of them; registers go down by 8 rows, then on by 4 * pack columns.
Place2 place_a(unsigned row, unsigned k, unsigned pack, unsigned m) {
    const unsigned rows = m / 8;
    const unsigned column = k / (4 * pack);
    return {(row % 8) * 4 + k % (4 * pack) / pack, column * rows + row / 8, k % pack};
}
// B (k x n): columns are what rows are of A.
Place2 place_b(unsigned k, unsigned column, unsigned pack) {
    return {column * 4 + k % (4 * pack) / pack, k / (4 * pack), k % pack};
}
// C and D: two neighbouring columns per lane, the same for the rows 8 further down.
Place2 place_c(unsigned row, unsigned column) {
    return {(row % 8) * 4 + column / 2, row / 8 * 2 + column % 2, 0};
}

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
unsigned width_of(Type type) {
    switch (type) {
    case Type::tf32:
    case Type::f32:
        return 32;
    case Type::f16:
    case Type::bf16:
        return 16;
    case Type::u4:
    case Type::s4:
        return 4;
    default:
        return 8;
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

constexpr unsigned kMostRows = 16;
constexpr unsigned kMostColumns = 8;
constexpr unsigned kMostDepth = 64;

template <class T>
struct Operands {
    T a[kMostRows][kMostDepth];
    T b[kMostDepth][kMostColumns];
};

// Where the tuples begin in Code::extra: d, a, b, c, by the lengths that the compiler counted.
struct Tuples {
    const Ref *d;
    const Ref *a;
    const Ref *b;
    const Ref *c;
    unsigned c_length;
};
Tuples tuples_of(const Context &context, const Op &op) {
    const Ref *first = &context.code->extra[op.extra];
    const unsigned d = op.key & 15U;
    const unsigned a = (op.key >> 4U) & 15U;
    const unsigned b = (op.key >> 8U) & 15U;
    return {first, first + d, first + d + a, first + d + a + b, static_cast<unsigned>(op.key >> 12U)};
}

template <class T, class F>
void gather(const Context &context, const Tuples &tuples, const ShapeSize &size, Type type_a, Type type_b,
            F value, Operands<T> &operands) {
    const unsigned width_a = width_of(type_a);
    const unsigned width_b = width_of(type_b);
    for (unsigned i = 0; i < size.m; ++i)
        for (unsigned k = 0; k < size.k; ++k) {
            const Place2 at = place_a(i, k, 32 / width_a, size.m);
            operands.a[i][k] = value(type_a, element<std::uint32_t>(context, tuples.a[at.reg], at.lane) >>
                                                 (at.part * width_a));
        }
    for (unsigned k = 0; k < size.k; ++k)
        for (unsigned j = 0; j < size.n; ++j) {
            const Place2 at = place_b(k, j, 32 / width_b);
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

void multiply_floats(Context &context, const Op &op) {
    require_warp(context);
    const Instruction &instruction = instruction_of(context, op);
    const ShapeSize size = size_of(instruction.shape);
    const Tuples tuples = tuples_of(context, op);
    Operands<double> operands;
    gather(context, tuples, size, instruction.types[1], instruction.types[2], float_of, operands);
    const bool half_c = instruction.types[3] == Type::f16;
    const bool half_d = instruction.types[0] == Type::f16;
    std::uint32_t results[kMostRows][kMostColumns];
    for (unsigned i = 0; i < size.m; ++i)
        for (unsigned j = 0; j < size.n; ++j) {
            const Place2 at = place_c(i, j);
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
            const Place2 at = place_c(i, j);
            if (!half_d) {
                element<std::uint32_t>(context, tuples.d[at.reg], at.lane) = results[i][j];
                continue;
            }
            auto &word = element<std::uint32_t>(context, tuples.d[at.reg / 2], at.lane);
            word = at.reg % 2 == 0 ? (word & 0xFFFF0000U) | results[i][j]
                                   : (word & 0xFFFFU) | (results[i][j] << 16U);
        }
}

void multiply_integers(Context &context, const Op &op) {
    require_warp(context);
    const Instruction &instruction = instruction_of(context, op);
    const ShapeSize size = size_of(instruction.shape);
    const Tuples tuples = tuples_of(context, op);
    Operands<std::int32_t> operands;
    gather(context, tuples, size, instruction.types[1], instruction.types[2], integer_of, operands);
    const bool saturates = instruction.has(ptx::Flag::satfinite);
    std::uint32_t results[kMostRows][kMostColumns];
    for (unsigned i = 0; i < size.m; ++i)
        for (unsigned j = 0; j < size.n; ++j) {
            const Place2 at = place_c(i, j);
            std::int64_t sum =
                std::bit_cast<std::int32_t>(element<std::uint32_t>(context, tuples.c[at.reg], at.lane));
            for (unsigned k = 0; k < size.k; ++k)
                sum += std::int64_t{operands.a[i][k]} * operands.b[k][j];
            if (saturates)
                sum = std::clamp<std::int64_t>(sum, INT32_MIN, INT32_MAX);
            results[i][j] = static_cast<std::uint32_t>(sum);
        }
    for (unsigned i = 0; i < size.m; ++i)
        for (unsigned j = 0; j < size.n; ++j) {
            const Place2 at = place_c(i, j);
            element<std::uint32_t>(context, tuples.d[at.reg], at.lane) = results[i][j];
        }
}

// f64: one element of A and B per register, fused multiply-adds in the order of k.
void multiply_doubles(Context &context, const Op &op) {
    require_warp(context);
    const ShapeSize size = size_of(instruction_of(context, op).shape);
    const Tuples tuples = tuples_of(context, op);
    double results[kMostRows][kMostColumns];
    for (unsigned i = 0; i < size.m; ++i)
        for (unsigned j = 0; j < size.n; ++j) {
            const Place2 at = place_c(i, j);
            double sum = element<double>(context, tuples.c[at.reg], at.lane);
            for (unsigned k = 0; k < size.k; ++k) {
                const Place2 a = place_a(i, k, 1, size.m);
                const Place2 b = place_b(k, j, 1);
                sum = std::fma(element<double>(context, tuples.a[a.reg], a.lane),
                               element<double>(context, tuples.b[b.reg], b.lane), sum);
            }
            results[i][j] = sum;
        }
    for (unsigned i = 0; i < size.m; ++i)
        for (unsigned j = 0; j < size.n; ++j) {
            const Place2 at = place_c(i, j);
            element<double>(context, tuples.d[at.reg], at.lane) = results[i][j];
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

Handler select_product(const Instruction &instruction) {
    const ShapeSize size = size_of(instruction.shape);
    const Type a = instruction.types[1];
    if (size.m == 0)
        return nullptr;
    switch (a) {
    case Type::f64: // of the larger shapes the layout is another
        return size.m == 8 && size.k == 4 ? multiply_doubles : nullptr;
    case Type::f16:
    case Type::bf16:
    case Type::tf32:
    case Type::e4m3:
    case Type::e5m2:
        // m8n8k4 of halves is done by quarters of a warp, in a layout of its own.
        return size.m == 16 ? multiply_floats : nullptr;
    case Type::u8:
    case Type::s8:
    case Type::u4:
    case Type::s4:
        return multiply_integers;
    default:
        return nullptr;
    }
}

} // namespace

Handler select_matrix(const Instruction &instruction) {
    switch (instruction.opcode) {
    case Opcode::mma:
        return select_product(instruction);
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
