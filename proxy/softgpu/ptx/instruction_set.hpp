// SPDX-License-Identifier: GPL-2.0-or-later
// The instructions of PTX ISA 9.0 that are known, as one table, and the look-up of a written instruction in
// it.
#pragma once

#include "ptx/words.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

// clang-format off: a list to be read as a list.
#define SINGULARITY_PTX_OPCODES(X) \
    X(abs, "abs") X(activemask, "activemask") X(add, "add") X(addc, "addc") X(alloca, "alloca") \
    X(and_, "and") X(applypriority, "applypriority") X(atom, "atom") X(bar, "bar") X(barrier, "barrier") \
    X(bfe, "bfe") X(bfi, "bfi") X(bfind, "bfind") X(bmsk, "bmsk") X(bra, "bra") X(brev, "brev") \
    X(brkpt, "brkpt") X(brx, "brx") X(call, "call") X(clz, "clz") X(cnot, "cnot") X(copysign, "copysign") \
    X(cos, "cos") X(cp, "cp") X(createpolicy, "createpolicy") X(cvt, "cvt") X(cvta, "cvta") X(discard, "discard") X(div, "div") \
    X(dp2a, "dp2a") X(dp4a, "dp4a") X(elect, "elect") X(ex2, "ex2") X(exit, "exit") X(fence, "fence") \
    X(fma, "fma") X(fns, "fns") X(griddepcontrol, "griddepcontrol") X(isspacep, "isspacep") X(ld, "ld") \
    X(ldmatrix, "ldmatrix") X(ldu, "ldu") X(lg2, "lg2") X(lop3, "lop3") X(mad, "mad") X(mad24, "mad24") \
    X(madc, "madc") X(mapa, "mapa") X(getctarank, "getctarank") X(match, "match") X(max, "max") \
    X(mbarrier, "mbarrier") X(membar, "membar") X(min, "min") X(mma, "mma") X(mov, "mov") \
    X(movmatrix, "movmatrix") X(mul, "mul") X(mul24, "mul24") X(nanosleep, "nanosleep") X(neg, "neg") \
    X(not_, "not") X(or_, "or") X(pmevent, "pmevent") X(popc, "popc") X(prefetch, "prefetch") \
    X(prefetchu, "prefetchu") X(prmt, "prmt") X(rcp, "rcp") X(red, "red") X(redux, "redux") X(rem, "rem") \
    X(ret, "ret") X(rsqrt, "rsqrt") X(sad, "sad") X(selp, "selp") X(set, "set") X(setp, "setp") \
    X(shf, "shf") X(shfl, "shfl") X(shl, "shl") X(shr, "shr") X(sin, "sin") X(slct, "slct") \
    X(sqrt, "sqrt") X(st, "st") X(suld, "suld") X(sured, "sured") X(suq, "suq") X(sust, "sust") X(stackrestore, "stackrestore") X(stacksave, "stacksave") \
    X(stmatrix, "stmatrix") X(sub, "sub") X(subc, "subc") X(szext, "szext") X(tanh, "tanh") X(tex, "tex") X(tld4, "tld4") X(txq, "txq") \
    X(testp, "testp") X(trap, "trap") X(vabsdiff, "vabsdiff") X(vadd, "vadd") X(vmad, "vmad") X(vmax, "vmax") X(vmin, "vmin") X(vset, "vset") X(vset2, "vset2") X(vset4, "vset4") X(vshl, "vshl") X(vshr, "vshr") X(vsub, "vsub") X(vabsdiff2, "vabsdiff2") X(vabsdiff4, "vabsdiff4") \
    X(vadd2, "vadd2") X(vadd4, "vadd4") X(vavrg2, "vavrg2") X(vavrg4, "vavrg4") X(vmax2, "vmax2") \
    X(vmax4, "vmax4") X(vmin2, "vmin2") X(vmin4, "vmin4") X(vote, "vote") X(vsub2, "vsub2") \
    X(vsub4, "vsub4") X(wmma, "wmma") X(xor_, "xor")
// clang-format on

namespace singularity::ptx {

enum class Opcode : std::uint8_t { none, SINGULARITY_PTX_OPCODES(SINGULARITY_PTX_ENUMERATOR) };
[[nodiscard]] std::string_view opcode_text(Opcode opcode);
// vadd and its kin, whose operands may be parts of registers.
[[nodiscard]] bool is_scalar_video(Opcode opcode);
// How many elements vadd2, vadd4 and their kin work on; 0: it is another instruction.
[[nodiscard]] unsigned video_elements(Opcode opcode);

// What one row of the table says.
struct InstructionForm {
    std::string_view mnemonic;
    std::string_view modifiers;
    std::string_view operands;
};
[[nodiscard]] std::span<const InstructionForm> instruction_forms();

// What an operand may be, from the row.
struct OperandForm {
    enum class Role : std::uint8_t {
        destination,
        source,
        address,
        label,
    };
    Role role = Role::source;
    bool optional = false;
    bool vector = false;         // may be a {tuple}
    bool coordinates = false;    // a tuple of any length, the place in a texture or surface
    bool predicate_pair = false; // written after the one before it, with `|`
    Type type = Type::none;
};

inline constexpr std::size_t kMaxOperands = 8;

// The modifiers of one written instruction, decoded by one row.
struct DecodedForm {
    Opcode opcode = Opcode::none;
    std::uint64_t flags = 0;
    std::array<Type, 4> types{};
    std::array<Space, 2> spaces{};
    std::array<std::uint8_t, 14> fields{}; // by Field; `type`, `space` and `flag` are above
    std::array<OperandForm, kMaxOperands> operands{};
    std::uint8_t operand_count = 0;
};

enum class LookupProblem : std::uint8_t { none, mnemonic, modifiers };
struct Lookup {
    std::vector<DecodedForm> forms; // the rows that fit, in the table's order; they differ in their operands
    LookupProblem problem = LookupProblem::none;
};

// `text`: a written instruction without operands, "add.rn.ftz.f32".
[[nodiscard]] Lookup look_up_instruction(std::string_view text);

// clang-format off: a list to be read as a list.
#define SINGULARITY_PTX_SPECIAL_REGISTERS(X) \
    X(tid_x, "%tid.x") X(tid_y, "%tid.y") X(tid_z, "%tid.z") X(ntid_x, "%ntid.x") X(ntid_y, "%ntid.y") \
    X(ntid_z, "%ntid.z") X(ctaid_x, "%ctaid.x") X(ctaid_y, "%ctaid.y") X(ctaid_z, "%ctaid.z") \
    X(nctaid_x, "%nctaid.x") X(nctaid_y, "%nctaid.y") X(nctaid_z, "%nctaid.z") X(laneid, "%laneid") \
    X(warpid, "%warpid") X(nwarpid, "%nwarpid") X(smid, "%smid") X(nsmid, "%nsmid") X(gridid, "%gridid") \
    X(lanemask_eq, "%lanemask_eq") X(lanemask_le, "%lanemask_le") X(lanemask_lt, "%lanemask_lt") \
    X(lanemask_ge, "%lanemask_ge") X(lanemask_gt, "%lanemask_gt") X(clock, "%clock") \
    X(clock_hi, "%clock_hi") X(clock64, "%clock64") X(globaltimer, "%globaltimer") \
    X(globaltimer_lo, "%globaltimer_lo") X(globaltimer_hi, "%globaltimer_hi") \
    X(is_explicit_cluster, "%is_explicit_cluster") X(clusterid_x, "%clusterid.x") \
    X(clusterid_y, "%clusterid.y") X(clusterid_z, "%clusterid.z") X(nclusterid_x, "%nclusterid.x") \
    X(nclusterid_y, "%nclusterid.y") X(nclusterid_z, "%nclusterid.z") \
    X(cluster_ctaid_x, "%cluster_ctaid.x") X(cluster_ctaid_y, "%cluster_ctaid.y") \
    X(cluster_ctaid_z, "%cluster_ctaid.z") X(cluster_nctaid_x, "%cluster_nctaid.x") \
    X(cluster_nctaid_y, "%cluster_nctaid.y") X(cluster_nctaid_z, "%cluster_nctaid.z") \
    X(cluster_ctarank, "%cluster_ctarank") X(cluster_nctarank, "%cluster_nctarank") \
    X(dynamic_smem_size, "%dynamic_smem_size") X(total_smem_size, "%total_smem_size") \
    X(aggr_smem_size, "%aggr_smem_size") X(current_graph_exec, "%current_graph_exec") \
    X(envreg1, "%envreg1") X(envreg2, "%envreg2") X(reserved_smem_begin, "%reserved_smem_offset_begin") \
    X(reserved_smem_end, "%reserved_smem_offset_end") X(reserved_smem_cap, "%reserved_smem_offset_cap") \
    X(reserved_smem_0, "%reserved_smem_offset_0") X(reserved_smem_1, "%reserved_smem_offset_1")
// clang-format on

enum class SpecialRegister : std::uint8_t {
    none,
    SINGULARITY_PTX_SPECIAL_REGISTERS(SINGULARITY_PTX_ENUMERATOR)
};
[[nodiscard]] std::optional<SpecialRegister> special_register(std::string_view name);

} // namespace singularity::ptx
