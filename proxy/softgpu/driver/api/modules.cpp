// SPDX-License-Identifier: GPL-2.0-or-later
// Modules, libraries, and linking of PTX.
#include "driver/api/entry.hpp"
#include "driver/capture.hpp"
#include "driver/jit.hpp"
#include "driver/module.hpp"

#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace singularity::softgpu::driver {

namespace {

Expected<std::string> file_content(const char *path) {
    std::ifstream file(path, std::ios::binary);
    if (!file)
        return std::unexpected(errno_error("read", path));
    return std::string(std::istreambuf_iterator<char>(file), {});
}

CUresult refuse(const ImageError &error, JitOptions &options) {
    options.say_error(error.text);
    return report(error);
}

CUresult load(Context &context, CUmodule *out, const void *data, std::size_t size, JitOptions options) {
    if (out == nullptr || data == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult unsafe = unsafe_while_capturing(); unsafe != CUDA_SUCCESS)
        return unsafe;
    auto image = Image::open(data, size, context.device().capability().sm(), false);
    if (!image)
        return refuse(image.error(), options);
    const auto module = std::make_shared<Module>(context.shared_from_this(), *image);
    module->handle = modules().reserve();
    // Text is compiled now, as its errors are wanted now; the rest when it is first used.
    if ((*image)->is_text())
        if (const auto loaded = module->load(); !loaded) {
            options.say_error(loaded.error().text);
            return loaded.error().result;
        }
    options.done();
    modules().put(module->handle, module);
    *out = module->handle;
    return CUDA_SUCCESS;
}

CUresult load_file(Context &context, CUmodule *out, const char *path) {
    if (path == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto bytes = file_content(path);
    if (!bytes)
        return CUDA_ERROR_FILE_NOT_FOUND;
    return load(context, out, bytes->c_str(), bytes->size(), {});
}

CUresult unload(CUmodule handle) {
    const auto module = modules().find(handle);
    if (module == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    if (module->of_library)
        return CUDA_ERROR_NOT_PERMITTED;
    if (const CUresult unsafe = unsafe_while_capturing(); unsafe != CUDA_SUCCESS)
        return unsafe;
    const CUresult result = module->context().synchronize();
    if (modules().take(handle) == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    module->unload();
    return result;
}

CUresult get_function(CUfunction *out, CUmodule handle, const char *name) {
    if (out == nullptr || name == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto module = modules().get(handle);
    if (!module)
        return module.error();
    const auto function = (*module)->function(name);
    if (!function)
        return function.error();
    *out = (*function)->handle;
    return CUDA_SUCCESS;
}

CUresult count_functions(unsigned *out, CUmodule handle) {
    if (out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto module = modules().get(handle);
    if (!module)
        return module.error();
    const auto all = (*module)->all_functions();
    if (!all)
        return all.error();
    *out = static_cast<unsigned>(all->size());
    return CUDA_SUCCESS;
}

CUresult list_functions(CUfunction *out, unsigned room, CUmodule handle) {
    if (out == nullptr || room == 0)
        return CUDA_ERROR_INVALID_VALUE;
    const auto module = modules().get(handle);
    if (!module)
        return module.error();
    const auto all = (*module)->all_functions();
    if (!all)
        return all.error();
    for (std::size_t at = 0; at < all->size() && at < room; ++at)
        out[at] = (*all)[at]->handle;
    return CUDA_SUCCESS;
}

CUresult give_variable(CUdeviceptr *address, std::size_t *size, const Result<Placed> &placed) {
    if (!placed)
        return placed.error();
    if (address != nullptr)
        *address = placed->address;
    if (size != nullptr)
        *size = placed->size;
    return CUDA_SUCCESS;
}

CUresult get_global(CUdeviceptr *address, std::size_t *size, CUmodule handle, const char *name) {
    if (name == nullptr || (address == nullptr && size == nullptr))
        return CUDA_ERROR_INVALID_VALUE;
    const auto module = modules().get(handle);
    return module ? give_variable(address, size, (*module)->variable(name)) : module.error();
}

// --- Libraries

CUresult load_library(CUlibrary *out, const void *data, std::size_t size, JitOptions options,
                      const CUlibraryOption *library_options, void **values, unsigned count) {
    if (out == nullptr || data == nullptr || (count != 0 && library_options == nullptr))
        return CUDA_ERROR_INVALID_VALUE;
    bool preserved = false;
    // cuBLASLt gives no values. A copy is always right.
    for (unsigned at = 0; at < count && values != nullptr; ++at)
        if (library_options[at] == CU_LIBRARY_BINARY_IS_PRESERVED)
            preserved = (std::bit_cast<std::uintptr_t>(values[at]) & 1U) != 0;
    // All devices are alike.
    auto image = Image::open(data, size, platform().config().compute_capability.sm(), preserved);
    if (!image)
        return refuse(image.error(), options);
    if ((*image)->is_text())
        if (const auto code = (*image)->module(); !code)
            return refuse(code.error(), options);
    options.done();
    auto library = std::make_shared<Library>(*std::move(image));
    library->handle = libraries().reserve();
    libraries().put(library->handle, library);
    *out = library->handle;
    return CUDA_SUCCESS;
}

template <class Work>
CUresult with_library(CUlibrary handle, Work &&work) {
    return with_driver([&] {
        const auto library = libraries().get(handle);
        return library ? std::forward<Work>(work)(**library) : library.error();
    });
}

// work(Module &) of the library in the current context.
template <class Work>
CUresult with_library_module(CUlibrary handle, Work &&work) {
    return with_context([&](Context &context) {
        const auto library = libraries().get(handle);
        if (!library)
            return library.error();
        const auto module = (*library)->module(context);
        return module ? std::forward<Work>(work)(**module) : module.error();
    });
}

CUresult get_kernel(Library &library, CUkernel *out, const char *name) {
    if (out == nullptr || name == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto kernel = library.kernel(name);
    if (!kernel)
        return kernel.error();
    *out = (*kernel)->handle;
    return CUDA_SUCCESS;
}

CUresult count_kernels(Library &library, unsigned *out) {
    if (out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto names = library.kernel_names();
    if (!names)
        return names.error();
    *out = static_cast<unsigned>(names->size());
    return CUDA_SUCCESS;
}

CUresult list_kernels(Library &library, CUkernel *out, unsigned room) {
    if (out == nullptr || room == 0)
        return CUDA_ERROR_INVALID_VALUE;
    const auto names = library.kernel_names();
    if (!names)
        return names.error();
    for (std::size_t at = 0; at < names->size() && at < room; ++at) {
        const auto kernel = library.kernel((*names)[at]);
        if (!kernel)
            return kernel.error();
        out[at] = (*kernel)->handle;
    }
    return CUDA_SUCCESS;
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuModuleLoad(CUmodule *module, const char *fname) {
    return with_context([&](Context &context) { return load_file(context, module, fname); });
}
CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return with_context([&](Context &context) { return load(context, module, image, 0, {}); });
}
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                            CUjit_option *options, void **optionValues) {
    return with_context([&](Context &context) {
        return load(context, module, image, 0, JitOptions(numOptions, options, optionValues));
    });
}
CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin) {
    return with_context([&](Context &context) { return load(context, module, fatCubin, 0, {}); });
}
CUresult cuModuleUnload(CUmodule hmod) {
    return with_context([&](Context &) { return unload(hmod); });
}
CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name) {
    return with_context([&](Context &) { return get_function(hfunc, hmod, name); });
}
CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod) {
    return with_context([&](Context &) { return count_functions(count, mod); });
}
CUresult cuModuleEnumerateFunctions(CUfunction *functions_out, unsigned int numFunctions, CUmodule mod) {
    return with_context([&](Context &) { return list_functions(functions_out, numFunctions, mod); });
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name) {
    return with_context([&](Context &) { return get_global(dptr, bytes, hmod, name); });
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                           void **jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption *libraryOptions, void **libraryOptionValues,
                           unsigned int numLibraryOptions) {
    return with_driver([&] {
        return load_library(library, code, 0, JitOptions(numJitOptions, jitOptions, jitOptionsValues),
                            libraryOptions, libraryOptionValues, numLibraryOptions);
    });
}
CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                               void **jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption * /*libraryOptions*/, void ** /*libraryOptionValues*/,
                               unsigned int /*numLibraryOptions*/) {
    return with_driver([&] {
        if (fileName == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        const auto bytes = file_content(fileName);
        if (!bytes)
            return CUDA_ERROR_FILE_NOT_FOUND;
        return load_library(library, bytes->c_str(), bytes->size(),
                            JitOptions(numJitOptions, jitOptions, jitOptionsValues), nullptr, nullptr, 0);
    });
}
CUresult cuLibraryUnload(CUlibrary library) {
    return with_driver([&] {
        const auto ended = libraries().take(library);
        if (ended == nullptr)
            return CUDA_ERROR_INVALID_HANDLE;
        ended->unload();
        return CUDA_SUCCESS;
    });
}
CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name) {
    return with_library(library, [&](Library &one) { return get_kernel(one, pKernel, name); });
}
CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib) {
    return with_library(lib, [&](Library &one) { return count_kernels(one, count); });
}
CUresult cuLibraryEnumerateKernels(CUkernel *kernels_out, unsigned int numKernels, CUlibrary lib) {
    return with_library(lib, [&](Library &one) { return list_kernels(one, kernels_out, numKernels); });
}
CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library) {
    return with_library_module(library, [&](Module &module) {
        if (pMod == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        *pMod = module.handle;
        return CUDA_SUCCESS;
    });
}
CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name) {
    return with_library_module(library, [&](Module &module) {
        return name == nullptr ? CUDA_ERROR_INVALID_VALUE : give_variable(dptr, bytes, module.variable(name));
    });
}
CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name) {
    return with_library(library, [&](Library &one) {
        return name == nullptr ? CUDA_ERROR_INVALID_VALUE
                               : give_variable(dptr, bytes, one.managed_variable(name));
    });
}

} // extern "C"
