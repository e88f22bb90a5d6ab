// SPDX-License-Identifier: GPL-2.0-or-later
// The words that may follow an instruction's name, each an enumerator of what it says: SINGULARITY_PTX_x(X)
// calls X(enumerator, "text in PTX"). `none` is value 0 of each: not said.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

// clang-format off: lists to be read as lists.
#define SINGULARITY_PTX_TYPES(X) \
    X(b8, "b8") X(b16, "b16") X(b32, "b32") X(b64, "b64") X(b128, "b128") X(u8, "u8") X(u16, "u16") \
    X(u32, "u32") X(u64, "u64") X(s8, "s8") X(s16, "s16") X(s32, "s32") X(s64, "s64") X(u16x2, "u16x2") \
    X(s16x2, "s16x2") X(f16, "f16") X(f16x2, "f16x2") X(bf16, "bf16") X(bf16x2, "bf16x2") X(tf32, "tf32") \
    X(f32, "f32") X(f32x2, "f32x2") X(f64, "f64") X(e4m3, "e4m3") X(e5m2, "e5m2") X(e4m3x2, "e4m3x2") \
    X(e5m2x2, "e5m2x2") X(e4m3x4, "e4m3x4") X(e5m2x4, "e5m2x4") X(e2m1x2, "e2m1x2") X(e2m3x2, "e2m3x2") \
    X(e3m2x2, "e3m2x2") X(ue8m0x2, "ue8m0x2") X(pred, "pred") X(b1, "b1") X(u4, "u4") X(s4, "s4") \
    X(texref, "texref") X(samplerref, "samplerref") X(surfref, "surfref")

#define SINGULARITY_PTX_ROUNDINGS(X) \
    X(rn, "rn") X(rz, "rz") X(rm, "rm") X(rp, "rp") X(rni, "rni") X(rzi, "rzi") X(rmi, "rmi") \
    X(rpi, "rpi") X(rna, "rna") X(rs, "rs")

#define SINGULARITY_PTX_COMPARISONS(X) \
    X(eq, "eq") X(ne, "ne") X(lt, "lt") X(le, "le") X(gt, "gt") X(ge, "ge") X(lo, "lo") X(ls, "ls") \
    X(hi, "hi") X(hs, "hs") X(equ, "equ") X(neu, "neu") X(ltu, "ltu") X(leu, "leu") X(gtu, "gtu") \
    X(geu, "geu") X(num, "num") X(nan, "nan")

// What combines: of atomics, reductions, setp's predicates, tests and matrix instructions.
#define SINGULARITY_PTX_OPERATIONS(X) \
    X(and_, "and") X(or_, "or") X(xor_, "xor") X(exch, "exch") X(cas, "cas") X(add, "add") X(inc, "inc") \
    X(dec, "dec") X(min, "min") X(max, "max") X(popc, "popc") X(finite, "finite") X(infinite, "infinite") \
    X(number, "number") X(notanumber, "notanumber") X(normal, "normal") X(subnormal, "subnormal")

// Which of an instruction's forms: the half of a product, the direction of a shift, the kind of a vote.
#define SINGULARITY_PTX_MODES(X) \
    X(lo, "lo") X(hi, "hi") X(wide, "wide") X(clamp, "clamp") X(wrap, "wrap") X(up, "up") X(down, "down") \
    X(bfly, "bfly") X(idx, "idx") X(all, "all") X(any, "any") X(uni, "uni") X(ballot, "ballot") \
    X(f4e, "f4e") X(b4e, "b4e") X(rc8, "rc8") X(ecl, "ecl") X(ecr, "ecr") X(rc16, "rc16") \
    X(arrive, "arrive") X(red, "red") X(approx, "approx") X(full, "full") X(pack, "pack") X(init, "init") \
    X(inval, "inval") X(arrive_drop, "arrive_drop") X(test_wait, "test_wait") X(try_wait, "try_wait") \
    X(expect_tx, "expect_tx") X(complete_tx, "complete_tx") X(pending_count, "pending_count") \
    X(commit_group, "commit_group") X(wait_group, "wait_group") X(wait_all, "wait_all") X(wait, "wait") \
    X(launch_dependents, "launch_dependents") X(proxy, "proxy") X(mbarrier_init, "mbarrier_init") \
    X(l1, "L1") X(l2, "L2") X(warp, "warp") X(mbarrier, "mbarrier") X(fractional, "fractional") \
    X(range, "range") X(cvt, "cvt") X(load, "load") X(store, "store") X(multiply, "mma") X(shr7, "shr7") X(shr15, "shr15") \
    X(base, "base") X(level, "level") X(grad, "grad") X(trap, "trap") X(zero, "zero") X(width, "width") \
    X(height, "height") X(depth, "depth") X(array_size, "array_size") \
    X(mipmap_levels, "num_mipmap_levels") X(normalized, "normalized_coords")

#define SINGULARITY_PTX_SPACES(X) \
    X(global, "global") X(shared, "shared") X(local, "local") X(constant, "const") X(param, "param") \
    X(shared_cta, "shared::cta") X(shared_cluster, "shared::cluster") X(param_entry, "param::entry") \
    X(param_func, "param::func")

#define SINGULARITY_PTX_SEMANTICS(X) \
    X(weak, "weak") X(volatile_, "volatile") X(relaxed, "relaxed") X(acquire, "acquire") \
    X(release, "release") X(acq_rel, "acq_rel") X(sc, "sc")

#define SINGULARITY_PTX_SCOPES(X) \
    X(cta, "cta") X(cluster, "cluster") X(gpu, "gpu") X(sys, "sys") X(gl, "gl")

// Cache hints: a software device has no caches, but what it prints should be what it read.
#define SINGULARITY_PTX_CACHES(X) \
    X(ca, "ca") X(cg, "cg") X(cs, "cs") X(lu, "lu") X(cv, "cv") X(wb, "wb") X(wt, "wt")

// What else an access tells the caches. The last one that was written is kept: none changes a result.
#define SINGULARITY_PTX_HINTS(X) \
    X(evict_normal, "L1::evict_normal") X(evict_unchanged, "L1::evict_unchanged") \
    X(evict_first, "L1::evict_first") X(evict_last, "L1::evict_last") X(no_allocate, "L1::no_allocate") \
    X(l2_evict_normal, "L2::evict_normal") X(l2_evict_first, "L2::evict_first") \
    X(l2_evict_last, "L2::evict_last") X(l2_evict_unchanged, "L2::evict_unchanged") X(l2_64, "L2::64B") X(l2_128, "L2::128B") X(l2_256, "L2::256B")

#define SINGULARITY_PTX_VECTORS(X) \
    X(v2, "v2") X(v4, "v4") X(v8, "v8") X(x1, "x1") X(x2, "x2") X(x4, "x4")

#define SINGULARITY_PTX_SHAPES(X) \
    X(m8n8, "m8n8") X(m16n8, "m16n8") X(m8n16, "m8n16") X(m8n8k4, "m8n8k4") X(m8n8k16, "m8n8k16") \
    X(m8n8k32, "m8n8k32") X(m8n8k128, "m8n8k128") X(m16n8k4, "m16n8k4") X(m16n8k8, "m16n8k8") \
    X(m16n8k16, "m16n8k16") X(m16n8k32, "m16n8k32") X(m16n8k64, "m16n8k64") X(m16n8k128, "m16n8k128") \
    X(m16n8k256, "m16n8k256") X(m16n16k16, "m16n16k16") X(m32n8k16, "m32n8k16") X(m8n32k16, "m8n32k16") \
    X(m16n16k8, "m16n16k8") X(m16n16, "m16n16")

// Of textures and surfaces: how many dimensions, layers (a), faces.
#define SINGULARITY_PTX_GEOMETRIES(X) \
    X(line, "1d") X(plane, "2d") X(volume, "3d") X(lines, "a1d") X(planes, "a2d") X(cube, "cube") X(cubes, "acube")

// Yes-or-no words: any number of them, one bit each. Of a product's two layouts, the second is `second_`.
#define SINGULARITY_PTX_FLAGS(X) \
    X(ftz, "ftz") X(sat, "sat") X(satfinite, "satfinite") X(relu, "relu") X(oob, "oob") X(nan, "NaN") \
    X(xorsign, "xorsign") X(abs, "abs") X(cc, "cc") X(noftz, "noftz") X(sync, "sync") \
    X(aligned, "aligned") X(nc, "nc") X(to, "to") X(shiftamt, "shiftamt") X(uniform, "uni") \
    X(async, "async") X(noinc, "noinc") X(transposed, "trans") X(row, "row") X(column, "col") \
    X(second_row, "row") X(second_column, "col") \
    X(parity, "parity") X(no_complete, "noComplete") X(alias, "alias") X(cta_barrier, "cta") \
    X(accumulate, "add") X(cache_hint, "L2::cache_hint") X(popcount, "popc") X(expects, "expect_tx") \
    X(mask, "mask") X(left, "l") X(right, "r") X(matrix_a, "a") X(matrix_b, "b") X(matrix_c, "c") X(matrix_d, "d") X(plus_one, "po") \
    X(green, "g") X(formatted, "p")
// clang-format on

namespace singularity::ptx {

#define SINGULARITY_PTX_ENUMERATOR(name, text) name,
#define SINGULARITY_PTX_WORD(name, text) std::string_view(text),
#define SINGULARITY_PTX_ENUM(Name, LIST)                                                                     \
    enum class Name : std::uint8_t { none, LIST(SINGULARITY_PTX_ENUMERATOR) }
SINGULARITY_PTX_ENUM(Type, SINGULARITY_PTX_TYPES);
SINGULARITY_PTX_ENUM(Rounding, SINGULARITY_PTX_ROUNDINGS);
SINGULARITY_PTX_ENUM(Comparison, SINGULARITY_PTX_COMPARISONS);
SINGULARITY_PTX_ENUM(Operation, SINGULARITY_PTX_OPERATIONS);
SINGULARITY_PTX_ENUM(Mode, SINGULARITY_PTX_MODES);
SINGULARITY_PTX_ENUM(Space, SINGULARITY_PTX_SPACES);
SINGULARITY_PTX_ENUM(Semantics, SINGULARITY_PTX_SEMANTICS);
SINGULARITY_PTX_ENUM(Scope, SINGULARITY_PTX_SCOPES);
SINGULARITY_PTX_ENUM(Cache, SINGULARITY_PTX_CACHES);
SINGULARITY_PTX_ENUM(Hint, SINGULARITY_PTX_HINTS);
SINGULARITY_PTX_ENUM(Vector, SINGULARITY_PTX_VECTORS);
SINGULARITY_PTX_ENUM(Shape, SINGULARITY_PTX_SHAPES);
SINGULARITY_PTX_ENUM(Geometry, SINGULARITY_PTX_GEOMETRIES);
SINGULARITY_PTX_ENUM(Flag, SINGULARITY_PTX_FLAGS);
#undef SINGULARITY_PTX_ENUM

// Which of the lists above a word is from: where an Instruction keeps it.
enum class Field : std::uint8_t {
    type,
    rounding,
    comparison,
    operation,
    mode,
    space,
    semantics,
    scope,
    cache,
    hint,
    vector,
    shape,
    geometry,
    flag,
};

// The enumerator of the word in its list; nothing if the list has no such word.
[[nodiscard]] std::optional<std::uint8_t> word_value(Field field, std::string_view word);
[[nodiscard]] std::string_view word_text(Field field, std::uint8_t value);

inline constexpr unsigned kMostFlags = 64;
[[nodiscard]] constexpr std::uint64_t flag_bit(Flag flag) {
    return std::uint64_t{1} << (static_cast<unsigned>(flag) - 1U);
}

// Bytes of a value of the type in memory; a predicate has 1. 0 for what has no size (a texture reference).
[[nodiscard]] std::uint32_t type_size(Type type);
[[nodiscard]] bool is_float(Type type);
[[nodiscard]] bool is_signed(Type type);

} // namespace singularity::ptx
