// SPDX-License-Identifier: GPL-2.0-or-later
#include "objects.hpp"

#include "blob.hpp"
#include "graph_memory.hpp"
#include "proxy/protocol/code.hpp"

#include <algorithm>
#include <utility>

namespace singularity::client {

namespace {

std::unique_ptr<Object> new_object(unsigned kind) {
    switch (kind) {
    case driver_api::kHandleStream:
        return std::make_unique<StreamObject>();
    case driver_api::kHandleEvent:
        return std::make_unique<EventObject>();
    case driver_api::kHandleLibrary:
    case driver_api::kHandleKernel:
    case driver_api::kHandleFunction:
        return std::make_unique<CodeObject>();
    case driver_api::kHandleGraphNode:
        return std::make_unique<NodeObject>();
    default:
        return std::make_unique<Object>();
    }
}

bool has_context(unsigned kind) {
    return kind != driver_api::kHandleLibrary && kind != driver_api::kHandleKernel;
}

std::string text_of(const driver_api::View &view) {
    std::string text(protocol::text_of(view));
    if (!text.empty() && text.back() == '\0')
        text.pop_back();
    return text;
}

std::uint64_t device_bit(const Session &session) { return std::uint64_t{1} << session.ordinal(); }

// A copy of a graph.
void share(std::uint64_t graph, const Object &copy) {
    share_user_objects(graph, copy.handle);
    share_graph_memory(graph, copy.handle, 0);
}

void forget_copy(std::uint64_t graph) {
    release_user_objects(graph);
    forget_graph(graph);
}

// What the request says about the object that it made.
void note(Object &object, unsigned kind, ApiId by, const void *request) {
    switch (by) {
    case ApiId::kStreamCreate:
        static_cast<StreamObject &>(object).flags =
            static_cast<unsigned>(static_cast<const driver_api::StreamCreateRequest *>(request)->Flags);
        return;
    case ApiId::kEventCreate:
        static_cast<EventObject &>(object).flags =
            static_cast<const driver_api::EventCreateRequest *>(request)->Flags;
        return;
    case ApiId::kStreamCreateWithPriority: {
        const auto &made = *static_cast<const driver_api::StreamCreateWithPriorityRequest *>(request);
        auto &stream = static_cast<StreamObject &>(object);
        stream.flags = static_cast<unsigned>(made.flags);
        // Priorities outside of the device's range are clamped (cuda.h, cuStreamCreateWithPriority).
        const auto &device = object.session->device();
        stream.priority = std::clamp(static_cast<int>(made.priority), device.stream_priority_greatest,
                                     device.stream_priority_least);
        return;
    }
    case ApiId::kModuleGetFunction: {
        const auto &made = *static_cast<const driver_api::ModuleGetFunctionRequest *>(request);
        static_cast<CodeObject &>(object).name = text_of(made.name);
        object.owner = made.hmod;
        return;
    }
    case ApiId::kLibraryGetKernel: {
        const auto &made = *static_cast<const driver_api::LibraryGetKernelRequest *>(request);
        static_cast<CodeObject &>(object).name = text_of(made.name);
        object.owner = made.library;
        return;
    }
    case ApiId::kKernelGetFunction: {
        const auto &made = *static_cast<const driver_api::KernelGetFunctionRequest *>(request);
        if (const auto *kernel = find_as<CodeObject>(driver_api::kHandleKernel, made.kernel);
            kernel != nullptr)
            static_cast<CodeObject &>(object).name = kernel->name;
        return;
    }
    case ApiId::kGraphClone:
        share(static_cast<const driver_api::GraphCloneRequest *>(request)->originalGraph, object);
        return;
    default:
        static_cast<void>(kind);
    }
}

CUresult load_library(CodeObject &library, Session &session) {
    if (library.source == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    const Route route{.session = &session, .context = nullptr};
    const Blob blob(route, library.source->image);
    if (blob.result() != CUDA_SUCCESS)
        return blob.result();
    return ask(route,
               protocol::Message<protocol::LoadLibrary>{
                   .fixed = {.library = library.handle, .blob = blob.number()},
                   .buffers = {{{.bytes = library.source->options, .present = true},
                                {.bytes = library.source->library_options, .present = true}}}},
               2 * protocol::kMostLogText, [](const auto & /*reply*/) {});
}

CUresult find_kernel(const CodeObject &kernel, Session &session) {
    auto *const library = find_object(driver_api::kHandleLibrary, kernel.owner);
    if (library == nullptr || kernel.name.empty())
        return CUDA_ERROR_INVALID_HANDLE;
    if (const auto bad = ensure_code(*library, session); bad != CUDA_SUCCESS)
        return bad;
    CUkernel out = nullptr;
    const auto request = driver_api::LibraryGetKernelCall::request(
        ApiId::kLibraryGetKernel, kernel.handle, &out, std::bit_cast<CUlibrary>(kernel.owner),
        kernel.name.c_str());
    if (!request)
        return CUDA_ERROR_INVALID_HANDLE;
    const Encoded encoded([&](std::span<std::byte> storage) { return encode(*request, storage); });
    const Exchange exchange({.session = &session, .context = nullptr}, encoded.bytes(), kReplyOverhead);
    if (exchange.failure() != CUDA_SUCCESS)
        return exchange.failure();
    const auto reply = driver_api::decode_LibraryGetKernelReply(*request, exchange.reply());
    return reply ? static_cast<CUresult>(reply->driver_result) : CUDA_ERROR_UNKNOWN;
}

} // namespace

Object *find_object(unsigned kind, std::uint64_t handle) {
    auto &table = process().table(kind);
    if (auto *const object = table.find(handle); object != nullptr) [[likely]]
        return object;
    return table.adopt(handle, [&] {
        auto object = new_object(kind);
        Route route;
        if (route_without_context(route) == CUDA_SUCCESS) {
            object->session = route.session;
            object->context = has_context(kind) ? route.context : nullptr;
            if (auto *code = dynamic_cast<CodeObject *>(object.get()); code != nullptr)
                code->present = device_bit(*route.session);
        }
        return object;
    });
}

void made(unsigned kind, std::uint64_t value, ApiId by, const void *request) {
    auto object = new_object(kind);
    const auto &route = last_route();
    object->handle = value;
    object->session = route.session;
    object->context = has_context(kind) ? route.context : nullptr;
    if (kind == driver_api::kHandleKernel || kind == driver_api::kHandleLibrary)
        static_cast<CodeObject &>(*object).present = device_bit(*route.session);
    note(*object, kind, by, request);
    process().table(kind).add(value, std::move(object));
}

void gone(unsigned kind, std::uint64_t value) {
    static_cast<void>(process().table(kind).remove(value));
    if (kind == driver_api::kHandleGraph || kind == driver_api::kHandleGraphExec)
        forget_copy(value);
    const auto orphan = [value](const Object &object) { return object.owner == value; };
    if (kind == driver_api::kHandleModule)
        static_cast<void>(process().table(driver_api::kHandleFunction).remove_if(orphan));
    if (kind == driver_api::kHandleLibrary)
        static_cast<void>(process().table(driver_api::kHandleKernel).remove_if(orphan));
}

CUresult ensure_code(Object &object, Session &session) {
    auto &code = static_cast<CodeObject &>(object);
    const auto bit = device_bit(session);
    if ((code.present.load(std::memory_order_acquire) & bit) != 0)
        return CUDA_SUCCESS;
    const std::scoped_lock lock(code.lock);
    if ((code.present.load(std::memory_order_acquire) & bit) != 0)
        return CUDA_SUCCESS;
    const auto result = kind_of(code.handle) == driver_api::kHandleLibrary ? load_library(code, session)
                                                                           : find_kernel(code, session);
    if (result == CUDA_SUCCESS)
        code.present.fetch_or(bit, std::memory_order_release);
    return result;
}

} // namespace singularity::client
