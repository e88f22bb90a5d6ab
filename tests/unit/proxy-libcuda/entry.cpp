// SPDX-License-Identifier: GPL-2.0-or-later
// The entry points of a libcuda.so.1 with hardly anything behind them: what is common to all such libraries.
#include "proxy/libcuda/entry.hpp"

#include "cmocka.hpp"
#include "common/log.hpp"
#include "context_storage.hpp"
#include "proxy/driver-api/api.hpp"
#include "proxy/libcuda/cuda.hpp"
#include "proxy/libcuda/hooks.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using namespace singularity;

// The library behind the entry points: one context, one function that tells how it was called.
namespace {
bool was_per_thread = false;
bool started = true;
constinit std::array<char, 16> context_object{};
// NOLINTNEXTLINE(misc-misplaced-const): the handle is what does not change
const auto kContext = reinterpret_cast<CUcontext>(context_object.data());
std::atomic<int> lines{0};
} // namespace

extern "C" {
CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, std::size_t) {
    was_per_thread = libcuda::per_thread_default_stream();
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
    *count = 1;
    return started ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = kContext;
    return CUDA_SUCCESS;
}
CUresult singularity_primary_context_handle(CUcontext *context, CUdevice) {
    *context = kContext;
    return CUDA_SUCCESS;
}
CUresult singularity_processor_places(unsigned char **groups, unsigned char **positions) {
    *groups = static_cast<unsigned char *>(std::calloc(66, 1));
    *positions = static_cast<unsigned char *>(std::calloc(66, 1));
    return CUDA_SUCCESS;
}
const void *singularity_export_table(const CUuuid &id) {
    return id.bytes[0] == 42 ? context_object.data() : nullptr;
}
}

namespace {

void every_symbol_has_an_address(void ** /*state*/) {
    std::vector<void *> seen;
    for (std::size_t at = 0; at < driver_api::kApiCount; ++at) {
        auto *const address = libcuda::address_of(static_cast<driver_api::ApiId>(at));
        assert_non_null(address);
        seen.push_back(address);
    }
    std::ranges::sort(seen);
    assert_true(std::ranges::adjacent_find(seen) == seen.end());
}

void unsupported_is_counted_and_said_once(void ** /*state*/) {
    log::set_sink([](log::Level, std::string_view line) {
        test::expect_contains(line, "cuMulticastCreate");
        ++lines;
    });
    CUmemGenericAllocationHandle handle = 0;
    CUmulticastObjectProp properties{};
    started = false;
    assert_int_equal(cuMulticastCreate(&handle, &properties), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuProfilerStart(), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuModuleGetLoadingMode(nullptr), CUDA_ERROR_NOT_INITIALIZED);
    started = true;
    assert_int_equal(cuMulticastCreate(&handle, &properties), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuMulticastCreate(&handle, &properties), CUDA_ERROR_NOT_SUPPORTED);
    log::set_sink(nullptr);
    assert_int_equal(lines, 1);
    const auto calls = libcuda::unsupported_calls();
    assert_int_equal(calls.size(), 1);
    test::expect_equal(driver_api::api_info(calls[0].id).symbol, "cuMulticastCreate");
    assert_int_equal(calls[0].calls, 2);
}

void per_thread_variants_set_the_flag(void ** /*state*/) {
    assert_int_equal(cuMemsetD8_v2(0, 0, 0), CUDA_SUCCESS);
    assert_false(was_per_thread);
    assert_int_equal(cuMemsetD8_v2_ptds(0, 0, 0), CUDA_SUCCESS);
    assert_true(was_per_thread);
    assert_false(libcuda::per_thread_default_stream());
}

void proc_addresses_are_this_librarys(void ** /*state*/) {
    void *address = nullptr;
    CUdriverProcAddressQueryResult status{};
    assert_int_equal(cuGetProcAddress_v2("cuMemsetD8", &address, 13000, 0, &status), CUDA_SUCCESS);
    assert_true(address == reinterpret_cast<void *>(&cuMemsetD8_v2));
    assert_int_equal(cuGetProcAddress_v2("cuMemsetD8", &address, 13000, 2, &status), CUDA_SUCCESS);
    assert_true(address == reinterpret_cast<void *>(&cuMemsetD8_v2_ptds));
    assert_int_equal(cuGetProcAddress_v2("cuNoSuchThing", &address, 13000, 0, &status), CUDA_SUCCESS);
    assert_null(address);
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    address = &address;
    assert_int_equal(cuGetProcAddress_v2("cuNoSuchThing", &address, 13000, 0, nullptr), CUDA_SUCCESS);
    assert_null(address);
    address = &address;
    assert_int_equal(cuGetProcAddress_v2("cuMemsetD8", &address, 13000, 4, &status),
                     CUDA_ERROR_INVALID_VALUE);
    assert_ptr_equal(address, &address);
    assert_int_equal(cuGetProcAddress("cuNoSuchThing", &address, 13000, 0), CUDA_ERROR_NOT_FOUND);
    assert_ptr_equal(address, &address);
    assert_int_equal(cuGetProcAddress("cuMemsetD8", nullptr, 13000, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGetProcAddress("cuMemsetD8", &address, 13000, 0), CUDA_SUCCESS);
    assert_true(address == reinterpret_cast<void *>(&cuMemsetD8_v2));
    assert_int_equal(cuGetProcAddress_v2(nullptr, &address, 13000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
}

void errors_have_names(void ** /*state*/) {
    const char *text = nullptr;
    assert_int_equal(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
    test::expect_equal(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_int_equal(cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text), CUDA_SUCCESS);
    test::expect_equal(text, "invalid argument");
    assert_int_equal(cuGetErrorName(static_cast<CUresult>(998), &text), CUDA_ERROR_INVALID_VALUE);
    assert_null(text);
}

CUuuid uuid(const std::array<unsigned char, 16> &bytes) {
    CUuuid out{};
    std::memcpy(out.bytes, bytes.data(), bytes.size());
    return out;
}

constexpr std::array<unsigned char, 16> kStorageTable{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11,
                                                      0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93};
constexpr std::array<unsigned char, 16> kCudartTable{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                                     0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
constexpr std::array<unsigned char, 16> kPlacesTable{0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45,
                                                     0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca};

void context_local_storage(void ** /*state*/) {
    using Put = CUresult (*)(CUcontext, void *, void *, libcuda::StorageDestructor);
    using Delete = CUresult (*)(CUcontext, void *);
    using Get = CUresult (*)(void **, CUcontext, void *);
    const void *table = nullptr;
    const auto id = uuid(kStorageTable);
    assert_int_equal(cuGetExportTable(&table, &id), CUDA_SUCCESS);
    const auto *const slots = static_cast<const void *const *>(table);
    const auto put = reinterpret_cast<Put>(const_cast<void *>(slots[0]));
    const auto del = reinterpret_cast<Delete>(const_cast<void *>(slots[1]));
    const auto get = reinterpret_cast<Get>(const_cast<void *>(slots[2]));
    assert_null(slots[3]);

    static int key = 0;
    static int other_key = 0;
    static int value = 0;
    static std::vector<void *> destroyed;
    void *found = &key;
    assert_int_equal(get(&found, nullptr, &key), CUDA_ERROR_INVALID_HANDLE);
    assert_ptr_equal(found, &key);
    const auto destructor = [](CUcontext context, void *its_key, void *) {
        assert_ptr_equal(context, kContext);
        destroyed.push_back(its_key);
    };
    assert_int_equal(put(nullptr, &key, &value, destructor), CUDA_SUCCESS);
    assert_int_equal(put(kContext, &other_key, &value, destructor), CUDA_SUCCESS);
    assert_int_equal(get(&found, kContext, &key), CUDA_SUCCESS);
    assert_ptr_equal(found, &value);
    assert_int_equal(del(kContext, &key), CUDA_SUCCESS);
    assert_int_equal(get(&found, nullptr, &key), CUDA_ERROR_INVALID_HANDLE);
    singularity_context_destroyed(kContext);
    assert_int_equal(destroyed.size(), 1);
    assert_ptr_equal(destroyed[0], &other_key);
    assert_int_equal(get(&found, nullptr, &other_key), CUDA_ERROR_INVALID_HANDLE);
}

void tables_have_sizes_and_no_holes(void ** /*state*/) {
    const void *table = nullptr;
    const auto id = uuid(kCudartTable);
    assert_int_equal(cuGetExportTable(&table, &id), CUDA_SUCCESS);
    const auto *const slots = static_cast<const std::uint64_t *>(table);
    assert_int_equal(slots[0], 13 * 8);
    for (std::size_t at = 1; at < 13; ++at)
        assert_true(slots[at] != 0);
    const void *again = nullptr;
    assert_int_equal(cuGetExportTable(&again, &id), CUDA_SUCCESS);
    assert_ptr_equal(table, again);
    const CUuuid unknown{};
    assert_int_equal(cuGetExportTable(&again, &unknown), CUDA_ERROR_INVALID_VALUE);
    assert_null(again);
    // One that only this library has.
    const CUuuid own{{42}};
    assert_int_equal(cuGetExportTable(&again, &own), CUDA_SUCCESS);
    assert_ptr_equal(again, context_object.data());
}

// As cuBLASLt uses it on compute capability 9.0: slot 4 gives two arrays, slot 13 takes them back.
void places_of_processors(void ** /*state*/) {
    using Two = CUresult (*)(unsigned char **, unsigned char **);
    using Free = CUresult (*)(unsigned char *, unsigned char *);
    const void *table = nullptr;
    const auto id = uuid(kPlacesTable);
    assert_int_equal(cuGetExportTable(&table, &id), CUDA_SUCCESS);
    const auto *const slots = static_cast<const void *const *>(table);
    assert_int_equal(std::bit_cast<std::uintptr_t>(slots[0]), 17 * 8);
    unsigned char *groups = nullptr;
    unsigned char *positions = nullptr;
    assert_int_equal(reinterpret_cast<Two>(const_cast<void *>(slots[4]))(&groups, &positions), CUDA_SUCCESS);
    assert_non_null(groups);
    assert_non_null(positions);
    assert_int_equal(reinterpret_cast<Free>(const_cast<void *>(slots[13]))(groups, positions), CUDA_SUCCESS);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(every_symbol_has_an_address),
                                cmocka_unit_test(unsupported_is_counted_and_said_once),
                                cmocka_unit_test(per_thread_variants_set_the_flag),
                                cmocka_unit_test(proc_addresses_are_this_librarys),
                                cmocka_unit_test(errors_have_names),
                                cmocka_unit_test(context_local_storage),
                                cmocka_unit_test(tables_have_sizes_and_no_holes),
                                cmocka_unit_test(places_of_processors)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
