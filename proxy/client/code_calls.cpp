// SPDX-License-Identifier: GPL-2.0-or-later
// Modules, libraries, kernels and functions; the linker.
#include "blob.hpp"
#include "capture_modes.hpp"
#include "code_options.hpp"
#include "image.hpp"
#include "log.hpp"
#include "memory.hpp"
#include "objects.hpp"
#include "proxy/protocol/code.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <string>

using namespace singularity;
using namespace singularity::client;

namespace {

constexpr std::size_t kLogs = 2 * protocol::kMostLogText + std::size_t{64} * 1024;

CUresult image_of(const void *memory, FoundImage &image) {
    auto found = image_at(memory);
    if (!found) {
        kLog.warning("{}", found.error().message());
        return memory == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_IMAGE;
    }
    image = *std::move(found);
    return CUDA_SUCCESS;
}

CUresult load_module(CUmodule *out, std::span<const std::byte> image, const JitOptions &options) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (options.result() != CUDA_SUCCESS)
        return options.result();
    if (const auto bad = unsafe_call(); bad != CUDA_SUCCESS)
        return bad;
    const Route route{.session = context->session, .context = context};
    auto &table = process().table(driver_api::kHandleModule);
    const auto handle = table.reserve();
    const Blob blob(route, image);
    if (blob.result() != CUDA_SUCCESS)
        return blob.result();
    const auto result =
        ask(route,
            protocol::Message<protocol::LoadModule>{.fixed = {.module = handle, .blob = blob.number()},
                                                    .buffers = {options.view()}},
            kLogs, [&](CUresult, const auto &reply) { options.finish(reply.buffers); });
    if (result != CUDA_SUCCESS)
        return result;
    auto object = std::make_unique<Object>();
    object->context = context;
    object->session = context->session;
    table.add(handle, std::move(object));
    *out = std::bit_cast<CUmodule>(handle);
    return CUDA_SUCCESS;
}

CUresult load_module_data(CUmodule *module, const void *memory, const JitOptions &options) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (module == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    FoundImage image;
    if (const auto bad = image_of(memory, image); bad != CUDA_SUCCESS)
        return bad;
    return load_module(module, image.bytes, options);
}

CUresult file_image(const char *path, std::vector<std::byte> &bytes, std::span<const std::byte> &image) {
    if (path == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (const auto bad = read_file(path, bytes); bad != CUDA_SUCCESS)
        return bad;
    const auto length = image_length(bytes);
    if (!length) {
        kLog.warning("{}: {}", path, length.error().message());
        return CUDA_ERROR_INVALID_IMAGE;
    }
    image = std::span(bytes).first(*length);
    return CUDA_SUCCESS;
}

struct LibraryOptions {
    std::vector<protocol::CodeOption> wire;
    bool preserved = false; // the program keeps the image where it is

    LibraryOptions(unsigned count, const CUlibraryOption *options, void **values) {
        for (unsigned index = 0; index < count; ++index) {
            // cuBLASLt gives no values at all. A copy is always right.
            const auto value = values == nullptr ? 0 : std::bit_cast<std::uint64_t>(values[index]);
            if (options[index] == CU_LIBRARY_BINARY_IS_PRESERVED) {
                preserved = value != 0;
                continue; // the daemon has a copy of its own
            }
            wire.push_back({.option = static_cast<std::uint32_t>(options[index]), .value = value});
        }
    }
};

std::vector<std::byte> bytes_of(std::span<const protocol::CodeOption> options) {
    const auto bytes = std::as_bytes(options);
    return {bytes.begin(), bytes.end()};
}

// `copy`: the image itself, where it is not the program's.
CUresult load_library(CUlibrary *out, std::span<const std::byte> image, std::vector<std::byte> copy,
                      const JitOptions &jit, const LibraryOptions &options) {
    if (jit.result() != CUDA_SUCCESS)
        return jit.result();
    Route route;
    if (const auto bad = route_without_context(route); bad != CUDA_SUCCESS)
        return bad;
    auto &table = process().table(driver_api::kHandleLibrary);
    const auto handle = table.reserve();
    const Blob blob(route, image);
    if (blob.result() != CUDA_SUCCESS)
        return blob.result();
    const auto result =
        ask(route,
            protocol::Message<protocol::LoadLibrary>{
                .fixed = {.library = handle, .blob = blob.number()},
                .buffers = {jit.view(),
                            protocol::view_of_elements(std::span<const protocol::CodeOption>(options.wire))}},
            kLogs, [&](CUresult, const auto &reply) { jit.finish(reply.buffers); });
    if (result != CUDA_SUCCESS)
        return result;
    auto object = std::make_unique<CodeObject>();
    object->session = route.session;
    object->present = std::uint64_t{1} << route.session->ordinal();
    // Other devices load it when they first need it.
    if (process().sessions.size() > 1) {
        object->source = std::make_unique<LibrarySource>();
        auto &source = *object->source;
        if (copy.empty() && !options.preserved)
            copy.assign(image.begin(), image.end());
        source.copy = std::move(copy);
        source.image =
            source.copy.empty() ? image : std::span<const std::byte>(source.copy).first(image.size());
        source.options = bytes_of(jit.wire());
        source.library_options = bytes_of(options.wire);
    }
    table.add(handle, std::move(object));
    *out = std::bit_cast<CUlibrary>(handle);
    return CUDA_SUCCESS;
}

CUresult library_arguments(CUlibrary *library, unsigned jit_count, const CUjit_option *jit,
                           void *const *jit_values, unsigned count, const CUlibraryOption *options) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (library == nullptr || (jit_count != 0 && (jit == nullptr || jit_values == nullptr)) ||
        (count != 0 && options == nullptr))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

// Name of a function or kernel; asked once where the daemon has named the object.
CUresult name_of(unsigned kind, std::uint64_t handle, const char *&name) {
    auto *const code = find_as<CodeObject>(kind, handle);
    if (code == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    const std::scoped_lock lock(code->lock);
    if (code->name.empty())
        if (const auto bad =
                ask(Route{.session = code->session, .context = code->context},
                    protocol::Message<protocol::FunctionName>{.fixed = {.function = handle}},
                    protocol::kMostNameText,
                    [&](const auto &reply) { code->name = protocol::text_of(reply.buffers[0]); });
            bad != CUDA_SUCCESS)
            return bad;
    name = code->name.c_str();
    return CUDA_SUCCESS;
}

CUresult owner_of(unsigned kind, std::uint64_t handle, std::uint64_t &owner) {
    auto *const code = find_as<CodeObject>(kind, handle);
    if (code == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    const std::scoped_lock lock(code->lock);
    if (code->owner == 0)
        if (const auto bad = ask(Route{.session = code->session, .context = code->context},
                                 protocol::Message<protocol::FunctionOwner>{.fixed = {.function = handle}}, 0,
                                 [&](const auto &reply) { code->owner = reply.fixed.owner; });
            bad != CUDA_SUCCESS)
            return bad;
    owner = code->owner;
    return CUDA_SUCCESS;
}

CUresult parameter_info(unsigned kind, std::uint64_t handle, std::size_t index, std::size_t *offset,
                        std::size_t *size) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    auto *const code = find_as<CodeObject>(kind, handle);
    if (code == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    if (offset == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    Route route;
    if (const auto bad = route_without_context(route); bad != CUDA_SUCCESS)
        return bad;
    if (code->context != nullptr)
        route = {.session = code->session, .context = code->context};
    const KernelLayout *layout = nullptr;
    if (const auto bad = layout_of(*code, route, layout); bad != CUDA_SUCCESS)
        return bad;
    if (index >= layout->parameters.size())
        return CUDA_ERROR_INVALID_VALUE;
    *offset = layout->parameters[index].offset;
    if (size != nullptr)
        *size = layout->parameters[index].size;
    return CUDA_SUCCESS;
}

// A new limit of dynamic shared memory is what launches are checked against from now on.
void note_attribute(unsigned kind, std::uint64_t handle, CUfunction_attribute attribute, int value) {
    auto *const code = find_as<CodeObject>(kind, handle);
    if (code == nullptr || attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        return;
    const std::scoped_lock lock(code->lock);
    if (code->layout_owner != nullptr)
        code->layout_owner->most_dynamic_shared = value;
}

// Variables are where the driver has put them; copies must know them for device memory.
void note(const CUdeviceptr *address, const size_t *size) {
    const auto &route = last_route();
    if (*address != 0 && *size != 0 && locate(*address).where == Where::pageable)
        note_variable({.range = {.address = *address, .size = *size},
                       .session = route.session,
                       .context = route.context});
}

// --- The linker

struct LinkObject : Object {
    std::unique_ptr<JitOptions> options;
    std::vector<std::byte> image; // of cuLinkComplete: valid until cuLinkDestroy
};

CUresult add_to_link(CUlinkState state, CUjitInputType type, std::span<const std::byte> data,
                     const char *name, const JitOptions &options) {
    if (options.result() != CUDA_SUCCESS)
        return options.result();
    auto handle = std::bit_cast<std::uint64_t>(state);
    if (const auto bad = check_handle(driver_api::kHandleLink, handle); bad != CUDA_SUCCESS)
        return bad;
    Route route;
    if (const auto bad = take_route(route, false); bad != CUDA_SUCCESS)
        return bad;
    const auto *const link = find_as<LinkObject>(driver_api::kHandleLink, handle);
    const Blob blob(route, data);
    if (blob.result() != CUDA_SUCCESS)
        return blob.result();
    return ask(
        route,
        protocol::Message<protocol::AddLinkData>{
            .fixed = {.link = handle, .blob = blob.number(), .type = static_cast<std::uint32_t>(type)},
            .buffers = {name == nullptr ? driver_api::View{} : protocol::view_of_text(name), options.view()}},
        kLogs, [&](CUresult, const auto &reply) {
            link->options->finish_logs(protocol::text_of(reply.buffers[1]),
                                       protocol::text_of(reply.buffers[2]));
        });
}

// Where a global of what `field` names is and how long; either may not be wanted.
template <class Call, auto decode, auto field>
CUresult global_of(ApiId api, unsigned kind, auto owner, const char *name, CUdeviceptr *dptr, size_t *bytes) {
    CUdeviceptr address = 0;
    size_t size = 0;
    auto request = Call::request(api, &address, &size, owner, name);
    if (!request)
        return refused(request.error());
    if (const auto bad = check_handle(kind, (*request).*field); bad != CUDA_SUCCESS)
        return bad;
    const auto result = send_sync(
        *request, [&](std::span<const std::byte> encoded) { return decode(*request, encoded); },
        [&](const auto &reply) { Call::finish(*request, reply, &address, &size); });
    if (result != CUDA_SUCCESS)
        return result;
    note(&address, &size);
    if (dptr != nullptr)
        *dptr = address;
    if (bytes != nullptr)
        *bytes = size;
    return CUDA_SUCCESS;
}

} // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return load_module_data(module, image, {0, nullptr, nullptr});
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                            CUjit_option *options, void **optionValues) {
    return load_module_data(module, image, {numOptions, options, optionValues});
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin) {
    return load_module_data(module, fatCubin, {0, nullptr, nullptr});
}

CUresult cuModuleLoad(CUmodule *module, const char *fname) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (module == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<std::byte> bytes;
    std::span<const std::byte> image;
    if (const auto bad = file_image(fname, bytes, image); bad != CUDA_SUCCESS)
        return bad;
    return load_module(module, image, {0, nullptr, nullptr});
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                           void **jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption *libraryOptions, void **libraryOptionValues,
                           unsigned int numLibraryOptions) {
    if (const auto bad = library_arguments(library, numJitOptions, jitOptions, jitOptionsValues,
                                           numLibraryOptions, libraryOptions);
        bad != CUDA_SUCCESS)
        return bad;
    FoundImage image;
    if (const auto bad = image_of(code, image); bad != CUDA_SUCCESS)
        return bad;
    return load_library(library, image.bytes, std::move(image.joined),
                        {numJitOptions, jitOptions, jitOptionsValues},
                        {numLibraryOptions, libraryOptions, libraryOptionValues});
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                               void **jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions) {
    if (const auto bad = library_arguments(library, numJitOptions, jitOptions, jitOptionsValues,
                                           numLibraryOptions, libraryOptions);
        bad != CUDA_SUCCESS)
        return bad;
    std::vector<std::byte> bytes;
    std::span<const std::byte> image;
    if (const auto bad = file_image(fileName, bytes, image); bad != CUDA_SUCCESS)
        return bad;
    return load_library(library, image, std::move(bytes), {numJitOptions, jitOptions, jitOptionsValues},
                        {numLibraryOptions, libraryOptions, libraryOptionValues});
}

CUresult cuKernelGetName(const char **name, CUkernel hfunc) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (name == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    return name_of(driver_api::kHandleKernel, std::bit_cast<std::uint64_t>(hfunc), *name);
}

CUresult cuFuncGetName(const char **name, CUfunction hfunc) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (name == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto handle = std::bit_cast<std::uint64_t>(hfunc);
    return name_of(kind_of(handle) == driver_api::kHandleKernel ? driver_api::kHandleKernel
                                                                : driver_api::kHandleFunction,
                   handle, *name);
}

CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (pLib == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t owner = 0;
    const auto result = owner_of(driver_api::kHandleKernel, std::bit_cast<std::uint64_t>(kernel), owner);
    if (result == CUDA_SUCCESS)
        *pLib = std::bit_cast<CUlibrary>(owner);
    return result;
}

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (hmod == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t owner = 0;
    const auto result = owner_of(driver_api::kHandleFunction, std::bit_cast<std::uint64_t>(hfunc), owner);
    if (result == CUDA_SUCCESS)
        *hmod = std::bit_cast<CUmodule>(owner);
    return result;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize) {
    return parameter_info(driver_api::kHandleKernel, std::bit_cast<std::uint64_t>(kernel), paramIndex,
                          paramOffset, paramSize);
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize) {
    const auto handle = std::bit_cast<std::uint64_t>(func);
    return parameter_info(kind_of(handle) == driver_api::kHandleKernel ? driver_api::kHandleKernel
                                                                       : driver_api::kHandleFunction,
                          handle, paramIndex, paramOffset, paramSize);
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
    auto request = driver_api::FuncSetAttributeCall::request(ApiId::kFuncSetAttribute, hfunc, attrib, value);
    if (!request)
        return refused(request.error());
    if (const auto bad = check_handle(driver_api::kHandleFunction, request->hfunc); bad != CUDA_SUCCESS)
        return bad;
    const auto result = send_sync(
        *request,
        [&](std::span<const std::byte> encoded) {
            return driver_api::decode_FuncSetAttributeReply(*request, encoded);
        },
        [](const auto & /*reply*/) {});
    if (result == CUDA_SUCCESS)
        note_attribute(kind_of(request->hfunc), request->hfunc, attrib, value);
    return result;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
    const OnDevice on_device(dev);
    if (on_device.result() != CUDA_SUCCESS)
        return on_device.result();
    auto request =
        driver_api::KernelSetAttributeCall::request(ApiId::kKernelSetAttribute, attrib, val, kernel, dev);
    if (!request)
        return refused(request.error());
    if (const auto bad = check_handle(driver_api::kHandleKernel, request->kernel); bad != CUDA_SUCCESS)
        return bad;
    const auto result = send_sync(
        *request,
        [&](std::span<const std::byte> encoded) {
            return driver_api::decode_KernelSetAttributeReply(*request, encoded);
        },
        [](const auto & /*reply*/) {});
    if (result == CUDA_SUCCESS)
        note_attribute(driver_api::kHandleKernel, request->kernel, attrib, val);
    return result;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name) {
    return global_of<driver_api::ModuleGetGlobalV2Call, &driver_api::decode_ModuleGetGlobalV2Reply,
                     &driver_api::ModuleGetGlobalV2Request::hmod>(
        ApiId::kModuleGetGlobalV2, driver_api::kHandleModule, hmod, name, dptr, bytes);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name) {
    return global_of<driver_api::LibraryGetGlobalCall, &driver_api::decode_LibraryGetGlobalReply,
                     &driver_api::LibraryGetGlobalRequest::library>(
        ApiId::kLibraryGetGlobal, driver_api::kHandleLibrary, library, name, dptr, bytes);
}

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues,
                         CUlinkState *stateOut) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (stateOut == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    auto object = std::make_unique<LinkObject>();
    object->options = std::make_unique<JitOptions>(numOptions, options, optionValues);
    if (object->options->result() != CUDA_SUCCESS)
        return object->options->result();
    auto &table = process().table(driver_api::kHandleLink);
    const auto handle = table.reserve();
    const auto result = ask(Route{.session = context->session, .context = context},
                            protocol::Message<protocol::CreateLink>{.fixed = {.link = handle},
                                                                    .buffers = {object->options->view()}},
                            kLogs, [](const auto & /*reply*/) {});
    if (result != CUDA_SUCCESS)
        return result;
    object->context = context;
    object->session = context->session;
    table.add(handle, std::move(object));
    *stateOut = std::bit_cast<CUlinkState>(handle);
    return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                          unsigned int numOptions, CUjit_option *options, void **optionValues) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (data == nullptr || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return add_to_link(state, type, {static_cast<const std::byte *>(data), size}, name,
                       {numOptions, options, optionValues});
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
                          CUjit_option *options, void **optionValues) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (path == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<std::byte> bytes;
    if (const auto bad = read_file(path, bytes); bad != CUDA_SUCCESS)
        return bad;
    return add_to_link(state, type, bytes, path, {numOptions, options, optionValues});
}

CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut) {
    auto handle = std::bit_cast<std::uint64_t>(state);
    if (const auto bad = check_handle(driver_api::kHandleLink, handle); bad != CUDA_SUCCESS)
        return bad;
    Route route;
    if (const auto bad = take_route(route, false); bad != CUDA_SUCCESS)
        return bad;
    if (cubinOut == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    auto *const link = find_as<LinkObject>(driver_api::kHandleLink, handle);
    const auto number = new_blob_number();
    std::uint64_t size = 0;
    auto result =
        ask(route, protocol::Message<protocol::CompleteLink>{.fixed = {.link = handle, .blob = number}},
            kLogs, [&](CUresult, const auto &reply) {
                size = reply.fixed.size;
                link->options->finish_logs(protocol::text_of(reply.buffers[1]),
                                           protocol::text_of(reply.buffers[2]));
            });
    if (result != CUDA_SUCCESS)
        return result;
    if (size > protocol::kMostBlob)
        return CUDA_ERROR_UNKNOWN;
    link->image.resize(static_cast<std::size_t>(size));
    result = read_blob(route, number, link->image);
    if (const auto dropped = post(route, protocol::Message<protocol::DropBlob>{.fixed = {.blob = number}});
        result == CUDA_SUCCESS)
        result = dropped;
    if (result != CUDA_SUCCESS)
        return result;
    *cubinOut = link->image.data();
    if (sizeOut != nullptr)
        *sizeOut = link->image.size();
    return CUDA_SUCCESS;
}

} // extern "C"
