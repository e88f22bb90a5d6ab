// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/libcuda/entry.hpp"

#include "log.hpp"
#include "proxy/driver-api/api.hpp"
#include "proxy/libcuda/cuda.hpp"

#include <array>
#include <atomic>

namespace singularity::libcuda {

thread_local bool PerThreadStream::active_ = false;

namespace {

constinit std::array<std::atomic<std::uint64_t>, driver_api::kApiCount> unsupported_counts{};

// What a function without any work of its own answers before cuInit has succeeded: what all others answer.
CUresult not_started() {
    int count = 0;
    return cuDeviceGetCount(&count);
}

} // namespace

int unsupported(driver_api::ApiId id) noexcept {
    if (const auto bad = not_started(); bad != CUDA_SUCCESS)
        return bad;
    if (unsupported_counts[static_cast<std::size_t>(id)].fetch_add(1, std::memory_order_relaxed) == 0)
        kLog.warning("{} is not supported and returns CUDA_ERROR_NOT_SUPPORTED (said once)",
                     driver_api::api_info(id).symbol);
    return CUDA_ERROR_NOT_SUPPORTED;
}

std::vector<UnsupportedCall> unsupported_calls() {
    std::vector<UnsupportedCall> out;
    for (std::size_t at = 0; at < unsupported_counts.size(); ++at)
        if (const auto calls = unsupported_counts[at].load(std::memory_order_relaxed); calls != 0)
            out.push_back({static_cast<driver_api::ApiId>(at), calls});
    return out;
}

} // namespace singularity::libcuda

extern "C" {

CUresult cuDriverGetVersion(int *driverVersion) {
    if (driverVersion == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = singularity::driver_api::kCudaVersion;
    return CUDA_SUCCESS;
}

// Deprecated since CUDA 11: NVIDIA's driver refuses it as well.
CUresult cuProfilerInitialize(const char * /*configFile*/, const char * /*outputFile*/,
                              CUoutput_mode /*outputMode*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
}
// No profiler is attached to this library: nothing starts and nothing stops.
CUresult cuProfilerStart() { return singularity::libcuda::not_started(); }
CUresult cuProfilerStop() { return singularity::libcuda::not_started(); }

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    if (const auto bad = singularity::libcuda::not_started(); bad != CUDA_SUCCESS)
        return bad;
    if (mode == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

} // extern "C"
