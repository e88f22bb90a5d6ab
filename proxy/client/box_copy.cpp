// SPDX-License-Identifier: GPL-2.0-or-later
#include "box_copy.hpp"

#include "attachment.hpp"
#include "log.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace singularity::client {

namespace {

constexpr std::uint64_t kAtATime = std::uint64_t{4} << 20; // between devices

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

bool is_plain(const ResolvedEnd &end) {
    return end.memory == nullptr && end.place.kind != static_cast<std::uint32_t>(protocol::PlaceKind::array);
}

// In memory of a device, or of the program's that devices reach.
ResolvedEnd end_in(const Location &location) {
    ResolvedEnd end;
    end.session = location.session;
    end.context = location.session == nullptr ? nullptr : owner_of(location.wire);
    end.place.kind = static_cast<std::uint32_t>(
        location.where == Where::device ? protocol::PlaceKind::device : protocol::PlaceKind::shared_host);
    end.place.base = location.wire;
    return end;
}

// Of the box's first byte.
std::uint64_t address_in(const protocol::Place &place) {
    return place.base + place.x + place.y * place.pitch + place.z * place.pitch * place.height;
}

// Through this process, for devices of different daemons.
CUresult copy_between(const LanesApart &lanes, const ResolvedEnd &destination, const ResolvedEnd &source,
                      const protocol::Box &box) {
    const auto &[to, from] = lanes;
    if (box.height == 1 && box.depth == 1 && is_plain(destination) && is_plain(source))
        return copy_between_devices(to, address_in(destination.place), from, address_in(source.place),
                                    box.width);
    std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(protocol::packed_size(box), kAtATime)));
    const auto moved = in_parts(box, kAtATime, [&](const Part &part) {
        ResolvedEnd middle;
        middle.memory = buffer.data();
        middle.pitch = part.box.width;
        middle.slice = part.box.width * part.box.height;
        if (const auto bad =
                read_box(from.route, from.stream, middle, place_of(source.place, part), part.box);
            bad != CUDA_SUCCESS)
            return bad;
        return write_box(to.route, to.stream, place_of(destination.place, part), middle, part.box);
    });
    return moved != CUDA_SUCCESS ? moved : synchronize_stream(to.route, to.stream);
}

CUresult copy_box_in_daemon(const Route &route, std::uint64_t stream, const protocol::Box &box,
                            const ResolvedEnd &destination, const ResolvedEnd &source) {
    return post(route, protocol::Message<protocol::CopyBox>{.fixed = {.destination = destination.place,
                                                                      .source = source.place,
                                                                      .box = box,
                                                                      .stream = stream}});
}

template <class Row>
void for_rows(const StagedBox &staged, Row row) {
    auto *packed = static_cast<std::byte *>(staged.shared);
    for (std::uint64_t z = 0; z < staged.box.depth; ++z)
        for (std::uint64_t y = 0; y < staged.box.height; ++y, packed += staged.box.width)
            row(packed, staged.program.memory + y * staged.program.pitch + z * staged.program.slice);
}

void copy_alone(const StagedBox &staged) {
    const auto &to = staged.program;
    const auto &from = staged.source;
    if (to.session != nullptr || from.session != nullptr) {
        if (staged.context != nullptr && staged.context->sticky.load() != CUDA_SUCCESS)
            return; // as all else that the graph would do
        const auto result = copy_apart(staged.lanes, to, from, staged.box);
        if (result == CUDA_SUCCESS)
            return;
        // Nobody can be told but by a later call: the graph's context has failed.
        kLog.error("a graph's copy between devices has failed: CUresult {}", static_cast<int>(result));
        note_result(staged.context, CUDA_ERROR_LAUNCH_FAILED);
        return;
    }
    for (std::uint64_t z = 0; z < staged.box.depth; ++z)
        for (std::uint64_t y = 0; y < staged.box.height; ++y)
            std::memmove(to.memory + y * to.pitch + z * to.slice,
                         from.memory + y * from.pitch + z * from.slice, staged.box.width);
}

// From or to the program's memory or another device, for a graph.
CUresult capture_box(const Route &route, std::uint64_t stream, const protocol::Box &box,
                     ResolvedEnd destination, ResolvedEnd source) {
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

// The context's stream for copies of host nodes, which no other stream of the program's waits for.
CUresult copy_stream(Context &context, std::uint64_t &stream) {
    const std::scoped_lock lock(context.copy_stream_lock);
    if (context.copy_stream == 0) {
        CUstream made = nullptr;
        const OnContext scope(context);
        if (const auto bad = cuStreamCreate(&made, CU_STREAM_NON_BLOCKING); bad != CUDA_SUCCESS)
            return bad;
        context.copy_stream = std::bit_cast<std::uint64_t>(made);
    }
    stream = context.copy_stream;
    return CUDA_SUCCESS;
}

} // namespace

CUresult lanes_apart(const ResolvedEnd &destination, const ResolvedEnd &source, LanesApart &lanes) {
    for (const auto &[end, lane] : {std::pair(&destination, &lanes.to), std::pair(&source, &lanes.from)}) {
        if (end->session == nullptr)
            continue;
        if (const auto bad = route_to(*end->session, lane->route, end->context); bad != CUDA_SUCCESS)
            return bad;
        if (const auto bad = copy_stream(*lane->route.context, lane->stream); bad != CUDA_SUCCESS)
            return bad;
    }
    return CUDA_SUCCESS;
}

CUresult copy_apart(const LanesApart &lanes, const ResolvedEnd &destination, const ResolvedEnd &source,
                    const protocol::Box &box) {
    if (destination.session != nullptr && source.session != nullptr && destination.session != source.session)
        return copy_between(lanes, destination, source, box);
    const auto &[route, stream] = destination.session != nullptr ? lanes.to : lanes.from;
    if (destination.memory != nullptr)
        return read_box(route, stream, destination, source.place, box);
    const auto sent = source.memory != nullptr ? write_box(route, stream, destination.place, source, box)
                                               : copy_box_in_daemon(route, stream, box, destination, source);
    return sent != CUDA_SUCCESS ? sent : synchronize_stream(route, stream);
}

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
        out.context = object->context;
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
    out = end_in(location);
    out.place.x = end.x;
    out.place.y = end.y;
    out.place.z = end.z;
    out.place.pitch = pitch;
    out.place.height = height;
    return CUDA_SUCCESS;
}

void run_staged(void *data) {
    const auto &staged = *static_cast<const StagedBox *>(data);
    if (staged.alone) {
        copy_alone(staged);
        return;
    }
    for_rows(staged, [&](std::byte *packed, std::byte *program) {
        if (staged.to_program)
            std::memcpy(program, packed, staged.box.width);
        else
            std::memcpy(packed, program, staged.box.width);
    });
}

CUresult stage(const Route &route, const protocol::Box &box, ResolvedEnd &destination, ResolvedEnd &source,
               std::unique_ptr<StagedBox> &staged) {
    const bool to_program = destination.memory != nullptr;
    const bool from_program = source.memory != nullptr;
    const bool apart = is_apart(destination, route.session) || is_apart(source, route.session);
    if (!to_program && !from_program && !apart)
        return CUDA_SUCCESS;
    auto made = std::make_unique<StagedBox>();
    made->program = to_program ? destination : source;
    made->box = box;
    made->to_program = !from_program && !apart;
    made->alone = (to_program && from_program) || apart;
    if (made->alone) {
        made->program = destination;
        made->source = source;
        made->context = route.context;
        if (apart) {
            if (const auto bad = lanes_apart(destination, source, made->lanes); bad != CUDA_SUCCESS)
                return bad;
            expect_launches_apart();
        }
    } else {
        if (route.context == nullptr)
            return CUDA_ERROR_INVALID_CONTEXT;
        if (const auto bad =
                allocate_host(protocol::packed_size(box), HostKind::pinned, 0, *route.context, made->shared);
            bad != CUDA_SUCCESS)
            return bad;
        (to_program ? destination : source).place = {
            .kind = static_cast<std::uint32_t>(protocol::PlaceKind::shared_host),
            .base = std::bit_cast<std::uint64_t>(made->shared),
            .pitch = box.width,
            .height = box.height};
    }
    staged = std::move(made);
    return CUDA_SUCCESS;
}

CUresult capture_range(const Route &route, std::uint64_t stream, const Location &destination,
                       const Location &source, std::uint64_t size) {
    const auto end_of = [&](const Location &location) {
        if (location.where == Where::pageable) {
            ResolvedEnd end;
            end.memory = std::bit_cast<std::byte *>(location.wire);
            return end;
        }
        auto end = end_in(location);
        end.place.pitch = size;
        end.place.height = 1;
        return end;
    };
    return capture_box(route, stream, {.width = size, .height = 1, .depth = 1}, end_of(destination),
                       end_of(source));
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
    const bool apart = is_apart(destination, route.session) || is_apart(source, route.session);
    if (destination.memory != nullptr || source.memory != nullptr || apart) {
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
    if (apart) {
        if (const auto bad = synchronize_stream(route, stream); bad != CUDA_SUCCESS)
            return bad;
        LanesApart lanes;
        lanes.to.stream = lanes.from.stream = protocol::kLegacyStream;
        for (const auto &[end, lane] : {std::pair(&destination, &lanes.to), std::pair(&source, &lanes.from)})
            if (end->session != nullptr)
                if (const auto bad = route_to(*end->session, lane->route, end->context); bad != CUDA_SUCCESS)
                    return bad;
        return copy_apart(lanes, destination, source, box);
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
