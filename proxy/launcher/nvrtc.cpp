// SPDX-License-Identifier: GPL-2.0-or-later
#include "nvrtc.hpp"

#include "proxy/libcuda/software_gpu.hpp"
#include "symbol_table.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <tuple>
#include <utility>

#include <unistd.h>

namespace singularity::redirect {

namespace {

// As nvrtc.h and cuda.h declare them; the C library is all that an auditor links.
using Program = void *;
using Result = int;
constexpr Result kSuccess = 0;
constexpr Result kOutOfMemory = 1;
using Compile = Result(Program, int, const char *const *);
using GetSize = Result(Program, std::size_t *);
using GetCode = Result(Program, char *);
using GetCount = Result(int *);
using GetUuid = int(std::array<std::uint8_t, 16> *, int device);

// A library NVRTC of the process. A program can have several: of its own, and of a framework's.
struct Compiler {
    std::atomic<const link_map *> object;
    Compile *compile;
    GetSize *machine_code_size;
    GetCode *machine_code;
    GetSize *ptx_size;
    GetCode *ptx;
    GetCount *architecture_count; // these two came with CUDA 11.2
    GetCount *architectures;
};
constinit std::array<Compiler, 8> compilers{};

// The libcuda.so.1 of the process, and what it tells of its first device.
constinit std::atomic<const link_map *> driver{};
constinit std::atomic<GetUuid *> get_uuid{};

bool software_gpu() {
    auto *const ask = get_uuid.load(std::memory_order_acquire);
    std::array<std::uint8_t, 16> uuid{};
    return ask != nullptr && ask(&uuid, 0) == 0 &&
           std::memcmp(uuid.data(), libcuda::kSoftwareGpuUuid.data(), libcuda::kSoftwareGpuUuid.size()) == 0;
}

// 90 of sm_90, of newest_first; 0: it does not say.
int newest_architecture(const Compiler &compiler) {
    int count = 0;
    std::array<int, 256> known{};
    if (compiler.architecture_count == nullptr || compiler.architectures == nullptr ||
        compiler.architecture_count(&count) != kSuccess || count <= 0 ||
        static_cast<std::size_t>(count) > known.size() || compiler.architectures(known.data()) != kSuccess)
        return 0;
    int newest = 0;
    for (int at = 0; at < count; ++at)
        newest = known[static_cast<std::size_t>(at)] > newest ? known[static_cast<std::size_t>(at)] : newest;
    return newest;
}

using Text = std::array<char, 64>; // one option that names an architecture

constexpr std::array<std::string_view, 2> kArchitectureOptions{"--gpu-architecture", "-arch"};

// Writes `before` and the virtual architecture for what `name` asks for, "sm_130" say. False: it is none that
// this is about, and stays what it is.
bool virtual_architecture(Text &out, std::string_view before, std::string_view name, int newest) {
    for (const std::string_view kind : {std::string_view("sm_"), std::string_view("compute_")}) {
        if (!name.starts_with(kind))
            continue;
        name.remove_prefix(kind.size());
        int number = 0;
        std::size_t digits = 0;
        while (digits < name.size() && digits < 4 && name[digits] >= '0' && name[digits] <= '9')
            number = (number * 10) + (name[digits++] - '0');
        if (digits == 0)
            return false;
        // What is left is "", or "a" or "f" for features of that architecture only.
        name.remove_prefix(digits);
        if (newest != 0 && number > newest) {
            number = newest;
            name = {};
        }
        const int length =
            std::snprintf(out.data(), out.size(), "%.*scompute_%d%.*s", static_cast<int>(before.size()),
                          before.data(), number, static_cast<int>(name.size()), name.data());
        return length > 0 && static_cast<std::size_t>(length) < out.size();
    }
    return false;
}

// The option with its value, "-arch=sm_90", or the value of the option in front of it.
bool for_software_gpu(Text &out, std::string_view option, std::string_view in_front, int newest) {
    for (const std::string_view known : kArchitectureOptions) {
        if (in_front == known)
            return virtual_architecture(out, {}, option, newest);
        if (option.starts_with(known) && option.size() > known.size() && option[known.size()] == '=') {
            std::string_view before = option;
            before.remove_suffix(option.size() - known.size() - 1);
            option.remove_prefix(before.size());
            return virtual_architecture(out, before, option, newest);
        }
    }
    return false;
}

Result compile(const Compiler &compiler, Program program, int count, const char *const *options) {
    if (count <= 0 || options == nullptr || !software_gpu())
        return compiler.compile(program, count, options);
    const auto many = static_cast<std::size_t>(count);
    auto *const changed = static_cast<const char **>(std::malloc(many * (sizeof(char *) + sizeof(Text))));
    if (changed == nullptr)
        return kOutOfMemory;
    auto *const texts = reinterpret_cast<Text *>(changed + many);
    const int newest = newest_architecture(compiler);
    for (std::size_t at = 0; at < many; ++at) {
        const auto *const in_front = at > 0 ? options[at - 1] : nullptr;
        changed[at] = options[at];
        if (options[at] != nullptr &&
            for_software_gpu(texts[at], options[at], in_front != nullptr ? in_front : "", newest))
            changed[at] = texts[at].data();
    }
    const Result result = compiler.compile(program, count, changed);
    std::free(static_cast<void *>(changed));
    return result;
}

// A program that was compiled before CUDA was initialised has machine code, and gets that.
bool has_machine_code(const Compiler &compiler, Program program) {
    std::size_t size = 0;
    return compiler.machine_code_size(program, &size) != kSuccess || size != 0;
}

Result machine_code_size(const Compiler &compiler, Program program, std::size_t *size) {
    const bool ptx = size != nullptr && software_gpu() && !has_machine_code(compiler, program);
    return ptx ? compiler.ptx_size(program, size) : compiler.machine_code_size(program, size);
}

Result machine_code(const Compiler &compiler, Program program, char *code) {
    const bool ptx = code != nullptr && software_gpu() && !has_machine_code(compiler, program);
    return ptx ? compiler.ptx(program, code) : compiler.machine_code(program, code);
}

// What stands in an NVRTC's symbol table: a function for each place in `compilers`, since a Program does not
// say whose it is.
struct Replacements {
    Compile *compile;
    GetSize *machine_code_size;
    GetCode *machine_code;
};
template <std::size_t... Places>
constexpr auto replacements_of(std::index_sequence<Places...>) {
    return std::array<Replacements, sizeof...(Places)>{
        Replacements{.compile =
                         [](Program program, int count, const char *const *options) {
                             return redirect::compile(compilers[Places], program, count, options);
                         },
                     .machine_code_size =
                         [](Program program, std::size_t *size) {
                             return redirect::machine_code_size(compilers[Places], program, size);
                         },
                     .machine_code =
                         [](Program program, char *code) {
                             return redirect::machine_code(compilers[Places], program, code);
                         }}...};
}
constexpr auto kReplacements = replacements_of(std::make_index_sequence<compilers.size()>{});

template <class Function>
Function *function(const link_map &object, const char *name) {
    return std::bit_cast<Function *>(symbol(object, name));
}

void say(const char *what, const link_map &object) {
    std::array<char, 512> line{};
    const int length = std::snprintf(line.data(), line.size(), "warning: singularity: redirect: %s: %s\n",
                                     object.l_name, what);
    if (length > 0)
        std::ignore = write(STDERR_FILENO, line.data(), std::strlen(line.data()));
}

void compiler_mapped(const link_map &object) {
    std::size_t place = 0;
    while (place < compilers.size() && compilers[place].object.load(std::memory_order_relaxed) != nullptr)
        ++place;
    if (place == compilers.size()) {
        say("one NVRTC too many in this process: it makes no code for the software GPU", object);
        return;
    }
    Compiler &one = compilers[place];
    one.compile = function<Compile>(object, "nvrtcCompileProgram");
    one.machine_code_size = function<GetSize>(object, "nvrtcGetCUBINSize");
    one.machine_code = function<GetCode>(object, "nvrtcGetCUBIN");
    one.ptx_size = function<GetSize>(object, "nvrtcGetPTXSize");
    one.ptx = function<GetCode>(object, "nvrtcGetPTX");
    one.architecture_count = function<GetCount>(object, "nvrtcGetNumSupportedArchs");
    one.architectures = function<GetCount>(object, "nvrtcGetSupportedArchs");
    if (one.compile == nullptr || one.machine_code_size == nullptr || one.machine_code == nullptr ||
        one.ptx_size == nullptr || one.ptx == nullptr)
        return; // it is older than CUDA 11.1, or not NVRTC itself
    one.object.store(&object, std::memory_order_release);
    const auto &replacements = kReplacements[place];
    const auto replace = [&](const char *name, auto *with) {
        return replace_symbol(object, name, reinterpret_cast<std::uintptr_t>(with));
    };
    if (!replace("nvrtcCompileProgram", replacements.compile) ||
        !replace("nvrtcGetCUBINSize", replacements.machine_code_size) ||
        !replace("nvrtcGetCUBIN", replacements.machine_code))
        say("its table of symbols cannot be changed: it makes no code for the software GPU", object);
}

} // namespace

void object_mapped(const link_map &object) {
    std::string_view name = object.l_name != nullptr ? object.l_name : "";
    name.remove_prefix(name.rfind('/') + 1); // nothing if there is no slash
    if (name == "libcuda.so.1") {
        driver.store(&object, std::memory_order_relaxed);
        get_uuid.store(function<GetUuid>(object, "cuDeviceGetUuid"), std::memory_order_release);
    } else if (name.starts_with("libnvrtc") && !name.starts_with("libnvrtc-builtins")) {
        compiler_mapped(object);
    }
}

void object_unmapped(const link_map &object) {
    if (driver.load(std::memory_order_relaxed) == &object) {
        get_uuid.store(nullptr, std::memory_order_release);
        driver.store(nullptr, std::memory_order_relaxed);
    }
    for (Compiler &one : compilers)
        if (one.object.load(std::memory_order_relaxed) == &object)
            one.object.store(nullptr, std::memory_order_release);
}

} // namespace singularity::redirect
