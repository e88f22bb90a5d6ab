// SPDX-License-Identifier: GPL-2.0-or-later
// A library that is NVRTC to a program, as far as proxy/launcher/nvrtc.cpp is concerned. Its "machine code"
// is the options that it was compiled with and "|sass"; its PTX is those and "|ptx". It has no machine code
// of a virtual architecture, and knows compute_75, compute_90 and compute_89.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#define EXPORTED extern "C" [[gnu::visibility("default")]]

namespace {

struct Program {
    std::string options;
    bool real = false;
};

std::string ptx_of(const Program &program) { return program.options + "|ptx"; }
std::string machine_code_of(const Program &program) { return program.real ? program.options + "|sass" : ""; }

std::size_t size_of(const std::string &code) { return code.empty() ? 0 : code.size() + 1; }

} // namespace

EXPORTED int nvrtcCreateProgram(Program **program) {
    *program = new Program;
    return 0;
}
EXPORTED int nvrtcDestroyProgram(Program **program) {
    delete *program;
    *program = nullptr;
    return 0;
}
EXPORTED int nvrtcCompileProgram(Program *program, int count, const char *const *options) {
    *program = {};
    for (int at = 0; at < count; ++at) {
        const std::string option = options[at];
        program->options += (at == 0 ? "" : " ") + option;
        program->real |= option.contains("sm_");
    }
    return program->options.contains("broken") ? 6 : 0;
}
EXPORTED int nvrtcGetCUBINSize(Program *program, std::size_t *size) {
    *size = size_of(machine_code_of(*program));
    return 0;
}
EXPORTED int nvrtcGetCUBIN(Program *program, char *code) {
    const auto text = machine_code_of(*program);
    std::memcpy(code, text.c_str(), size_of(text));
    return 0;
}
EXPORTED int nvrtcGetPTXSize(Program *program, std::size_t *size) {
    *size = size_of(ptx_of(*program));
    return 0;
}
EXPORTED int nvrtcGetPTX(Program *program, char *code) {
    const auto text = ptx_of(*program);
    std::memcpy(code, text.c_str(), size_of(text));
    return 0;
}
EXPORTED int nvrtcGetNumSupportedArchs(int *count) {
    *count = 3;
    return 0;
}
EXPORTED int nvrtcGetSupportedArchs(int *architectures) {
    constexpr int kKnown[] = {75, 90, 89};
    std::ranges::copy(kKnown, architectures);
    return 0;
}
