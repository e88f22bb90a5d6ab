// SPDX-License-Identifier: GPL-2.0-or-later
// Copies of boxes: 2D and 3D, device memory, arrays, shared host memory and the program's own.
//
// What has an end on another device than the stream is made by this process, when the stream's work is done.
// In a graph a host node makes it, on streams of its own: the graph waits for the node, and no stream of the
// program's waits for what comes behind the node (copy_apart).
#pragma once

#include "copy.hpp"
#include "proxy/protocol/copy.hpp"

#include <cstdint>
#include <memory>

namespace singularity::client {

// One end as the program gives it.
struct BoxEnd {
    CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
    std::uint64_t address = 0; // host or device, or an array's handle
    std::uint64_t level = 0;
    std::uint64_t x = 0;
    std::uint64_t y = 0;
    std::uint64_t z = 0;
    std::uint64_t pitch = 0;
    std::uint64_t height = 0;
};

struct BoxCopy {
    BoxEnd destination;
    BoxEnd source;
    protocol::Box box;
};

// From the driver's structs.
[[nodiscard]] BoxCopy box_of(const CUDA_MEMCPY2D &copy);
[[nodiscard]] BoxCopy box_of(const CUDA_MEMCPY3D &copy);
[[nodiscard]] BoxCopy box_of(const CUDA_MEMCPY3D_PEER &copy);

// Where an end is: memory that a daemon reaches (place), or the program's (memory, with pitch and height).
struct ResolvedEnd {
    protocol::Place place;
    Session *session = nullptr;  // of device memory and arrays
    Context *context = nullptr;  // whose they are; nullptr: not known
    std::byte *memory = nullptr; // of the box's first byte; nullptr: it is a place
    std::uint64_t pitch = 0;
    std::uint64_t slice = 0; // bytes from slice to slice
};
[[nodiscard]] CUresult resolve(const BoxEnd &end, const protocol::Box &box, ResolvedEnd &out);

[[nodiscard]] CUresult copy_box(const Route &route, std::uint64_t stream, const BoxCopy &copy, Wait wait);
// A plain range with an end on another device than the stream, which is being captured.
[[nodiscard]] CUresult capture_range(const Route &route, std::uint64_t stream, const Location &destination,
                                     const Location &source, std::uint64_t size);

// Whether an end is on another device.
[[nodiscard]] inline bool is_apart(const ResolvedEnd &end, const Session *session) {
    return end.session != nullptr && end.session != session;
}
// The lanes on which host nodes copy, where an end is on a device: streams of the client's own, one for each
// context, made when they are first asked for.
struct LanesApart {
    Lane to;
    Lane from;
};
[[nodiscard]] CUresult lanes_apart(const ResolvedEnd &destination, const ResolvedEnd &source,
                                   LanesApart &lanes);
// At once, and waited for. One end at least is on a device; the work that it has to come after has ended.
[[nodiscard]] CUresult copy_apart(const LanesApart &lanes, const ResolvedEnd &destination,
                                  const ResolvedEnd &source, const protocol::Box &box);

// What a graph's copy from or to the program's own memory goes through: the box, packed, in shared memory; a
// host node packs it before the copy or unpacks it behind. Lives as long as the process: a graph may run at
// any time.
struct StagedBox {
    void *shared = nullptr;
    ResolvedEnd program;
    protocol::Box box;
    bool to_program = false;
    // From and to the program's own, or with an end on another device than the graph: the host node is the
    // whole copy, and `source` what `program` gets.
    bool alone = false;
    ResolvedEnd source;
    LanesApart lanes;
    Context *context = nullptr; // the graph's
};

// Of a copy that graphs will make: nothing is staged if both ends are places. Else the end that is the
// program's has become one, unless it stands alone.
[[nodiscard]] CUresult stage(const Route &route, const protocol::Box &box, ResolvedEnd &destination,
                             ResolvedEnd &source, std::unique_ptr<StagedBox> &staged);
void run_staged(void *data); // a CUhostFn: a StagedBox

} // namespace singularity::client
