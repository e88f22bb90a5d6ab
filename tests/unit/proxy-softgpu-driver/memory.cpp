// SPDX-License-Identifier: GPL-2.0-or-later
// Device memory: the account, what is refused, managed memory, pointer attributes.
#include "driver.hpp"

#include <array>
#include <bit>
#include <vector>

using namespace singularity::test;

namespace {

std::size_t free_memory() {
    std::size_t free = 0;
    std::size_t total = 0;
    ok(cuMemGetInfo_v2(&free, &total));
    return free;
}

void the_account_is_strict(void ** /*state*/) {
    const Scope scope;
    const std::size_t before = free_memory();
    const CUdeviceptr large = allocate(200U << 20U);
    assert_int_equal(before - free_memory(), 200U << 20U);
    CUdeviceptr more = 0;
    expect_result(cuMemAlloc_v2(&more, 60U << 20U), CUDA_ERROR_OUT_OF_MEMORY);
    ok(cuMemFree_v2(large));
    assert_int_equal(free_memory(), before);
    ok(cuMemAlloc_v2(&more, 60U << 20U));
    ok(cuMemFree_v2(more));
    expect_result(cuMemAlloc_v2(&more, 0), CUDA_ERROR_INVALID_VALUE);
    expect_result(cuMemAlloc_v2(&more, SIZE_MAX / 2), CUDA_ERROR_OUT_OF_MEMORY);
}

void small_blocks_share(void ** /*state*/) {
    const Scope scope;
    const std::size_t before = free_memory();
    std::vector<CUdeviceptr> blocks;
    for (int at = 0; at < 1000; ++at) {
        blocks.push_back(allocate(100));
        assert_int_equal(blocks.back() % 256, 0);
    }
    assert_int_equal(before - free_memory(), 2U << 20U);
    for (const CUdeviceptr block : blocks)
        ok(cuMemFree_v2(block));
    assert_int_equal(free_memory(), before);
}

void only_what_was_allocated_is_freed(void ** /*state*/) {
    const Scope scope;
    const CUdeviceptr memory = allocate(4096);
    expect_result(cuMemFree_v2(memory + 16), CUDA_ERROR_INVALID_VALUE);
    ok(cuMemFree_v2(memory));
    expect_result(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
    ok(cuMemFree_v2(0));
    CUdeviceptr base = 0;
    expect_result(cuMemGetAddressRange_v2(&base, nullptr, memory), CUDA_ERROR_NOT_FOUND);
}

void a_freed_block_is_not_touched(void ** /*state*/) {
    const Scope scope;
    const Code code;
    const CUdeviceptr memory = zeros(64);
    ok(code.launch_add(memory, 1, 17)); // one too many
    expect_result(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

void other_contexts_memory_is_out_of_reach(void ** /*state*/) {
    const Scope first;
    const CUdeviceptr theirs = zeros(64);
    const Scope second;
    const Code code;
    ok(code.launch_add(theirs, 1, 1));
    expect_result(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

void peers(void ** /*state*/) {
    const Scope first(0);
    const CUdeviceptr theirs = zeros(64);
    const Scope second(1);
    const Code code;
    int can = 0;
    ok(cuDeviceCanAccessPeer(&can, 1, 0));
    assert_int_equal(can, 1);
    ok(cuCtxEnablePeerAccess(first.context, 0));
    expect_result(cuCtxEnablePeerAccess(first.context, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    ok(code.launch_add(theirs, 9, 1));
    ok(cuCtxSynchronize());
    assert_int_equal(read_int(theirs), 9);
    ok(cuCtxDisablePeerAccess(first.context));
    expect_result(cuCtxDisablePeerAccess(first.context), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    ok(code.launch_add(theirs, 9, 1));
    expect_result(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

void managed(void ** /*state*/) {
    const Scope scope;
    const Code code;
    CUdeviceptr memory = 0;
    ok(cuMemAllocManaged(&memory, 64, CU_MEM_ATTACH_GLOBAL));
    auto *const host = std::bit_cast<int *>(memory);
    host[3] = 5;
    ok(code.launch_add(memory, 2, 16));
    ok(cuCtxSynchronize());
    assert_int_equal(host[3], 7);
    ok(cuMemAdvise(memory, 64, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 1));
    int where = 0;
    ok(cuMemRangeGetAttribute(&where, sizeof where, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, 64));
    assert_int_equal(where, 1);
    ok(cuMemPrefetchAsync(memory, 64, CU_DEVICE_CPU, nullptr));
    expect_result(cuMemPrefetchAsync(memory, 64, 17, nullptr), CUDA_ERROR_INVALID_DEVICE);
    ok(cuMemFree_v2(memory));
    expect_result(cuMemAllocManaged(&memory, 64, 77), CUDA_ERROR_INVALID_VALUE);
}

void pointer_attributes(void ** /*state*/) {
    const Scope scope(1);
    const CUdeviceptr memory = allocate(1000);
    unsigned type = 0;
    ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 10));
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    CUcontext context = nullptr;
    ok(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
    assert_ptr_equal(context, scope.context);
    int device = -1;
    std::size_t size = 0;
    CUdeviceptr base = 0;
    std::array<CUpointer_attribute, 3> attributes{CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                                  CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                                  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    std::array<void *, 3> values{&device, &size, &base};
    ok(cuPointerGetAttributes(3, attributes.data(), values.data(), memory + 999));
    assert_int_equal(device, 1);
    assert_int_equal(size, 1000);
    assert_int_equal(base, memory);
    expect_result(
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, std::bit_cast<CUdeviceptr>(&type)),
        CUDA_ERROR_INVALID_VALUE);
    ok(cuPointerGetAttributes(3, attributes.data(), values.data(), std::bit_cast<CUdeviceptr>(&type)));
    assert_int_equal(size, 0);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_account_is_strict),
        cmocka_unit_test(small_blocks_share),
        cmocka_unit_test(only_what_was_allocated_is_freed),
        cmocka_unit_test(a_freed_block_is_not_touched),
        cmocka_unit_test(other_contexts_memory_is_out_of_reach),
        cmocka_unit_test(peers),
        cmocka_unit_test(managed),
        cmocka_unit_test(pointer_attributes),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
