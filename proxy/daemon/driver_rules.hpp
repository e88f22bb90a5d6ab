// SPDX-License-Identifier: GPL-2.0-or-later
// What this daemon adds to a generated call: which may wait for the device, which must be looked at before
// the driver sees them, what belongs to what.
#pragma once

#include "common/error.hpp"
#include "proxy/driver-api/api.hpp"
#include "proxy/driver-api/dispatch.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace singularity::proxyd {

class Session;

struct DriverRule {
    // The call may wait for the device: for a worker, unless `idle` says that it will not.
    bool waits = false;
    // With the session's turn at the device even then: it does not only wait.
    bool uses_memory = false;
    // Of what the message names: CUDA_SUCCESS: the call will not wait; CUDA_ERROR_NOT_READY: it would; an
    // error is left to the call itself to find.
    CUresult (*idle)(Session &session, std::span<const std::byte> message) = nullptr;
    // What the device has printed comes out with this call.
    bool relays_output = false;
    // The handle that what the call makes belongs to.
    std::uint64_t (*parent)(std::span<const std::byte> message) = nullptr;
    // Whether the session may do this. false: CUDA_ERROR_INVALID_VALUE.
    bool (*allowed)(Session &session, std::span<const std::byte> message) = nullptr;
    // Does the call in the driver's place, or nothing: it is for the driver.
    std::optional<CUresult> (*instead)(Session &session, std::span<const std::byte> message) = nullptr;
    // After the driver has done it.
    void (*done)(Session &session, std::span<const std::byte> message) = nullptr;
    // Changes the reply of a call that the driver has done.
    void (*corrects)(Session &session, std::span<const std::byte> message,
                     std::span<std::byte> reply) = nullptr;
    // After the driver has been asked, whatever it has said.
    void (*tried)(Session &session) = nullptr;
};

[[nodiscard]] const DriverRule &driver_rule(driver_api::ApiId api);

} // namespace singularity::proxyd
