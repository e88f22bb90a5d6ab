// SPDX-License-Identifier: GPL-2.0-or-later
#include "range_copy.hpp"

#include "box_copy.hpp"
#include "proxy/protocol/ids.hpp"

#include <cstring>
#include <memory>

namespace singularity::client {

namespace {

const std::byte *bytes_at(std::uint64_t address) { return std::bit_cast<const std::byte *>(address); }

// For copies that a graph will make again and again: `size` bytes of pinned memory that stand for the
// program's memory, and a host function on the stream that fills them from it or empties them into it. Both
// stay as long as the process: a graph may run at any time.
struct Staging {
    void *shared;
    void *program;
    std::uint64_t size;
    bool to_program;
};

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

} // namespace singularity::client
