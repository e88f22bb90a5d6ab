// SPDX-License-Identifier: GPL-2.0-or-later
// Devices and contexts: what is current, primary contexts, errors that stay, ending with work in flight.
#include "driver.hpp"

#include <array>
#include <cstring>

#include <sys/wait.h>
#include <unistd.h>

using namespace singularity::test;

namespace {

void nothing_works_before_init(void ** /*state*/) {
    int count = 0;
    CUdeviceptr memory = 0;
    expect_result(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    expect_result(cuMemAlloc_v2(&memory, 4), CUDA_ERROR_NOT_INITIALIZED);
    expect_result(cuInit(7), CUDA_ERROR_INVALID_VALUE);
    ok(cuInit(0));
    expect_result(cuMemAlloc_v2(&memory, 4), CUDA_ERROR_INVALID_CONTEXT);
}

void devices_are_as_configured(void ** /*state*/) {
    int count = 0;
    ok(cuInit(0));
    ok(cuDeviceGetCount(&count));
    assert_int_equal(count, 2);
    CUdevice device = -1;
    ok(cuDeviceGet(&device, 1));
    assert_int_equal(device, 1);
    expect_result(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    std::size_t bytes = 0;
    ok(cuDeviceTotalMem_v2(&bytes, 0));
    assert_int_equal(bytes, 256U << 20U);
    CUuuid first{};
    CUuuid second{};
    ok(cuDeviceGetUuid_v2(&first, 0));
    ok(cuDeviceGetUuid_v2(&second, 1));
    assert_memory_not_equal(first.bytes, second.bytes, sizeof first.bytes);
    std::array<char, 32> pci{};
    ok(cuDeviceGetPCIBusId(pci.data(), pci.size(), 1));
    expect_equal(pci.data(), "0000:02:00.0");
    ok(cuDeviceGetByPCIBusId(&device, pci.data()));
    assert_int_equal(device, 1);
    int major = 0;
    ok(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    assert_int_equal(major, 13);
    expect_result(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
}

void the_stack_of_contexts(void ** /*state*/) {
    ok(cuInit(0));
    CUcontext first = nullptr;
    CUcontext second = nullptr;
    CUcontext found = nullptr;
    ok(cuCtxCreate_v2(&first, 0, 0));
    ok(cuCtxCreate_v2(&second, 0, 1));
    ok(cuCtxGetCurrent(&found));
    assert_ptr_equal(found, second);
    CUdevice device = -1;
    ok(cuCtxGetDevice(&device));
    assert_int_equal(device, 1);
    ok(cuCtxPopCurrent_v2(&found));
    assert_ptr_equal(found, second);
    ok(cuCtxGetCurrent(&found));
    assert_ptr_equal(found, first);
    ok(cuCtxSetCurrent(nullptr));
    ok(cuCtxGetCurrent(&found));
    assert_null(found);
    expect_result(cuCtxPopCurrent_v2(&found), CUDA_ERROR_INVALID_CONTEXT);
    expect_result(cuCtxSetCurrent(reinterpret_cast<CUcontext>(0x1234)), CUDA_ERROR_INVALID_CONTEXT);
    ok(cuCtxDestroy_v2(first));
    expect_result(cuCtxDestroy_v2(first), CUDA_ERROR_INVALID_CONTEXT);
    // A thread where it is current learns of its end.
    ok(cuCtxSetCurrent(second));
    std::thread([&] { cuCtxDestroy_v2(second); }).join();
    CUdeviceptr memory = 0;
    expect_result(cuMemAlloc_v2(&memory, 4), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    ok(cuCtxSetCurrent(nullptr));
}

void the_primary_context_keeps_its_handle(void ** /*state*/) {
    ok(cuInit(0));
    unsigned flags = 9;
    int active = 9;
    ok(cuDevicePrimaryCtxGetState(1, &flags, &active));
    assert_int_equal(active, 0);
    CUcontext first = nullptr;
    CUcontext again = nullptr;
    ok(cuDevicePrimaryCtxRetain(&first, 1));
    ok(cuDevicePrimaryCtxRetain(&again, 1));
    assert_ptr_equal(first, again);
    ok(cuCtxSetCurrent(first));
    const CUdeviceptr memory = allocate(100);
    ok(cuDevicePrimaryCtxRelease_v2(1));
    ok(cuMemFree_v2(memory));
    ok(cuDevicePrimaryCtxRelease_v2(1));
    expect_result(cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
    CUdeviceptr other = 0;
    expect_result(cuMemAlloc_v2(&other, 4), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    expect_result(cuCtxDestroy_v2(first), CUDA_ERROR_INVALID_CONTEXT);
    ok(cuDevicePrimaryCtxRetain(&again, 1));
    assert_ptr_equal(first, again);
    other = allocate(4);
    ok(cuDevicePrimaryCtxReset_v2(1));
    ok(cuDevicePrimaryCtxGetState(1, &flags, &active));
    assert_int_equal(active, 1);
    expect_result(cuMemFree_v2(other), CUDA_ERROR_INVALID_VALUE);
    ok(cuDevicePrimaryCtxRelease_v2(1));
    ok(cuCtxSetCurrent(nullptr));
}

void an_error_stays_in_its_context(void ** /*state*/) {
    const Scope good(1);
    {
        const Scope scope;
        const Code code;
        const CUdeviceptr memory = zeros(64);
        ok(code.launch_one(code.bad, memory));
        expect_result(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
        expect_result(cuMemFree_v2(memory), CUDA_ERROR_ILLEGAL_ADDRESS);
        expect_result(code.launch_add(memory, 1, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
        CUstream stream = nullptr;
        expect_result(cuStreamCreate(&stream, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    const Code code;
    const CUdeviceptr memory = zeros(64);
    ok(code.launch_add(memory, 5, 16));
    ok(cuCtxSynchronize());
    assert_int_equal(read_int(memory + 60), 5);
}

void a_context_ends_with_a_kernel_that_never_does(void ** /*state*/) {
    ok(cuInit(0));
    CUcontext context = nullptr;
    ok(cuCtxCreate_v4(&context, nullptr, 0, 0));
    const Code code;
    const CUdeviceptr flag = zeros(4);
    CUstream stream = nullptr;
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUstream waiting = nullptr;
    ok(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
    ok(code.launch_one(code.spin, flag, stream));
    ok(cuStreamWaitValue32_v2(waiting, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    expect_result(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    // Meanwhile others go on.
    {
        const Scope other;
        const Code again;
        const CUdeviceptr memory = zeros(4);
        ok(again.launch_add(memory, 1, 1));
        ok(cuCtxSynchronize());
        ok(cuMemFree_v2(memory));
    }
    const auto start = std::chrono::steady_clock::now();
    ok(cuCtxDestroy_v2(context));
    assert_true(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
    std::size_t free = 0;
    std::size_t total = 0;
    const Scope after;
    assert_true(soon([&] { return cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS && free == total; }));
}

void a_waiting_thread_is_woken_by_the_end(void ** /*state*/) {
    ok(cuInit(0));
    CUcontext context = nullptr;
    ok(cuCtxCreate_v4(&context, nullptr, 0, 0));
    const CUdeviceptr flag = zeros(4);
    ok(cuStreamWaitValue32_v2(nullptr, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    CUresult result = CUDA_SUCCESS;
    std::thread waiter([&] {
        cuCtxSetCurrent(context);
        result = cuCtxSynchronize();
    });
    ok(cuCtxDestroy_v2(context));
    waiter.join();
    assert_int_not_equal(result, CUDA_SUCCESS);
}

void limits(void ** /*state*/) {
    const Scope scope;
    std::size_t value = 0;
    ok(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1U << 24U));
    ok(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
    assert_int_equal(value, 1U << 24U);
    expect_result(cuCtxGetLimit(&value, CU_LIMIT_MAX), CUDA_ERROR_INVALID_VALUE);
}

void a_forked_child_has_no_driver(void ** /*state*/) {
    ok(cuInit(0));
    const pid_t child = fork();
    if (child == 0) {
        int count = 0;
        _exit(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                      cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
                  ? 0
                  : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(nothing_works_before_init),
        cmocka_unit_test(devices_are_as_configured),
        cmocka_unit_test(the_stack_of_contexts),
        cmocka_unit_test(the_primary_context_keeps_its_handle),
        cmocka_unit_test(an_error_stays_in_its_context),
        cmocka_unit_test(a_context_ends_with_a_kernel_that_never_does),
        cmocka_unit_test(a_waiting_thread_is_woken_by_the_end),
        cmocka_unit_test(limits),
        cmocka_unit_test(a_forked_child_has_no_driver),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
