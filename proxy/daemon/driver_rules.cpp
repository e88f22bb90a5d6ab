// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver_rules.hpp"

#include "batch_operation.hpp"
#include "driver_api/messages.hpp"
#include "session.hpp"
#include "shared_events.hpp"

#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <thread>

namespace singularity::proxyd {

namespace {

namespace api = driver_api;
using api::ApiId;
using api::Length;
using Bytes = std::span<const std::byte>;

constexpr std::chrono::microseconds kLookAtEvent{50};

// What cannot be decoded is refused by the dispatch, with the reason.
template <auto Decode, auto Allowed>
bool allowed(Session &session, Bytes message) {
    const auto request = Decode(message);
    return !request || Allowed(session, *request);
}

template <auto Decode, auto Done>
void after(Session &session, Bytes message) {
    if (const auto request = Decode(message))
        Done(session, *request);
}

template <auto Decode, auto Member>
std::uint64_t parent(Bytes message) {
    const auto request = Decode(message);
    return request ? (*request).*Member : 0;
}

bool reaches(Session &session, std::uint64_t address, Length size) {
    return size.valid() && (size.value() == 0 || session.reaches(address, size.value()));
}

// Bytes from the first to behind the last of a pitched rectangle.
template <std::size_t Element>
bool reaches_rectangle(Session &session, const auto &request) {
    if (request.Width == 0 || request.Height == 0)
        return true;
    return reaches(session, request.dstDevice,
                   Length(request.dstPitch) * Length(request.Height - 1) +
                       Length(request.Width) * Length(Element));
}

template <auto Decode, std::size_t Element>
constexpr DriverRule memset_rule() {
    return {.allowed = &allowed<Decode, [](Session &session, const auto &request) {
                return reaches(session, request.dstDevice, Length(request.N) * Length(Element));
            }>};
}

template <auto Decode, std::size_t Element>
constexpr DriverRule memset_2d_rule() {
    return {.allowed = &allowed<Decode, [](Session &session, const auto &request) {
                return reaches_rectangle<Element>(session, request);
            }>};
}

template <auto Decode, bool Source, bool Destination>
constexpr DriverRule copy_rule() {
    return {.allowed = &allowed<Decode, [](Session &session, const auto &request) {
                if constexpr (Source)
                    if (!reaches(session, request.srcDevice, Length(request.ByteCount)))
                        return false;
                if constexpr (Destination)
                    if (!reaches(session, request.dstDevice, Length(request.ByteCount)))
                        return false;
                return true;
            }>};
}

template <auto Decode, std::size_t Size>
constexpr DriverRule word_rule() {
    return {.allowed = &allowed<Decode, [](Session &session, const auto &request) {
                return session.reaches(request.addr, Size);
            }>};
}

template <auto Decode>
constexpr DriverRule batch_rule() {
    return {.allowed = &allowed<Decode, [](Session &session, const auto &request) {
                for (std::size_t at = 0;
                     at + sizeof(CUstreamBatchMemOpParams) <= request.paramArray.bytes.size();
                     at += sizeof(CUstreamBatchMemOpParams)) {
                    CUstreamBatchMemOpParams operation{};
                    std::memcpy(&operation, request.paramArray.bytes.data() + at, sizeof(operation));
                    if (!is_allowed(session, operation))
                        return false;
                }
                return true;
            }>};
}

template <auto Decode>
constexpr DriverRule range_rule() {
    return {.allowed = &allowed<Decode, [](Session &session, const auto &request) {
                return session.reaches(request.devPtr, request.count);
            }>};
}

// Only in what this session has reserved: the daemon's own slabs and other sessions' memory are no mappings
// of the program's.
template <auto Decode>
bool in_reservation(Session &session, Bytes message) {
    return allowed<Decode, [](Session &inner, const auto &request) {
        return inner.addresses().reserved(request.ptr, request.size);
    }>(session, message);
}

template <auto Decode, auto Member>
constexpr DriverRule child_rule() {
    return {.parent = &parent<Decode, Member>};
}

// cuStreamQuery and cuEventQuery: the query also ends a capture with an error, so it is not asked of a stream
// that is captured.
CUresult stream_idle(Session &session, Bytes message) {
    const auto request = api::decode_StreamSynchronizeRequest(message);
    const auto stream = request ? session.objects().real(api::kHandleStream, request->hStream) : std::nullopt;
    if (!stream || session.driver().cuStreamQuery == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    if (session.capturing(std::bit_cast<CUstream>(*stream)))
        return CUDA_SUCCESS;
    return session.driver().cuStreamQuery(std::bit_cast<CUstream>(*stream));
}

// Nothing is outstanding in any of the context's streams. Streams that are captured must not be asked.
CUresult context_idle(Session &session, Bytes /*message*/) {
    constexpr std::size_t kMostStreams = 16; // beyond, asking takes as long as another thread
    auto *const query = session.driver().cuStreamQuery;
    const auto streams = session.objects().streams_of(session.current_context());
    if (query == nullptr || session.captures() || streams.size() > kMostStreams)
        return CUDA_ERROR_NOT_READY;
    auto result = query(CU_STREAM_LEGACY);
    for (auto stream = streams.begin(); stream != streams.end() && result == CUDA_SUCCESS; ++stream)
        result = query(std::bit_cast<CUstream>(*stream));
    return result;
}

// Of an event that several sessions have, where another one has recorded it last.
std::optional<CUresult> query_last(Session &session, std::uint64_t event) {
    return SharedEvents::all().with_last({.session = &session, .handle = event},
                                         session.driver().cuEventQuery);
}

std::optional<CUresult> query_shared(Session &session, Bytes message) {
    if (!SharedEvents::all().any())
        return std::nullopt;
    const auto request = api::decode_EventQueryRequest(message);
    return request ? query_last(session, request->hEvent) : std::nullopt;
}

// On a thread that may wait.
std::optional<CUresult> await_shared(Session &session, Bytes message) {
    if (!SharedEvents::all().any())
        return std::nullopt;
    const auto request = api::decode_EventSynchronizeRequest(message);
    if (!request)
        return std::nullopt;
    for (;;) {
        const auto result = query_last(session, request->hEvent);
        if (!result || *result != CUDA_ERROR_NOT_READY || session.ending())
            return result;
        std::this_thread::sleep_for(kLookAtEvent);
    }
}

std::optional<CUresult> wait_for_shared(Session &session, Bytes message) {
    if (!SharedEvents::all().any())
        return std::nullopt;
    const auto request = api::decode_StreamWaitEventRequest(message);
    const auto stream = request ? session.objects().real(api::kHandleStream, request->hStream) : std::nullopt;
    if (!stream)
        return std::nullopt;
    return SharedEvents::all().with_last({.session = &session, .handle = request->hEvent},
                                         [&](CUevent event) {
                                             return session.driver().cuStreamWaitEvent(
                                                 std::bit_cast<CUstream>(*stream), event, request->Flags);
                                         });
}

template <auto Decode>
void record_shared(Session &session, Bytes message) {
    if (!SharedEvents::all().any())
        return;
    const auto request = Decode(message);
    const auto stream = request ? session.objects().real(api::kHandleStream, request->hStream) : std::nullopt;
    if (stream && !session.capturing(std::bit_cast<CUstream>(*stream)))
        SharedEvents::all().recorded({.session = &session, .handle = request->hEvent});
}

constexpr auto leave_shared = [](Session &session, const auto &request) {
    if (SharedEvents::all().any())
        SharedEvents::all().leave({.session = &session, .handle = request.hEvent});
    return true;
};

CUresult event_done(Session &session, Bytes message) {
    const auto request = api::decode_EventSynchronizeRequest(message);
    const auto event = request ? session.objects().real(api::kHandleEvent, request->hEvent) : std::nullopt;
    if (!event || session.driver().cuEventQuery == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    if (SharedEvents::all().any())
        if (const auto others = query_last(session, request->hEvent))
            return *others;
    return session.driver().cuEventQuery(std::bit_cast<CUevent>(*event));
}

// Without the NUL that travels with it.
std::string text_of(const api::View &view) {
    std::string text(static_cast<const char *>(static_cast<const void *>(view.bytes.data())),
                     view.bytes.size());
    while (!text.empty() && text.back() == '\0')
        text.pop_back();
    return text;
}

// A managed variable belongs to no context, so the driver could not say later that it is this session's.
void remember_managed(Session &session, const api::LibraryGetManagedRequest &request) {
    const auto library = session.objects().real(api::kHandleLibrary, request.library);
    CUdeviceptr address = 0;
    std::size_t size = 0;
    const auto name = text_of(request.name);
    if (!library || session.driver().cuLibraryGetManaged(&address, &size, std::bit_cast<CUlibrary>(*library),
                                                         name.c_str()) != CUDA_SUCCESS)
        return;
    session.addresses().remember_foreign(address, size, request.library);
    session.journal().seen({.owner = request.library, .managed = true, .name = name});
}

// The time between two events, one of which is from before a restore.
template <auto Decode, auto DecodeReply>
void correct_time(Session &session, Bytes message, std::span<std::byte> bytes) {
    if (!session.event_times().any())
        return;
    const auto request = Decode(message);
    if (!request)
        return;
    const auto reply = DecodeReply(*request, bytes);
    const auto start = session.objects().real(api::kHandleEvent, request->hStart);
    const auto end = session.objects().real(api::kHandleEvent, request->hEnd);
    float milliseconds = 0;
    if (!reply || !start || !end || reply->pMilliseconds.bytes.size() != sizeof(milliseconds))
        return;
    const auto at = static_cast<std::size_t>(reply->pMilliseconds.bytes.data() - bytes.data());
    std::memcpy(&milliseconds, bytes.data() + at, sizeof(milliseconds));
    milliseconds = session.event_times().answer(session.driver(), {.handle = request->hStart, .real = *start},
                                                {.handle = request->hEnd, .real = *end}, milliseconds);
    std::memcpy(bytes.data() + at, &milliseconds, sizeof(milliseconds));
}

constexpr auto begin_capture = [](Session &session, const auto &request) {
    session.capture_began(request.hStream);
};

void recount_captures(Session &session) { session.recount_captures(); }

constexpr auto leave_over = [](Session &session, const auto &request) {
    session.leave_over(request.hStream);
    return true;
};

using Rules = std::array<DriverRule, api::kApiCount>;

// By id; what is not named here has no rule.
const Rules &rules() {
    static const Rules kRules = [] {
        Rules table{};
        const auto set = [&table](ApiId id, DriverRule rule) { table[static_cast<std::size_t>(id)] = rule; };

        set(ApiId::kStreamSynchronize, {.waits = true, .idle = &stream_idle, .relays_output = true});
        set(ApiId::kEventSynchronize,
            {.waits = true, .idle = &event_done, .relays_output = true, .instead = &await_shared});
        set(ApiId::kEventQuery, {.instead = &query_shared});
        set(ApiId::kStreamWaitEvent, {.instead = &wait_for_shared});
        set(ApiId::kEventRecord, {.done = &record_shared<&api::decode_EventRecordRequest>});
        set(ApiId::kEventRecordWithFlags, {.done = &record_shared<&api::decode_EventRecordWithFlagsRequest>});
        set(ApiId::kEventDestroy, {.allowed = &allowed<&api::decode_EventDestroyRequest, leave_shared>});
        set(ApiId::kEventDestroyV2, {.allowed = &allowed<&api::decode_EventDestroyV2Request, leave_shared>});
        set(ApiId::kEventElapsedTime,
            {.corrects =
                 &correct_time<&api::decode_EventElapsedTimeRequest, &api::decode_EventElapsedTimeReply>});
        set(ApiId::kEventElapsedTimeV2, {.corrects = &correct_time<&api::decode_EventElapsedTimeV2Request,
                                                                   &api::decode_EventElapsedTimeV2Reply>});
        set(ApiId::kCtxSynchronize, {.waits = true, .idle = &context_idle, .relays_output = true});
        set(ApiId::kCtxSynchronizeV2, {.waits = true, .relays_output = true});
        set(ApiId::kModuleUnload, {.waits = true, .relays_output = true, .done = [](Session &session, Bytes) {
                                       session.addresses().forget_foreign();
                                   }});
        set(ApiId::kLibraryUnload,
            {.waits = true,
             .relays_output = true,
             .done = &after<&api::decode_LibraryUnloadRequest, [](Session &session, const auto &request) {
                 session.addresses().forget_foreign(request.library);
             }>});
        set(ApiId::kLibraryGetManaged,
            {.done = &after<&api::decode_LibraryGetManagedRequest, &remember_managed>});
        set(ApiId::kLinkDestroy,
            {.done = &after<&api::decode_LinkDestroyRequest, [](Session &session, const auto &request) {
                 session.link_states().drop(request.state);
             }>});
        set(ApiId::kFuncLoad, {.waits = true});
        set(ApiId::kMemPoolTrimTo, {.waits = true});

        set(ApiId::kMemsetD8V2, memset_rule<&api::decode_MemsetD8V2Request, 1>());
        set(ApiId::kMemsetD16V2, memset_rule<&api::decode_MemsetD16V2Request, 2>());
        set(ApiId::kMemsetD32V2, memset_rule<&api::decode_MemsetD32V2Request, 4>());
        set(ApiId::kMemsetD8Async, memset_rule<&api::decode_MemsetD8AsyncRequest, 1>());
        set(ApiId::kMemsetD16Async, memset_rule<&api::decode_MemsetD16AsyncRequest, 2>());
        set(ApiId::kMemsetD32Async, memset_rule<&api::decode_MemsetD32AsyncRequest, 4>());
        set(ApiId::kMemsetD2D8V2, memset_2d_rule<&api::decode_MemsetD2D8V2Request, 1>());
        set(ApiId::kMemsetD2D16V2, memset_2d_rule<&api::decode_MemsetD2D16V2Request, 2>());
        set(ApiId::kMemsetD2D32V2, memset_2d_rule<&api::decode_MemsetD2D32V2Request, 4>());
        set(ApiId::kMemsetD2D8Async, memset_2d_rule<&api::decode_MemsetD2D8AsyncRequest, 1>());
        set(ApiId::kMemsetD2D16Async, memset_2d_rule<&api::decode_MemsetD2D16AsyncRequest, 2>());
        set(ApiId::kMemsetD2D32Async, memset_2d_rule<&api::decode_MemsetD2D32AsyncRequest, 4>());

        set(ApiId::kMemcpyHtoDV2, copy_rule<&api::decode_MemcpyHtoDV2Request, false, true>());
        set(ApiId::kMemcpyHtoDAsyncV2, copy_rule<&api::decode_MemcpyHtoDAsyncV2Request, false, true>());
        set(ApiId::kMemcpyDtoHAsyncV2, copy_rule<&api::decode_MemcpyDtoHAsyncV2Request, true, false>());
        set(ApiId::kMemcpyDtoDV2, copy_rule<&api::decode_MemcpyDtoDV2Request, true, true>());
        set(ApiId::kMemcpyDtoDAsyncV2, copy_rule<&api::decode_MemcpyDtoDAsyncV2Request, true, true>());
        set(ApiId::kMemcpyDtoAV2, copy_rule<&api::decode_MemcpyDtoAV2Request, true, false>());
        set(ApiId::kMemcpyAtoDV2, copy_rule<&api::decode_MemcpyAtoDV2Request, false, true>());
        auto read = copy_rule<&api::decode_MemcpyDtoHV2Request, true, false>();
        read.waits = true;
        read.uses_memory = true;
        read.relays_output = true;
        set(ApiId::kMemcpyDtoHV2, read);
        set(ApiId::kMemcpyAtoHV2, {.waits = true, .uses_memory = true, .relays_output = true});

        set(ApiId::kStreamWriteValue32V2, word_rule<&api::decode_StreamWriteValue32V2Request, 4>());
        set(ApiId::kStreamWriteValue64V2, word_rule<&api::decode_StreamWriteValue64V2Request, 8>());
        set(ApiId::kStreamWaitValue32V2, word_rule<&api::decode_StreamWaitValue32V2Request, 4>());
        set(ApiId::kStreamWaitValue64V2, word_rule<&api::decode_StreamWaitValue64V2Request, 8>());
        set(ApiId::kStreamBatchMemOpV2, batch_rule<&api::decode_StreamBatchMemOpV2Request>());
        set(ApiId::kMemPrefetchAsyncV2, range_rule<&api::decode_MemPrefetchAsyncV2Request>());
        set(ApiId::kMemAdviseV2, range_rule<&api::decode_MemAdviseV2Request>());

        set(ApiId::kMemMap,
            {.allowed = &in_reservation<&api::decode_MemMapRequest>,
             .done = &after<&api::decode_MemMapRequest, [](Session &session, const auto &request) {
                 session.mapped(
                     request.ptr,
                     {.size = request.size, .offset = request.offset, .allocation = request.handle});
             }>});
        set(ApiId::kMemCreate,
            {.done = &after<&api::decode_MemCreateRequest, [](Session &session, const auto &request) {
                 session.allocated(request.handle, request.size);
             }>});
        set(ApiId::kMemRelease,
            {.done = &after<&api::decode_MemReleaseRequest, [](Session &session, const auto &request) {
                 session.released(request.handle);
             }>});
        set(ApiId::kModuleGetGlobalV2,
            {.done = &after<&api::decode_ModuleGetGlobalV2Request, [](Session &session, const auto &request) {
                 session.journal().seen(
                     {.owner = request.hmod, .managed = false, .name = text_of(request.name)});
             }>});
        set(ApiId::kLibraryGetGlobal,
            {.done = &after<&api::decode_LibraryGetGlobalRequest, [](Session &session, const auto &request) {
                 session.journal().seen(
                     {.owner = request.library, .managed = false, .name = text_of(request.name)});
             }>});
        set(ApiId::kMemUnmap,
            {.waits = true,
             .allowed = &in_reservation<&api::decode_MemUnmapRequest>,
             .done = &after<&api::decode_MemUnmapRequest, [](Session &session, const auto &request) {
                 session.unmapped(request.ptr, request.size);
             }>});
        set(ApiId::kMemSetAccess, {.allowed = &in_reservation<&api::decode_MemSetAccessRequest>});

        set(ApiId::kStreamBeginCapture,
            {.done = &after<&api::decode_StreamBeginCaptureRequest, begin_capture>});
        set(ApiId::kStreamBeginCaptureV2,
            {.done = &after<&api::decode_StreamBeginCaptureV2Request, begin_capture>});
        set(ApiId::kStreamBeginCaptureToGraph,
            {.done = &after<&api::decode_StreamBeginCaptureToGraphRequest, begin_capture>});
        set(ApiId::kStreamEndCapture, {.tried = &recount_captures});
        set(ApiId::kStreamDestroy,
            {.allowed = &allowed<&api::decode_StreamDestroyRequest, leave_over>, .tried = &recount_captures});
        set(ApiId::kStreamDestroyV2, {.allowed = &allowed<&api::decode_StreamDestroyV2Request, leave_over>,
                                      .tried = &recount_captures});

        set(ApiId::kModuleGetFunction,
            child_rule<&api::decode_ModuleGetFunctionRequest, &api::ModuleGetFunctionRequest::hmod>());
        set(ApiId::kLibraryGetKernel,
            child_rule<&api::decode_LibraryGetKernelRequest, &api::LibraryGetKernelRequest::library>());
        set(ApiId::kLibraryGetModule,
            child_rule<&api::decode_LibraryGetModuleRequest, &api::LibraryGetModuleRequest::library>());
        set(ApiId::kKernelGetFunction,
            child_rule<&api::decode_KernelGetFunctionRequest, &api::KernelGetFunctionRequest::kernel>());
        set(ApiId::kArrayGetPlane,
            child_rule<&api::decode_ArrayGetPlaneRequest, &api::ArrayGetPlaneRequest::hArray>());
        set(ApiId::kMipmappedArrayGetLevel,
            child_rule<&api::decode_MipmappedArrayGetLevelRequest,
                       &api::MipmappedArrayGetLevelRequest::hMipmappedArray>());
        set(ApiId::kGraphChildGraphNodeGetGraph,
            child_rule<&api::decode_GraphChildGraphNodeGetGraphRequest,
                       &api::GraphChildGraphNodeGetGraphRequest::hNode>());
        set(ApiId::kGraphAddEmptyNode,
            child_rule<&api::decode_GraphAddEmptyNodeRequest, &api::GraphAddEmptyNodeRequest::hGraph>());
        set(ApiId::kGraphAddChildGraphNode, child_rule<&api::decode_GraphAddChildGraphNodeRequest,
                                                       &api::GraphAddChildGraphNodeRequest::hGraph>());
        set(ApiId::kGraphAddEventRecordNode, child_rule<&api::decode_GraphAddEventRecordNodeRequest,
                                                        &api::GraphAddEventRecordNodeRequest::hGraph>());
        set(ApiId::kGraphAddEventWaitNode, child_rule<&api::decode_GraphAddEventWaitNodeRequest,
                                                      &api::GraphAddEventWaitNodeRequest::hGraph>());
        set(ApiId::kGraphAddMemFreeNode,
            child_rule<&api::decode_GraphAddMemFreeNodeRequest, &api::GraphAddMemFreeNodeRequest::hGraph>());
        set(ApiId::kGraphConditionalHandleCreate,
            child_rule<&api::decode_GraphConditionalHandleCreateRequest,
                       &api::GraphConditionalHandleCreateRequest::hGraph>());
        set(ApiId::kGraphGetNodes,
            child_rule<&api::decode_GraphGetNodesRequest, &api::GraphGetNodesRequest::hGraph>());
        set(ApiId::kGraphGetRootNodes,
            child_rule<&api::decode_GraphGetRootNodesRequest, &api::GraphGetRootNodesRequest::hGraph>());
        set(ApiId::kModuleEnumerateFunctions, child_rule<&api::decode_ModuleEnumerateFunctionsRequest,
                                                         &api::ModuleEnumerateFunctionsRequest::mod>());
        set(ApiId::kLibraryEnumerateKernels, child_rule<&api::decode_LibraryEnumerateKernelsRequest,
                                                        &api::LibraryEnumerateKernelsRequest::lib>());
        return table;
    }();
    return kRules;
}

} // namespace

const DriverRule &driver_rule(driver_api::ApiId id) { return rules()[static_cast<std::size_t>(id)]; }

} // namespace singularity::proxyd
