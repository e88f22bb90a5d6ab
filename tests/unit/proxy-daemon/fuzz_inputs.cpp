// SPDX-License-Identifier: GPL-2.0-or-later
#include "fuzz_inputs.hpp"

#include "driver_api/api_id.hpp"
#include "driver_api/handles.hpp"
#include "driver_api/messages.hpp"
#include "proxy/channel/packet.hpp"
#include "proxy/driver-api/dispatch.hpp"
#include "proxy/protocol/all.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <string_view>
#include <utility>

namespace singularity::test {

namespace {

namespace api = driver_api;

constexpr std::uint64_t kSlab = kFuzzSlice;
constexpr std::uint64_t kReservation = kFuzzSlice + 16 * protocol::kSlabUnit;
constexpr std::uint64_t kHostMemory = kFuzzWindow + 64 * protocol::kSlabUnit;
constexpr std::uint64_t kTicket = 7;

Part record(Bytes message, bool replies) {
    return {.slot = replies ? std::uint8_t{0} : kNothing,
            .piece = replies ? std::uint8_t{0} : kNothing,
            .context = 1,
            .flags = 0,
            .message = std::move(message)};
}

// What the message's own check would refuse is made by hand: head and sizes of absent buffers.
template <class M>
Part record_of(const protocol::Message<M> &message) {
    const auto size = protocol::encoded_size(message);
    Bytes bytes(size);
    if (!protocol::encode(message, std::as_writable_bytes(std::span(bytes)))) {
        const api::MessageHeader header{.api = std::to_underlying(M::kId), .kind = 1, .size = size};
        std::memcpy(bytes.data(), &header, sizeof(header));
    }
    return record(std::move(bytes), protocol::kReplies<M>);
}

Part packet(channel::PacketType type, std::uint64_t ticket, std::uint8_t descriptors) {
    const channel::PacketHeader header{.type = std::to_underlying(type), .size = 0, .ticket = ticket};
    Part part{
        .slot = descriptors, .piece = 0, .context = 0, .flags = kPacket, .message = Bytes(sizeof(header))};
    std::memcpy(part.message.data(), &header, sizeof(header));
    return part;
}

// The plainest values with which a driver's function is called: handles that are there, addresses that are
// the session's, lengths of one.
class Plain {
  public:
    template <class T>
    void value(std::string_view name, T &field) {
        const bool address = name.find("ptr") != name.npos || name.find("Ptr") != name.npos ||
                             name.find("Device") != name.npos || name == "addr";
        field = address && sizeof(T) == sizeof(kSlab) ? static_cast<T>(kSlab) : static_cast<T>(1);
    }
    void handle(std::string_view /*name*/, std::string_view kind, std::uint64_t &field, bool is_new) {
        const auto found = std::ranges::find(api::kHandleKindNames, kind);
        field = fuzz_handle(static_cast<unsigned>(found - api::kHandleKindNames.begin()), is_new ? 100 : 1);
    }
    template <std::size_t N>
    void object(std::string_view /*name*/, std::array<std::byte, N> &field) {
        field.fill(std::byte{0});
    }
    void wanted(std::string_view /*name*/, bool &field) { field = true; }
    void range(std::string_view /*name*/, api::HostRange &field, api::Length length) {
        field = {.address = kHostMemory, .size = length.valid() ? length.value() : 0};
    }
    void string(std::string_view /*name*/, api::View &field, bool /*nullable*/) {
        static constexpr std::array<std::byte, 2> kText{std::byte{'x'}, std::byte{0}};
        field = {.bytes = kText, .present = true};
    }
    void buffer(std::string_view /*name*/, api::View &field, api::Length length, bool nullable, bool nulls) {
        constexpr std::uint64_t kMost = 4096;
        field = {};
        if (!length.valid() || length.value() > kMost)
            return;
        if (nullable && length.value() == 0)
            return;
        auto &bytes = memory_.emplace_back(length.value());
        if (!nulls && !bytes.empty())
            bytes.front() = std::byte{1};
        field = {.bytes = bytes, .present = true};
    }

  private:
    std::deque<std::vector<std::byte>> memory_;
};

// Without bytes where its values do not fit together.
template <class Request>
Part call_of(const Request &request) {
    Bytes bytes(8192);
    const auto size = encode(request, std::as_writable_bytes(std::span(bytes)));
    bytes.resize(size.value_or(0));
    return record(std::move(bytes), api::dispatch_row(request.api).replies);
}

template <class Request>
void add_call(std::vector<std::vector<Part>> &found) {
    Plain values;
    Request request;
    visit(request, values);
    if (auto call = call_of(request); !call.message.empty())
        found.push_back({std::move(call)}); // changes of others find the values that do
}

std::vector<std::vector<Part>> all_seeds() {
    std::vector<std::vector<Part>> found;
    protocol::for_each_message([&found]<class M>() {
        protocol::Message<M> message{};
        static constexpr std::array<std::byte, 64> kData{};
        for (std::size_t index = 0; index < message.buffers.size(); ++index)
            if (M::kBuffers[index].nullable == protocol::Nullable::no)
                message.buffers[index] = {.bytes = std::span(kData).first(M::kBuffers[index].element),
                                          .present = true};
        found.push_back({record_of(message)});
    });
#define ONE(Name) add_call<api::Name##Request>(found);
    SINGULARITY_DRIVER_API_REQUESTS(ONE);
#undef ONE
    // What leads somewhere: memory that is there, data in it, images that arrive in parts.
    const auto slab = record_of(
        protocol::Message<protocol::MapSlab>{.fixed = {.address = kSlab, .size = protocol::kSlabUnit}});
    static constexpr std::array<std::byte, 256> kBytes{};
    const api::View data{.bytes = kBytes, .present = true};
    const auto stream = fuzz_handle(api::kHandleStream, 1);
    found.push_back({slab,
                     record_of(protocol::Message<protocol::WriteMemory>{
                         .fixed = {.destination = kSlab, .stream = stream}, .buffers = {data}}),
                     record_of(protocol::Message<protocol::ReadMemory>{
                         .fixed = {.source = kSlab, .size = kBytes.size(), .stream = stream}}),
                     record_of(protocol::Message<protocol::UnmapSlab>{
                         .fixed = {.address = kSlab, .size = protocol::kSlabUnit}})});
    found.push_back(
        {slab,
         record_of(protocol::Message<protocol::ShareSlab>{
             .fixed = {.address = kSlab, .size = protocol::kSlabUnit, .offset = 512, .length = 512}}),
         record_of(protocol::Message<protocol::OpenSlab>{
             .fixed = {.address = kReservation, .size = protocol::kSlabUnit, .offset = 512, .length = 512}}),
         record_of(protocol::Message<protocol::EndExport>{.fixed = {.address = kSlab, .offset = 512}})});
    found.push_back(
        {record_of(protocol::Message<protocol::ShareEvent>{
             .fixed = {.event = fuzz_handle(api::kHandleEvent, 1), .key = {1, 2}}}),
         record_of(protocol::Message<protocol::OpenEvent>{
             .fixed = {.event = fuzz_handle(api::kHandleEvent, 100), .key = {1, 2}}}),
         call_of(api::EventRecordRequest{.hEvent = fuzz_handle(api::kHandleEvent, 1), .hStream = stream}),
         call_of(
             api::StreamWaitEventRequest{.hStream = stream, .hEvent = fuzz_handle(api::kHandleEvent, 100)})});
    found.push_back({record_of(protocol::Message<protocol::ReserveAddress>{
                         .fixed = {.address = kReservation, .size = protocol::kSlabUnit}}),
                     record_of(protocol::Message<protocol::FreeAddress>{
                         .fixed = {.address = kReservation, .size = protocol::kSlabUnit}})});
    found.push_back({record_of(protocol::Message<protocol::ReserveAddress>{
                         .fixed = {.address = kReservation, .size = protocol::kSlabUnit}}),
                     call_of(api::MemMapRequest{.ptr = kReservation,
                                                .size = protocol::kSlabUnit,
                                                .handle = fuzz_handle(api::kHandleAllocation, 1)})});
    found.push_back(
        {packet(channel::PacketType::descriptor, kTicket, 1),
         record_of(protocol::Message<protocol::MapHostMemory>{
             .fixed = {.descriptor = kTicket, .address = kHostMemory, .size = kFuzzFileSize, .flags = 0}}),
         record_of(protocol::Message<protocol::UnmapHostMemory>{
             .fixed = {.address = kHostMemory, .size = kFuzzFileSize}})});
    const protocol::Place place{
        .kind = std::to_underlying(protocol::PlaceKind::device), .base = kSlab, .pitch = 16, .height = 16};
    const protocol::Box box{.width = 16, .height = 4, .depth = 4};
    found.push_back({slab,
                     record_of(protocol::Message<protocol::WriteBox>{
                         .fixed = {.destination = place, .box = box, .stream = stream}, .buffers = {data}}),
                     record_of(protocol::Message<protocol::CopyBox>{
                         .fixed = {.destination = place, .source = place, .box = box, .stream = stream}}),
                     record_of(protocol::Message<protocol::ReadBox>{
                         .fixed = {.source = place, .box = box, .stream = stream}})});
    found.push_back({record_of(protocol::Message<protocol::LaunchHostFunction>{
        .fixed = {.stream = stream, .function = 1, .data = 1, .kind = 1, .flags = 0}})});
    // What is made under a handle of the client's choice.
    found.push_back({record_of(protocol::Message<protocol::CreateContext>{
                         .fixed = {.context = fuzz_handle(api::kHandleContext, 100)}}),
                     record_of(protocol::Message<protocol::CreateLink>{
                         .fixed = {.link = fuzz_handle(api::kHandleLink, 100)}}),
                     record_of(protocol::Message<protocol::CreateSurface>{
                         .fixed = {.surface = fuzz_handle(api::kHandleSurface, 100),
                                   .resource = {.object = fuzz_handle(api::kHandleArray, 1)}}})});
    static constexpr std::array<std::byte, sizeof(protocol::EmptyBody)> kEmptyBody{};
    const api::View empty{.bytes = kEmptyBody, .present = true};
    const auto of_type = std::to_underlying(protocol::NodeType::empty);
    const auto node_in_graph = fuzz_handle(api::kHandleGraphNode, 100);
    const std::array<std::uint64_t, 2> part_handles{fuzz_handle(api::kHandleGraphExec, 100),
                                                    fuzz_handle(api::kHandleGraphExec, 101)};
    found.push_back(
        {record_of(
             protocol::Message<protocol::AddNode>{.fixed = {.graph = fuzz_handle(api::kHandleGraph, 1),
                                                            .node = fuzz_handle(api::kHandleGraphNode, 100),
                                                            .type = of_type},
                                                  .buffers = {api::View{}, api::View{}, empty, api::View{}}}),
         record_of(protocol::Message<protocol::SetNode>{
             .fixed = {.node = fuzz_handle(api::kHandleGraphNode, 100), .type = of_type},
             .buffers = {empty, api::View{}}}),
         record_of(protocol::Message<protocol::InstantiateParts>{
             .fixed = {.graph = fuzz_handle(api::kHandleGraph, 1), .flags = 0},
             .buffers = {protocol::view_of_elements(std::span(&node_in_graph, 1)),
                         protocol::view_of_elements(std::span<const std::uint64_t>(part_handles))}})});
    // A communicator of one, with a reduction of the slab's data.
    const protocol::CollectiveOperation sum{.kind = std::to_underlying(protocol::CollectiveKind::all_reduce),
                                            .type = 7,
                                            .count = 4,
                                            .input = kSlab,
                                            .output = kSlab + 64};
    const auto operations = protocol::view_of_elements(std::span(&sum, 1));
    found.push_back(
        {slab,
         record_of(protocol::Message<protocol::JoinCommunicator>{
             .fixed = {.communicator = 1, .key = {1, 2}, .rank = 0, .size = 1}}),
         record_of(protocol::Message<protocol::IssueCollectives>{
             .fixed = {.communicator = 1, .stream = stream, .group = 1}, .buffers = {operations}}),
         record_of(protocol::Message<protocol::ExchangeWithMembers>{
             .fixed = {.communicator = 1, .group = 2, .within_ms = 1}, .buffers = {operations}}),
         record_of(protocol::Message<protocol::CommunicatorState>{
             .fixed = {.communicator = 1, .completed = 1, .wait_ms = 1}}),
         record_of(
             protocol::Message<protocol::LeaveCommunicator>{.fixed = {.communicator = 1, .abort = 1}})});
    found.push_back({packet(channel::PacketType::callback_done, 1, 0)});
    found.push_back({packet(channel::PacketType::hello, 0, 0)});
    found.push_back(
        {record_of(protocol::Message<protocol::BeginBlob>{.fixed = {.blob = 1, .size = kBytes.size()}}),
         record_of(
             protocol::Message<protocol::BlobData>{.fixed = {.blob = 1, .offset = 0}, .buffers = {data}}),
         record_of(protocol::Message<protocol::LoadModule>{
             .fixed = {.module = fuzz_handle(api::kHandleModule, 100), .blob = 1}}),
         record_of(protocol::Message<protocol::ReadBlob>{
             .fixed = {.blob = 1, .offset = 16, .size = kBytes.size() - 16}}),
         record_of(protocol::Message<protocol::DropBlob>{.fixed = {.blob = 1}})});
    return found;
}

} // namespace

std::uint64_t fuzz_handle(unsigned kind, std::uint64_t index) {
    return std::uint64_t{0x0C00'0000'0000} | (std::uint64_t{kind} << 36) | (index << 4);
}

const std::vector<std::vector<Part>> &seed_inputs() {
    static const auto kSeeds = all_seeds();
    return kSeeds;
}

std::vector<Part> Changer::input() {
    std::vector<Part> parts;
    for (auto rows = 1 + below(8); rows > 0; --rows) {
        const auto &row = seed_inputs()[below(seed_inputs().size())];
        parts.insert(parts.end(), row.begin(), row.end());
    }
    for (auto changes = below(2 * parts.size() + 2); changes > 0; --changes)
        change(parts);
    return parts;
}

void Changer::change(std::vector<Part> &parts) {
    const auto what = below(16);
    if (parts.empty() || what < 3) {
        const auto &row = seed_inputs()[below(seed_inputs().size())];
        parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(below(parts.size() + 1)), row.begin(),
                     row.end());
        return;
    }
    const auto at = below(parts.size());
    if (what == 3)
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at));
    else if (what == 4)
        std::swap(parts[at], parts[below(parts.size())]);
    else if (what == 5)
        change_head(parts[at]);
    else if (what == 6)
        parts[at].message.resize(below(parts[at].message.size() + 64));
    else
        change_message(parts[at].message);
}

void Changer::change_head(Part &part) {
    const auto place = static_cast<std::uint8_t>(below(5) == 0 ? kNothing : below(4));
    switch (below(6)) {
    case 0:
    case 1:
        part.slot = place;
        break;
    case 2:
    case 3:
        part.piece = place;
        break;
    case 4:
        part.context = static_cast<std::uint8_t>(below(3));
        break;
    default:
        part.flags ^= static_cast<std::uint8_t>(1U << below(2));
        break;
    }
}

// A number that means something, at a place where one could be; or any byte.
void Changer::change_message(Bytes &message) {
    constexpr std::size_t kHeader = sizeof(api::MessageHeader);
    if (message.size() < kHeader + sizeof(std::uint64_t) || below(10) == 0) {
        if (!message.empty())
            message[below(message.size())] = static_cast<std::uint8_t>(random_());
        return;
    }
    const auto kind = static_cast<unsigned>(1 + below(api::kHandleKinds));
    const std::array<std::uint64_t, 14> numbers{0,
                                                1,
                                                2,
                                                ~std::uint64_t{0},
                                                std::uint64_t{1} << 63,
                                                below(300),
                                                protocol::kSlabUnit,
                                                kSlab,
                                                kReservation,
                                                kHostMemory,
                                                kTicket,
                                                fuzz_handle(kind, 1 + below(3)),
                                                fuzz_handle(kind, 2 + below(1000)),
                                                random_()};
    const auto value = numbers[below(numbers.size())];
    const bool narrow = below(3) == 0;
    const std::size_t unit = narrow ? sizeof(std::uint32_t) : sizeof(std::uint64_t);
    const auto at = kHeader + below((message.size() - kHeader) / unit) * unit;
    std::memcpy(message.data() + at, &value, unit);
}

} // namespace singularity::test
