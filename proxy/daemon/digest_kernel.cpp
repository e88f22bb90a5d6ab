// SPDX-License-Identifier: GPL-2.0-or-later
#include "digest_kernel.hpp"

#include "back_end.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

namespace singularity::proxyd {

namespace {

constexpr const char *kWhat = "the kernel that finds out what memory contains";
// More blocks than any device runs at a time do no more.
constexpr std::uint64_t kMostBlocks = 1024;

} // namespace

Expected<std::shared_ptr<const DigestKernel>> DigestKernel::load(const driver_api::Backend &driver) {
    if (driver.cuModuleLoadData == nullptr || driver.cuModuleGetFunction == nullptr ||
        driver.cuLaunchKernel == nullptr || driver.cuStreamSynchronize == nullptr ||
        driver.cuMemHostAlloc == nullptr || driver.cuMemHostGetDevicePointer_v2 == nullptr)
        return failure("load", kWhat, "the driver has no modules, launches or pinned memory", ENOSYS);
    std::shared_ptr<DigestKernel> out(new DigestKernel(driver));
    CUmodule module = nullptr;
    void *parts = nullptr;
    auto result = driver.cuModuleLoadData(&module, kDigestPtx.data());
    if (result == CUDA_SUCCESS)
        result = driver.cuModuleGetFunction(&out->function_, module, "digest");
    if (result == CUDA_SUCCESS && driver.cuFuncLoad != nullptr)
        result = driver.cuFuncLoad(out->function_);
    if (result == CUDA_SUCCESS)
        result = driver.cuMemHostAlloc(&parts, kMostBlocks * sizeof(Digest), CU_MEMHOSTALLOC_DEVICEMAP);
    if (result == CUDA_SUCCESS)
        result = driver.cuMemHostGetDevicePointer_v2(&out->parts_there_, parts, 0);
    if (result != CUDA_SUCCESS)
        return failure("load", kWhat, result_name(driver, result), EIO);
    out->parts_ = static_cast<Digest *>(parts);
    return out;
}

CUresult DigestKernel::digest(CUstream stream, std::uint64_t address, std::uint64_t size,
                              Digest &digest) const {
    DigestArguments arguments{.memory = address, .words = size / sizeof(Digest), .parts = parts_there_};
    const auto wanted = (arguments.words + kDigestThreads - 1) / kDigestThreads;
    const auto blocks = static_cast<unsigned>(std::clamp<std::uint64_t>(wanted, 1, kMostBlocks));
    std::array<void *, 1> parameters{&arguments};
    auto result = driver_.cuLaunchKernel(function_, blocks, 1, 1, kDigestThreads, 1, 1, 0, stream,
                                         parameters.data(), nullptr);
    if (result == CUDA_SUCCESS)
        result = driver_.cuStreamSynchronize(stream);
    if (result != CUDA_SUCCESS)
        return result;
    digest = {};
    for (unsigned block = 0; block < blocks; ++block) {
        digest.sum += parts_[block].sum;
        digest.weighted += parts_[block].weighted;
    }
    return CUDA_SUCCESS;
}

} // namespace singularity::proxyd
