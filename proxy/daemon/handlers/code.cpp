// SPDX-License-Identifier: GPL-2.0-or-later
// Images in pieces, modules, libraries, the linker.
#include "handlers.hpp"
#include "images.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

namespace singularity::proxyd::handlers {

namespace {

using protocol::CodeOption;
using protocol::Nullable;

constexpr std::size_t kMostOptions = 64;

// Values that are addresses of more than a log: they do not travel.
bool points(CUjit_option option) {
    return option == CU_JIT_GLOBAL_SYMBOL_NAMES || option == CU_JIT_GLOBAL_SYMBOL_ADDRESSES ||
           option == CU_JIT_REFERENCED_KERNEL_NAMES || option == CU_JIT_REFERENCED_VARIABLE_NAMES;
}

// Nothing where an option cannot be passed on.
std::optional<CodeOptions> read_options(const driver_api::View &view) {
    CodeOptions out;
    const auto count = protocol::element_count<CodeOption>(view);
    if (count > kMostOptions)
        return std::nullopt;
    const auto size_of = [&](CUjit_option which) {
        std::size_t size = 0;
        for (std::size_t index = 0; index < count; ++index)
            if (const auto option = protocol::element<CodeOption>(view, index); option.option == which)
                size =
                    static_cast<std::size_t>(std::min<std::uint64_t>(option.value, protocol::kMostLogText));
        return size;
    };
    for (std::size_t index = 0; index < count; ++index) {
        const auto option = protocol::element<CodeOption>(view, index);
        const auto name = static_cast<CUjit_option>(option.option);
        if (points(name))
            return std::nullopt;
        auto value = std::bit_cast<void *>(option.value);
        if (name == CU_JIT_INFO_LOG_BUFFER) {
            out.info_log.resize(size_of(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES));
            value = out.info_log.data();
        } else if (name == CU_JIT_ERROR_LOG_BUFFER) {
            out.error_log.resize(size_of(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES));
            value = out.error_log.data();
        } else if (name == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || name == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
            value = std::bit_cast<void *>(std::min<std::uint64_t>(option.value, protocol::kMostLogText));
        }
        out.names.push_back(name);
        out.values.push_back(value);
    }
    return out;
}

driver_api::View log_view(const std::vector<char> &log) {
    if (log.empty())
        return {};
    const auto *end = static_cast<const char *>(std::memchr(log.data(), '\0', log.size()));
    return protocol::view_of_text(
        {log.data(), end == nullptr ? log.size() : static_cast<std::size_t>(end - log.data())});
}

// Options with the values that the driver has left in them, and the logs.
template <std::size_t Buffers>
void fill(Call &call, const CodeOptions &options, std::array<driver_api::View, Buffers> &buffers) {
    const auto out = call.elements<CodeOption>(options.names.size());
    for (std::size_t index = 0; index < out.size(); ++index) {
        out[index] = {.option = static_cast<std::uint32_t>(options.names[index]),
                      .reserved = 0,
                      .value = std::bit_cast<std::uint64_t>(options.values[index])};
        // An address of the daemon's is nobody's business.
        if (options.names[index] == CU_JIT_INFO_LOG_BUFFER || options.names[index] == CU_JIT_ERROR_LOG_BUFFER)
            out[index].value = 1;
    }
    buffers[0] = protocol::view_of_elements(std::span<const CodeOption>(out));
    buffers[1] = log_view(options.info_log);
    buffers[2] = log_view(options.error_log);
}

// The image, or why there is none.
std::expected<std::shared_ptr<const Blob>, CUresult> image_of(Call &call, std::uint64_t number) {
    auto blob = call.session().blobs().find(number);
    // Not complete: there was no room for it.
    if (blob == nullptr)
        return std::unexpected(CUDA_ERROR_OUT_OF_MEMORY);
    if (!is_whole(std::span(blob->bytes).first(blob->size)))
        return std::unexpected(CUDA_ERROR_INVALID_IMAGE);
    return blob;
}

} // namespace

CUresult handle(Call &call, const Request<protocol::BeginBlob> &request) {
    if (auto begun = call.session().blobs().begin(request.fixed.blob, request.fixed.size); !begun)
        return call.broken(begun.error().message());
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::BlobData> &request) {
    if (auto taken =
            call.session().blobs().append(request.fixed.blob, request.fixed.offset, request.buffers[0].bytes);
        !taken)
        return call.broken(taken.error().message());
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::DropBlob> &request) {
    if (auto dropped = call.session().blobs().drop(request.fixed.blob); !dropped)
        return call.broken(dropped.error().message());
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::ReadBlob> &request, Reply<protocol::ReadBlob> &reply) {
    const auto blob = call.session().blobs().find(request.fixed.blob);
    const auto &[number, offset, size] = request.fixed;
    if (blob == nullptr || offset > blob->size || size > blob->size - offset)
        return call.broken("it reads what is not in a blob");
    // The reply is encoded before this function's blob can go: the session has it.
    const auto copy = call.storage(size);
    std::ranges::copy(std::span(blob->bytes).subspan(offset, size), copy.begin());
    reply.buffers[0] = {.bytes = copy, .present = true};
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::LoadModule> &request,
                Reply<protocol::LoadModule> &reply) {
    if (call.driver().cuModuleLoadDataEx == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    const auto blob = image_of(call, request.fixed.blob);
    if (!blob)
        return blob.error();
    auto options = read_options(request.buffers[0]);
    if (!options)
        return CUDA_ERROR_INVALID_VALUE;
    CUmodule module = nullptr;
    const DriverImage image(std::span((*blob)->bytes).first((*blob)->size));
    const auto result =
        call.driver().cuModuleLoadDataEx(&module, image.data(), static_cast<unsigned>(options->names.size()),
                                         options->names.data(), options->values.data());
    if (result == CUDA_SUCCESS)
        call.add(driver_api::kHandleModule, request.fixed.module, module);
    // The logs live here until the reply has been encoded.
    static thread_local CodeOptions kept;
    kept = std::move(*options);
    fill(call, kept, reply.buffers);
    return result;
}

CUresult handle(Call &call, const Request<protocol::LoadLibrary> &request,
                Reply<protocol::LoadLibrary> &reply) {
    if (call.driver().cuLibraryLoadData == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    const auto blob = image_of(call, request.fixed.blob);
    if (!blob)
        return blob.error();
    auto options = read_options(request.buffers[0]);
    const auto library_options = protocol::element_count<CodeOption>(request.buffers[1]);
    if (!options || library_options > kMostOptions)
        return CUDA_ERROR_INVALID_VALUE;
    // CU_LIBRARY_BINARY_IS_PRESERVED would be a promise about the blob: without it the driver makes its own
    // copy.
    for (std::size_t index = 0; index < library_options; ++index)
        if (protocol::element<CodeOption>(request.buffers[1], index).option != CU_LIBRARY_BINARY_IS_PRESERVED)
            return CUDA_ERROR_INVALID_VALUE;
    CUlibrary library = nullptr;
    const DriverImage image(std::span((*blob)->bytes).first((*blob)->size));
    const auto result =
        call.driver().cuLibraryLoadData(&library, image.data(), options->names.data(), options->values.data(),
                                        static_cast<unsigned>(options->names.size()), nullptr, nullptr, 0);
    if (result == CUDA_SUCCESS)
        call.add(driver_api::kHandleLibrary, request.fixed.library, library);
    static thread_local CodeOptions kept;
    kept = std::move(*options);
    fill(call, kept, reply.buffers);
    return result;
}

CUresult handle(Call &call, const Request<protocol::CreateLink> &request,
                Reply<protocol::CreateLink> &reply) {
    if (call.driver().cuLinkCreate_v2 == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    auto options = read_options(request.buffers[0]);
    if (!options)
        return CUDA_ERROR_INVALID_VALUE;
    auto state = std::make_shared<LinkState>();
    state->options = std::move(*options);
    CUlinkState link = nullptr;
    const auto result =
        call.driver().cuLinkCreate_v2(static_cast<unsigned>(state->options.names.size()),
                                      state->options.names.data(), state->options.values.data(), &link);
    if (result == CUDA_SUCCESS) {
        call.add(driver_api::kHandleLink, request.fixed.link, link);
        call.session().link_states().put(request.fixed.link, state);
        fill(call, state->options, reply.buffers);
    }
    return result;
}

CUresult handle(Call &call, const Request<protocol::AddLinkData> &request,
                Reply<protocol::AddLinkData> &reply) {
    if (call.driver().cuLinkAddData_v2 == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    const auto link = call.object<CUlinkState>(driver_api::kHandleLink, request.fixed.link);
    const auto state = call.session().link_states().find(request.fixed.link);
    if (!link || *link == nullptr || state == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    const auto blob = image_of(call, request.fixed.blob);
    if (!blob)
        return blob.error();
    auto options = read_options(request.buffers[1]);
    if (!options)
        return CUDA_ERROR_INVALID_VALUE;
    const std::string name(protocol::text_of(request.buffers[0]));
    const auto type = static_cast<CUjitInputType>(request.fixed.type);
    // PTX is given with its NUL, as programs do.
    const std::size_t size = (*blob)->size + (type == CU_JIT_INPUT_PTX ? 1 : 0);
    // The driver reads it, although it does not say const.
    auto *data = const_cast<std::byte *>((*blob)->bytes.data());
    const auto result = call.driver().cuLinkAddData_v2(
        *link, type, data, size, request.buffers[0].present ? name.c_str() : nullptr,
        static_cast<unsigned>(options->names.size()), options->names.data(), options->values.data());
    state->inputs.push_back(*blob);
    fill(call, state->options, reply.buffers);
    return result;
}

CUresult handle(Call &call, const Request<protocol::CompleteLink> &request,
                Reply<protocol::CompleteLink> &reply) {
    if (call.driver().cuLinkComplete == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    const auto link = call.object<CUlinkState>(driver_api::kHandleLink, request.fixed.link);
    const auto state = call.session().link_states().find(request.fixed.link);
    if (!link || *link == nullptr || state == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    void *image = nullptr;
    std::size_t size = 0;
    auto result = call.driver().cuLinkComplete(*link, &image, &size);
    if (result == CUDA_SUCCESS && image != nullptr) {
        const auto room =
            call.session().blobs().put(request.fixed.blob, {static_cast<const std::byte *>(image), size});
        if (!room)
            return call.broken(room.error().message());
        reply.fixed.size = size;
        if (!*room)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    fill(call, state->options, reply.buffers);
    return result;
}

} // namespace singularity::proxyd::handlers
