// SPDX-License-Identifier: GPL-2.0-or-later
// What copies are made of: the parts of plain ranges, and the streams that they are on.
#pragma once

#include "memory.hpp"

#include <cstdint>

namespace singularity::client {

// A stream as the program gives it (0, 1, 2, or a handle) becomes what travels, and says where its work goes.
[[nodiscard]] CUresult stream_route(CUstream stream, std::uint64_t &wire, Route &route);
[[nodiscard]] CUresult synchronize_stream(const Route &route, std::uint64_t wire);
// Whether work on the stream is being captured; asks the daemon only if anything is.
[[nodiscard]] CUresult is_capturing(const Route &route, std::uint64_t wire, bool &capturing);

enum class Wait : bool { no, yes };

// Where work on a device goes.
struct Lane {
    Route route;
    std::uint64_t stream = 0; // as it travels
};

// From the program's memory to memory that the daemon reaches, and back.
[[nodiscard]] CUresult write_range(const Route &route, std::uint64_t stream, std::uint64_t destination,
                                   const void *source, std::uint64_t size);
[[nodiscard]] CUresult read_range(const Route &route, std::uint64_t stream, void *destination,
                                  std::uint64_t source, std::uint64_t size);

// Both ends are memory that the daemon reaches.
[[nodiscard]] CUresult copy_in_daemon(const Lane &lane, const Location &destination, const Location &source,
                                      std::uint64_t size);
// Through this process, piece by piece; the work that it has to come after has ended.
[[nodiscard]] CUresult copy_between_devices(const Lane &to, std::uint64_t destination, const Lane &from,
                                            std::uint64_t source, std::uint64_t size);

// In the stream's order.
[[nodiscard]] CUresult launch_host_function(const Route &route, std::uint64_t stream, CUhostFn function,
                                            void *data);

} // namespace singularity::client
