// SPDX-License-Identifier: GPL-2.0-or-later
// How a call gets to the daemon: what the generated stubs and the hand-written functions are built on.
#pragma once

#include "common/error.hpp"
#include "driver_api/calls.hpp"
#include "driver_api/handles.hpp"
#include "proxy/channel/client_end.hpp"
#include "proxy/libcuda/cuda.hpp"
#include "proxy/protocol/message.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace singularity::client {

using driver_api::ApiId;

class Session;
struct Context;

// Where a call goes: the daemon, and the context that it is for (nullptr: none is needed).
struct Route {
    Session *session = nullptr;
    Context *context = nullptr;
};

// --- Handles

// A number for an object that a call is about to make.
[[nodiscard]] std::uint64_t new_handle(unsigned kind);
// A handle parameter of the program's: becomes what travels (streams 0, 1 and 2 are resolved); an unknown one
// is CUDA_ERROR_INVALID_HANDLE. The first handle that belongs to a context or device says where the next call
// of this thread goes, a stream or context before all others; without any it is the current context.
[[nodiscard]] CUresult check_handle(unsigned kind, std::uint64_t &value);
// The call that made it has succeeded. `request`: the message, whose type `by` says.
void made(unsigned kind, std::uint64_t value, ApiId by, const void *request);
void gone(unsigned kind, std::uint64_t value);

// An argument that the message does not take.
[[nodiscard]] CUresult refused(const Error &error);

// While it lives, this thread's calls go to a device whatever the current context is.
class OnDevice {
  public:
    explicit OnDevice(CUdevice device);
    ~OnDevice();
    OnDevice(const OnDevice &) = delete;
    OnDevice &operator=(const OnDevice &) = delete;
    OnDevice(OnDevice &&) = delete;
    OnDevice &operator=(OnDevice &&) = delete;

    [[nodiscard]] CUresult result() const { return result_; }

  private:
    Route before_;
    CUresult result_;
};

// --- Sending

// Where this thread's next call goes, by the handles that have been checked since the last one, else the
// current context. context_free: no context is needed; the first device will do.
[[nodiscard]] CUresult take_route(Route &route, bool context_free);
void drop_route();
// A handle has said where it goes. decides: nothing else counts.
void prefer_route(const Route &route, bool decides);
// A route for calls that need no context: the current one, or the first device.
[[nodiscard]] CUresult route_without_context(Route &route);
[[nodiscard]] bool needs_no_context(ApiId api);
// The route of the last call of this thread, for made().
[[nodiscard]] const Route &last_route();

[[nodiscard]] CUresult submit(const Route &route, std::span<const std::byte> message);

// One call with a reply. The reply's bytes live as long as this object.
class Exchange {
  public:
    // reply_limit: of the whole reply in bytes. Waits for a free slot, and for the reply.
    Exchange(const Route &route, std::span<const std::byte> message, std::size_t reply_limit);

    [[nodiscard]] CUresult failure() const { return failure_; }
    [[nodiscard]] std::span<const std::byte> reply() const { return reply_; }

  private:
    CUresult failure_ = CUDA_SUCCESS;
    std::optional<channel::Pending> pending_;
    std::span<const std::byte> reply_;
};

// To be told every result that has come from a daemon.
void note_result(Context *context, CUresult result);
// Of a wait: what has failed in this process meanwhile counts, too.
[[nodiscard]] CUresult noted(Context *context, CUresult result);

[[nodiscard]] CUresult failure_of(const Error &error);
// The daemon's reply makes no sense: the session is over.
[[nodiscard]] CUresult broken(const Route &route, const Error &error);

// A message encoded, in place where it is short.
class Encoded {
  public:
    template <class EncodeInto>
    explicit Encoded(EncodeInto encode_into) {
        auto size = encode_into(std::span<std::byte>(inline_));
        if (!size) {
            longer_.resize(kLongest);
            size = encode_into(std::span<std::byte>(longer_));
        }
        if (size)
            bytes_ = longer_.empty() ? std::span<const std::byte>(inline_).first(*size)
                                     : std::span<const std::byte>(longer_).first(*size);
    }
    Encoded(const Encoded &) = delete;
    Encoded &operator=(const Encoded &) = delete;
    Encoded(Encoded &&) = delete;
    Encoded &operator=(Encoded &&) = delete;
    ~Encoded() = default;

    // Empty: it does not fit into any record.
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  private:
    static constexpr std::size_t kInline = 1024;
    static constexpr std::size_t kLongest = std::size_t{512} * 1024;

    alignas(8) std::array<std::byte, kInline> inline_; // NOLINT(cppcoreguidelines-pro-type-member-init):
                                                       // written before it is read
    std::vector<std::byte> longer_;
    std::span<const std::byte> bytes_;
};

// Outputs of these say something where the call has failed, too.
[[nodiscard]] bool tells_of_failure(ApiId api);

inline constexpr std::size_t kReplyOverhead = 256;

template <class Request>
[[nodiscard]] CUresult send_async(Request &message) {
    Route route;
    if (const auto bad = take_route(route, needs_no_context(message.api)); bad != CUDA_SUCCESS)
        return bad;
    const Encoded encoded([&](std::span<std::byte> storage) { return encode(message, storage); });
    return submit(route, encoded.bytes());
}

template <class Request, class Decode, class Finish>
[[nodiscard]] CUresult send_sync(Request &message, Decode decode_reply, Finish finish) {
    Route route;
    if (const auto bad = take_route(route, needs_no_context(message.api)); bad != CUDA_SUCCESS)
        return bad;
    const auto outputs = output_size(message);
    if (!outputs)
        return refused(outputs.error());
    const Encoded encoded([&](std::span<std::byte> storage) { return encode(message, storage); });
    const Exchange exchange(route, encoded.bytes(), static_cast<std::size_t>(*outputs) + kReplyOverhead);
    if (exchange.failure() != CUDA_SUCCESS)
        return exchange.failure();
    const auto reply = decode_reply(exchange.reply());
    if (!reply)
        return broken(route, reply.error());
    const auto result = static_cast<CUresult>(reply->driver_result);
    note_result(route.context, result);
    if (result == CUDA_SUCCESS || tells_of_failure(message.api))
        finish(*reply);
    return result;
}

// The same for hand-written messages, whose route the caller knows.
template <class Fixed>
[[nodiscard]] CUresult post(const Route &route, const protocol::Message<Fixed> &message) {
    const Encoded encoded([&](std::span<std::byte> storage) { return protocol::encode(message, storage); });
    return submit(route, encoded.bytes());
}

// finish(reply) is called where the result is success. reply_buffers: most bytes of the reply's buffers.
template <class Fixed, class Finish>
[[nodiscard]] CUresult ask(const Route &route, const protocol::Message<Fixed> &message,
                           std::size_t reply_buffers, Finish finish) {
    const Encoded encoded([&](std::span<std::byte> storage) { return protocol::encode(message, storage); });
    const Exchange exchange(route, encoded.bytes(),
                            protocol::reply_size<Fixed>(reply_buffers) + kReplyOverhead);
    if (exchange.failure() != CUDA_SUCCESS)
        return exchange.failure();
    const auto reply = protocol::decode_reply<Fixed>(exchange.reply());
    if (!reply)
        return broken(route, reply.error());
    note_result(route.context, static_cast<CUresult>(reply->result));
    if constexpr (requires { finish(static_cast<CUresult>(reply->result), *reply); })
        finish(static_cast<CUresult>(reply->result), *reply);
    else if (reply->result == CUDA_SUCCESS)
        finish(*reply);
    return static_cast<CUresult>(reply->result);
}

template <class Fixed>
[[nodiscard]] CUresult ask(const Route &route, const protocol::Message<Fixed> &message) {
    return ask(route, message, 0, [](const auto & /*reply*/) {});
}

} // namespace singularity::client
