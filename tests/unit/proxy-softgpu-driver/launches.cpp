// SPDX-License-Identifier: GPL-2.0-or-later
// Launches: forms, limits, attributes, parameters, occupancy.
#include "driver.hpp"

#include <array>

using namespace singularity::test;

namespace {

void both_forms_of_parameters(void ** /*state*/) {
    const Scope scope;
    const Code code;
    CUdeviceptr memory = zeros(64);
    struct {
        CUdeviceptr out;
        int value;
        int rest;
    } packed{memory, 8, 0};
    std::size_t size = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    ok(cuLaunchKernel(code.add, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
    assert_int_equal(read_int(memory), 8);
    int value = 1;
    void *parameters[] = {&memory, &value};
    expect_result(cuLaunchKernel(code.add, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, extra),
                  CUDA_ERROR_INVALID_VALUE);
    expect_result(cuLaunchKernel(code.add, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
                  CUDA_ERROR_INVALID_VALUE);
}

void limits(void ** /*state*/) {
    const Scope scope;
    const Code code;
    CUdeviceptr memory = zeros(64);
    int value = 1;
    void *parameters[] = {&memory, &value};
    const auto launch = [&](unsigned grid, unsigned block, unsigned shared) {
        return cuLaunchKernel(code.add, grid, 1, 1, block, 1, 1, shared, nullptr, parameters, nullptr);
    };
    expect_result(launch(0, 1, 0), CUDA_ERROR_INVALID_VALUE);
    expect_result(launch(1, 0, 0), CUDA_ERROR_INVALID_VALUE);
    // Too large for the device: the runtime makes cudaErrorInvalidConfiguration of it.
    expect_result(launch(1, 1025, 0), CUDA_ERROR_INVALID_VALUE);
    constexpr unsigned too_large[][3] = {{32, 33, 1}, {1, 1025, 1}, {1, 1, 65}, {8, 8, 17}};
    for (const auto &[x, y, z] : too_large)
        expect_result(cuLaunchKernel(code.add, 1, 1, 1, x, y, z, 0, nullptr, parameters, nullptr),
                      CUDA_ERROR_INVALID_VALUE);
    expect_result(cuLaunchKernel(code.add, 1, 65536, 1, 1, 1, 1, 0, nullptr, parameters, nullptr),
                  CUDA_ERROR_INVALID_VALUE);
    expect_result(launch(1, 1, 49153), CUDA_ERROR_INVALID_VALUE);
    ok(cuFuncSetAttribute(code.add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
    ok(launch(1, 1, 49153));
    expect_result(cuFuncSetAttribute(code.add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20),
                  CUDA_ERROR_INVALID_VALUE);
    expect_result(
        cuLaunchKernel(reinterpret_cast<CUfunction>(0x99), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr),
        CUDA_ERROR_INVALID_HANDLE);
    CUlaunchAttribute cluster{};
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = {2, 1, 1};
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY =
        config.blockDimZ = 1;
    config.gridDimX = 2;
    config.attrs = &cluster;
    config.numAttrs = 1;
    expect_result(cuLaunchKernelEx(&config, code.add, parameters, nullptr), CUDA_ERROR_NOT_SUPPORTED);
    expect_result(cuLaunchCooperativeKernel(code.add, 1U << 20U, 1, 1, 1, 1, 1, 0, nullptr, parameters),
                  CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    ok(cuCtxSynchronize());
}

// Whoever does not look at a launch's result must not read what was in memory before it.
void code_that_cannot_run_fails_the_context(void ** /*state*/) {
    const Scope scope;
    const CUdeviceptr memory = zeros(64);
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    ok(cuModuleLoadData(&module, ".version 9.0\n.target sm_90\n.address_size 64\n"
                                 ".visible .entry k() { frobnicate.u32; ret; }\n"));
    ok(cuModuleGetFunction(&function, module, "k"));
    expect_result(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
                  CUDA_ERROR_NOT_SUPPORTED);
    int value = 7;
    expect_result(cuMemcpyDtoH_v2(&value, memory, sizeof value), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(value, 7);
    expect_result(cuCtxSynchronize(), CUDA_ERROR_NOT_SUPPORTED);
}

void questions(void ** /*state*/) {
    const Scope scope;
    const Code code;
    std::size_t offset = 9;
    std::size_t size = 9;
    ok(cuFuncGetParamInfo(code.add, 1, &offset, &size));
    assert_int_equal(offset, 8);
    assert_int_equal(size, 4);
    expect_result(cuFuncGetParamInfo(code.add, 2, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    int value = 0;
    ok(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, code.add));
    assert_int_equal(value, 1024);
    const char *name = nullptr;
    ok(cuFuncGetName(&name, code.add));
    expect_equal(name, "add");
    int grid = 0;
    int block = 0;
    ok(cuOccupancyMaxPotentialBlockSize(&grid, &block, code.add, nullptr, 0, 0));
    assert_int_equal(grid * block, 16 * 2048);
    ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, code.add, 1024, 0));
    assert_int_equal(value, 2);
    ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, code.add, 32, 100 * 1024));
    assert_int_equal(value, 2);
}

// A block that a kernel is compiled for fits a multiprocessor, however many registers its PTX has.
void the_largest_block_fits(void ** /*state*/) {
    const Scope scope;
    for (int threads = 1; threads <= 1024; threads += threads < 32 ? 31 : 32) {
        const std::string ptx = ".version 8.0\n.target sm_75\n.address_size 64\n"
                                ".visible .entry k() .maxntid " +
                                std::to_string(threads) + ", 1, 1 { .reg .b64 %r<4000>; ret; }\n";
        CUmodule module = nullptr;
        CUfunction function = nullptr;
        ok(cuModuleLoadData(&module, ptx.c_str()));
        ok(cuModuleGetFunction(&function, module, "k"));
        int blocks = 0;
        ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, 0));
        assert_true(blocks >= 1);
        ok(cuModuleUnload(module));
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(both_forms_of_parameters),
        cmocka_unit_test(limits),
        cmocka_unit_test(code_that_cannot_run_fails_the_context),
        cmocka_unit_test(questions),
        cmocka_unit_test(the_largest_block_fits),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
