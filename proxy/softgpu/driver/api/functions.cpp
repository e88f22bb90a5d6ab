// SPDX-License-Identifier: GPL-2.0-or-later
// Kernels: launches, attributes, parameters.
#include "driver/api/entry.hpp"
#include "driver/launch.hpp"
#include "driver/module.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace singularity::softgpu::driver {

Result<int> attribute(Function &function, CUfunction_attribute what) {
    const KernelInfo &info = function.info();
    const ptx::Module &module = function.program()->module();
    const auto size = [](std::uint64_t bytes) {
        return static_cast<int>(std::min<std::uint64_t>(bytes, INT32_MAX));
    };
    switch (what) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        return static_cast<int>(std::min(info.max_threads, kBlockThreads));
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        return size(info.static_shared);
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        return size(info.constant);
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        return size(info.local);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        return static_cast<int>(info.registers);
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: // compiled for what the PTX is of
        return static_cast<int>(module.sm);
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
        return 0;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        return size(function.dynamic_shared_limit());
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return function.settings.carveout.load();
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
        return 0;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: {
        const auto axis = static_cast<std::size_t>(what - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
        const int set = function.settings.cluster[axis];
        return set != 0 ? set : static_cast<int>(info.cluster[axis]);
    }
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        return function.settings.non_portable_cluster.load();
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return function.settings.cluster_policy.load();
    case CU_FUNC_ATTRIBUTE_MAX:
        break;
    }
    return refused(CUDA_ERROR_INVALID_VALUE);
}

CUresult set_attribute(Function &function, CUfunction_attribute what, int value) {
    switch (what) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || static_cast<std::uint64_t>(value) + function.info().static_shared > kSharedOptIn)
            return CUDA_ERROR_INVALID_VALUE;
        function.settings.max_dynamic_shared = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100)
            return CUDA_ERROR_INVALID_VALUE;
        function.settings.carveout = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        if (value < 0)
            return CUDA_ERROR_INVALID_VALUE;
        if (value > 1)
            return CUDA_ERROR_NOT_SUPPORTED;
        function.settings.cluster[static_cast<std::size_t>(what - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH)] =
            value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        function.settings.non_portable_cluster = value != 0 ? 1 : 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        function.settings.cluster_policy = value;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult parameter_info(const KernelInfo &info, std::size_t index, std::size_t *offset, std::size_t *size) {
    if (offset == nullptr || index >= info.parameters.size())
        return CUDA_ERROR_INVALID_VALUE;
    *offset = info.parameters[index].offset;
    if (size != nullptr)
        *size = info.parameters[index].size;
    return CUDA_SUCCESS;
}

namespace {

// The kernel in the device's primary context, which need not be the current one.
template <class Work>
CUresult with_kernel(CUkernel handle, CUdevice ordinal, Work &&work) {
    return with_device(ordinal, [&](Device &device) {
        const auto kernel = kernels().get(handle);
        if (!kernel)
            return kernel.error();
        auto context = current_context();
        if (!context || &(*context)->device() != &device) {
            const std::scoped_lock lock(device.primary().mutex);
            if (device.primary().context == nullptr || !device.primary().context->active)
                return CUDA_ERROR_INVALID_CONTEXT;
            context = device.primary().context;
        }
        const auto function = (*kernel)->function(**context);
        return function ? std::forward<Work>(work)(**function) : function.error();
    });
}

CUresult get_name(const char **out, const std::string &name) {
    if (out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *out = name.c_str();
    return CUDA_SUCCESS;
}

CUresult give_result(int *out, const Result<int> &value) {
    return out == nullptr ? CUDA_ERROR_INVALID_VALUE : store(out, value);
}

CUresult start(CUfunction function, const CUlaunchConfig &config, void **parameters, void **extra) {
    return with_context(
        [&](Context &context) { return launch(context, function, config, parameters, extra); });
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra) {
    return start(f,
                 launch_config({gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ},
                               sharedMemBytes, hStream),
                 kernelParams, extra);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
    return config == nullptr ? CUDA_ERROR_INVALID_VALUE : start(f, *config, kernelParams, extra);
}
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                   unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                   void **kernelParams) {
    CUlaunchAttribute cooperative{};
    cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    cooperative.value.cooperative = 1;
    CUlaunchConfig config = launch_config({gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ},
                                          sharedMemBytes, hStream);
    config.attrs = &cooperative;
    config.numAttrs = 1;
    return start(f, config, kernelParams, nullptr);
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc) {
    return with_function(hfunc,
                         [&](Function &function) { return give_result(pi, attribute(function, attrib)); });
}
CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
    return with_function(hfunc, [&](Function &function) { return set_attribute(function, attrib, value); });
}
// Caches have no sizes here.
CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
    return with_function(hfunc, [&](Function &) {
        return config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    });
}
CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
    return with_function(hfunc, [&](Function &) {
        return config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    });
}
CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc) {
    return with_function(hfunc, [&](Function &function) {
        if (hmod == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        *hmod = function.module();
        return CUDA_SUCCESS;
    });
}
CUresult cuFuncGetName(const char **name, CUfunction hfunc) {
    return with_function(hfunc, [&](Function &function) { return get_name(name, function.name()); });
}
CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize) {
    return with_function(func, [&](Function &function) {
        return parameter_info(function.info(), paramIndex, paramOffset, paramSize);
    });
}
CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
    return with_function(function, [&](Function &one) {
        if (state == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        *state = one.compiled() ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
        return CUDA_SUCCESS;
    });
}
CUresult cuFuncLoad(CUfunction function) {
    return with_function(function, [](Function &one) {
        (void)one.info();
        return CUDA_SUCCESS;
    });
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel) {
    return with_context([&](Context &context) {
        const auto one = kernels().get(kernel);
        if (!one || pFunc == nullptr)
            return pFunc == nullptr ? CUDA_ERROR_INVALID_VALUE : one.error();
        const auto function = (*one)->function(context);
        if (!function)
            return function.error();
        *pFunc = (*function)->handle;
        return CUDA_SUCCESS;
    });
}
CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel) {
    return with_driver([&] {
        const auto one = kernels().get(kernel);
        if (!one || pLib == nullptr)
            return pLib == nullptr ? CUDA_ERROR_INVALID_VALUE : one.error();
        *pLib = (*one)->library().handle;
        return CUDA_SUCCESS;
    });
}
CUresult cuKernelGetName(const char **name, CUkernel hfunc) {
    return with_driver([&] {
        const auto kernel = kernels().get(hfunc);
        return kernel ? get_name(name, (*kernel)->name()) : kernel.error();
    });
}
// Needs no context: the layout is in the code.
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize) {
    return with_driver([&] {
        const auto one = kernels().get(kernel);
        if (!one)
            return one.error();
        const auto code = (*one)->library().image()->module();
        if (!code)
            return code.error().result;
        singularity::softgpu::KernelInfo info;
        info.parameters = (*code)->function((*one)->name())->parameters;
        return parameter_info(info, paramIndex, paramOffset, paramSize);
    });
}
CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
    return with_kernel(kernel, dev,
                       [&](Function &function) { return give_result(pi, attribute(function, attrib)); });
}
CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
    return with_kernel(kernel, dev, [&](Function &function) { return set_attribute(function, attrib, val); });
}
CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
    return with_kernel(kernel, dev, [&](Function &) {
        return config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    });
}

} // extern "C"
