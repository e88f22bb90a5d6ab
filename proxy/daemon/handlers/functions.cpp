// SPDX-License-Identifier: GPL-2.0-or-later
// Questions about functions and kernels; the handle's kind says which of the two it is.
#include "functions.hpp"

#include "handlers.hpp"

#include <bit>
#include <string_view>

namespace singularity::proxyd::handlers {

namespace {
bool is_kernel(std::uint64_t handle) { return kind_of(handle) == driver_api::kHandleKernel; }

template <class Handle>
Handle as(std::uint64_t real) {
    return std::bit_cast<Handle>(real);
}
} // namespace

std::expected<std::vector<protocol::ParameterPlace>, CUresult> layout_of(const driver_api::Backend &driver,
                                                                         std::uint64_t real, bool kernel) {
    if (kernel ? driver.cuKernelGetParamInfo == nullptr : driver.cuFuncGetParamInfo == nullptr)
        return std::unexpected(CUDA_ERROR_NOT_SUPPORTED);
    std::vector<protocol::ParameterPlace> places;
    for (;;) {
        std::size_t offset = 0;
        std::size_t size = 0;
        const auto result =
            kernel ? driver.cuKernelGetParamInfo(as<CUkernel>(real), places.size(), &offset, &size)
                   : driver.cuFuncGetParamInfo(as<CUfunction>(real), places.size(), &offset, &size);
        // "CUDA_ERROR_INVALID_VALUE if paramIndex is out of range" is how the driver says how many there are.
        // No kernel has more than its parameters' bytes.
        if (result == CUDA_ERROR_INVALID_VALUE ||
            (result == CUDA_SUCCESS && places.size() == protocol::kMostParameters))
            return places;
        if (result != CUDA_SUCCESS)
            return std::unexpected(result);
        places.push_back(
            {.offset = static_cast<std::uint32_t>(offset), .size = static_cast<std::uint32_t>(size)});
        // A driver that never says no (one that says nothing at all) has no parameters.
        if (size == 0 && offset == 0 && places.size() > 1)
            return std::unexpected(CUDA_ERROR_INVALID_VALUE);
    }
}

CUresult handle(Call &call, const Request<protocol::FunctionLayout> &request,
                Reply<protocol::FunctionLayout> &reply) {
    const auto real = call.objects().real(driver_api::kHandleFunction, request.fixed.function);
    if (!real || *real == 0)
        return CUDA_ERROR_INVALID_HANDLE;
    const auto places = layout_of(call.driver(), *real, is_kernel(request.fixed.function));
    if (!places)
        return places.error();
    const auto out = call.elements<protocol::ParameterPlace>(places->size());
    std::ranges::copy(*places, out.begin());
    reply.buffers[0] = protocol::view_of_elements(std::span<const protocol::ParameterPlace>(out));
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::FunctionName> &request,
                Reply<protocol::FunctionName> &reply) {
    const auto &driver = call.driver();
    const bool kernel = is_kernel(request.fixed.function);
    const auto real = call.objects().real(driver_api::kHandleFunction, request.fixed.function);
    if (!real || *real == 0)
        return CUDA_ERROR_INVALID_HANDLE;
    if (kernel ? driver.cuKernelGetName == nullptr : driver.cuFuncGetName == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    const char *name = nullptr;
    const auto result = kernel ? driver.cuKernelGetName(&name, as<CUkernel>(*real))
                               : driver.cuFuncGetName(&name, as<CUfunction>(*real));
    if (result == CUDA_SUCCESS && name != nullptr) {
        // The driver's memory may go with the function: the reply has its own.
        const std::string_view text = std::string_view(name).substr(0, protocol::kMostNameText);
        const auto copy = call.storage(text.size());
        std::ranges::copy(std::as_bytes(std::span(text)), copy.begin());
        reply.buffers[0] = {.bytes = copy, .present = true};
    }
    return result;
}

CUresult handle(Call &call, const Request<protocol::FunctionOwner> &request,
                Reply<protocol::FunctionOwner> &reply) {
    const auto &driver = call.driver();
    const bool kernel = is_kernel(request.fixed.function);
    const auto real = call.objects().real(driver_api::kHandleFunction, request.fixed.function);
    if (!real || *real == 0)
        return CUDA_ERROR_INVALID_HANDLE;
    if (kernel ? driver.cuKernelGetLibrary == nullptr : driver.cuFuncGetModule == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (kernel) {
        CUlibrary library = nullptr;
        const auto result = driver.cuKernelGetLibrary(&library, as<CUkernel>(*real));
        if (result == CUDA_SUCCESS)
            reply.fixed.owner =
                call.objects().name_of(driver_api::kHandleLibrary, std::bit_cast<std::uint64_t>(library));
        return result;
    }
    CUmodule module = nullptr;
    const auto result = driver.cuFuncGetModule(&module, as<CUfunction>(*real));
    if (result == CUDA_SUCCESS)
        reply.fixed.owner =
            call.objects().name_of(driver_api::kHandleModule, std::bit_cast<std::uint64_t>(module));
    return result;
}

} // namespace singularity::proxyd::handlers
