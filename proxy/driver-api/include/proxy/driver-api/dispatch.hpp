// SPDX-License-Identifier: GPL-2.0-or-later
// The daemon's half of the generated messages: decode a request, call the driver library, encode the reply.
#pragma once

#include "common/error.hpp"
#include "driver_api/backend.hpp" // generated: struct Backend, load()
#include "proxy/driver-api/api.hpp"
#include "proxy/driver-api/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace singularity::driver_api {

// What one session knows: its handles and its host memory. Called from several threads of the session.
class Objects {
  public:
    Objects() = default;
    Objects(const Objects &) = delete;
    Objects &operator=(const Objects &) = delete;
    Objects(Objects &&) = delete;
    Objects &operator=(Objects &&) = delete;
    virtual ~Objects() = default;

    // The driver's handle behind the client's; nothing if the client has no such object. 0 is the driver's
    // NULL.
    [[nodiscard]] virtual std::optional<std::uint64_t> real(unsigned kind, std::uint64_t handle) = 0;
    virtual void add(unsigned kind, std::uint64_t handle, std::uint64_t real) = 0;
    virtual void remove(unsigned kind, std::uint64_t handle) = 0;
    // The client's handle of an object that the driver has named; invents one if it is new.
    [[nodiscard]] virtual std::uint64_t name_of(unsigned kind, std::uint64_t real) = 0;
    // Where this process sees the client's shared host memory; nullptr: the range is not wholly inside it.
    [[nodiscard]] virtual void *host(const HostRange &range) = 0;
    // This daemon's device, whatever ordinal the client knows it by.
    [[nodiscard]] virtual int device() const = 0;
};

// More than this much output in one reply is refused with CUDA_ERROR_INVALID_VALUE.
inline constexpr std::uint64_t kMaxOutput = std::uint64_t{256} * 1024 - 4096;

// What a reply has at most beside its outputs: the fixed part, and what pads each output.
inline constexpr std::uint64_t kReplyOverhead = 256;

// One row for each function; `call` is nullptr for those without a generated message. An Error: the message
// is not well-formed, nothing was called. Otherwise the driver's result, and where `replies`, the reply in
// `out` (replaced; whole message, ready to be sent).
struct DispatchRow {
    Expected<CUresult> (*call)(std::span<const std::byte> message, const Backend &backend, Objects &objects,
                               std::vector<std::byte> &out) = nullptr;
    bool replies = false;
};
[[nodiscard]] const DispatchRow &dispatch_row(ApiId id);

} // namespace singularity::driver_api
