// SPDX-License-Identifier: GPL-2.0-or-later
// cuGetProcAddress's answers, and the table of functions.
#include "cmocka.hpp"
#include "proxy/driver-api/proc_address.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <cuda.h>

namespace {

using namespace singularity;
using namespace singularity::driver_api;

static_assert(kProcAddressDefault == CU_GET_PROC_ADDRESS_DEFAULT);
static_assert(kProcAddressLegacyStream == CU_GET_PROC_ADDRESS_LEGACY_STREAM);
static_assert(kProcAddressPerThreadStream == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
static_assert(std::to_underlying(SymbolStatus::success) == CU_GET_PROC_ADDRESS_SUCCESS);
static_assert(std::to_underlying(SymbolStatus::not_found) == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
static_assert(std::to_underlying(SymbolStatus::version_not_sufficient) ==
              CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
static_assert(kCudaVersion == CUDA_VERSION);

void known_answers(void ** /*state*/) {
    constexpr auto kLegacy = kProcAddressLegacyStream;
    constexpr auto kThread = kProcAddressPerThreadStream;
    constexpr auto kTooOld = SymbolStatus::version_not_sufficient;
    const struct {
        std::string_view name;
        int version;
        std::uint64_t flags;
        std::string_view symbol;
        SymbolStatus status = SymbolStatus::success;
    } rows[] = {
        {"cuMemAlloc", 2000, 0, "cuMemAlloc"},
        {"cuMemAlloc", 3010, 0, "cuMemAlloc"},
        {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", 13000, kThread, "cuMemAlloc_v2"},
        {"cuMemAlloc", 1000, 0, "", kTooOld},
        {"cuMemcpyHtoD", 13000, 0, "cuMemcpyHtoD_v2"},
        {"cuMemcpyHtoD", 13000, kLegacy, "cuMemcpyHtoD_v2"},
        {"cuMemcpyHtoD", 13000, kThread, "cuMemcpyHtoD_v2_ptds"},
        {"cuMemcpyHtoD", 7000, kThread, "cuMemcpyHtoD_v2_ptds"},
        {"cuMemcpyHtoD", 6050, kThread, "", kTooOld},
        {"cuMemcpyHtoD", 7000, kThread | kLegacy, "cuMemcpyHtoD_v2_ptds"},
        {"cuMemAlloc", 2000, kThread, "cuMemAlloc"},
        {"cuMemAlloc", kCudaVersion + 1, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", -1, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", 0, 0, "", kTooOld},
        {"cuStreamGetCaptureInfo", 10000, 0, "", kTooOld},
        {"cuStreamGetCaptureInfo", 10010, 0, "cuStreamGetCaptureInfo"},
        {"cuStreamGetCaptureInfo", 11030, kThread, "cuStreamGetCaptureInfo_v2_ptsz"},
        {"cuStreamGetCaptureInfo", 12020, 0, "cuStreamGetCaptureInfo_v2"},
        {"cuStreamGetCaptureInfo", 12030, 0, "cuStreamGetCaptureInfo_v3"},
        {"cuLaunchKernel", 4000, 0, "cuLaunchKernel"},
        {"cuLaunchKernel", 3020, 0, "", kTooOld},
        {"cuLaunchKernel", 12000, kThread, "cuLaunchKernel_ptsz"},
        {"cuCtxCreate", 2000, 0, "cuCtxCreate"},
        {"cuCtxCreate", 11030, 0, "cuCtxCreate_v2"},
        {"cuCtxCreate", 11040, 0, "cuCtxCreate_v3"},
        {"cuCtxCreate", 12050, 0, "cuCtxCreate_v4"},
        {"cuEventElapsedTime", 12070, 0, "cuEventElapsedTime"},
        {"cuEventElapsedTime", 12080, 0, "cuEventElapsedTime_v2"},
        {"cuCtxGetDevice", 12090, 0, "cuCtxGetDevice"},
        {"cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2"},
        {"cuDeviceGetUuid", 11030, 0, "cuDeviceGetUuid"},
        {"cuDeviceGetUuid", 11040, 0, "cuDeviceGetUuid_v2"},
        {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
        {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
        {"cuGraphInstantiate", 13000, 0, "cuGraphInstantiate_v2"},
        {"cuProfilerStart", 13000, 0, "cuProfilerStart"},
        {"cuGLMapBufferObject", 13000, kThread, "cuGLMapBufferObject_v2_ptds"},
        {"cuMemAlloc_v2", 13000, 0, "", SymbolStatus::not_found},
        {"cuNoSuchFunction", 13000, 0, "", SymbolStatus::not_found},
        {"", 13000, 0, "", SymbolStatus::not_found},
    };
    for (const auto &row : rows) {
        const auto what = std::string(row.name) + " at " + std::to_string(row.version) + ", flags " +
                          std::to_string(row.flags);
        const auto answer = find_proc_address(row.name, row.version, row.flags);
        if (!answer.valid_arguments || answer.status != row.status)
            test::fail(what + ": status " + std::to_string(std::to_underlying(answer.status)));
        const auto symbol = answer.symbol ? api_info(*answer.symbol).symbol : "";
        if (symbol != row.symbol)
            test::fail(what + ": found " + std::string(symbol) + ", expected " + std::string(row.symbol));
    }
}

void arguments_that_are_errors(void ** /*state*/) {
    assert_false(find_proc_address("cuInit", 12000, 4).valid_arguments);
    assert_false(find_proc_address("cuInit", 12000, 6).valid_arguments);
    assert_false(find_proc_address("cuInit", 12000, std::uint64_t{1} << 63).valid_arguments);
}

// A program that asks for per-thread streams must not get an older interface than one that does not.
void per_thread_has_the_same_interface(void ** /*state*/) {
    for (const auto &row : proc_versions()) {
        const auto legacy = find_proc_address(row.name, row.version, kProcAddressLegacyStream);
        const auto thread = find_proc_address(row.name, row.version, kProcAddressPerThreadStream);
        // Per-thread streams came with 7.0: for a program that is older there are none, rather than functions
        // without.
        if (row.version < 7000 && thread.status == SymbolStatus::version_not_sufficient)
            continue;
        if (!legacy.symbol || !thread.symbol || api_info(*thread.symbol).legacy != *legacy.symbol)
            test::fail(std::string(row.name) + " at " + std::to_string(row.version));
    }
}

void every_symbol_is_found_by_its_own_version(void ** /*state*/) {
    assert_int_equal(proc_versions().size(), kApiCount);
    for (const auto &row : proc_versions()) {
        const auto answer = find_proc_address(
            row.name, row.version, row.per_thread ? kProcAddressPerThreadStream : kProcAddressLegacyStream);
        if (answer.symbol != row.symbol)
            test::fail(std::string(api_info(row.symbol).symbol) + " is not what its version finds");
    }
}

void ids_are_indices(void ** /*state*/) {
    assert_int_equal(api_table().size(), kApiCount);
    assert_true(std::ranges::is_sorted(api_table(), {}, &ApiInfo::symbol));
    for (const auto &info : api_table()) {
        const auto id = find_symbol(info.symbol);
        assert_true(id && &api_info(*id) == &info);
        assert_true(api_info(info.legacy).per_thread == info.per_thread);
        assert_true(api_info(info.legacy).api_class == info.api_class);
    }
    assert_false(find_symbol("cuNoSuchFunction").has_value());
    assert_false(find_symbol("").has_value());
}

void classes(void ** /*state*/) {
    const auto class_of = [](std::string_view symbol) {
        return to_string(api_info(*find_symbol(symbol)).api_class);
    };
    test::expect_equal(class_of("cuLaunchKernel_ptsz"), "manual");
    test::expect_equal(class_of("cuEventRecord_ptsz"), "async");
    test::expect_equal(class_of("cuStreamCreate"), "create");
    test::expect_equal(class_of("cuStreamDestroy_v2"), "destroy");
    test::expect_equal(class_of("cuCtxSynchronize"), "sync");
    test::expect_equal(class_of("cuDeviceGetName"), "local");
    test::expect_equal(class_of("cuGreenCtxCreate"), "unsupported");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(arguments_that_are_errors),
        cmocka_unit_test(per_thread_has_the_same_interface),
        cmocka_unit_test(every_symbol_is_found_by_its_own_version),
        cmocka_unit_test(ids_are_indices),
        cmocka_unit_test(classes),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
