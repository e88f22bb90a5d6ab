// SPDX-License-Identifier: GPL-2.0-or-later
#include "copy.hpp"

#include "proxy/protocol/copy.hpp"
#include "proxy/protocol/launch.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace singularity::client {

namespace {

constexpr std::size_t kInFlight = 4; // reads at a time
constexpr std::uint64_t kBetweenDevices = std::uint64_t{4} << 20;

// The parts of a long copy are short, so memcpy would bring their destination into the caches first, and its
// old content with it: half as much traffic again.
constexpr std::uint64_t kPastCaches = std::uint64_t{4} << 20;

void copy_past_caches(std::byte *to, const std::byte *from, std::size_t size) {
#ifdef __SSE2__
    constexpr std::size_t kLine = 64;
    constexpr std::size_t kWord = sizeof(__m128i);
    const auto head =
        std::min<std::size_t>((kLine - std::bit_cast<std::uintptr_t>(to) % kLine) % kLine, size);
    std::memcpy(to, from, head);
    std::size_t at = head;
    for (; at + kLine <= size; at += kLine)
        for (std::size_t word = 0; word < kLine; word += kWord)
            _mm_stream_si128(
                static_cast<__m128i *>(static_cast<void *>(to + at + word)),
                _mm_loadu_si128(static_cast<const __m128i *>(static_cast<const void *>(from + at + word))));
    _mm_sfence();
    std::memcpy(to + at, from + at, size - at);
#else
    std::memcpy(to, from, size);
#endif
}

// Reads whose answers are still to come, oldest first.
class Reads {
  public:
    // whole: bytes of all of them together.
    Reads(const Route &route, std::uint64_t stream, std::uint64_t whole)
        : route_(&route), stream_(stream), copy_(whole >= kPastCaches ? &copy_past_caches : &copy_plainly) {}

    // false: no place is free just now (there is always one if nothing is in flight).
    CUresult issue(std::uint64_t source, std::byte *destination, std::size_t size, bool &issued) {
        issued = false;
        if (count_ == kInFlight)
            return CUDA_SUCCESS;
        auto &end = route_->session->end();
        auto &read = reads_[(first_ + count_) % kInFlight];
        const auto limit = protocol::reply_size<protocol::ReadMemory>(protocol::padded(size));
        if (count_ == 0) {
            auto pending = end.prepare_reply(limit);
            if (!pending)
                return failure_of(pending.error());
            read.pending.emplace(std::move(*pending));
        } else {
            auto pending = end.try_prepare_reply(limit);
            if (!pending)
                return failure_of(pending.error());
            if (!*pending)
                return CUDA_SUCCESS;
            read.pending.emplace(std::move(**pending));
        }
        std::array<std::byte, protocol::kRequestHead<protocol::ReadMemory>> message{};
        const auto encoded = protocol::encode(
            protocol::Message<protocol::ReadMemory>{
                .fixed = {.source = source, .size = size, .stream = stream_}},
            message);
        auto record = end.begin(route_->context->handle, message.size(), &*read.pending);
        if (!encoded || !record) {
            read.pending.reset();
            return record ? CUDA_ERROR_UNKNOWN : failure_of(record.error());
        }
        std::ranges::copy(message, record->message().begin());
        record->commit();
        read.destination = destination;
        read.size = size;
        ++count_;
        issued = true;
        return CUDA_SUCCESS;
    }

    [[nodiscard]] bool empty() const { return count_ == 0; }

    CUresult finish_oldest() {
        auto &read = reads_[first_];
        const auto result = finish(read);
        read.pending.reset();
        first_ = (first_ + 1) % kInFlight;
        --count_;
        return result;
    }

  private:
    static void copy_plainly(std::byte *to, const std::byte *from, std::size_t size) {
        std::memcpy(to, from, size);
    }
    struct Read {
        std::optional<channel::Pending> pending;
        std::byte *destination = nullptr;
        std::size_t size = 0;
    };

    CUresult finish(Read &read) {
        const auto reply = read.pending->wait();
        if (!reply)
            return broken(*route_, reply.error());
        const auto message = protocol::decode_reply<protocol::ReadMemory>(reply->message);
        if (!message)
            return broken(*route_, message.error());
        route_->session->await_packets(reply->packets);
        note_result(route_->context, static_cast<CUresult>(message->result));
        if (message->result != CUDA_SUCCESS)
            return static_cast<CUresult>(message->result);
        const auto data = message->buffers[0].bytes;
        if (data.size() != read.size)
            return CUDA_ERROR_UNKNOWN;
        copy_(read.destination, data.data(), data.size());
        return CUDA_SUCCESS;
    }

    const Route *route_;
    std::uint64_t stream_;
    void (*copy_)(std::byte *, const std::byte *, std::size_t);
    std::array<Read, kInFlight> reads_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
};

protocol::CopyDirection direction_of(const Location &destination, const Location &source) {
    const bool from_host = source.where == Where::shared_host;
    const bool to_host = destination.where == Where::shared_host;
    if (from_host)
        return to_host ? protocol::CopyDirection::host_to_host : protocol::CopyDirection::host_to_device;
    return to_host ? protocol::CopyDirection::device_to_host : protocol::CopyDirection::device_to_device;
}

} // namespace

CUresult copy_in_daemon(const Lane &lane, const Location &destination, const Location &source,
                        std::uint64_t size) {
    return post(lane.route,
                protocol::Message<protocol::CopyMemory>{
                    .fixed = {.destination = destination.wire,
                              .source = source.wire,
                              .size = size,
                              .stream = lane.stream,
                              .direction = static_cast<std::uint32_t>(direction_of(destination, source))}});
}

CUresult copy_between_devices(const Lane &to, std::uint64_t destination, const Lane &from,
                              std::uint64_t source, std::uint64_t size) {
    std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(size, kBetweenDevices)));
    for (std::uint64_t at = 0; at < size; at += buffer.size()) {
        const auto part = std::min<std::uint64_t>(buffer.size(), size - at);
        if (const auto bad = read_range(from.route, from.stream, buffer.data(), source + at, part);
            bad != CUDA_SUCCESS)
            return bad;
        if (const auto bad = write_range(to.route, to.stream, destination + at, buffer.data(), part);
            bad != CUDA_SUCCESS)
            return bad;
    }
    return synchronize_stream(to.route, to.stream);
}

CUresult launch_host_function(const Route &route, std::uint64_t stream, CUhostFn function, void *data) {
    return post(route,
                protocol::Message<protocol::LaunchHostFunction>{
                    .fixed = {.stream = stream,
                              .function = std::bit_cast<std::uint64_t>(function),
                              .data = std::bit_cast<std::uint64_t>(data),
                              .kind = static_cast<std::uint32_t>(channel::CallbackKind::host_function)}});
}

// In a graph the program's memory is read or written when the graph runs.
CUresult stream_route(CUstream stream, std::uint64_t &wire, Route &route) {
    wire = std::bit_cast<std::uint64_t>(stream);
    if (const auto bad = check_handle(driver_api::kHandleStream, wire); bad != CUDA_SUCCESS)
        return bad;
    return take_route(route, false);
}

CUresult synchronize_stream(const Route &route, std::uint64_t wire) {
    driver_api::StreamSynchronizeRequest request;
    request.hStream = wire;
    const Encoded encoded([&](std::span<std::byte> storage) { return encode(request, storage); });
    const Exchange exchange(route, encoded.bytes(), kReplyOverhead);
    if (exchange.failure() != CUDA_SUCCESS)
        return exchange.failure();
    const auto reply = driver_api::decode_StreamSynchronizeReply(request, exchange.reply());
    if (!reply)
        return broken(route, reply.error());
    return noted(route.context, static_cast<CUresult>(reply->driver_result));
}

CUresult is_capturing(const Route &route, std::uint64_t wire, bool &capturing) {
    capturing = false;
    if (process().captures.load(std::memory_order_relaxed) <= 0)
        return CUDA_SUCCESS;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const OnContext scope(*route.context);
    const auto result = cuStreamIsCapturing(std::bit_cast<CUstream>(wire), &status);
    capturing = result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return result;
}

CUresult write_range(const Route &route, std::uint64_t stream, std::uint64_t destination, const void *source,
                     std::uint64_t size) {
    const auto *const bytes = static_cast<const std::byte *>(source);
    for (std::uint64_t at = 0; at < size; at += protocol::kWritePiece) {
        const auto piece = std::min<std::uint64_t>(protocol::kWritePiece, size - at);
        auto record = route.session->end().begin(
            route.context->handle, protocol::kRequestHead<protocol::WriteMemory> + protocol::padded(piece));
        if (!record)
            return failure_of(record.error());
        const auto places = protocol::encode_in_place(
            protocol::WriteMemory{.destination = destination + at, .stream = stream}, {piece},
            record->message());
        std::memcpy(places[0].data(), bytes + at, piece);
        record->commit();
    }
    return CUDA_SUCCESS;
}

CUresult read_range(const Route &route, std::uint64_t stream, void *destination, std::uint64_t source,
                    std::uint64_t size) {
    auto *const bytes = static_cast<std::byte *>(destination);
    Reads reads(route, stream, size);
    CUresult result = CUDA_SUCCESS;
    std::uint64_t at = 0;
    while (at < size || !reads.empty()) {
        bool issued = true;
        while (issued && at < size && result == CUDA_SUCCESS) {
            const auto piece = std::min<std::uint64_t>(protocol::kReadPiece, size - at);
            result = reads.issue(source + at, bytes + at, piece, issued);
            if (issued)
                at += piece;
        }
        if (!reads.empty()) {
            const auto finished = reads.finish_oldest();
            result = result == CUDA_SUCCESS ? finished : result;
        }
        if (result != CUDA_SUCCESS)
            at = size; // what is in flight is waited for, nothing new is asked
    }
    return result;
}

} // namespace singularity::client
