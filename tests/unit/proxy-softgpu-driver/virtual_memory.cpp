// SPDX-License-Identifier: GPL-2.0-or-later
// Virtual memory management.
#include "common/deadline.hpp"
#include "driver.hpp"

#include <atomic>
#include <chrono>

using namespace singularity::test;

namespace {

constexpr std::size_t kUnit = 2U << 20U;

void map_and_unmap(void ** /*state*/) {
    const Scope scope;
    const Code code;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    std::size_t granularity = 0;
    ok(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    assert_int_equal(granularity, kUnit);
    CUdeviceptr address = 0;
    ok(cuMemAddressReserve(&address, 4 * kUnit, 0, 0, 0));
    CUdeviceptr fixed = 0;
    ok(cuMemAddressFree(address, 4 * kUnit));
    ok(cuMemAddressReserve(&fixed, 4 * kUnit, 0, address, 0)); // the same again
    assert_int_equal(fixed, address);
    CUmemGenericAllocationHandle memory = 0;
    expect_result(cuMemCreate(&memory, 1000, &properties, 0), CUDA_ERROR_INVALID_VALUE);
    ok(cuMemCreate(&memory, kUnit, &properties, 0));
    ok(cuMemMap(address, kUnit, 0, memory, 0));
    ok(cuMemMap(address + kUnit, kUnit, 0, memory, 0)); // the same memory twice
    expect_result(cuMemMap(address, kUnit, 0, memory, 0), CUDA_ERROR_INVALID_VALUE);
    expect_result(cuMemsetD8_v2(address, 1, 1), CUDA_ERROR_INVALID_VALUE); // no access yet
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    ok(cuMemSetAccess(address, 2 * kUnit, &access, 1));
    unsigned long long flags = 0;
    ok(cuMemGetAccess(&flags, &access.location, address));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ok(code.launch_add(address + 4, 6, 1));
    ok(cuCtxSynchronize());
    assert_int_equal(read_int(address + kUnit + 4), 6);
    ok(cuMemRelease(memory));
    expect_result(cuMemRelease(memory), CUDA_ERROR_INVALID_VALUE);
    expect_result(cuMemAddressFree(address, 4 * kUnit), CUDA_ERROR_INVALID_VALUE);
    ok(cuMemUnmap(address, 2 * kUnit));
    // Other memory at the address, and it is clean.
    ok(cuMemCreate(&memory, kUnit, &properties, 0));
    ok(cuMemMap(address, kUnit, 0, memory, 0));
    ok(cuMemSetAccess(address, kUnit, &access, 1));
    assert_int_equal(read_int(address + 4), 0);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    ok(cuMemSetAccess(address, kUnit, &access, 1));
    ok(code.launch_add(address, 1, 1));
    expect_result(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    ok(cuMemUnmap(address, kUnit));
    ok(cuMemRelease(memory));
    ok(cuMemAddressFree(address, 4 * kUnit));
    CUmemGenericAllocationHandle all = 0;
    expect_result(cuMemCreate(&all, 512U << 20U, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

// Ranks that share a device have a context each: the one that unmaps may be the one that the other waits for.
void unmapping_waits_for_no_other_context(void ** /*state*/) {
    struct Hold {
        std::atomic<bool> over = false;
        std::atomic<bool> in_time = false;
    } hold;
    const Scope waits;
    ok(cuLaunchHostFunc(
        nullptr,
        [](void *data) {
            auto &one = *static_cast<Hold *>(data);
            one.in_time = singularity::wait_until([&] { return one.over.load(); },
                                                  singularity::Deadline::after(std::chrono::seconds(10)),
                                                  "the other context's cuMemUnmap")
                              .has_value();
        },
        &hold));
    {
        const Scope scope;
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
        const CUmemAccessDesc access{.location = properties.location,
                                     .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUdeviceptr address = 0;
        CUmemGenericAllocationHandle memory = 0;
        ok(cuMemAddressReserve(&address, kUnit, 0, 0, 0));
        ok(cuMemCreate(&memory, kUnit, &properties, 0));
        ok(cuMemMap(address, kUnit, 0, memory, 0));
        ok(cuMemSetAccess(address, kUnit, &access, 1));
        ok(cuMemUnmap(address, kUnit));
        hold.over = true;
        ok(cuMemRelease(memory));
        ok(cuMemAddressFree(address, kUnit));
    }
    ok(cuCtxSetCurrent(waits.context));
    ok(cuCtxSynchronize());
    assert_true(hold.in_time);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(map_and_unmap),
        cmocka_unit_test(unmapping_waits_for_no_other_context),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
