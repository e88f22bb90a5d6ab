// SPDX-License-Identifier: GPL-2.0-or-later
#include "box_copy.hpp"

#include "graph.hpp"
#include "log.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace singularity::client {

namespace {

template <class Copy>
BoxCopy planar(const Copy &copy) {
    return {.destination = {.type = copy.dstMemoryType,
                            .address = copy.dstMemoryType == CU_MEMORYTYPE_HOST
                                           ? std::bit_cast<std::uint64_t>(copy.dstHost)
                                       : copy.dstMemoryType == CU_MEMORYTYPE_ARRAY
                                           ? std::bit_cast<std::uint64_t>(copy.dstArray)
                                           : copy.dstDevice,
                            .x = copy.dstXInBytes,
                            .y = copy.dstY,
                            .pitch = copy.dstPitch},
            .source = {.type = copy.srcMemoryType,
                       .address = copy.srcMemoryType == CU_MEMORYTYPE_HOST
                                      ? std::bit_cast<std::uint64_t>(copy.srcHost)
                                  : copy.srcMemoryType == CU_MEMORYTYPE_ARRAY
                                      ? std::bit_cast<std::uint64_t>(copy.srcArray)
                                      : copy.srcDevice,
                       .x = copy.srcXInBytes,
                       .y = copy.srcY,
                       .pitch = copy.srcPitch},
            .box = {.width = copy.WidthInBytes, .height = copy.Height, .depth = 1}};
}

template <class Copy>
BoxCopy spatial(const Copy &copy) {
    auto box = planar(copy);
    box.destination.z = copy.dstZ;
    box.destination.level = copy.dstLOD;
    box.destination.height = copy.dstHeight;
    box.source.z = copy.srcZ;
    box.source.level = copy.srcLOD;
    box.source.height = copy.srcHeight;
    box.box.depth = copy.Depth;
    return box;
}

// A part of a box: so many bytes of so many rows of so many slices, from an offset.
struct Part {
    std::uint64_t x = 0;
    std::uint64_t y = 0;
    std::uint64_t z = 0;
    protocol::Box box;
};

protocol::Place place_of(const protocol::Place &place, const Part &part) {
    auto moved = place;
    moved.x += part.x;
    moved.y += part.y;
    moved.z += part.z;
    return moved;
}

const std::byte *row_of(const ResolvedEnd &end, const Part &part, std::uint64_t y, std::uint64_t z) {
    return end.memory + part.x + (part.y + y) * end.pitch + (part.z + z) * end.slice;
}

// Calls for_part(part) for parts of at most `limit` bytes that together are the box; ends at the first
// failure.
template <class ForPart>
CUresult in_parts(const protocol::Box &box, std::uint64_t limit, ForPart for_part) {
    const auto width = std::min(box.width, limit);
    const auto rows = width == box.width ? std::clamp<std::uint64_t>(limit / width, 1, box.height) : 1;
    const auto slices =
        rows == box.height ? std::clamp<std::uint64_t>(limit / (width * rows), 1, box.depth) : 1;
    for (std::uint64_t z = 0; z < box.depth; z += slices)
        for (std::uint64_t y = 0; y < box.height; y += rows)
            for (std::uint64_t x = 0; x < box.width; x += width) {
                const Part part{.x = x,
                                .y = y,
                                .z = z,
                                .box = {.width = std::min(width, box.width - x),
                                        .height = std::min(rows, box.height - y),
                                        .depth = std::min(slices, box.depth - z)}};
                if (const auto bad = for_part(part); bad != CUDA_SUCCESS)
                    return bad;
            }
    return CUDA_SUCCESS;
}

CUresult write_box(const Route &route, std::uint64_t stream, const protocol::Place &destination,
                   const ResolvedEnd &source, const protocol::Box &box) {
    return in_parts(box, protocol::kWritePiece, [&](const Part &part) {
        const auto bytes = protocol::packed_size(part.box);
        auto record = route.session->end().begin(
            route.context->handle, protocol::kRequestHead<protocol::WriteBox> + protocol::padded(bytes));
        if (!record)
            return failure_of(record.error());
        const auto places = protocol::encode_in_place(
            protocol::WriteBox{.destination = place_of(destination, part), .box = part.box, .stream = stream},
            {bytes}, record->message());
        auto *to = places[0].data();
        for (std::uint64_t z = 0; z < part.box.depth; ++z)
            for (std::uint64_t y = 0; y < part.box.height; ++y, to += part.box.width)
                std::memcpy(to, row_of(source, part, y, z), part.box.width);
        record->commit();
        return CUDA_SUCCESS;
    });
}

CUresult read_box(const Route &route, std::uint64_t stream, const ResolvedEnd &destination,
                  const protocol::Place &source, const protocol::Box &box) {
    return in_parts(box, protocol::kReadPiece, [&](const Part &part) {
        const auto bytes = protocol::packed_size(part.box);
        bool complete = false;
        const auto result =
            ask(route,
                protocol::Message<protocol::ReadBox>{
                    .fixed = {.source = place_of(source, part), .box = part.box, .stream = stream}},
                protocol::padded(bytes), [&](const auto &reply) {
                    complete = reply.buffers[0].bytes.size() == bytes;
                    if (!complete)
                        return;
                    const auto *from = reply.buffers[0].bytes.data();
                    for (std::uint64_t z = 0; z < part.box.depth; ++z)
                        for (std::uint64_t y = 0; y < part.box.height; ++y, from += part.box.width)
                            std::memcpy(const_cast<std::byte *>(row_of(destination, part, y, z)), from,
                                        part.box.width);
                });
        if (result == CUDA_SUCCESS && !complete)
            return CUDA_ERROR_UNKNOWN;
        return result;
    });
}

void copy_here(const ResolvedEnd &destination, const ResolvedEnd &source, const protocol::Box &box) {
    const Part whole{.box = box};
    for (std::uint64_t z = 0; z < box.depth; ++z)
        for (std::uint64_t y = 0; y < box.height; ++y)
            std::memmove(const_cast<std::byte *>(row_of(destination, whole, y, z)),
                         row_of(source, whole, y, z), box.width);
}

// Through this process, for devices of different daemons.
CUresult copy_between(const ResolvedEnd &destination, const ResolvedEnd &source, const protocol::Box &box) {
    Route from;
    Route to;
    if (const auto bad = route_to(*source.session, from); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = route_to(*destination.session, to); bad != CUDA_SUCCESS)
        return bad;
    const auto size = protocol::packed_size(box);
    std::vector<std::byte> buffer(static_cast<std::size_t>(size));
    ResolvedEnd middle;
    middle.memory = buffer.data();
    middle.pitch = box.width;
    middle.slice = box.width * box.height;
    if (const auto bad = read_box(from, protocol::kLegacyStream, middle, source.place, box);
        bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = write_box(to, protocol::kLegacyStream, destination.place, middle, box);
        bad != CUDA_SUCCESS)
        return bad;
    return synchronize_stream(to, protocol::kLegacyStream);
}

CUresult copy_box_in_daemon(const Route &route, std::uint64_t stream, const protocol::Box &box,
                            const ResolvedEnd &destination, const ResolvedEnd &source) {
    return post(route, protocol::Message<protocol::CopyBox>{.fixed = {.destination = destination.place,
                                                                      .source = source.place,
                                                                      .box = box,
                                                                      .stream = stream}});
}

// From or to the program's memory, for a graph.
CUresult capture_box(const Route &route, std::uint64_t stream, const protocol::Box &box,
                     ResolvedEnd destination, ResolvedEnd source) {
    const auto foreign = [&](const ResolvedEnd &end) {
        return end.session != nullptr && end.session != route.session;
    };
    if (foreign(destination) || foreign(source)) {
        kLog.warning("a graph cannot copy between devices");
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    std::unique_ptr<StagedBox> made;
    if (const auto bad = stage(route, box, destination, source, made); bad != CUDA_SUCCESS)
        return bad;
    auto *const staged = made.release(); // see StagedBox
    if (staged->alone)
        return launch_host_function(route, stream, run_staged, staged);
    if (staged->to_program) {
        if (const auto bad = copy_box_in_daemon(route, stream, box, destination, source); bad != CUDA_SUCCESS)
            return bad;
        return launch_host_function(route, stream, run_staged, staged);
    }
    if (const auto bad = launch_host_function(route, stream, run_staged, staged); bad != CUDA_SUCCESS)
        return bad;
    return copy_box_in_daemon(route, stream, box, destination, source);
}

} // namespace

BoxCopy box_of(const CUDA_MEMCPY2D &copy) { return planar(copy); }
BoxCopy box_of(const CUDA_MEMCPY3D &copy) { return spatial(copy); }
BoxCopy box_of(const CUDA_MEMCPY3D_PEER &copy) { return spatial(copy); }

CUresult resolve(const BoxEnd &end, const protocol::Box &box, ResolvedEnd &out) {
    if (end.type == CU_MEMORYTYPE_ARRAY) {
        const auto kind = kind_of(end.address);
        const auto *const object =
            kind == driver_api::kHandleArray ? find_object(kind, end.address) : nullptr;
        if (object == nullptr)
            return CUDA_ERROR_INVALID_HANDLE;
        out.session = object->session;
        out.place = {.kind = static_cast<std::uint32_t>(protocol::PlaceKind::array),
                     .level = static_cast<std::uint32_t>(end.level),
                     .base = end.address,
                     .x = end.x,
                     .y = end.y,
                     .z = end.z};
        return CUDA_SUCCESS;
    }
    if (end.address == 0)
        return CUDA_ERROR_INVALID_VALUE;
    // Pitch and height may be 0 where there is but one row or slice.
    const auto pitch = end.pitch == 0 ? end.x + box.width : end.pitch;
    const auto height = end.height == 0 ? end.y + box.height : end.height;
    if ((box.height > 1 || box.depth > 1) && pitch < end.x + box.width)
        return CUDA_ERROR_INVALID_VALUE;
    const auto location = locate(end.address);
    if (location.where == Where::pageable) {
        if (end.type == CU_MEMORYTYPE_DEVICE)
            return CUDA_ERROR_INVALID_VALUE;
        out.pitch = pitch;
        out.slice = pitch * height;
        out.memory = std::bit_cast<std::byte *>(end.address) + end.x + end.y * pitch + end.z * out.slice;
        return CUDA_SUCCESS;
    }
    out.session = location.session;
    out.place = {.kind = static_cast<std::uint32_t>(location.where == Where::device
                                                        ? protocol::PlaceKind::device
                                                        : protocol::PlaceKind::shared_host),
                 .base = location.wire,
                 .x = end.x,
                 .y = end.y,
                 .z = end.z,
                 .pitch = pitch,
                 .height = height};
    return CUDA_SUCCESS;
}

CUresult copy_box(const Route &route, std::uint64_t stream, const BoxCopy &copy, Wait wait) {
    const auto &box = copy.box;
    if (box.width == 0 || box.height == 0 || box.depth == 0)
        return CUDA_SUCCESS;
    if (protocol::packed_size(box) == protocol::kAbsent)
        return CUDA_ERROR_INVALID_VALUE;
    ResolvedEnd destination;
    ResolvedEnd source;
    if (const auto bad = resolve(copy.destination, box, destination); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = resolve(copy.source, box, source); bad != CUDA_SUCCESS)
        return bad;
    if (destination.memory != nullptr || source.memory != nullptr) {
        bool capturing = false;
        if (const auto bad = is_capturing(route, stream, capturing); bad != CUDA_SUCCESS)
            return bad;
        if (capturing)
            return capture_box(route, stream, box, destination, source);
    }
    if (destination.memory != nullptr && source.memory != nullptr) {
        if (const auto bad = synchronize_stream(route, stream); bad != CUDA_SUCCESS)
            return bad;
        copy_here(destination, source, box);
        return CUDA_SUCCESS;
    }
    const auto foreign = [&](const ResolvedEnd &end) {
        return end.session != nullptr && end.session != route.session;
    };
    if (foreign(destination) || foreign(source)) {
        if (const auto bad = synchronize_stream(route, stream); bad != CUDA_SUCCESS)
            return bad;
        if (destination.session != nullptr && source.session != nullptr &&
            destination.session != source.session)
            return copy_between(destination, source, box);
        Route there;
        if (const auto bad =
                route_to(*(destination.session != nullptr ? destination : source).session, there);
            bad != CUDA_SUCCESS)
            return bad;
        return copy_box(there, protocol::kLegacyStream, copy, Wait::yes);
    }
    if (destination.memory != nullptr)
        return read_box(route, stream, destination, source.place, box);
    auto result = CUDA_SUCCESS;
    if (source.memory != nullptr) {
        result = write_box(route, stream, destination.place, source, box);
    } else {
        result = copy_box_in_daemon(route, stream, box, destination, source);
        if (destination.session != nullptr && source.session != nullptr)
            return result; // inside a device nothing waits
    }
    if (result != CUDA_SUCCESS || wait == Wait::no)
        return result;
    return synchronize_stream(route, stream);
}

} // namespace singularity::client
