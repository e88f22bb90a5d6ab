// SPDX-License-Identifier: GPL-2.0-or-later
#include "message_table.hpp"

#include "handlers/handlers.hpp"

#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

namespace singularity::proxyd {

namespace {

using protocol::Id;

// The longest head of a message whose data stays in the ring.
constexpr std::size_t kLongestHead = 256;

// Messages that may take as long as they like: the device is waited for, code is compiled.
constexpr bool waits(Id id) {
    switch (id) {
    case Id::create_context:
    case Id::destroy_context:
    case Id::unmap_slab:
    case Id::unmap_host_memory:
    case Id::load_module:
    case Id::load_library:
    case Id::add_link_data:
    case Id::complete_link:
    case Id::finish_restore:
    case Id::join_communicator:
    case Id::communicator_state:
    case Id::leave_communicator:
        return true;
    default:
        return false;
    }
}

constexpr bool reads_memory(Id id) { return id == Id::read_memory || id == Id::read_box; }

constexpr bool relays_output(Id id) { return reads_memory(id) || id == Id::destroy_context; }

// A failure that an asynchronous call has left behind is told by these; the others make things, and telling
// it there would lose what was made.
constexpr bool tells_earlier_failure(Id id) { return reads_memory(id); }

constexpr bool is_payload(Id id) {
    return id == Id::write_memory || id == Id::write_box || id == Id::blob_data;
}

// Like protocol::decode_request for a message that lies in the ring: what steers is copied once, the one
// buffer stays there.
template <class M>
Expected<protocol::Message<M>> decode_in_ring(std::span<const std::byte> message) {
    constexpr std::size_t kHead = protocol::kRequestHead<M>;
    static_assert(kHead <= kLongestHead && protocol::kBufferCount<M> == 1);
    if (message.size() < kHead)
        return protocol::detail::refuse(M::kName, "its head is not complete");
    std::array<std::byte, kHead> head;
    channel::copy_once(head, message);
    driver_api::MessageHeader header{};
    std::memcpy(&header, head.data(), sizeof(header));
    std::uint64_t size = 0;
    std::memcpy(&size, head.data() + kHead - sizeof(size), sizeof(size));
    if (header.api != std::to_underlying(M::kId) ||
        header.kind != std::to_underlying(driver_api::MessageKind::request) || header.size != message.size())
        return protocol::detail::refuse(M::kName, "its header is not its own");
    if (size > message.size() - kHead || protocol::padded(size) != message.size() - kHead)
        return protocol::detail::refuse(M::kName, "its data is not what is there");
    protocol::Message<M> request;
    std::memcpy(&request.fixed, head.data() + sizeof(header), protocol::kFixedSize<M>);
    request.buffers[0] = {.bytes = message.subspan(kHead, size), .present = true};
    if (const char *why = request.fixed.wrong(request.buffers); why != nullptr)
        return protocol::detail::refuse(M::kName, why);
    return request;
}

template <class M>
Expected<void> answer(Call &call, const protocol::ReplyMessage<typename M::Reply> &reply) {
    std::size_t buffers = 0;
    for (const auto &buffer : reply.buffers)
        buffers += buffer.present ? protocol::padded(buffer.bytes.size()) : 0;
    const auto size = protocol::reply_size<M>(buffers);
    auto place = call.session().channel().reply_space(call.header(), size);
    if (!place)
        return propagate(place);
    if (auto encoded = protocol::encode_reply<M>(reply, *place); !encoded)
        return propagate(encoded);
    call.session().channel().finish_reply(call.header(), size, call.session().packets_sent());
    return {};
}

template <class M>
Expected<void> handle(Call &call, std::span<const std::byte> message) {
    auto request = [&] {
        if constexpr (is_payload(M::kId))
            return decode_in_ring<M>(message);
        else
            return protocol::decode_request<M>(message);
    }();
    if (!request)
        return propagate(request);
    if constexpr (!protocol::kReplies<M>) {
        const auto result = handlers::handle(call, *request);
        call.session().log_refusal(M::kName, result);
        if (call.broken_rule())
            return failure("carry out", M::kName, *call.broken_rule(), EPROTO);
        call.note_effect(message, result);
        call.session().note(result);
        return {};
    } else {
        protocol::ReplyMessage<typename M::Reply> reply;
        auto result = handlers::handle(call, *request, reply);
        call.session().log_refusal(M::kName, result);
        if (call.broken_rule())
            return failure("carry out", M::kName, *call.broken_rule(), EPROTO);
        if (call.wants_later())
            return {};
        call.note_effect(message, result);
        if (call.has_answered())
            return {};
        if constexpr (relays_output(M::kId))
            call.session().relay_output();
        if (tells_earlier_failure(M::kId) && result == CUDA_SUCCESS)
            result = call.session().take_noted();
        reply.result = static_cast<std::int32_t>(result);
        return answer<M>(call, reply);
    }
}

template <class M>
constexpr MessageRow row() {
    return {.name = M::kName,
            .handle = &handle<M>,
            .replies = protocol::kReplies<M>,
            .waits = waits(M::kId),
            .uses_memory = reads_memory(M::kId),
            .payload = is_payload(M::kId),
            .relays_output = relays_output(M::kId)};
}

template <std::size_t... Index>
constexpr auto make_rows(std::index_sequence<Index...> /*indices*/) {
    return std::array{row<std::tuple_element_t<Index, protocol::AllMessages>>()...};
}

constexpr auto kRows = make_rows(std::make_index_sequence<protocol::kMessageCount>());

} // namespace

const MessageRow *message_row(std::uint32_t id) {
    const auto first = std::to_underlying(Id::first);
    return id >= first && id - first < kRows.size() ? &kRows[id - first] : nullptr;
}

} // namespace singularity::proxyd
