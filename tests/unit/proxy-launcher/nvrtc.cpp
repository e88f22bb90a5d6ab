// SPDX-License-Identifier: GPL-2.0-or-later
// A program with a libcuda.so.1 and an NVRTC, under the auditor (LD_AUDIT; the build's line for this test
// sets it).
#include "cmocka.hpp"
#include "proxy/libcuda/software_gpu.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <dlfcn.h>

using namespace singularity;

namespace {

using Uuid = std::array<unsigned char, 16>;
using Program = void *;

template <class Function>
Function *function(void *library, const char *name) {
    void *const found = dlsym(library, name);
    if (found == nullptr)
        test::fail(std::string("there is no ") + name);
    return reinterpret_cast<Function *>(found);
}

void *opened(const char *file) {
    void *const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
        test::fail(dlerror());
    return library;
}

void device_is(const Uuid *uuid) {
    static void *const driver = opened(FAKE_LIBCUDA);
    function<void(const unsigned char *)>(driver, "fake_device")(uuid != nullptr ? uuid->data() : nullptr);
}

Uuid software() {
    Uuid uuid{};
    std::ranges::copy(libcuda::kSoftwareGpuUuid, uuid.begin());
    uuid[15] = 3;
    return uuid;
}
const Uuid kSoftware = software();
const Uuid kReal{0x53, 0x47, 1};

struct Nvrtc {
    explicit Nvrtc(const char *file = FAKE_NVRTC) : library(opened(file)) {}
    void *library;

    std::string code(Program program, const char *size_name, const char *name) const {
        std::size_t size = 0;
        assert_int_equal(function<int(Program, std::size_t *)>(library, size_name)(program, &size), 0);
        std::string text(size, '\0');
        assert_int_equal(function<int(Program, char *)>(library, name)(program, text.data()), 0);
        if (!text.empty())
            text.pop_back(); // its end, a zero
        return text;
    }
    Program create() const {
        Program program = nullptr;
        assert_int_equal(function<int(Program *)>(library, "nvrtcCreateProgram")(&program), 0);
        return program;
    }
    int compile(Program program, const std::vector<const char *> &options) const {
        return function<int(Program, int, const char *const *)>(library, "nvrtcCompileProgram")(
            program, static_cast<int>(options.size()), options.data());
    }
    std::string machine_code(Program program) const {
        return code(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN");
    }
    void destroy(Program program) const {
        function<int(Program *)>(library, "nvrtcDestroyProgram")(&program);
    }
    // Of a program that was compiled with these, what it is given as machine code.
    std::string compiled(const std::vector<const char *> &options) const {
        const Program program = create();
        assert_int_equal(compile(program, options), 0);
        auto text = machine_code(program);
        destroy(program);
        return text;
    }
};

void the_software_gpu_gets_ptx(void ** /*state*/) {
    const Nvrtc nvrtc;
    device_is(&kSoftware);
    test::expect_equal(nvrtc.compiled({"-arch=sm_89"}), "-arch=compute_89|ptx");
    test::expect_equal(nvrtc.compiled({"--gpu-architecture=sm_90"}), "--gpu-architecture=compute_90|ptx");
    test::expect_equal(nvrtc.compiled({"--gpu-architecture=compute_75"}),
                       "--gpu-architecture=compute_75|ptx");
    // Newer than NVRTC knows: the newest.
    test::expect_equal(nvrtc.compiled({"-arch=sm_130"}), "-arch=compute_90|ptx");
    test::expect_equal(nvrtc.compiled({"-arch=compute_130"}), "-arch=compute_90|ptx");
    // Features of one architecture only.
    test::expect_equal(nvrtc.compiled({"-arch=sm_90a"}), "-arch=compute_90a|ptx");
    test::expect_equal(nvrtc.compiled({"-arch=sm_130a"}), "-arch=compute_90|ptx");
    // Two options that belong together, and all others as they are.
    test::expect_equal(nvrtc.compiled({"-DX=compute_130", "-arch", "sm_130", "--archive=compute_130", "-G"}),
                       "-DX=compute_130 -arch compute_90 --archive=compute_130 -G|ptx");
    test::expect_equal(nvrtc.compiled({"--gpu-architecture", "compute_130"}),
                       "--gpu-architecture compute_90|ptx");
}

void what_is_no_architecture_stays(void ** /*state*/) {
    const Nvrtc nvrtc;
    device_is(&kSoftware);
    for (const char *const option :
         {"-arch=", "-arch=sm_", "-arch=lto_90", "-arch=native", "-arch=compute_x"}) {
        const Program program = nvrtc.create();
        assert_int_equal(nvrtc.compile(program, {option}), 0);
        test::expect_equal(nvrtc.code(program, "nvrtcGetPTXSize", "nvrtcGetPTX"),
                           std::string(option) + "|ptx");
        nvrtc.destroy(program);
    }
    test::expect_equal(nvrtc.compiled({}), "|ptx");
    const std::string much(200, 'a');
    const std::string odd = "-arch=compute_90" + much;
    test::expect_equal(nvrtc.compiled({odd.c_str()}), odd + "|ptx");
}

void an_error_is_the_compilers(void ** /*state*/) {
    const Nvrtc nvrtc;
    device_is(&kSoftware);
    const Program program = nvrtc.create();
    assert_int_equal(nvrtc.compile(program, {"-arch=sm_90", "broken"}), 6);
    nvrtc.destroy(program);
}

void another_device_gets_what_it_asks_for(void ** /*state*/) {
    const Nvrtc nvrtc;
    for (const Uuid *const device : {&kReal, static_cast<const Uuid *>(nullptr)}) {
        device_is(device);
        test::expect_equal(nvrtc.compiled({"-arch=sm_130"}), "-arch=sm_130|sass");
        test::expect_equal(nvrtc.compiled({"-arch=compute_130"}), "");
    }
}

// NVRTC has machine code of it: it is the program's, even if only a real device takes it.
void machine_code_from_before_stays(void ** /*state*/) {
    const Nvrtc nvrtc;
    device_is(nullptr);
    const Program program = nvrtc.create();
    assert_int_equal(nvrtc.compile(program, {"-arch=sm_90"}), 0);
    device_is(&kSoftware);
    test::expect_equal(nvrtc.machine_code(program), "-arch=sm_90|sass");
    nvrtc.destroy(program);
}

// As a program and a framework have them; and each that is closed makes room for another.
void several_in_one_process(void ** /*state*/) {
    device_is(&kSoftware);
    const Nvrtc first;
    for (int round = 0; round < 20; ++round) {
        const Nvrtc second(FAKE_NVRTC_2);
        test::expect_equal(second.compiled({"-arch=sm_130"}), "-arch=compute_90|ptx");
        test::expect_equal(first.compiled({"-arch=sm_75"}), "-arch=compute_75|ptx");
        assert_int_equal(dlclose(second.library), 0);
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(the_software_gpu_gets_ptx),
                                cmocka_unit_test(what_is_no_architecture_stays),
                                cmocka_unit_test(an_error_is_the_compilers),
                                cmocka_unit_test(another_device_gets_what_it_asks_for),
                                cmocka_unit_test(machine_code_from_before_stays),
                                cmocka_unit_test(several_in_one_process)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
