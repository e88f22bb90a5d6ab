// SPDX-License-Identifier: GPL-2.0-or-later
#include "reduction_kernels.hpp"

#include "back_end.hpp"
#include "proxy/collectives/reduce.hpp"
#include "reduction_arguments.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

constexpr const char *kWhat = "the kernels of reductions";
constexpr std::uint64_t kThreads = 256;
// More blocks than any device runs at a time do no more.
constexpr std::uint64_t kMostBlocks = 1024;

} // namespace

Expected<std::shared_ptr<const ReductionKernels>> ReductionKernels::load(const driver_api::Backend &driver) {
    if (driver.cuModuleLoadData == nullptr || driver.cuModuleGetFunction == nullptr ||
        driver.cuLaunchKernel == nullptr || driver.cuMemcpyDtoDAsync_v2 == nullptr)
        return failure("load", kWhat, "the driver has no modules, launches or copies", ENOSYS);
    CUmodule module = nullptr;
    if (const auto result = driver.cuModuleLoadData(&module, kReductionsPtx.data()); result != CUDA_SUCCESS)
        return failure("load", kWhat, result_name(driver, result), EIO);
    std::shared_ptr<ReductionKernels> kernels(new ReductionKernels(driver));
    const auto find = [&](CUfunction &function, const std::string &name) -> Expected<void> {
        auto result = driver.cuModuleGetFunction(&function, module, name.c_str());
        if (result == CUDA_SUCCESS && driver.cuFuncLoad != nullptr)
            result = driver.cuFuncLoad(function);
        if (result != CUDA_SUCCESS)
            return failure("find", name, result_name(driver, result), EIO);
        return {};
    };
    for (std::uint32_t type = 0; type < protocol::kDataTypes; ++type) {
        auto found = find(kernels->functions_[type].reduce, fmt::format("reduce_{}", type));
        if (found)
            found = find(kernels->functions_[type].scale, fmt::format("scale_{}", type));
        if (!found)
            return propagate(found);
    }
    return kernels;
}

CUresult ReductionKernels::launch(CUstream stream, CUfunction function, std::uint32_t type,
                                  std::uint64_t count, void *arguments) const {
    const auto each = std::max<std::uint64_t>(1, kReductionWord / collectives::element_size(type));
    const auto threads = (count + each - 1) / each;
    if (threads == 0)
        return CUDA_SUCCESS;
    const auto blocks = static_cast<unsigned>(std::min(kMostBlocks, (threads + kThreads - 1) / kThreads));
    std::array<void *, 1> parameters{arguments};
    return driver_.cuLaunchKernel(function, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters.data(),
                                  nullptr);
}

CUresult ReductionKernels::reduce(CUstream stream, const collectives::DeviceReduction &reduction) const {
    ReduceArguments arguments{.operands = reduction.operands,
                              .stride = reduction.stride,
                              .result = reduction.result,
                              .count = reduction.count,
                              .members = reduction.members,
                              .reduction = reduction.step,
                              .divisor = reduction.divisor};
    return launch(stream, functions_[reduction.type].reduce, reduction.type, reduction.count, &arguments);
}

CUresult ReductionKernels::scale(CUstream stream, std::uint32_t type, std::uint64_t values,
                                 const collectives::Scalar &scalar, std::uint64_t count) const {
    ScaleArguments arguments{.values = values, .count = count};
    std::memcpy(&arguments.scalar, scalar.data(), sizeof(arguments.scalar));
    return launch(stream, functions_[type].scale, type, count, &arguments);
}

} // namespace singularity::proxyd
