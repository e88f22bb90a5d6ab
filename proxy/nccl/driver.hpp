// SPDX-License-Identifier: GPL-2.0-or-later
// What this library needs of CUDA and of the proxies, so that everything else can be tested without either.
#pragma once

#include "common/error.hpp"
#include "proxy/nccl/abi.hpp"
#include "proxy/protocol/message.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fmt/core.h>

namespace singularity::nccl {

// A context of a device: where a communicator's messages go.
struct Place {
    void *session = nullptr;
    void *context = nullptr;
    int device = 0;         // ordinal
    void *handle = nullptr; // CUcontext
};

struct StreamState {
    std::uint64_t wire = 0; // as it travels
    bool capturing = false;
};

// Operations that a graph carries out at each of its launches.
class Captured {
  public:
    Captured() = default;
    Captured(const Captured &) = delete;
    Captured &operator=(const Captured &) = delete;
    Captured(Captured &&) = delete;
    Captured &operator=(Captured &&) = delete;
    virtual ~Captured() = default;

    // Why no launch can carry them out, in words that are kept elsewhere; nullptr: one can.
    [[nodiscard]] virtual const char *unusable() = 0;
    // Puts them on a stream, as a call of the program's would. The same words where that has failed.
    [[nodiscard]] virtual const char *issue(Stream stream) = 0;
};

// Any thread may call it.
class Driver {
  public:
    Driver() = default;
    Driver(const Driver &) = delete;
    Driver &operator=(const Driver &) = delete;
    Driver(Driver &&) = delete;
    Driver &operator=(Driver &&) = delete;
    virtual ~Driver() = default;

    // The calling thread's current context; without one, device 0's primary context becomes it, as in the
    // CUDA runtime.
    [[nodiscard]] virtual Expected<Place> current() = 0;
    // The primary context of a device.
    [[nodiscard]] virtual Expected<Place> primary(int device) = 0;
    [[nodiscard]] virtual Expected<int> devices() = 0;

    [[nodiscard]] virtual Expected<StreamState> stream(const Place &place, Stream stream) = 0;
    // The address of memory as it travels. All of it has to be allocated, and in the place's reach.
    [[nodiscard]] virtual Expected<std::uint64_t> memory(const Place &place, const void *address,
                                                         std::size_t size) = 0;
    // What is done on `later` from now on waits for what has been put on `earlier`.
    [[nodiscard]] virtual Expected<void> order(const Place &place, Stream earlier, Stream later) = 0;

    // Behind what the stream's capture has recorded, in its graph: each launch issues them there.
    [[nodiscard]] virtual Expected<void> capture(const Place &place, Stream stream,
                                                 std::unique_ptr<Captured> what) = 0;

    // Of the current context.
    [[nodiscard]] virtual Expected<void *> allocate(std::size_t size) = 0;
    [[nodiscard]] virtual Expected<void> release(void *memory) = 0;

    // Messages (proxy/protocol), encoded.
    [[nodiscard]] virtual Expected<void> post(const Place &place, std::span<const std::byte> message) = 0;
    using Take = std::function<void(std::span<const std::byte> reply)>;
    [[nodiscard]] virtual Expected<void> ask(const Place &place, std::span<const std::byte> message,
                                             std::size_t reply_limit, const Take &take) = 0;
    // Past all messages on their way: the communicator is aborted. The message that says so follows.
    [[nodiscard]] virtual Expected<void> abort(const Place &place, std::uint64_t communicator) = 0;
};

template <class Fixed>
[[nodiscard]] Expected<void> post(Driver &driver, const Place &place,
                                  const protocol::Message<Fixed> &message) {
    std::vector<std::byte> bytes(protocol::encoded_size(message));
    if (auto size = protocol::encode(message, bytes); !size)
        return propagate(size);
    return driver.post(place, bytes);
}

// use(reply) is called where the reply says that the message made sense; its buffers live until it returns.
// reply_buffers: most bytes of them.
template <class Fixed, class Use>
[[nodiscard]] Expected<void> ask(Driver &driver, const Place &place, const protocol::Message<Fixed> &message,
                                 std::size_t reply_buffers, Use use) {
    std::vector<std::byte> bytes(protocol::encoded_size(message));
    if (auto size = protocol::encode(message, bytes); !size)
        return propagate(size);
    Expected<void> outcome = failure("ask", Fixed::kName, "there was no answer");
    auto asked =
        driver.ask(place, bytes, protocol::reply_size<Fixed>(protocol::padded(reply_buffers)),
                   [&](std::span<const std::byte> answer) {
                       const auto reply = protocol::decode_reply<Fixed>(answer);
                       if (!reply) {
                           outcome = std::unexpected(reply.error());
                       } else if (reply->result != 0) {
                           outcome =
                               failure("ask", Fixed::kName,
                                       fmt::format("the device proxy refuses it, CUresult {}", reply->result),
                                       reply->result);
                       } else {
                           outcome = {};
                           use(*reply);
                       }
                   });
    return asked ? outcome : std::move(asked);
}

} // namespace singularity::nccl
