// SPDX-License-Identifier: GPL-2.0-or-later
// What travels over a device proxy's control socket (SOCK_SEQPACKET): one request with its descriptor, then
// answers until `done` or `failed`. Hanging up ends the work: clients run on, nothing half restored stays.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace singularity::proxy_control {

inline constexpr std::uint32_t kVersion = 1;

enum class Operation : std::uint32_t { // NOLINT(performance-enum-size): as on the wire
    save = 1,                          // all clients' images to the descriptor
    restore = 2,                       // images from the descriptor; their clients may attach from now on
    await_attached = 3, // done when all that are waited for have attached; a descriptor: a /proc
    resume = 4,         // no descriptor; clients that have detached may attach again
    prepare = 5,        // a file, for a `save` to it: what takes time and needs nobody to stand still
    barrier = 6,        // done at once; then rounds on the same connection, until either side hangs up
    end = 7,
};

enum class Afterwards : std::uint32_t { // NOLINT(performance-enum-size): as on the wire
    run_on = 0,                         // the clients go on at once, with this proxy
    detach = 1,                         // the clients let go of the proxy and wait for another one, or for
                                        // `resume`: what they had stays as long as this proxy
    end = 2,
};

struct Request {
    std::uint32_t version = kVersion;
    std::uint32_t operation = 0;  // Operation
    std::uint32_t afterwards = 0; // Afterwards, of save
    std::uint32_t reserved = 0;
    std::uint64_t quiesce = 0; // milliseconds that clients and device have to become quiet, of save
    std::uint64_t within = 0;  // milliseconds for the whole
};
static_assert(sizeof(Request) == 32 && std::is_trivially_copyable_v<Request>);

// One round of the barrier (proxy/barrier): with a memfd of `bytes` bytes, entry after entry: RoundEntry and
// its bytes, an encoded barrier::Request; the one for everybody else has a process of zeros. Answered by
// `done` with a memfd of `bytes` bytes: `clients` entries with encoded barrier::Reports. Other requests are
// served meanwhile. When the connection ends all gates open.
struct Round {
    std::uint32_t version = kVersion;
    std::uint32_t reserved = 0;
    std::uint64_t bytes = 0;
    std::uint64_t within = 0; // milliseconds for a client to come to its gate
};
static_assert(sizeof(Round) == 24 && std::is_trivially_copyable_v<Round>);

struct RoundEntry {
    std::array<std::uint64_t, 2> process{};
    std::uint64_t bytes = 0;
};
static_assert(sizeof(RoundEntry) == 24 && std::is_trivially_copyable_v<RoundEntry>);

enum class AnswerKind : std::uint32_t { // NOLINT(performance-enum-size): as on the wire
    progress = 1,                       // only `bytes` counts
    done = 2,
    failed = 3, // text says why
};

struct Answer {
    std::uint32_t version = kVersion;
    std::uint32_t kind = 0;          // AnswerKind
    std::uint64_t bytes = 0;         // of the stream
    std::uint64_t clients = 0;       // images
    std::uint64_t calls = 0;         // that make the objects anew
    std::uint64_t memory_bytes = 0;  // of device memory in use
    std::uint64_t content_bytes = 0; // of it not zero
    std::uint64_t code_bytes = 0;    // of module images
    std::uint64_t pause_us = 0;      // from the first client's stop to the last one's resume or detachment
    std::uint64_t total_us = 0;
    std::array<char, 504> text{};   // ends at its NUL
    std::uint64_t device_bytes = 0; // that the device has, of save; 0: it does not say
};
static_assert(std::is_trivially_copyable_v<Answer>);

} // namespace singularity::proxy_control
