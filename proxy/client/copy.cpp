// SPDX-License-Identifier: GPL-2.0-or-later
#include "copy.hpp"

#include "box_copy.hpp"
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

const std::byte *bytes_at(std::uint64_t address) { return std::bit_cast<const std::byte *>(address); }

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

// A captured copy from and to the program's own memory.
struct ProgramCopy {
    void *destination;
    const void *source;
    std::uint64_t size;
};
void run_program_copy(void *data) {
    const auto &copy = *static_cast<const ProgramCopy *>(data);
    std::memmove(copy.destination, copy.source, copy.size);
}

CUresult copy_captured(const Route &route, std::uint64_t stream, const Location &destination,
                       const Location &source, std::uint64_t size) {
    const bool to_program = destination.where == Where::pageable;
    auto *const program = std::bit_cast<void *>(to_program ? destination.wire : source.wire);
    Staging *staging = nullptr;
    if (const auto bad = new_staging(*route.context, program, size, to_program, staging); bad != CUDA_SUCCESS)
        return bad;
    const auto shared = locate(staging->shared);
    if (to_program) {
        if (const auto bad = copy_in_daemon({route, stream}, shared, source, size); bad != CUDA_SUCCESS)
            return bad;
        return launch_host_function(route, stream, run_staging, staging);
    }
    if (const auto bad = launch_host_function(route, stream, run_staging, staging); bad != CUDA_SUCCESS)
        return bad;
    return copy_in_daemon({route, stream}, destination, shared, size);
}

bool reachable_from(const Location &location, const Session &session) {
    return location.where != Where::device || location.session == &session;
}

CUresult legacy_lane(const Location &location, Lane &lane) {
    lane.stream = protocol::kLegacyStream;
    return route_to(*location.session, lane.route, owner_of(location.wire));
}

// One end is on another device than the current context, or both are, on two.
CUresult copy_range_apart(const Location &destination, const Location &source, std::uint64_t size) {
    Lane to;
    Lane from;
    const bool to_device = destination.where == Where::device;
    const bool from_device = source.where == Where::device;
    if (to_device)
        if (const auto bad = legacy_lane(destination, to); bad != CUDA_SUCCESS)
            return bad;
    if (from_device)
        if (const auto bad = legacy_lane(source, from); bad != CUDA_SUCCESS)
            return bad;
    if (to_device && from_device && destination.session != source.session)
        return copy_between_devices(to, destination.wire, from, source.wire, size);
    const auto &there = to_device ? to : from;
    if (const auto bad = copy_range(there.route, there.stream, destination, source, size, Wait::yes);
        bad != CUDA_SUCCESS)
        return bad;
    return synchronize_stream(there.route, there.stream);
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

CUresult copy_range(const Route &route, std::uint64_t stream, const Location &destination,
                    const Location &source, std::uint64_t size, Wait wait) {
    if (size == 0)
        return CUDA_SUCCESS;
    if (!is_allocated(source, size) || !is_allocated(destination, size))
        return CUDA_ERROR_INVALID_VALUE;
    const bool from_program = source.where == Where::pageable;
    const bool to_program = destination.where == Where::pageable;
    if (!reachable_from(source, *route.session) || !reachable_from(destination, *route.session)) {
        bool capturing = false;
        if (wait == Wait::no)
            if (const auto bad = is_capturing(route, stream, capturing); bad != CUDA_SUCCESS)
                return bad;
        if (capturing)
            return capture_range(route, stream, destination, source, size);
        // A device that is not the stream's: wait for the stream's work, then copy and wait.
        if (const auto bad = synchronize_stream(route, stream); bad != CUDA_SUCCESS)
            return bad;
        return copy_range_apart(destination, source, size);
    }
    CUresult result = CUDA_SUCCESS;
    if (from_program && to_program) {
        bool capturing = false;
        if (wait == Wait::no)
            if (const auto bad = is_capturing(route, stream, capturing); bad != CUDA_SUCCESS)
                return bad;
        if (capturing) // as long as the process: a graph may run at any time
            return launch_host_function(
                route, stream, run_program_copy,
                std::make_unique<ProgramCopy>(
                    ProgramCopy{std::bit_cast<void *>(destination.wire), bytes_at(source.wire), size})
                    .release());
        result = synchronize_stream(route, stream);
        if (result == CUDA_SUCCESS)
            std::memmove(std::bit_cast<void *>(destination.wire), bytes_at(source.wire), size);
        return result;
    }
    if (from_program || to_program) {
        bool capturing = false;
        if (wait == Wait::no)
            if (const auto bad = is_capturing(route, stream, capturing); bad != CUDA_SUCCESS)
                return bad;
        if (capturing)
            return copy_captured(route, stream, destination, source, size);
        if (to_program)
            return read_range(route, stream, std::bit_cast<void *>(destination.wire), source.wire, size);
        result = write_range(route, stream, destination.wire, bytes_at(source.wire), size);
    } else {
        result = copy_in_daemon({route, stream}, destination, source, size);
        // Copies inside a device do not wait (CUDA driver API, "API synchronization behavior").
        if (source.where == Where::device && destination.where == Where::device)
            return result;
    }
    if (result != CUDA_SUCCESS || wait == Wait::no)
        return result;
    return synchronize_stream(route, stream);
}

CUresult new_staging(Context &context, void *program, std::uint64_t size, bool to_program,
                     Staging *&staging) {
    auto made = std::make_unique<Staging>(
        Staging{.shared = nullptr, .program = program, .size = size, .to_program = to_program});
    if (const auto bad = allocate_host(size, HostKind::pinned, 0, context, made->shared); bad != CUDA_SUCCESS)
        return bad;
    staging = made.release(); // as long as the process: a graph may run at any time
    return CUDA_SUCCESS;
}

void run_staging(void *data) {
    const auto &staging = *static_cast<const Staging *>(data);
    if (staging.to_program)
        std::memcpy(staging.program, staging.shared, staging.size);
    else
        std::memcpy(staging.shared, staging.program, staging.size);
}

} // namespace singularity::client
