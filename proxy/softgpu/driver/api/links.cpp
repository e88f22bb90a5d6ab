// SPDX-License-Identifier: GPL-2.0-or-later
// cuLink*: PTX from several inputs. What comes out is an image that modules and libraries can be loaded from;
// it holds PTX, since there is no machine code.
#include "driver/api/entry.hpp"
#include "driver/jit.hpp"
#include "driver/module.hpp"
#include "ptx/fatbin.hpp"
#include "ptx/parser.hpp"

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <elf.h>

namespace singularity::softgpu::driver {

namespace {

struct Link {
    std::mutex mutex;
    JitOptions options;
    std::vector<std::string> texts;
    std::vector<std::byte> out;
};

Handles<Link, CUlinkState, HandleKind::link> &links() {
    static auto &table = *new Handles<Link, CUlinkState, HandleKind::link>; // outlives every thread
    return table;
}

CUresult create(unsigned count, CUjit_option *options, void **values, CUlinkState *out) {
    if (out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    auto link = std::make_shared<Link>();
    link->options = JitOptions(count, options, values);
    *out = links().add(std::move(link));
    return CUDA_SUCCESS;
}

CUresult refuse(Link &link, CUresult result, std::string text) {
    link.options.say_error(text);
    return report({result, std::move(text)});
}

CUresult add(Context &context, CUlinkState handle, CUjitInputType type, const void *data, std::size_t size) {
    const auto link = links().get(handle);
    if (!link)
        return link.error();
    if (data == nullptr || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    const std::scoped_lock lock((*link)->mutex);
    const auto *const bytes = static_cast<const std::byte *>(data);
    std::string text;
    // What NVRTC gives for machine code here is PTX: proxy/launcher/nvrtc.hpp.
    const bool compiled =
        type == CU_JIT_INPUT_CUBIN && !std::string_view(static_cast<const char *>(data), size)
                                           .starts_with(std::string_view(ELFMAG, SELFMAG));
    if (type == CU_JIT_INPUT_PTX || compiled) {
        text.assign(static_cast<const char *>(data), size);
        while (text.ends_with('\0'))
            text.pop_back();
    } else if (type == CU_JIT_INPUT_FATBINARY || type == CU_JIT_INPUT_OBJECT) {
        const auto entries = ptx::read_image({bytes, size});
        const ptx::FatbinEntry *const chosen =
            entries ? ptx::select_ptx(*entries, context.device().capability().sm()) : nullptr;
        if (chosen == nullptr)
            return refuse(**link, CUDA_ERROR_NO_BINARY_FOR_GPU,
                          "cannot link: the input holds no PTX for the device");
        auto found = ptx::ptx_text(*chosen);
        if (!found)
            return refuse(**link, CUDA_ERROR_INVALID_IMAGE, found.error().message());
        text = *std::move(found);
    } else {
        return refuse(**link, CUDA_ERROR_NO_BINARY_FOR_GPU,
                      "cannot link: machine code and NVVM cannot be linked, PTX and fatbins with PTX can");
    }
    if (const auto parsed = ptx::parse_module(text); !parsed)
        return refuse(**link, CUDA_ERROR_INVALID_PTX, parsed.error().message());
    (*link)->texts.push_back(std::move(text));
    return CUDA_SUCCESS;
}

CUresult add_file(Context &context, CUlinkState handle, CUjitInputType type, const char *path) {
    if (path == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    std::ifstream file(path, std::ios::binary);
    if (!file)
        return CUDA_ERROR_FILE_NOT_FOUND;
    const std::string content(std::istreambuf_iterator<char>(file), {});
    return add(context, handle, type, content.data(), content.size());
}

CUresult complete(CUlinkState handle, void **out, std::size_t *size) {
    const auto link = links().get(handle);
    if (!link)
        return link.error();
    if (out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const std::scoped_lock lock((*link)->mutex);
    std::vector<ptx::Module> modules;
    for (const std::string &text : (*link)->texts) {
        auto parsed = ptx::parse_module(text);
        if (!parsed)
            return refuse(**link, CUDA_ERROR_INVALID_PTX, parsed.error().message());
        modules.push_back(*std::move(parsed));
    }
    if (modules.empty())
        return refuse(**link, CUDA_ERROR_INVALID_VALUE, "cannot link: there was no input");
    if (const auto linked = driver::link(std::move(modules)); !linked)
        return refuse(**link, CUDA_ERROR_INVALID_PTX, linked.error().message());
    (*link)->out = linked_image((*link)->texts);
    (*link)->options.done();
    *out = (*link)->out.data();
    if (size != nullptr)
        *size = (*link)->out.size();
    return CUDA_SUCCESS;
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues,
                         CUlinkState *stateOut) {
    return with_context([&](Context &) { return create(numOptions, options, optionValues, stateOut); });
}
CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
                          const char * /*name*/, unsigned int /*numOptions*/, CUjit_option * /*options*/,
                          void ** /*optionValues*/) {
    return with_context([&](Context &context) { return add(context, state, type, data, size); });
}
CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
                          unsigned int /*numOptions*/, CUjit_option * /*options*/, void ** /*optionValues*/) {
    return with_context([&](Context &context) { return add_file(context, state, type, path); });
}
CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut) {
    return with_context([&](Context &) { return complete(state, cubinOut, sizeOut); });
}
CUresult cuLinkDestroy(CUlinkState state) {
    return with_driver(
        [&] { return links().take(state) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS; });
}

} // extern "C"
