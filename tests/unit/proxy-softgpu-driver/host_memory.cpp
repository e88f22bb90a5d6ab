// SPDX-License-Identifier: GPL-2.0-or-later
// Pinned and registered host memory.
#include "driver.hpp"

#include <bit>
#include <vector>

using namespace singularity::test;

namespace {

void pinned_memory_is_seen_by_kernels(void ** /*state*/) {
    const Scope scope;
    const Code code;
    void *pointer = nullptr;
    ok(cuMemHostAlloc(&pointer, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    auto *const host = static_cast<int *>(pointer);
    host[15] = 1;
    CUdeviceptr device = 0;
    ok(cuMemHostGetDevicePointer_v2(&device, pointer, 0));
    ok(code.launch_add(device, 4, 16));
    ok(cuCtxSynchronize());
    assert_int_equal(host[15], 5);
    unsigned flags = 0;
    ok(cuMemHostGetFlags(&flags, pointer));
    assert_int_equal(flags & CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_DEVICEMAP);
    ok(cuMemFreeHost(pointer));
    expect_result(cuMemFreeHost(pointer), CUDA_ERROR_INVALID_VALUE);
}

void registered_memory(void ** /*state*/) {
    const Scope scope;
    const Code code;
    std::vector<int> host(1024, 1);
    expect_result(cuMemHostRegister_v2(std::bit_cast<void *>(std::uintptr_t{4096}), 4096, 0),
                  CUDA_ERROR_INVALID_VALUE);
    ok(cuMemHostRegister_v2(host.data(), host.size() * 4, CU_MEMHOSTREGISTER_DEVICEMAP));
    expect_result(cuMemHostRegister_v2(host.data() + 4, 16, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    ok(code.launch_add(std::bit_cast<CUdeviceptr>(host.data()), 2, 1024));
    ok(cuMemHostUnregister(host.data())); // waits for the kernel
    assert_int_equal(host[1023], 3);
    expect_result(cuMemHostUnregister(host.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    ok(code.launch_add(std::bit_cast<CUdeviceptr>(host.data()), 2, 1));
    expect_result(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(pinned_memory_is_seen_by_kernels),
        cmocka_unit_test(registered_memory),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
