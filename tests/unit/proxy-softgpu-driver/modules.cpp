// SPDX-License-Identifier: GPL-2.0-or-later
// Modules and libraries: variables, errors with logs, kernels, linking.
#include "driver.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <string>

using namespace singularity::test;

namespace {

void variables(void ** /*state*/) {
    const Scope scope;
    const Code code;
    CUdeviceptr counter = 0;
    CUdeviceptr factor = 0;
    std::size_t size = 0;
    ok(cuModuleGetGlobal_v2(&counter, &size, code.module, "counter"));
    assert_int_equal(size, 4);
    assert_int_equal(read_int(counter), 41);
    ok(cuModuleGetGlobal_v2(&factor, nullptr, code.module, "factor"));
    ok(cuMemsetD32_v2(factor, 100, 1));
    ok(cuLaunchKernel(code.bump, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    assert_int_equal(read_int(counter), 141);
    expect_result(cuModuleGetGlobal_v2(&counter, &size, code.module, "nothing"), CUDA_ERROR_NOT_FOUND);
    expect_result(cuMemFree_v2(counter), CUDA_ERROR_INVALID_VALUE);
    ok(cuModuleUnload(code.module));
    expect_result(cuModuleUnload(code.module), CUDA_ERROR_INVALID_HANDLE);
    CUfunction function = nullptr;
    expect_result(cuModuleGetFunction(&function, code.module, "add"), CUDA_ERROR_INVALID_HANDLE);
}

CUdeviceptr address_of_counter() {
    const Scope scope;
    const Code code;
    CUdeviceptr address = 0;
    ok(cuModuleGetGlobal_v2(&address, nullptr, code.module, "counter"));
    return address;
}

// A program that knows the address can be restored where others were served before it.
void addresses_are_of_who_is_alone(void ** /*state*/) {
    const auto first = address_of_counter();
    {
        const Scope scope;
        const Code code;
        CUdeviceptr memory = 0;
        ok(cuMemAlloc_v2(&memory, std::size_t{64} << 20U));
        assert_true(address_of_counter() != first); // not alone
    }
    assert_true(address_of_counter() == first);
}

void errors_have_a_log(void ** /*state*/) {
    const Scope scope;
    CUmodule module = nullptr;
    std::array<char, 200> log{};
    std::array<CUjit_option, 2> options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    std::array<void *, 2> values{log.data(), std::bit_cast<void *>(log.size())};
    expect_result(cuModuleLoadDataEx(&module,
                                     ".version 8.0\n.target sm_75\n.address_size 64\n.entry broken( {", 2,
                                     options.data(), values.data()),
                  CUDA_ERROR_INVALID_PTX);
    assert_true(std::strlen(log.data()) > 10);
    assert_int_equal(std::bit_cast<std::uintptr_t>(values[1]), std::strlen(log.data()));
    expect_result(cuModuleLoadData(&module, "\1\2\3\4"), CUDA_ERROR_INVALID_IMAGE);
    expect_result(cuModuleLoad(&module, "/nowhere"), CUDA_ERROR_FILE_NOT_FOUND);
    CUfunction function = nullptr;
    const Code code;
    expect_result(cuModuleGetFunction(&function, code.module, "nothing"), CUDA_ERROR_NOT_FOUND);
}

void libraries(void ** /*state*/) {
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
    ok(cuInit(0));
    ok(cuLibraryLoadData(&library, singularity::test::kPtx, nullptr, nullptr, 0, nullptr, nullptr,
                         0)); // no context
    ok(cuLibraryGetKernel(&kernel, library, "add"));
    unsigned count = 0;
    ok(cuLibraryGetKernelCount(&count, library));
    assert_int_equal(count, 4);
    for (const CUdevice device : {0, 1}) {
        const Scope scope(device);
        CUdeviceptr memory = zeros(4);
        int value = 6;
        void *parameters[] = {&memory, &value};
        ok(cuLaunchKernel(std::bit_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters,
                          nullptr));
        assert_int_equal(read_int(memory), 6);
        CUfunction function = nullptr;
        ok(cuKernelGetFunction(&function, kernel));
        ok(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
        assert_int_equal(read_int(memory), 12);
    }
    ok(cuLibraryUnload(library));
    expect_result(cuLibraryGetKernel(&kernel, library, "add"), CUDA_ERROR_INVALID_HANDLE);
}

void linking(void ** /*state*/) {
    const Scope scope;
    const std::string head = ".version 8.0\n.target sm_75\n.address_size 64\n";
    const std::string one = head +
                            ".extern .func (.param .b32 r) twice(.param .b32 v);\n"
                            ".visible .entry main_one(.param .u64 out) { .reg .b32 %r<3>; .reg .b64 %rd<2>;\n"
                            "ld.param.u64 %rd1, [out]; ld.global.u32 %r1, [%rd1];\n"
                            "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), twice, (a); "
                            "ld.param.b32 %r2, [b]; }\n"
                            "st.global.u32 [%rd1], %r2; ret; }\n";
    const std::string two = head +
                            ".visible .func (.param .b32 r) twice(.param .b32 v) { .reg .b32 %r<3>;\n"
                            "ld.param.b32 %r1, [v]; add.s32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret; }\n";
    CUlinkState link = nullptr;
    void *image = nullptr;
    std::size_t size = 0;
    const auto add = [&](std::string text, CUjitInputType type = CU_JIT_INPUT_PTX) {
        return cuLinkAddData_v2(link, type, text.data(), text.size() + 1, "text", 0, nullptr, nullptr);
    };
    ok(cuLinkCreate_v2(0, nullptr, nullptr, &link));
    ok(add(one));
    // NVRTC's machine code for the software GPU is PTX; what is machine code cannot be linked.
    expect_result(add("\x7f"
                      "ELF\x02\x01",
                      CU_JIT_INPUT_CUBIN),
                  CUDA_ERROR_NO_BINARY_FOR_GPU);
    ok(add(two, CU_JIT_INPUT_CUBIN));
    ok(cuLinkComplete(link, &image, &size));
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    ok(cuModuleLoadData(&module, image));
    ok(cuLinkDestroy(link));
    ok(cuModuleGetFunction(&function, module, "main_one"));
    CUdeviceptr memory = zeros(4);
    ok(cuMemsetD32_v2(memory, 21, 1));
    void *parameters[] = {&memory};
    ok(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    assert_int_equal(read_int(memory), 42);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(variables),         cmocka_unit_test(addresses_are_of_who_is_alone),
        cmocka_unit_test(errors_have_a_log), cmocka_unit_test(libraries),
        cmocka_unit_test(linking),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
