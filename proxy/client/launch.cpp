// SPDX-License-Identifier: GPL-2.0-or-later
#include "launch.hpp"

#include "log.hpp"
#include "proxy/libcuda/entry.hpp"

#include <algorithm>
#include <cstring>

namespace singularity::client {

namespace {

bool travels(CUlaunchAttributeID id) {
    switch (id) {
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: // gives the caller a device's handle
        return false;
    default:
        return true;
    }
}

} // namespace

CUresult parameter_source(void **kernel_params, void **extra, ParameterSource &source) {
    source.each = kernel_params;
    if (extra == nullptr)
        return CUDA_SUCCESS;
    if (kernel_params != nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const void *buffer = nullptr;
    const std::size_t *size = nullptr;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            size = static_cast<const std::size_t *>(extra[1]);
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (size == nullptr || (*size != 0 && buffer == nullptr) || *size > protocol::kMostParameters)
        return CUDA_ERROR_INVALID_VALUE;
    source.whole = {static_cast<const std::byte *>(buffer), *size};
    source.is_whole = true;
    return CUDA_SUCCESS;
}

CUresult launchable(CUfunction function, const Route &route, Launchable &out) {
    const auto handle = std::bit_cast<std::uint64_t>(function);
    const auto kind = kind_of(handle);
    if (kind != driver_api::kHandleFunction && kind != driver_api::kHandleKernel)
        return CUDA_ERROR_INVALID_HANDLE;
    auto *const code = find_as<CodeObject>(kind, handle);
    if (code == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    if (kind == driver_api::kHandleKernel) {
        if (const auto bad = ensure_code(*code, *route.session); bad != CUDA_SUCCESS)
            return bad;
    } else if (code->session != route.session) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    out.code = code;
    return layout_of(*code, route, out.layout);
}

CUresult parameter_bytes(const KernelLayout &layout, const ParameterSource &source, std::size_t &bytes) {
    if (source.is_whole) {
        // Shorter than the kernel's would have it read what is not there.
        if (source.whole.size() < layout.size)
            return CUDA_ERROR_INVALID_VALUE;
        bytes = source.whole.size();
        return CUDA_SUCCESS;
    }
    if (source.each == nullptr && !layout.parameters.empty())
        return CUDA_ERROR_INVALID_VALUE;
    bytes = layout.size;
    return CUDA_SUCCESS;
}

void copy_parameters(const KernelLayout &layout, const ParameterSource &source, std::span<std::byte> to) {
    if (source.is_whole) {
        std::ranges::copy(source.whole, to.begin());
        return;
    }
    std::uint32_t written = 0;
    for (std::size_t index = 0; index < layout.parameters.size(); ++index) {
        const auto [offset, size] = layout.parameters[index];
        if (written < offset)
            std::memset(to.data() + written, 0, offset - written);
        // Most are pointers: a copy of constant size is a move.
        if (size == sizeof(std::uint64_t))
            std::memcpy(to.data() + offset, source.each[index], sizeof(std::uint64_t));
        else
            std::memcpy(to.data() + offset, source.each[index], size);
        written = offset + size;
    }
}

CUresult check_shape(const Route &route, const Launchable &what, const protocol::LaunchShape &shape) {
    const auto &session = *route.session;
    const auto &layout = *what.layout;
    static constexpr std::array kGrid{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                                      CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z};
    static constexpr std::array kBlock{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                                       CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
                                       CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z};
    std::uint64_t threads = 1;
    for (std::size_t dimension = 0; dimension < 3; ++dimension) {
        const auto grid = shape.grid[dimension];
        const auto block = shape.block[dimension];
        if (grid == 0 || block == 0 || grid > static_cast<unsigned>(session.attribute(kGrid[dimension])) ||
            block > static_cast<unsigned>(session.attribute(kBlock[dimension])))
            return CUDA_ERROR_INVALID_VALUE;
        threads *= block;
    }
    if (threads > static_cast<unsigned>(session.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)))
        return CUDA_ERROR_INVALID_VALUE;
    if (threads > static_cast<unsigned>(layout.most_threads))
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    // The limit may have been changed under another name of the function: as a kernel, or a module's.
    const auto fits = [&] {
        return shape.shared_bytes <=
               static_cast<unsigned>(std::max(0, layout.most_dynamic_shared.load(std::memory_order_relaxed)));
    };
    if (fits()) [[likely]]
        return CUDA_SUCCESS;
    renew_limits(*what.code, route);
    return fits() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult launch_attributes(const CUlaunchAttribute *attributes, unsigned count,
                           std::vector<protocol::LaunchAttribute> &out) {
    static_assert(sizeof(CUlaunchAttribute) == sizeof(protocol::LaunchAttribute) &&
                  offsetof(CUlaunchAttribute, value) == offsetof(protocol::LaunchAttribute, value));
    if (count != 0 && attributes == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (count > protocol::kMostLaunchAttributes)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned index = 0; index < count; ++index) {
        if (!travels(attributes[index].id)) {
            kLog.warning("launch attribute {} is not supported", static_cast<int>(attributes[index].id));
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        protocol::LaunchAttribute attribute{.id = static_cast<std::uint32_t>(attributes[index].id)};
        std::memcpy(attribute.value.data(), &attributes[index].value, attribute.value.size());
        out.push_back(attribute);
    }
    return CUDA_SUCCESS;
}

} // namespace singularity::client
