// SPDX-License-Identifier: GPL-2.0-or-later
#include "ptx/instruction_set.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace singularity::ptx {

namespace {

// The instruction set. One row per form, after the syntax lines of "PTX ISA 9.0", chapter 9.7.
//
// Modifiers: {a|b} one of them, [a|b] one or none; written in the manual's order, read in any. $name is a
// list of kLists below. A word's meaning is that of the first list of words.hpp that has it, in the order of
// kFieldOrder, unless the brackets say which: {comparison:eq|lo}.
//
// Operands: separated by commas; a letter for the role, then what it is read as.
//   d destination, D destination or {tuple}, s source, S source or {tuple}, a [address], l label or table,
//   c {coordinates}: inside of the brackets, behind the texture or surface; of a layer the first is its
//   number 0 1 2 3 the instruction's first, second ... type; w twice as wide as the first; u u32; x b64; h
//   b16; f f32; p predicate
//   `|p` a predicate destination after the one before it, may be missing; `?` may be missing
constexpr InstructionForm kForms[] = {
    // integer
    {"add", "{$integer}", "d0,s0,s0"},
    {"add", "{sat}{s32}", "d0,s0,s0"},
    {"add", "{u16x2|s16x2}", "d0,s0,s0"},
    {"add", "{cc}{$carry}", "d0,s0,s0"},
    {"addc", "[cc]{$carry}", "d0,s0,s0"},
    {"sub", "{$integer}", "d0,s0,s0"},
    {"sub", "{sat}{s32}", "d0,s0,s0"},
    {"sub", "{cc}{$carry}", "d0,s0,s0"},
    {"subc", "[cc]{$carry}", "d0,s0,s0"},
    {"mul", "{lo|hi}{$integer}", "d0,s0,s0"},
    {"mul", "{wide}{u16|u32|s16|s32}", "dw,s0,s0"},
    {"mad", "{lo|hi}{$integer}", "d0,s0,s0,s0"},
    {"mad", "{hi}{sat}{s32}", "d0,s0,s0,s0"},
    {"mad", "{wide}{u16|u32|s16|s32}", "dw,s0,s0,sw"},
    {"mad", "{lo|hi}{cc}{$carry}", "d0,s0,s0,s0"},
    {"madc", "{lo|hi}[cc]{$carry}", "d0,s0,s0,s0"},
    {"mul24", "{lo|hi}{u32|s32}", "d0,s0,s0"},
    {"mad24", "{lo|hi}[sat]{u32|s32}", "d0,s0,s0,s0"},
    {"sad", "{$integer}", "d0,s0,s0,s0"},
    {"div", "{$integer}", "d0,s0,s0"},
    {"rem", "{$integer}", "d0,s0,s0"},
    {"abs", "{s16|s32|s64}", "d0,s0"},
    {"neg", "{s16|s32|s64}", "d0,s0"},
    {"min", "{$integer|u16x2|s16x2}", "d0,s0,s0"},
    {"min", "{relu}{s16x2|s32}", "d0,s0,s0"},
    {"max", "{$integer|u16x2|s16x2}", "d0,s0,s0"},
    {"max", "{relu}{s16x2|s32}", "d0,s0,s0"},
    {"popc", "{b32|b64}", "du,s0"},
    {"clz", "{b32|b64}", "du,s0"},
    {"bfind", "[shiftamt]{u32|u64|s32|s64}", "du,s0"},
    {"fns", "{b32}", "d0,s0,s0,s0"},
    {"brev", "{b32|b64}", "d0,s0"},
    {"bfe", "{u32|u64|s32|s64}", "d0,s0,su,su"},
    {"bfi", "{b32|b64}", "d0,s0,s0,su,su"},
    {"szext", "{clamp|wrap}{u32|s32}", "d0,s0,su"},
    {"bmsk", "{clamp|wrap}{b32}", "d0,su,su"},
    {"dp4a", "{u32|s32}{u32|s32}", "du,s0,s1,su"},
    {"dp2a", "{lo|hi}{u32|s32}{u32|s32}", "du,s0,s1,su"},
    // Video instructions. Which parts of a register an operand means (.b0, .h1) is read by the parser.
    {"vadd", "{u32|s32}{u32|s32}{u32|s32}[sat]", "d0,s1,s2,s0?"},
    {"vadd", "{u32|s32}{u32|s32}{u32|s32}[sat]{add|min|max}", "d0,s1,s2,s0"},
    {"vsub", "{u32|s32}{u32|s32}{u32|s32}[sat]", "d0,s1,s2,s0?"},
    {"vsub", "{u32|s32}{u32|s32}{u32|s32}[sat]{add|min|max}", "d0,s1,s2,s0"},
    {"vabsdiff", "{u32|s32}{u32|s32}{u32|s32}[sat]", "d0,s1,s2,s0?"},
    {"vabsdiff", "{u32|s32}{u32|s32}{u32|s32}[sat]{add|min|max}", "d0,s1,s2,s0"},
    {"vmin", "{u32|s32}{u32|s32}{u32|s32}[sat]", "d0,s1,s2,s0?"},
    {"vmin", "{u32|s32}{u32|s32}{u32|s32}[sat]{add|min|max}", "d0,s1,s2,s0"},
    {"vmax", "{u32|s32}{u32|s32}{u32|s32}[sat]", "d0,s1,s2,s0?"},
    {"vmax", "{u32|s32}{u32|s32}{u32|s32}[sat]{add|min|max}", "d0,s1,s2,s0"},
    {"vshl", "{u32|s32}{u32|s32}{u32}[sat]{clamp|wrap}", "d0,s1,s2,s0?"},
    {"vshl", "{u32|s32}{u32|s32}{u32}[sat]{clamp|wrap}{add|min|max}", "d0,s1,s2,s0"},
    {"vshr", "{u32|s32}{u32|s32}{u32}[sat]{clamp|wrap}", "d0,s1,s2,s0?"},
    {"vshr", "{u32|s32}{u32|s32}{u32}[sat]{clamp|wrap}{add|min|max}", "d0,s1,s2,s0"},
    {"vmad", "{u32|s32}{u32|s32}{u32|s32}[po][sat][shr7|shr15]", "d0,s1,s2,s0"},
    {"vset", "{u32|s32}{u32|s32}{$order_of}", "du,s0,s1,su?"},
    {"vset", "{u32|s32}{u32|s32}{$order_of}{add|min|max}", "du,s0,s1,su"},
    {"vset2", "{u32|s32}{u32|s32}{$order_of}[flag:add]", "du,s0,s1,su"},
    {"vset4", "{u32|s32}{u32|s32}{$order_of}[flag:add]", "du,s0,s1,su"},
    {"vadd2", "{u32|s32}{u32|s32}{u32|s32}[sat][flag:add]", "d0,s1,s2,s0"},
    {"vsub2", "{u32|s32}{u32|s32}{u32|s32}[sat][flag:add]", "d0,s1,s2,s0"},
    {"vavrg2", "{u32|s32}{u32|s32}{u32|s32}[sat][flag:add]", "d0,s1,s2,s0"},
    {"vabsdiff2", "{u32|s32}{u32|s32}{u32|s32}[sat][flag:add]", "d0,s1,s2,s0"},
    {"vmin2", "{u32|s32}{u32|s32}{u32|s32}[sat][flag:add]", "d0,s1,s2,s0"},
    {"vmax2", "{u32|s32}{u32|s32}{u32|s32}[sat][flag:add]", "d0,s1,s2,s0"},
    {"vadd4", "{u32|s32}{u32|s32}{u32|s32}[sat][flag:add]", "d0,s1,s2,s0"},
    {"vsub4", "{u32|s32}{u32|s32}{u32|s32}[sat][flag:add]", "d0,s1,s2,s0"},
    {"vavrg4", "{u32|s32}{u32|s32}{u32|s32}[sat][flag:add]", "d0,s1,s2,s0"},
    {"vabsdiff4", "{u32|s32}{u32|s32}{u32|s32}[sat][flag:add]", "d0,s1,s2,s0"},
    {"vmin4", "{u32|s32}{u32|s32}{u32|s32}[sat][flag:add]", "d0,s1,s2,s0"},
    {"vmax4", "{u32|s32}{u32|s32}{u32|s32}[sat][flag:add]", "d0,s1,s2,s0"},

    // floating point
    {"add", "[$round][ftz][sat]{$float}", "d0,s0,s0"},
    {"add", "[$round][sat]{f32}{f16|bf16}", "d0,s1,s0"},
    {"sub", "[$round][ftz][sat]{$float}", "d0,s0,s0"},
    {"sub", "[$round][sat]{f32}{f16|bf16}", "d0,s1,s0"},
    {"mul", "[$round][ftz][sat]{$float}", "d0,s0,s0"},
    {"fma", "{$round}[ftz][sat|relu]{$float}", "d0,s0,s0,s0"},
    {"fma", "{rn}{oob}[relu]{f16|f16x2|bf16|bf16x2}", "d0,s0,s0,s0"},
    {"fma", "{$round}[sat]{f32}{f16|bf16}", "d0,s1,s1,s0"},
    {"mad", "[$round][ftz][sat]{f32|f64}", "d0,s0,s0,s0"},
    {"div", "{approx|full}[ftz]{f32}", "d0,s0,s0"},
    {"div", "{$round}[ftz]{f32|f64}", "d0,s0,s0"},
    {"abs", "[ftz]{$float}", "d0,s0"},
    {"neg", "[ftz]{$float}", "d0,s0"},
    {"min", "[ftz][NaN][xorsign][abs]{$float}", "d0,s0,s0,s0?"},
    {"max", "[ftz][NaN][xorsign][abs]{$float}", "d0,s0,s0,s0?"},
    {"rcp", "{approx}[ftz]{f32|f64}", "d0,s0"},
    {"rcp", "{$round}[ftz]{f32|f64}", "d0,s0"},
    {"sqrt", "{approx}[ftz]{f32}", "d0,s0"},
    {"sqrt", "{$round}[ftz]{f32|f64}", "d0,s0"},
    {"rsqrt", "{approx}[ftz]{f32|f64}", "d0,s0"},
    {"sin", "{approx}[ftz]{f32}", "d0,s0"},
    {"cos", "{approx}[ftz]{f32}", "d0,s0"},
    {"lg2", "{approx}[ftz]{f32}", "d0,s0"},
    {"ex2", "{approx}[ftz]{f32|f16|f16x2|bf16|bf16x2}", "d0,s0"},
    {"tanh", "{approx}{f32|f16|f16x2|bf16|bf16x2}", "d0,s0"},
    {"testp", "{finite|infinite|number|notanumber|normal|subnormal}{f32|f64}", "dp,s0"},
    {"copysign", "{f32|f64}", "d0,s0,s0"},

    // comparison and selection
    {"setp", "{$comparison}[ftz]{$compared}", "dp|p,s0,s0"},
    {"setp", "{$comparison}{and|or|xor}[ftz]{$compared}", "dp|p,s0,s0,sp"},
    {"set", "{$comparison}[ftz]{u32|s32|f32|f16|bf16|f16x2|bf16x2|u16|s16}{$compared}", "d0,s1,s1"},
    {"set", "{$comparison}{and|or|xor}[ftz]{u32|s32|f32|f16|bf16|f16x2|bf16x2|u16|s16}{$compared}",
     "d0,s1,s1,sp"},
    {"selp", "{$moved}", "d0,s0,s0,sp"},
    {"slct", "[ftz]{$moved}{s32|f32}", "d0,s0,s0,s1"},

    // bits
    {"and", "{pred|b16|b32|b64}", "d0,s0,s0"},
    {"or", "{pred|b16|b32|b64}", "d0,s0,s0"},
    {"xor", "{pred|b16|b32|b64}", "d0,s0,s0"},
    {"not", "{pred|b16|b32|b64}", "d0,s0"},
    {"cnot", "{b16|b32|b64}", "d0,s0"},
    {"lop3", "{b32}", "d0,s0,s0,s0,su"},
    {"lop3", "{or|and}{b32}", "d0|p,s0,s0,s0,su,sp"},
    {"shf", "{flag:l|r}{clamp|wrap}{b32}", "d0,s0,s0,su"},
    {"shl", "{b16|b32|b64}", "d0,s0,su"},
    {"shr", "{b16|b32|b64|$integer}", "d0,s0,su"},
    {"prmt", "{b32}[f4e|b4e|rc8|ecl|ecr|rc16]", "d0,s0,s0,su"},

    // data movement
    {"mov", "{$moved|pred|b128}", "D0,S0"},
    {"ld",
     "[weak|volatile|relaxed|acquire][$scope][$space][$cached][nc][$l1][$l2][L2::cache_hint]"
     "[$prefetch][v2|v4|v8]{$memory}",
     "D0,a,sx?"},
    {"ldu", "[global][v2|v4]{$memory}", "D0,a"},
    {"st",
     "[weak|volatile|relaxed|release][$scope][$space][$cached][$l1][$l2][L2::cache_hint]"
     "[v2|v4|v8]{$memory}",
     "a,S0,sx?"},
    {"prefetch", "[global|local][$l2]{mode:L1|L2}", "a"},
    {"prefetch", "[global]{$l2}", "a"},
    {"prefetchu", "{mode:L1}", "a"},
    {"createpolicy", "{fractional}{$priority}[L2::evict_first|L2::evict_unchanged]{b64}", "d0,sf?"},
    {"createpolicy", "{range}[global]{$priority}[L2::evict_first|L2::evict_unchanged]{b64}", "d0,a,su,su"},
    {"createpolicy", "{cvt}{mode:L2}{b64}", "d0,sx"},
    {"applypriority", "[global]{L2::evict_normal}", "a,su"},
    {"discard", "[global]{mode:L2}", "a,su"},
    {"isspacep", "{global|local|shared|const|shared::cta|shared::cluster|param|param::entry}", "dp,sx"},
    {"cvta", "[to]{$space}{u32|u64}", "d0,s0"},
    {"cvt", "[$rounds][ftz][sat|satfinite]{$converted}{$converted}", "d0,s1"},
    {"cvt", "{$rounds}[ftz][relu][satfinite]{f16|bf16|tf32}{f32}", "d0,s1"},
    {"cvt", "{rn|rz|rs}[ftz][relu][satfinite]{f16x2|bf16x2|$tiny}{f32}", "d0,s1,s1,su?"},
    {"cvt", "{rn|rz}[relu][satfinite]{$tiny}{f16x2|bf16x2}", "d0,s1"},
    {"cvt", "{rn}[relu]{f16x2|bf16x2}{$tiny}", "d0,s1"},
    {"cvt", "{pack}{sat}{u16|s16|u8|s8}{s32}[b32]", "du,s1,s1,su?"},
    {"mapa", "[shared::cluster]{u32|u64}", "d0,s0,su"},
    {"getctarank", "[shared::cluster]{u32|u64}", "du,s0"},
    {"alloca", "{u32|u64}", "d0,s0,su?"},
    {"stacksave", "{u32|u64}", "d0"},
    {"stackrestore", "{u32|u64}", "s0"},
    {"cp", "{async}{ca|cg}{shared|shared::cta}{global}[L2::cache_hint][$prefetch]", "a,a,su,su?"},
    {"cp", "{async}{ca|cg}{shared|shared::cta}{global}[L2::cache_hint][$prefetch]", "a,a,su,su,sx"},
    {"cp", "{async}{commit_group|wait_all}", ""},
    {"cp", "{async}{wait_group}", "su"},
    {"cp", "{async}{mbarrier}{arrive}[noinc][shared|shared::cta]{b64}", "a"},

    // control
    {"bra", "[flag:uni]", "l"},
    {"brx", "{idx}[flag:uni]", "su,l"},
    {"call", "[flag:uni]", ""}, // operands are lists: read by the parser
    {"ret", "[flag:uni]", ""},
    {"exit", "", ""},
    {"trap", "", ""},
    {"brkpt", "", ""},
    {"pmevent", "[mask]", "su"},
    {"nanosleep", "{u32}", "su"},
    {"griddepcontrol", "{launch_dependents|wait}", ""},

    // threads together
    {"bar", "[flag:cta]{sync}", "su,su?"},
    {"bar", "[flag:cta]{mode:arrive}", "su,su"},
    {"bar", "[flag:cta]{red}{popc}{u32}", "du,su,sp"},
    {"bar", "[flag:cta]{red}{popc}{u32}", "du,su,su,sp"},
    {"bar", "[flag:cta]{red}{and|or}{pred}", "dp,su,sp"},
    {"bar", "[flag:cta]{red}{and|or}{pred}", "dp,su,su,sp"},
    {"bar", "{warp}{sync}", "su"},
    {"barrier", "[flag:cta]{sync}[aligned]", "su,su?"},
    {"barrier", "[flag:cta]{mode:arrive}[aligned]", "su,su"},
    {"barrier", "[flag:cta]{red}{popc}[aligned]{u32}", "du,su,sp"},
    {"barrier", "[flag:cta]{red}{popc}[aligned]{u32}", "du,su,su,sp"},
    {"barrier", "[flag:cta]{red}{and|or}[aligned]{pred}", "dp,su,sp"},
    {"barrier", "[flag:cta]{red}{and|or}[aligned]{pred}", "dp,su,su,sp"},
    {"barrier", "{scope:cluster}{mode:arrive}[release|relaxed][aligned]", ""},
    {"barrier", "{scope:cluster}{wait}[acquire][aligned]", ""},
    {"membar", "{scope:cta|gl|sys}", ""},
    {"fence", "[sc|acq_rel|acquire|release]{$scope}", ""},
    {"fence", "{mbarrier_init}{release}{scope:cluster}", ""},
    {"fence", "{proxy}{alias|async}[global|shared::cta|shared::cluster]", ""},
    {"atom", "[$order][$scope][$space]{$atomic}[L2::cache_hint]{$integer|b32|b64|f32|f64}", "d0,a,s0,sx?"},
    {"atom",
     "[$order][$scope][$space]{add|min|max}[noftz][L2::cache_hint][v2|v4|v8]"
     "{f32|f16|f16x2|bf16|bf16x2}",
     "D0,a,S0,sx?"},
    {"atom", "[$order][$scope][$space]{exch}[L2::cache_hint]{b128}", "d0,a,s0,sx?"},
    {"atom",
     "[$order][$scope][$space]{cas}[L2::cache_hint]{b16|b32|b64|b128|u32|u64|s32|"
     "s64}",
     "d0,a,s0,s0,sx?"},
    {"red", "[$order][$scope][$space]{$atomic}[L2::cache_hint]{$integer|b32|b64|f32|f64}", "a,s0,sx?"},
    {"red",
     "[$order][$scope][$space]{add|min|max}[noftz][L2::cache_hint][v2|v4|v8]"
     "{f32|f16|f16x2|bf16|bf16x2}",
     "a,S0,sx?"},
    {"redux", "{sync}{and|or|xor}{b32}", "d0,s0,su"},
    {"redux", "{sync}{add|min|max}{u32|s32}", "d0,s0,su"},
    {"redux", "{sync}{min|max}[abs][NaN]{f32}", "d0,s0,su"},
    {"shfl", "[sync]{up|down|bfly|idx}{b32}", "d0|p,s0,su,su,su?"},
    {"vote", "[sync]{all|any|uni}{pred}", "dp,sp,su?"},
    {"vote", "[sync]{ballot}{b32}", "du,sp,su?"},
    {"match", "{any}{sync}{b32|b64}", "du,s0,su"},
    {"match", "{all}{sync}{b32|b64}", "du|p,s0,su"},
    {"activemask", "{b32}", "d0"},
    {"elect", "{sync}", "du|p,su"},
    {"mbarrier", "{init}[shared|shared::cta]{b64}", "a,su"},
    {"mbarrier", "{inval}[shared|shared::cta]{b64}", "a"},
    {"mbarrier",
     "{arrive|arrive_drop}[flag:expect_tx][release|relaxed][cta|cluster][shared|shared::cta|shared::cluster]{"
     "b64}",
     "d0,a,su?"},
    {"mbarrier", "{arrive|arrive_drop}[noComplete][release][cta|cluster][shared|shared::cta]{b64}",
     "d0,a,su"},
    {"mbarrier", "{expect_tx|complete_tx}[relaxed][cta|cluster][shared|shared::cta|shared::cluster]{b64}",
     "a,su"},
    {"mbarrier", "{test_wait|try_wait}[parity][acquire|relaxed][cta|cluster][shared|shared::cta]{b64}",
     "dp,a,sx,su?"},
    {"mbarrier", "{pending_count}{b64}", "du,s0"},

    // textures and surfaces
    {"tex", "[base]{$geometry}{v4}{u32|s32|f32}{s32|f32}", "D0,a,c1"},
    {"tex", "{level}{$geometry}{v4}{u32|s32|f32}{s32|f32}", "D0,a,c1,s1"},
    {"tex", "{grad}{$geometry}{v4}{u32|s32|f32}{f32}", "D0,a,c1,c1,c1"},
    {"tld4", "{flag:r|g|b|a}{2d|a2d|cube|acube}{v4}{u32|s32|f32}{f32}", "D0,a,c1"},
    {"txq", "{width|height|depth|array_size|num_mipmap_levels|normalized_coords}{b32}", "du,a"},
    {"suq", "{width|height|depth|array_size}{b32}", "du,a"},
    {"suld", "{flag:b}{$flat_geometry}[ca|cg|cs|cv][v2|v4]{b8|b16|b32|b64}{trap|clamp|zero}", "D0,a,cu"},
    {"sust", "{flag:b}{$flat_geometry}[wb|cg|cs|wt][v2|v4]{b8|b16|b32|b64}{trap|clamp|zero}", "a,cu,S0"},
    {"sured", "{flag:b}{$flat_geometry}{add|min|max|and|or}{u32|u64|s32|s64|b32|b64}{trap|clamp|zero}",
     "a,cu,S0"},

    // matrices
    {"ldmatrix", "{sync}{aligned}{m8n8|m16n16}{x1|x2|x4}[trans][shared|shared::cta]{b16|b8}", "Du,a"},
    {"stmatrix", "{sync}{aligned}{m8n8}{x1|x2|x4}[trans][shared|shared::cta]{b16}", "a,Su"},
    {"movmatrix", "{sync}{aligned}{m8n8}{trans}{b16}", "du,su"},
    {"mma", "{sync}{aligned}{m8n8k4}{row|col}{row|col}{f16|f32}{f16}{f16}{f16|f32}", "D0,S1,S2,S3"},
    {"mma", "{sync}{aligned}{m8n8k4|m16n8k4|m16n8k8|m16n8k16}{row}{col}[$round]{f64}{f64}{f64}{f64}",
     "D0,S1,S2,S3"},
    {"mma", "{sync}{aligned}{$mma}{row}{col}[satfinite]{f16|f32|s32}{$multiplied}{$multiplied}{f16|f32|s32}",
     "D0,S1,S2,S3"},
    {"mma", "{sync}{aligned}{m8n8k128|m16n8k128|m16n8k256}{row}{col}{s32}{b1}{b1}{s32}{and|xor}{flag:popc}",
     "D0,S1,S2,S3"},
    {"wmma", "{load}{flag:a|b}{sync}{aligned}{row|col}{$wmma}[$wmma_space]{f16|bf16|s8|u8}", "D0,a,su?"},
    {"wmma", "{load}{flag:a|b}{sync}{aligned}{row|col}{m16n16k8}[$wmma_space]{tf32}", "D0,a,su?"},
    {"wmma", "{load}{flag:a|b}{sync}{aligned}{row|col}{m8n8k4}[$wmma_space]{f64}", "D0,a,su?"},
    {"wmma", "{load}{flag:a}{sync}{aligned}{row}{m8n8k32}[$wmma_space]{u4|s4}", "D0,a,su?"},
    {"wmma", "{load}{flag:b}{sync}{aligned}{col}{m8n8k32}[$wmma_space]{u4|s4}", "D0,a,su?"},
    {"wmma", "{load}{flag:a}{sync}{aligned}{row}{m8n8k128}[$wmma_space]{b1}", "D0,a,su?"},
    {"wmma", "{load}{flag:b}{sync}{aligned}{col}{m8n8k128}[$wmma_space]{b1}", "D0,a,su?"},
    {"wmma", "{load}{flag:c}{sync}{aligned}{row|col}{$wmma}[$wmma_space]{f16|f32|s32}", "D0,a,su?"},
    {"wmma", "{load}{flag:c}{sync}{aligned}{row|col}{m16n16k8}[$wmma_space]{f32}", "D0,a,su?"},
    {"wmma", "{load}{flag:c}{sync}{aligned}{row|col}{m8n8k4}[$wmma_space]{f64}", "D0,a,su?"},
    {"wmma", "{load}{flag:c}{sync}{aligned}{row|col}{m8n8k32|m8n8k128}[$wmma_space]{s32}", "D0,a,su?"},
    {"wmma", "{store}{flag:d}{sync}{aligned}{row|col}{$wmma}[$wmma_space]{f16|f32|s32}", "a,S0,su?"},
    {"wmma", "{store}{flag:d}{sync}{aligned}{row|col}{m16n16k8}[$wmma_space]{f32}", "a,S0,su?"},
    {"wmma", "{store}{flag:d}{sync}{aligned}{row|col}{m8n8k4}[$wmma_space]{f64}", "a,S0,su?"},
    {"wmma", "{store}{flag:d}{sync}{aligned}{row|col}{m8n8k32|m8n8k128}[$wmma_space]{s32}", "a,S0,su?"},
    {"wmma", "{mode:mma}{sync}{aligned}{row|col}{row|col}{$wmma}{f16|f32}{f16|f32}", "D0,Su,Su,S1"},
    {"wmma", "{mode:mma}{sync}{aligned}{row|col}{row|col}{$wmma}{f32}{bf16}{bf16}{f32}", "D0,S1,S2,S3"},
    {"wmma", "{mode:mma}{sync}{aligned}{row|col}{row|col}{$wmma}{s32}{s8}{s8}{s32}[satfinite]",
     "D0,S1,S2,S3"},
    {"wmma", "{mode:mma}{sync}{aligned}{row|col}{row|col}{$wmma}{s32}{u8}{u8}{s32}[satfinite]",
     "D0,S1,S2,S3"},
    {"wmma", "{mode:mma}{sync}{aligned}{row|col}{row|col}{m16n16k8}{f32}{tf32}{tf32}{f32}", "D0,S1,S2,S3"},
    {"wmma", "{mode:mma}{sync}{aligned}{row|col}{row|col}{m8n8k4}[$round]{f64}{f64}{f64}{f64}",
     "D0,S1,S2,S3"},
    {"wmma", "{mode:mma}{sync}{aligned}{row}{col}{m8n8k32}{s32}{s4}{s4}{s32}[satfinite]", "D0,S1,S2,S3"},
    {"wmma", "{mode:mma}{sync}{aligned}{row}{col}{m8n8k32}{s32}{u4}{u4}{s32}[satfinite]", "D0,S1,S2,S3"},
    {"wmma", "{mode:mma}{and|xor}{flag:popc}{sync}{aligned}{row}{col}{m8n8k128}{s32}{b1}{b1}{s32}",
     "D0,S1,S2,S3"},
};

struct WordList {
    std::string_view name;
    std::string_view words;
};

constexpr WordList kLists[] = {
    {"integer", "u16|u32|u64|s16|s32|s64"},
    {"carry", "u32|s32|u64|s64"},
    {"float", "f32|f64|f16|f16x2|bf16|bf16x2|f32x2"},
    {"tiny", "e4m3x2|e5m2x2|e4m3x4|e5m2x4|e2m1x2|e2m3x2|e3m2x2|ue8m0x2"},
    {"round", "rn|rz|rm|rp"},
    {"rounds", "rn|rz|rm|rp|rni|rzi|rmi|rpi|rna|rs"},
    {"comparison", "comparison:eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"},
    {"order_of", "comparison:eq|ne|lt|le|gt|ge"},
    {"compared", "b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64|f16|f16x2|bf16|bf16x2"},
    {"moved", "b16|b32|b64|u16|u32|u64|s16|s32|s64|f16|f16x2|bf16|bf16x2|f32|f64"},
    {"memory", "b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f16|f16x2|bf16|bf16x2|f32|f64"},
    {"converted", "u8|u16|u32|u64|s8|s16|s32|s64|f16|bf16|f32|f64"},
    {"order", "relaxed|acquire|release|acq_rel"},
    {"scope", "scope:cta|cluster|gpu|sys"},
    {"space", "global|shared|local|const|param|shared::cta|shared::cluster|param::entry|param::func"},
    {"cached", "ca|cg|cs|lu|cv|wb|wt"},
    {"l1", "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"},
    {"l2", "L2::evict_normal|L2::evict_first|L2::evict_last"},
    {"priority", "L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged"},
    {"prefetch", "L2::64B|L2::128B|L2::256B"},
    {"atomic", "and|or|xor|exch|add|inc|dec|min|max"},
    {"mma", "m8n8k16|m8n8k32|m16n8k4|m16n8k8|m16n8k16|m16n8k32|m16n8k64"},
    {"wmma", "m16n16k16|m8n32k16|m32n8k16"},
    {"wmma_space", "global|shared|shared::cta"},
    {"geometry", "1d|2d|3d|a1d|a2d|cube|acube"},
    {"flat_geometry", "1d|2d|3d|a1d|a2d"},
    {"multiplied", "f16|bf16|tf32|e4m3|e5m2|u8|s8|u4|s4"},
};

// Where a word is looked for when the row does not say.
constexpr Field kFieldOrder[] = {Field::type,       Field::rounding, Field::operation, Field::space,
                                 Field::semantics,  Field::vector,   Field::shape,     Field::cache,
                                 Field::hint,       Field::mode,     Field::scope,     Field::flag,
                                 Field::comparison, Field::geometry};

constexpr std::pair<std::string_view, Field> kFieldNames[] = {
    {"comparison", Field::comparison}, {"flag", Field::flag}, {"mode", Field::mode}, {"scope", Field::scope}};

struct Meaning {
    std::string_view word;
    Field field = Field::flag;
    std::uint8_t value = 0;
};

struct Slot {
    bool optional = false;
    std::vector<Meaning> words;
};

struct Row {
    Opcode opcode = Opcode::none;
    std::vector<Slot> slots;
    std::string_view operands;
};

constexpr auto kOpcodeTexts =
    std::to_array<std::string_view>({std::string_view(), SINGULARITY_PTX_OPCODES(SINGULARITY_PTX_WORD)});
constexpr auto kSpecialTexts = std::to_array<std::string_view>(
    {std::string_view(), SINGULARITY_PTX_SPECIAL_REGISTERS(SINGULARITY_PTX_WORD)});

// A row that cannot be understood is a mistake in this file: the first use of the table says so.
[[noreturn]] void table_mistake(std::string_view form, std::string_view what) {
    throw std::logic_error("instruction table: '" + std::string(what) + "' in '" + std::string(form) + "'");
}

template <class Visit>
void for_each_part(std::string_view text, char separator, Visit visit) {
    while (!text.empty()) {
        const std::size_t end = text.find(separator);
        visit(text.substr(0, end));
        if (end == std::string_view::npos)
            return;
        text.remove_prefix(end + 1);
    }
}

// "field:words" -> the field and "words".
std::optional<Field> take_field(std::string_view &words) {
    for (const auto &[name, field] : kFieldNames)
        if (words.starts_with(name) && words.substr(name.size()).starts_with(':') &&
            !words.substr(name.size()).starts_with("::")) {
            words.remove_prefix(name.size() + 1);
            return field;
        }
    return std::nullopt;
}

void add_words(std::string_view form, std::string_view words, Slot &slot) {
    const std::optional<Field> said = take_field(words);
    for_each_part(words, '|', [&](std::string_view word) {
        if (word.starts_with('$')) {
            const auto *list = std::ranges::find(kLists, word.substr(1), &WordList::name);
            if (list == std::ranges::end(kLists))
                table_mistake(form, word);
            add_words(form, list->words, slot);
            return;
        }
        const auto fields = said ? std::span(&*said, 1) : std::span<const Field>(kFieldOrder);
        for (const Field field : fields)
            if (const auto value = word_value(field, word)) {
                slot.words.push_back({word, field, *value});
                return;
            }
        table_mistake(form, word);
    });
}

Row compile(const InstructionForm &form) {
    Row row;
    row.operands = form.operands;
    const auto *const opcode = std::ranges::find(kOpcodeTexts, form.mnemonic);
    if (opcode == kOpcodeTexts.end())
        table_mistake(form.modifiers, form.mnemonic);
    row.opcode = static_cast<Opcode>(opcode - kOpcodeTexts.begin());
    std::string_view rest = form.modifiers;
    while (!rest.empty()) {
        const bool optional = rest.front() == '[';
        const std::size_t end = rest.find(optional ? ']' : '}');
        if (end == std::string_view::npos || (!optional && rest.front() != '{'))
            table_mistake(form.modifiers, rest);
        Slot &slot = row.slots.emplace_back();
        slot.optional = optional;
        add_words(form.modifiers, rest.substr(1, end - 1), slot);
        rest.remove_prefix(end + 1);
    }
    return row;
}

// Never destroyed: a program may load code while it ends.
const auto &rows() {
    static const auto *const compiled = [] {
        auto all = std::make_unique<std::unordered_map<std::string_view, std::vector<Row>>>();
        for (const InstructionForm &form : kForms)
            (*all)[form.mnemonic].push_back(compile(form));
        return all.release();
    }();
    return *compiled;
}

Type twice_as_wide(Type type) {
    switch (type) {
    case Type::u16:
        return Type::u32;
    case Type::s16:
        return Type::s32;
    case Type::u32:
        return Type::u64;
    case Type::s32:
        return Type::s64;
    default:
        return Type::none;
    }
}

Type operand_type(char letter, const std::array<Type, 4> &types) {
    switch (letter) {
    case 'u':
        return Type::u32;
    case 'x':
        return Type::b64;
    case 'h':
        return Type::b16;
    case 'f':
        return Type::f32;
    case 'p':
        return Type::pred;
    case 'w':
        return twice_as_wide(types[0]);
    default:
        return types[static_cast<std::size_t>(letter - '0') & 3U];
    }
}

// "d0|p" gives two operands.
void decode_operand(std::string_view text, DecodedForm &form) {
    OperandForm &operand = form.operands[form.operand_count++];
    const char role = text.front();
    operand.role = role == 'd' || role == 'D' ? OperandForm::Role::destination
                   : role == 'a'              ? OperandForm::Role::address
                   : role == 'l'              ? OperandForm::Role::label
                                              : OperandForm::Role::source;
    operand.coordinates = role == 'c';
    operand.vector = role == 'D' || role == 'S' || operand.coordinates;
    operand.optional = text.ends_with('?');
    if (operand.role == OperandForm::Role::address)
        operand.type = Type::b64;
    else if (operand.role != OperandForm::Role::label)
        operand.type = operand_type(text[1], form.types);
    if (text.ends_with("|p"))
        form.operands[form.operand_count++] = {
            OperandForm::Role::destination, true, false, false, true, Type::pred};
}

void set(DecodedForm &form, const Meaning &meaning, std::size_t &types, std::size_t &spaces) {
    switch (meaning.field) {
    case Field::type:
        form.types[types++ % form.types.size()] = static_cast<Type>(meaning.value);
        break;
    case Field::space:
        form.spaces[spaces++ % form.spaces.size()] = static_cast<Space>(meaning.value);
        break;
    case Field::flag: {
        auto flag = static_cast<Flag>(meaning.value);
        const bool layout = flag == Flag::row || flag == Flag::column;
        if (layout && (form.flags & (flag_bit(Flag::row) | flag_bit(Flag::column))) != 0)
            flag = flag == Flag::row ? Flag::second_row : Flag::second_column;
        form.flags |= flag_bit(flag);
        break;
    }
    default:
        form.fields[static_cast<std::size_t>(meaning.field)] = meaning.value;
        break;
    }
}

// Types, and the layouts of matrices, mean what they do by their order.
bool order_counts(const Meaning &meaning) {
    return meaning.field == Field::type || meaning.word == "row" || meaning.word == "col";
}

// `words`: ".rn.f32", in any order, as ptxas takes them and shipped libraries have them: each takes the first
// free slot that knows it. Only those whose order counts keep it.
std::optional<DecodedForm> match(const Row &row, std::string_view words) {
    DecodedForm form;
    form.opcode = row.opcode;
    std::size_t types = 0;
    std::size_t spaces = 0;
    std::vector<bool> taken(row.slots.size());
    std::size_t after = 0; // the next word whose order counts takes a slot from here on
    while (!words.empty()) {
        const std::string_view word = words.substr(1, words.find('.', 1) - 1);
        std::size_t at = 0;
        const Meaning *meaning = nullptr;
        for (; at < row.slots.size() && meaning == nullptr; ++at) {
            const auto found = std::ranges::find(row.slots[at].words, word, &Meaning::word);
            if (!taken[at] && found != row.slots[at].words.end())
                meaning = &*found;
        }
        if (meaning == nullptr)
            return std::nullopt;
        if (order_counts(*meaning)) {
            if (at <= after)
                return std::nullopt;
            after = at;
        }
        taken[at - 1] = true;
        set(form, *meaning, types, spaces);
        words.remove_prefix(word.size() + 1);
    }
    for (std::size_t at = 0; at < row.slots.size(); ++at)
        if (!taken[at] && !row.slots[at].optional)
            return std::nullopt;
    for_each_part(row.operands, ',', [&](std::string_view operand) { decode_operand(operand, form); });
    return form;
}

} // namespace

std::string_view opcode_text(Opcode opcode) { return kOpcodeTexts[static_cast<std::size_t>(opcode)]; }

bool is_scalar_video(Opcode opcode) {
    switch (opcode) {
    case Opcode::vadd:
    case Opcode::vsub:
    case Opcode::vabsdiff:
    case Opcode::vmin:
    case Opcode::vmax:
    case Opcode::vshl:
    case Opcode::vshr:
    case Opcode::vmad:
    case Opcode::vset:
        return true;
    default:
        return false;
    }
}

unsigned video_elements(Opcode opcode) {
    const std::string_view name = opcode_text(opcode);
    if (!name.starts_with('v'))
        return 0;
    return name.ends_with('2') ? 2 : name.ends_with('4') ? 4 : 0;
}

std::span<const InstructionForm> instruction_forms() { return kForms; }

Lookup look_up_instruction(std::string_view text) {
    Lookup lookup;
    const std::size_t dot = text.find('.');
    const auto found = rows().find(text.substr(0, dot));
    if (found == rows().end()) {
        lookup.problem = LookupProblem::mnemonic;
        return lookup;
    }
    const std::string_view words = dot == std::string_view::npos ? std::string_view() : text.substr(dot);
    for (const Row &row : found->second)
        if (auto form = match(row, words))
            lookup.forms.push_back(*form);
    if (lookup.forms.empty())
        lookup.problem = LookupProblem::modifiers;
    return lookup;
}

std::optional<SpecialRegister> special_register(std::string_view name) {
    const auto *const found = std::ranges::find(kSpecialTexts, name);
    if (name.empty() || found == kSpecialTexts.end())
        return std::nullopt;
    return static_cast<SpecialRegister>(found - kSpecialTexts.begin());
}

} // namespace singularity::ptx
