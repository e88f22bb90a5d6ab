// SPDX-License-Identifier: GPL-2.0-or-later
// wmma: every form of the PTX ISA 9.0, loaded, multiplied and stored as a program does, and compared with the
// sums that the host makes; and the mma forms that are not in engine_matrices.cpp. Numbers are small
// integers, so that every order of additions gives the same. ptxas, where there is one, takes all that is
// written here.
#include "assembler.hpp"
#include "engine_fixture.hpp"

#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>

namespace {

using namespace singularity::softgpu;
using namespace singularity::softgpu::test;
using Bytes = std::vector<std::byte>;

struct Element {
    unsigned bits;
    const char *registers; // of a fragment: the family of `body_of`
    int least, most;       // values to draw
};
const std::map<std::string, Element> kElements{
    {"f16", {16, "%r", -4, 4}},   {"bf16", {16, "%r", -4, 4}},   {"tf32", {32, "%r", -4, 4}},
    {"f32", {32, "%f", -64, 64}}, {"f64", {64, "%fd", -8, 8}},   {"s8", {8, "%r", -128, 127}},
    {"u8", {8, "%r", 0, 255}},    {"s4", {4, "%r", -8, 7}},      {"u4", {4, "%r", 0, 15}},
    {"b1", {1, "%r", 0, 1}},      {"s32", {32, "%r", -999, 999}}};

std::uint64_t small_float(int value, unsigned exponent_bits, unsigned fraction_bits) {
    if (value == 0)
        return 0;
    const std::uint64_t sign = value < 0 ? 1ULL << (exponent_bits + fraction_bits) : 0;
    const auto magnitude = static_cast<std::uint64_t>(std::abs(value));
    const auto exponent = static_cast<unsigned>(std::bit_width(magnitude)) - 1;
    const std::uint64_t bias = (1ULL << (exponent_bits - 1)) - 1;
    const std::uint64_t fraction = (magnitude << fraction_bits >> exponent) & ((1ULL << fraction_bits) - 1);
    return sign | (exponent + bias) << fraction_bits | fraction;
}
std::uint64_t encoded(const std::string &type, int value) {
    if (type == "f16")
        return small_float(value, 5, 10);
    if (type == "bf16")
        return small_float(value, 8, 7);
    if (type == "tf32" || type == "f32")
        return small_float(value, 8, 23);
    if (type == "f64")
        return small_float(value, 11, 52);
    const unsigned bits = kElements.at(type).bits;
    return static_cast<std::uint64_t>(value) & ((1ULL << bits) - 1);
}

// Sums that cancel are -0 where they are rounded down.
bool is(std::uint64_t found, const std::string &type, int value) {
    return found == encoded(type, value) || (type == "f64" && value == 0 && found == 1ULL << 63U);
}

// A matrix in memory.
struct Stored {
    std::string type;
    unsigned rows, columns;
    bool by_columns;
    unsigned stride; // elements
    unsigned bits = kElements.at(type).bits;

    [[nodiscard]] std::size_t bytes() const {
        return (std::size_t{by_columns ? columns : rows} * stride * bits + 31) / 32 * 4;
    }
    [[nodiscard]] std::size_t bit(unsigned row, unsigned column) const {
        return (std::size_t{by_columns ? column : row} * stride + (by_columns ? row : column)) * bits;
    }
    void put(Bytes &to, unsigned row, unsigned column, int value) const {
        const std::uint64_t code = encoded(type, value);
        const std::size_t at = bit(row, column);
        if (bits >= 8)
            std::memcpy(&to[at / 8], &code, bits / 8);
        else
            to[at / 8] |= static_cast<std::byte>(code << (at % 8));
    }
    [[nodiscard]] std::uint64_t get(const std::byte *from, unsigned row, unsigned column) const {
        std::uint64_t code = 0;
        std::memcpy(&code, from + bit(row, column) / 8, bits / 8);
        return code;
    }
};

struct Shape {
    const char *name;
    unsigned m, n, k;
};
constexpr Shape k16x16{"m16n16k16", 16, 16, 16};
constexpr Shape k32x8{"m32n8k16", 32, 8, 16};
constexpr Shape k8x32{"m8n32k16", 8, 32, 16};

struct Form {
    Shape shape;
    std::string a_type, b_type, c_type, d_type;
    bool a_by_columns, b_by_columns;
    std::string modifiers; // of the product, behind the shape: all types, .satfinite
    std::string before;    // .sync: the operation of single bits
};

// Registers of a fragment: halves of A and B are there for all lanes, whatever the shape.
unsigned registers_of(const std::string &type, unsigned elements, bool factor) {
    const unsigned bits = kElements.at(type).bits;
    if (factor && type == "f16")
        return 8;
    return bits == 64 ? elements / 32 : elements * bits / 1024;
}

std::vector<Form> all_forms() {
    std::vector<Form> forms;
    for (const Shape &shape : {k16x16, k32x8, k8x32})
        for (const bool a : {false, true})
            for (const bool b : {false, true}) {
                for (const char *d : {"f16", "f32"})
                    for (const char *c : {"f16", "f32"})
                        forms.push_back({shape, "f16", "f16", c, d, a, b, fmt::format(".{}.{}", d, c), ""});
                forms.push_back({shape, "bf16", "bf16", "f32", "f32", a, b, ".f32.bf16.bf16.f32", ""});
                for (const char *type : {"s8", "u8"})
                    for (const char *end : {"", ".satfinite"})
                        forms.push_back({shape, type, type, "s32", "s32", a, b,
                                         fmt::format(".s32.{}.{}.s32{}", type, type, end), ""});
            }
    for (const bool a : {false, true})
        for (const bool b : {false, true}) {
            forms.push_back(
                {{"m16n16k8", 16, 16, 8}, "tf32", "tf32", "f32", "f32", a, b, ".f32.tf32.tf32.f32", ""});
            for (const char *rounding : {"", ".rn", ".rz", ".rm", ".rp"})
                forms.push_back({{"m8n8k4", 8, 8, 4},
                                 "f64",
                                 "f64",
                                 "f64",
                                 "f64",
                                 a,
                                 b,
                                 fmt::format("{}.f64.f64.f64.f64", rounding),
                                 ""});
        }
    for (const char *type : {"s4", "u4"})
        for (const char *end : {"", ".satfinite"})
            forms.push_back({{"m8n8k32", 8, 8, 32},
                             type,
                             type,
                             "s32",
                             "s32",
                             false,
                             true,
                             fmt::format(".s32.{}.{}.s32{}", type, type, end),
                             ""});
    for (const char *operation : {".xor.popc", ".and.popc"})
        forms.push_back(
            {{"m8n8k128", 8, 8, 128}, "b1", "b1", "s32", "s32", false, true, ".s32.b1.b1.s32", operation});
    return forms;
}

const char *layout(bool by_columns) { return by_columns ? "col" : "row"; }

std::string tuple(const std::string &reg, unsigned first, unsigned count) {
    std::string text = "{";
    for (unsigned i = 0; i < count; ++i)
        text += fmt::format("{}{}{}", i == 0 ? "" : ", ", reg, first + i);
    return text + "}";
}

enum class Where : std::uint8_t { global, generic, shared, generic_shared };

// The matrices of one test: A, B, C and D, where the strides come from `number`.
struct Matrices {
    std::array<Stored, 4> all;
    Where where;
    bool strided;
};
Matrices matrices_of(const Form &form, unsigned number) {
    std::mt19937 random(number);
    const auto yes = [&] { return random() % 2 == 0; };
    Matrices out{{Stored{form.a_type, form.shape.m, form.shape.k, form.a_by_columns, 0},
                  Stored{form.b_type, form.shape.k, form.shape.n, form.b_by_columns, 0},
                  Stored{form.c_type, form.shape.m, form.shape.n, yes(), 0},
                  Stored{form.d_type, form.shape.m, form.shape.n, yes(), 0}},
                 static_cast<Where>(random() % 4),
                 random() % 3 != 0};
    for (Stored &one : out.all) {
        const unsigned step = one.bits >= 32 ? 4 : 128 / one.bits; // 16 bytes
        one.stride = (one.by_columns ? one.rows : one.columns) + (out.strided ? step * (yes() ? 1 : 2) : 0);
    }
    return out;
}

constexpr unsigned kSharedBytes = 8192; // for each matrix

std::string kernel(const std::string &name, const Form &form, const Matrices &matrices) {
    const bool shared = matrices.where == Where::shared || matrices.where == Where::generic_shared;
    const auto copy = [](const char *to, const char *from, std::size_t bytes, const std::string &label) {
        // Word by word, 32 at a time.
        return fmt::format(
            "mov.u32 %t1, %laneid; shl.b32 %t1, %t1, 2;\n{0}:\nsetp.ge.u32 %p1, %t1, {1};\n@%p1 bra {0}e;\n"
            "cvt.u64.u32 %x, %t1; add.s64 %y, {2}, %x; add.s64 %x, {3}, %x; ld.b32 %t2, [%x]; "
            "st.b32 [%y], %t2;\nadd.u32 %t1, %t1, 128;\nbra {0};\n{0}e:\nbar.sync 0;\n",
            label, bytes, to, from);
    };
    std::string text =
        fmt::format(".visible .entry {}(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3) {{\n"
                    ".reg .pred %p<2>;\n.reg .b32 %r<48>;\n.reg .f32 %f<48>;\n.reg .f64 %fd<48>;\n"
                    ".reg .b32 %t1, %t2, %stride;\n.reg .b64 %m<4>, %g<4>, %x, %y;\n",
                    name);
    if (shared)
        text += fmt::format(".shared .align 32 .b8 space[{}];\n", 4 * kSharedBytes);
    for (unsigned i = 0; i < 4; ++i) {
        text += fmt::format("ld.param.u64 %g{0}, [p{0}]; mov.u64 %m{0}, %g{0};\n", i);
        if (shared) {
            text += fmt::format(
                "mov.u64 %m{0}, space; add.s64 %m{0}, %m{0}, {1}; cvta.shared.u64 %m{0}, %m{0};\n", i,
                i * kSharedBytes);
            text += copy(fmt::format("%m{}", i).c_str(), fmt::format("%g{}", i).c_str(),
                         matrices.all[i].bytes(), fmt::format("in{}", i));
            if (matrices.where == Where::shared)
                text += fmt::format("cvta.to.shared.u64 %m{0}, %m{0};\n", i);
        }
    }
    const char *const space = matrices.where == Where::global   ? ".global"
                              : matrices.where == Where::shared ? ".shared"
                                                                : "";
    const std::array<unsigned, 4> counts{registers_of(form.a_type, form.shape.m * form.shape.k, true),
                                         registers_of(form.b_type, form.shape.k * form.shape.n, true),
                                         registers_of(form.c_type, form.shape.m * form.shape.n, false),
                                         registers_of(form.d_type, form.shape.m * form.shape.n, false)};
    std::array<std::string, 4> tuples;
    for (unsigned i = 0; i < 4; ++i) {
        const Stored &one = matrices.all[i];
        tuples[i] = tuple(kElements.at(one.type).registers, 8 * i, counts[i]);
        std::string stride;
        if (matrices.strided && i % 2 == 0) {
            text += fmt::format("mov.u32 %stride, {};\n", one.stride);
            stride = ", %stride";
        } else if (matrices.strided) {
            stride = fmt::format(", {}", one.stride);
        }
        if (i < 3)
            text +=
                fmt::format("wmma.load.{}.sync.aligned.{}.{}{}.{} {}, [%m{}]{};\n", "abc"[i],
                            layout(one.by_columns), form.shape.name, space, one.type, tuples[i], i, stride);
        else
            text += fmt::format("wmma.mma{}.sync.aligned.{}.{}.{}{} {}, {}, {}, {};\n"
                                "wmma.store.d.sync.aligned.{}.{}{}.{} [%m3], {}{};\n",
                                form.before, layout(form.a_by_columns), layout(form.b_by_columns),
                                form.shape.name, form.modifiers, tuples[3], tuples[0], tuples[1], tuples[2],
                                layout(one.by_columns), form.shape.name, space, one.type, tuples[3], stride);
    }
    if (shared) {
        if (matrices.where == Where::shared)
            text += "cvta.shared.u64 %m3, %m3;\n";
        text += "bar.sync 0;\n" + copy("%g3", "%m3", matrices.all[3].bytes(), "out");
    }
    return text + "ret;\n}\n";
}

std::string head(const char *target = "sm_90") {
    return fmt::format(".version 9.0\n.target {}\n.address_size 64\n", target);
}

int product(const Form &form, int a, int b) {
    if (form.before.empty())
        return a * b;
    return form.before == ".and.popc" ? a & b : a ^ b;
}

void check(const Form &form, unsigned number, Device &device) {
    std::mt19937 random(number);
    const Matrices matrices = matrices_of(form, number);
    std::array<std::vector<std::vector<int>>, 3> values;
    std::array<std::byte *, 4> at{};
    for (unsigned i = 0; i < 4; ++i) {
        const Stored &one = matrices.all[i];
        const Element &element = kElements.at(one.type);
        Bytes bytes(one.bytes());
        if (i < 3) {
            // Halves of an accumulator are exact to 2048 only.
            const int most = i == 2 && form.d_type == "f16" ? 4 : element.most;
            const int least = i == 2 && form.d_type == "f16" ? -4 : element.least;
            values[i].assign(one.rows, std::vector<int>(one.columns));
            for (unsigned row = 0; row < one.rows; ++row)
                for (unsigned column = 0; column < one.columns; ++column) {
                    values[i][row][column] =
                        least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
                    one.put(bytes, row, column, values[i][row][column]);
                }
        }
        at[i] = device.upload(bytes);
    }
    device.run(fmt::format("k{}", number), {1}, {32}, Arguments(at[0], at[1], at[2], at[3]));
    for (unsigned row = 0; row < form.shape.m; ++row)
        for (unsigned column = 0; column < form.shape.n; ++column) {
            int sum = values[2][row][column];
            for (unsigned k = 0; k < form.shape.k; ++k)
                sum += product(form, values[0][row][k], values[1][k][column]);
            const std::uint64_t found = matrices.all[3].get(at[3], row, column);
            if (!is(found, form.d_type, sum))
                fail(fmt::format("{}{} ({}): element {},{}: {:#x}, not {:#x}", form.shape.name,
                                 form.modifiers, number, row, column, found, encoded(form.d_type, sum)));
        }
}

void every_form(void ** /*state*/) {
    const auto forms = all_forms();
    // Each form several times: the numbers choose the layouts of C and D, the strides and the kind of memory.
    const unsigned rounds = singularity::test::is_short() ? 1 : 5;
    std::string ptx = head();
    const auto count = static_cast<unsigned>(forms.size());
    for (unsigned number = 0; number < rounds * count; ++number)
        ptx += kernel(fmt::format("k{}", number), forms[number % count],
                      matrices_of(forms[number % count], number));
    assemble(ptx);
    Device device(ptx);
    for (unsigned number = 0; number < rounds * count; ++number)
        check(forms[number % count], number, device);
}

// As programs do it: a function of each element, and an accumulator of floats made one of halves.
void accumulators_are_spread_alike(void ** /*state*/) {
    std::string ptx = head() +
                      ".visible .entry k(.param .u64 p0, .param .u64 p1) {\n.reg .b64 %a, %b;\n"
                      ".reg .f32 %f<8>;\n.reg .b16 %h<8>;\n.reg .b32 %r<4>;\n"
                      "ld.param.u64 %a, [p0]; ld.param.u64 %b, [p1];\n"
                      "wmma.load.c.sync.aligned.row.m32n8k16.global.f32 " +
                      tuple("%f", 0, 8) + ", [%a];\n";
    for (unsigned i = 0; i < 8; ++i)
        ptx += fmt::format("cvt.rn.f16.f32 %h{0}, %f{0};\n", i);
    for (unsigned i = 0; i < 4; ++i)
        ptx += fmt::format("mov.b32 %r{}, {{%h{}, %h{}}};\n", i, 2 * i, 2 * i + 1);
    ptx += "wmma.store.d.sync.aligned.col.m32n8k16.global.f16 [%b], " + tuple("%r", 0, 4) + ";\nret;\n}\n";
    assemble(ptx);
    Device device(ptx);
    std::vector<float> in(256);
    for (unsigned i = 0; i < 256; ++i)
        in[i] = static_cast<float>(i);
    auto *const out = device.zeroed<std::uint16_t>(256);
    device.run("k", {1}, {32}, Arguments(device.upload(in), out));
    for (unsigned row = 0; row < 32; ++row)
        for (unsigned column = 0; column < 8; ++column)
            assert_int_equal(out[column * 32 + row], encoded("f16", static_cast<int>(row * 8 + column)));
}

void memory_is_checked(void ** /*state*/) {
    const std::string registers =
        ".reg .b64 %a;\n.reg .b32 %r<8>, %s;\n.reg .f32 %f<8>;\nld.param.u64 %a, [p0];\n";
    const auto run = [&](const std::string &body, FaultKind kind) {
        Device device(head() + ".visible .entry k(.param .u64 p0) {\n" + registers + body + "ret;\n}\n");
        auto *const memory = device.zeroed<std::byte>(1024);
        static_cast<void>(device.fault_of(device.launch("k", {1}, {32}, Arguments(memory)), kind));
    };
    const std::string eight = tuple("%f", 0, 8);
    // 16 rows of 16 floats are 1024 bytes; a longer stride, another address or an odd one does not fit.
    run("wmma.load.c.sync.aligned.row.m16n16k16.global.f32 " + eight + ", [%a], 17;\n",
        FaultKind::illegal_address);
    run("wmma.load.c.sync.aligned.row.m16n16k16.f32 " + eight + ", [%a], -1;\n", FaultKind::illegal_address);
    run("wmma.store.d.sync.aligned.col.m16n16k16.global.f32 [%a+4], " + eight + ";\n",
        FaultKind::illegal_address);
    run("wmma.store.d.sync.aligned.col.m16n16k16.global.f32 [%a+2], " + eight + ";\n",
        FaultKind::misaligned_address);
    run("wmma.load.a.sync.aligned.col.m16n16k16.shared.f16 " + tuple("%r", 0, 8) + ", [0];\n",
        FaultKind::illegal_address);
}

// Tuples of another length, or of registers of another size, than the shape has.
void tuples_are_checked(void ** /*state*/) {
    for (const char *instruction :
         {"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1, %r2}, [%out];",
          "wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%rd1, %rd2, %rd3, %rd4, %rd5, %rd6, %rd7, "
          "%rd8}, [%out];",
          "wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64 {%fd1, %fd2}, {%r1}, {%fd1}, {%fd1, %fd2};",
          "wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 {%r1, %r2}, {%r3}, {%r4}, {%r1};",
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r3, %r4}, "
          "{%f1, %f2, %f3, %f4};",
          "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%f1, %f2}, {%fd3}, {%fd4}, {%fd1, %fd2};"}) {
        Device device(elementwise(instruction));
        auto *const out = device.zeroed<std::uint32_t>(32);
        const Fault fault = device.fault_of(device.launch("k", {1}, {32}, Arguments(out, out, out, out, 32U)),
                                            FaultKind::not_supported);
        expect_contains(fault.text, "mma");
    }
}

// --- mma: shapes and types whose places are others than those in engine_matrices.cpp

// Where an element of a fragment is, by the ISA's formulas: row and column of element i of a lane.
struct At {
    unsigned row, column;
};
using Formula = At (*)(unsigned lane, unsigned i);

// One warp: every lane has its elements, which are `bits` wide, at its place in memory, one after the other.
struct MmaForm {
    std::string instruction;
    std::string a_type, b_type, c_type, d_type;
    unsigned a_count, b_count, c_count; // elements of a lane
    Formula a, b, c, d;
    unsigned m, n, k, products;
    const char *target = "sm_90";
};

unsigned mma_registers(const std::string &type, unsigned elements) {
    const unsigned bits = kElements.at(type).bits;
    return bits == 64 ? elements : elements * bits / 32;
}

std::string mma_kernel(const MmaForm &form) {
    std::string text = head(form.target) +
                       ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, "
                       ".param .u64 p3) {\n.reg .b32 %r<64>, %lane, %o;\n.reg .f32 %f<64>;\n"
                       ".reg .f64 %fd<64>;\n.reg .b64 %g<4>, %w;\nmov.u32 %lane, %laneid;\n";
    const std::array types{form.a_type, form.b_type, form.c_type, form.d_type};
    const std::array counts{form.a_count, form.b_count, form.c_count, form.c_count};
    std::array<std::string, 4> tuples;
    for (unsigned i = 0; i < 4; ++i) {
        const Element &element = kElements.at(types[i]);
        const unsigned registers = mma_registers(types[i], counts[i]);
        const unsigned size = element.bits == 64 ? 8 : 4;
        tuples[i] = tuple(element.registers, 16 * i, registers);
        text += fmt::format(
            "ld.param.u64 %g{0}, [p{0}]; mul.wide.u32 %w, %lane, {1}; add.s64 %g{0}, %g{0}, %w;\n", i,
            registers * size);
        for (unsigned reg = 0; i < 3 && reg < registers; ++reg)
            text += fmt::format("ld.global.b{} {}{}, [%g{}+{}];\n", 8 * size, element.registers, 16 * i + reg,
                                i, reg * size);
    }
    text += fmt::format("{} {}, {}, {}, {};\n", form.instruction, tuples[3], tuples[0], tuples[1], tuples[2]);
    const Element &element = kElements.at(form.d_type);
    for (unsigned reg = 0; reg < mma_registers(form.d_type, form.c_count); ++reg) {
        const unsigned size = element.bits == 64 ? 8 : 4;
        text +=
            fmt::format("st.global.b{} [%g3+{}], {}{};\n", 8 * size, reg * size, element.registers, 48 + reg);
    }
    return text + "ret;\n}\n";
}

// The product that a lane takes part in.
unsigned product_of(const MmaForm &form, unsigned lane) { return form.products == 4 ? lane % 16 / 4 : 0; }

void check(const MmaForm &form) {
    const std::string ptx = mma_kernel(form);
    assemble(ptx, form.target);
    Device device(ptx);
    std::mt19937 random(7);
    // value[product][row][column] of A, B and C.
    using Matrix = std::vector<std::vector<int>>;
    std::array<std::vector<Matrix>, 3> values;
    const std::array types{form.a_type, form.b_type, form.c_type};
    const std::array counts{form.a_count, form.b_count, form.c_count};
    const std::array formulas{form.a, form.b, form.c};
    const std::array rows{form.m, form.k, form.m};
    const std::array columns{form.k, form.n, form.n};
    std::array<std::byte *, 4> at{};
    for (unsigned i = 0; i < 3; ++i) {
        const Element &element = kElements.at(types[i]);
        values[i].assign(form.products, Matrix(rows[i], std::vector<int>(columns[i])));
        for (Matrix &matrix : values[i])
            for (auto &row : matrix)
                for (int &value : row)
                    value =
                        element.least +
                        static_cast<int>(random() % static_cast<unsigned>(element.most - element.least + 1));
        Stored flat{types[i], 32, counts[i], false, counts[i]};
        Bytes bytes(flat.bytes());
        for (unsigned lane = 0; lane < 32; ++lane)
            for (unsigned e = 0; e < counts[i]; ++e) {
                const At place = formulas[i](lane, e);
                flat.put(bytes, lane, e, values[i][product_of(form, lane)][place.row][place.column]);
            }
        at[i] = device.upload(bytes);
    }
    const Stored flat{form.d_type, 32, form.c_count, false, form.c_count};
    at[3] = device.upload(Bytes(flat.bytes()));
    device.run("k", {1}, {32}, Arguments(at[0], at[1], at[2], at[3]));
    const bool bits = form.a_type == "b1";
    const bool both = form.instruction.contains(".and.");
    for (unsigned lane = 0; lane < 32; ++lane)
        for (unsigned e = 0; e < form.c_count; ++e) {
            const At place = form.d(lane, e);
            const unsigned which = product_of(form, lane);
            int sum = values[2][which][place.row][place.column];
            for (unsigned k = 0; k < form.k; ++k) {
                const int a = values[0][which][place.row][k];
                const int b = values[1][which][k][place.column];
                sum += !bits ? a * b : both ? a & b : a ^ b;
            }
            const std::uint64_t found = flat.get(at[3], lane, e);
            if (!is(found, form.d_type, sum))
                fail(fmt::format("{}: lane {} element {}: {:#x}, not {:#x}", form.instruction, lane, e, found,
                                 encoded(form.d_type, sum)));
        }
}

At c_of(unsigned lane, unsigned i) { return {lane / 4 + (i >= 2 ? 8 : 0), lane % 4 * 2 + (i & 1U)}; }
At b_of_doubles(unsigned lane, unsigned i) { return {lane % 4 + 4 * i, lane / 4}; }
At a_of_doubles(unsigned lane, unsigned i) { return {lane / 4 + (i % 2 == 0 ? 0 : 8), i / 2 * 4 + lane % 4}; }

void doubles(void ** /*state*/) {
    for (const unsigned k : {4U, 8U, 16U})
        for (const char *rounding : {"", ".rn", ".rz", ".rm", ".rp"})
            check(MmaForm{fmt::format("mma.sync.aligned.m16n8k{}.row.col{}.f64.f64.f64.f64", k, rounding),
                          "f64", "f64", "f64", "f64", k / 2, k / 4, 4, a_of_doubles, b_of_doubles, c_of, c_of,
                          16, 8, k, 1});
}

// What rounding does where it shows: 1 + 2^-60.
void doubles_are_rounded(void ** /*state*/) {
    for (const char *instruction : {"mma.sync.aligned.m8n8k4.row.col{}.f64.f64.f64.f64",
                                    "wmma.mma.sync.aligned.row.col.m8n8k4{}.f64.f64.f64.f64"})
        for (const auto &[name, mode] : {std::pair(".rn", FE_TONEAREST), std::pair(".rz", FE_TOWARDZERO),
                                         std::pair(".rm", FE_DOWNWARD), std::pair(".rp", FE_UPWARD)}) {
            const std::string body =
                "mov.f64 %fd1, 0d3FF0000000000000; mov.f64 %fd2, 0dBC30000000000000;\n"
                "mov.f64 %fd7, 0d3FF0000000000000;\n" + // -2^-60
                fmt::format(fmt::runtime(instruction), name) +
                " {%fd5, %fd6}, {%fd1}, {%fd2}, {%fd7, %fd7};\nst.global.f64 [%out], %fd5;";
            Device device(elementwise(body, 8, 8));
            auto *const out = device.zeroed<double>(32);
            device.run("k", {1}, {32}, Arguments(out, out, out, out, 32U));
            // Four times, one after the other.
            const bool down = mode == FE_TOWARDZERO || mode == FE_DOWNWARD;
            double expected = 1;
            for (int step = 0; down && step < 4; ++step)
                expected = std::nextafter(expected, 0.);
            if (out[0] != expected)
                fail(fmt::format("{}{}: {:a}, not {:a}", instruction, name, out[0], expected));
            assert_int_equal(std::fegetround(), FE_TONEAREST);
        }
}

// Bits: a word holds 32 neighbours in k.
void bits(void ** /*state*/) {
    const Formula b = [](unsigned lane, unsigned i) -> At {
        return {lane % 4 * 32 + i % 32 + i / 32 * 128, lane / 4};
    };
    const Formula a8 = [](unsigned lane, unsigned i) -> At { return {lane / 4, lane % 4 * 32 + i}; };
    const Formula a16 = [](unsigned lane, unsigned i) -> At {
        return {lane / 4 + (i / 32 % 2 == 0 ? 0 : 8), lane % 4 * 32 + i % 32 + i / 64 * 128};
    };
    for (const char *operation : {"xor", "and"}) {
        const auto name = [&](const char *shape) {
            return fmt::format("mma.sync.aligned.{}.row.col.s32.b1.b1.s32.{}.popc", shape, operation);
        };
        check(
            MmaForm{name("m8n8k128"), "b1", "b1", "s32", "s32", 32, 32, 2, a8, b, c_of, c_of, 8, 8, 128, 1});
        check(MmaForm{name("m16n8k128"), "b1", "b1", "s32", "s32", 64, 32, 4, a16, b, c_of, c_of, 16, 8, 128,
                      1});
        check(MmaForm{name("m16n8k256"), "b1", "b1", "s32", "s32", 128, 64, 4, a16, b, c_of, c_of, 16, 8, 256,
                      1});
    }
}

unsigned upper(unsigned lane) { return lane < 16 ? 0 : 4; }

// m8n8k4 of halves: four products, one for each quarter of the warp.
void quarters(void ** /*state*/) {
    const Formula a_rows = [](unsigned lane, unsigned i) -> At { return {lane % 4 + upper(lane), i}; };
    const Formula a_columns = [](unsigned lane, unsigned i) -> At { return {i % 4 + upper(lane), lane % 4}; };
    const Formula b_rows = [](unsigned lane, unsigned i) -> At { return {lane % 4, i + upper(lane)}; };
    const Formula b_columns = [](unsigned lane, unsigned i) -> At { return {i, lane % 4 + upper(lane)}; };
    const Formula halves = [](unsigned lane, unsigned i) -> At { return {lane % 4 + upper(lane), i}; };
    const Formula singles = [](unsigned lane, unsigned i) -> At {
        return {(lane & 1U) + (i & 2U) + upper(lane), (i & 4U) + (lane & 2U) + (i & 1U)};
    };
    for (const bool a : {false, true})
        for (const bool b : {false, true})
            for (const auto &[d, c] :
                 {std::pair("f16", "f16"), std::pair("f32", "f16"), std::pair("f32", "f32")})
                check(MmaForm{
                    fmt::format("mma.sync.aligned.m8n8k4.{}.{}.{}.f16.f16.{}", layout(a), layout(b), d, c),
                    "f16", "f16", c, d, 4, 4, 8, a ? a_columns : a_rows, b ? b_columns : b_rows,
                    std::string(c) == "f16" ? halves : singles, std::string(d) == "f16" ? halves : singles, 8,
                    8, 4, 4, "sm_75"});
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(every_form),
                                cmocka_unit_test(accumulators_are_spread_alike),
                                cmocka_unit_test(memory_is_checked),
                                cmocka_unit_test(tuples_are_checked),
                                cmocka_unit_test(doubles),
                                cmocka_unit_test(doubles_are_rounded),
                                cmocka_unit_test(bits),
                                cmocka_unit_test(quarters)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
