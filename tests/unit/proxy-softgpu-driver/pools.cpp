// SPDX-License-Identifier: GPL-2.0-or-later
// Stream-ordered allocation.
#include "driver.hpp"

using namespace singularity::test;

namespace {

void stream_order(void ** /*state*/) {
    const Scope scope;
    const Code code;
    CUstream stream = nullptr;
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr result = zeros(4);
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    ok(cuMemAllocAsync(&first, 1000, stream));
    ok(cuMemsetD32Async(first, 4, 250, stream));
    ok(code.launch_add(first, 1, 250, stream));
    ok(cuMemcpyDtoDAsync_v2(result, first + 996, 4, stream));
    ok(cuMemFreeAsync(first, stream));
    ok(cuMemAllocAsync(&second, 1000, stream));
    ok(cuMemsetD32Async(second, 9, 250, stream));
    ok(cuStreamSynchronize(stream));
    assert_int_equal(read_int(result), 5);
    assert_int_equal(read_int(second + 996), 9);
    ok(cuMemFreeAsync(second, stream));
    expect_result(cuMemFreeAsync(result + 1, stream), CUDA_ERROR_INVALID_VALUE);
    ok(cuStreamSynchronize(stream));
    expect_result(cuMemFreeAsync(second, stream), CUDA_ERROR_INVALID_VALUE);
}

void thresholds(void ** /*state*/) {
    const Scope scope;
    CUmemoryPool pool = nullptr;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    ok(cuMemPoolCreate(&pool, &properties));
    cuuint64_t value = UINT64_MAX;
    ok(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    CUdeviceptr memory = 0;
    ok(cuMemAllocFromPoolAsync(&memory, 8U << 20U, pool, nullptr));
    ok(cuMemFreeAsync(memory, nullptr));
    ok(cuCtxSynchronize());
    ok(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
    assert_int_equal(value, 8U << 20U);
    ok(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
    assert_int_equal(value, 0);
    ok(cuMemPoolTrimTo(pool, 0));
    ok(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
    assert_int_equal(value, 0);
    ok(cuMemPoolDestroy(pool));
    expect_result(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(stream_order),
        cmocka_unit_test(thresholds),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
