// SPDX-License-Identifier: GPL-2.0-or-later
#include "call_order.hpp"

#include "driver_api/messages.hpp"
#include "proxy/driver-api/api.hpp"
#include "proxy/protocol/all.hpp"

#include <array>
#include <utility>

namespace singularity::proxyd {

namespace {

namespace api = driver_api;
using api::ApiId;
using Bytes = std::span<const std::byte>;
using Kind = CallOrder::Kind;
using Read = CallOrder (*)(Bytes message);

template <auto Decode, auto Stream>
CallOrder in_stream(Bytes message) {
    const auto request = Decode(message);
    return request ? CallOrder{.kind = Kind::its_stream, .stream = (*request).*Stream} : CallOrder{};
}

template <auto Decode>
CallOrder records(Bytes message) {
    const auto request = Decode(message);
    return request ? CallOrder{.kind = Kind::marks, .stream = request->hStream, .event = request->hEvent}
                   : CallOrder{};
}

CallOrder after_event(Bytes message) {
    const auto request = api::decode_StreamWaitEventRequest(message);
    return request ? CallOrder{.kind = Kind::event, .stream = request->hStream, .event = request->hEvent}
                   : CallOrder{};
}

CallOrder after_nothing(Bytes /*message*/) { return {.kind = Kind::nothing}; }
CallOrder after_streams(Bytes /*message*/) { return {.kind = Kind::streams}; }

template <class M>
CallOrder in_stream_of(Kind kind, Bytes message) {
    const auto request = protocol::decode_request<M>(message);
    return request ? CallOrder{.kind = kind, .stream = request->fixed.stream} : CallOrder{};
}

// Per-thread default streams have the legacy one's messages.
const std::array<Read, api::kApiCount> &driver_calls() {
    static const auto kTable = [] {
        std::array<Read, api::kApiCount> table{};
        const auto set = [&table](ApiId id, Read read) { table[static_cast<std::size_t>(id)] = read; };
        set(ApiId::kGraphLaunch,
            &in_stream<&api::decode_GraphLaunchRequest, &api::GraphLaunchRequest::hStream>);
        set(ApiId::kMemsetD8Async,
            &in_stream<&api::decode_MemsetD8AsyncRequest, &api::MemsetD8AsyncRequest::hStream>);
        set(ApiId::kMemsetD16Async,
            &in_stream<&api::decode_MemsetD16AsyncRequest, &api::MemsetD16AsyncRequest::hStream>);
        set(ApiId::kMemsetD32Async,
            &in_stream<&api::decode_MemsetD32AsyncRequest, &api::MemsetD32AsyncRequest::hStream>);
        set(ApiId::kMemcpyDtoDAsyncV2,
            &in_stream<&api::decode_MemcpyDtoDAsyncV2Request, &api::MemcpyDtoDAsyncV2Request::hStream>);
        set(ApiId::kMemcpyHtoDAsyncV2,
            &in_stream<&api::decode_MemcpyHtoDAsyncV2Request, &api::MemcpyHtoDAsyncV2Request::hStream>);
        set(ApiId::kMemcpyDtoHAsyncV2,
            &in_stream<&api::decode_MemcpyDtoHAsyncV2Request, &api::MemcpyDtoHAsyncV2Request::hStream>);
        set(ApiId::kEventRecord, &records<&api::decode_EventRecordRequest>);
        set(ApiId::kEventRecordWithFlags, &records<&api::decode_EventRecordWithFlagsRequest>);
        set(ApiId::kStreamWaitEvent, &after_event);
        for (const auto id : {ApiId::kEventQuery, ApiId::kEventElapsedTime, ApiId::kEventElapsedTimeV2,
                              ApiId::kEventSynchronize, ApiId::kStreamQuery, ApiId::kStreamSynchronize,
                              ApiId::kCtxSynchronize})
            set(id, &after_streams);
        for (const auto id : {ApiId::kEventCreate, ApiId::kStreamIsCapturing, ApiId::kFuncGetAttribute,
                              ApiId::kFuncSetAttribute, ApiId::kModuleGetFunction, ApiId::kLibraryGetKernel,
                              ApiId::kKernelGetFunction, ApiId::kOccupancyMaxActiveBlocksPerMultiprocessor,
                              ApiId::kOccupancyMaxActiveBlocksPerMultiprocessorWithFlags})
            set(id, &after_nothing);
        return table;
    }();
    return kTable;
}

} // namespace

CallOrder order_of(std::uint32_t id, Bytes message) {
    if (id < api::kApiCount) {
        const auto legacy = static_cast<std::size_t>(api::api_info(static_cast<ApiId>(id)).legacy);
        const auto read = driver_calls()[legacy];
        return read == nullptr ? CallOrder{} : read(message);
    }
    switch (static_cast<protocol::Id>(id)) {
    case protocol::Id::launch_kernel:
        return in_stream_of<protocol::LaunchKernel>(Kind::its_stream, message);
    case protocol::Id::read_memory:
        return in_stream_of<protocol::ReadMemory>(Kind::its_stream, message);
    case protocol::Id::map_slab:
    case protocol::Id::memory_info:
    case protocol::Id::join_communicator:
    case protocol::Id::communicator_state:
        return {.kind = Kind::nothing};
    case protocol::Id::issue_collectives: {
        const auto request = protocol::decode_request<protocol::IssueCollectives>(message);
        return request ? CallOrder{.kind = Kind::collectives,
                                   .stream = request->fixed.stream,
                                   .communicator = request->fixed.communicator}
                       : CallOrder{};
    }
    default:
        return {};
    }
}

} // namespace singularity::proxyd
