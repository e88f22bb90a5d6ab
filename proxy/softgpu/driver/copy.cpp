// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/copy.hpp"

#include "driver/array.hpp"
#include "driver/capture.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

// Shorter ones are not worth another thread's time.
constexpr std::uint64_t kShort = 64 * 1024;

// More than any program has.
constexpr std::uint64_t kAddresses = std::uint64_t{1} << 47U;

std::byte *bytes(std::uint64_t address) { return std::bit_cast<std::byte *>(address); }

// One end of a copy as the program gives it.
struct End {
    CUmemorytype type;
    CUarray array;
    std::uint64_t host;
    std::uint64_t device;
    std::uint64_t x;
    std::uint64_t y;
    std::uint64_t z;
    std::uint64_t pitch;
    std::uint64_t height;
};

struct Place {
    std::uint64_t start = 0;
    std::uint64_t pitch = 0;
    std::uint64_t slice = 0;
    bool pageable = false;
    bool host = false;
};

// Arrays are asked for whole texels that they have.
Result<Place> place_in_array(const End &end, const CUDA_MEMCPY3D &shape, Holds &holds) {
    const auto array = arrays().get(end.array);
    if (!array)
        return refused(array);
    const TexelImage &image = (*array)->image();
    const auto within = [](std::uint64_t first, std::uint64_t count, std::uint64_t size) {
        return first <= size && count <= size - first;
    };
    if (end.x % image.form.size() != 0 || shape.WidthInBytes % image.form.size() != 0 ||
        !within(end.x, shape.WidthInBytes, image.row) ||
        !within(end.y, std::max<std::uint64_t>(shape.Height, 1), image.height) ||
        !within(end.z, std::max<std::uint64_t>(shape.Depth, 1), image.depth))
        return refused(CUDA_ERROR_INVALID_VALUE);
    holds.push_back(*array);
    return Place{.start = address_of(image.texels) + (end.z * image.slice) + (end.y * image.row) + end.x,
                 .pitch = image.row,
                 .slice = image.slice};
}

Result<Place> place(const End &end, const CUDA_MEMCPY3D &shape, Holds &holds) {
    if (end.type == CU_MEMORYTYPE_ARRAY)
        return place_in_array(end, shape, holds);
    Place out;
    std::uint64_t base = end.device;
    switch (end.type) {
    case CU_MEMORYTYPE_HOST:
        base = end.host;
        break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        break;
    default:
        return refused(CUDA_ERROR_INVALID_VALUE);
    }
    const std::uint64_t height = std::max<std::uint64_t>(shape.Height, 1);
    const std::uint64_t depth = std::max<std::uint64_t>(shape.Depth, 1);
    out.pitch = end.pitch;
    if (out.pitch == 0 && height == 1 && depth == 1 && end.y == 0 && end.z == 0)
        out.pitch = end.x + shape.WidthInBytes;
    if (out.pitch < end.x + shape.WidthInBytes)
        return refused(CUDA_ERROR_INVALID_VALUE);
    const std::uint64_t rows = end.height == 0 ? end.y + height : end.height;
    if (depth > 1 && rows < height)
        return refused(CUDA_ERROR_INVALID_VALUE);
    // Products of a program's numbers: refused before they can wrap around.
    std::uint64_t reach = 0;
    if (__builtin_mul_overflow(out.pitch, rows, &out.slice) ||
        __builtin_mul_overflow(out.slice, end.z + depth, &reach) || reach > kAddresses)
        return refused(CUDA_ERROR_INVALID_VALUE);
    out.start = base + (end.z * out.slice) + (end.y * out.pitch) + end.x;
    const std::uint64_t extent = ((depth - 1) * out.slice) + ((height - 1) * out.pitch) + shape.WidthInBytes;
    const auto known = memory_map().holding(out.start);
    if (end.type == CU_MEMORYTYPE_DEVICE || (end.type == CU_MEMORYTYPE_UNIFIED && known)) {
        if (!hold(out.start, extent, holds))
            return refused(CUDA_ERROR_INVALID_VALUE);
        out.host = known && (known->on_host() || known->kind == MemoryKind::managed);
        return out;
    }
    // Host memory: the driver may know it, and then it must not go away.
    out.host = true;
    out.pageable = !known || !hold(out.start, extent, holds);
    if (base == 0)
        return refused(CUDA_ERROR_INVALID_VALUE);
    return out;
}

} // namespace

bool hold(std::uint64_t address, std::uint64_t size, Holds &holds) {
    if (size > UINT64_MAX - address)
        return false;
    std::uint64_t reached = address;
    for (const Allocation &allocation : memory_map().within(address, std::max<std::uint64_t>(size, 1))) {
        if (allocation.address > reached)
            return false;
        if (allocation.kind == MemoryKind::mapped && allocation.readable == 0)
            return false; // mapped, and no cuMemSetAccess yet
        if (allocation.mapping != nullptr)
            holds.push_back(allocation.mapping);
        reached = std::max(reached, allocation.end());
    }
    return reached >= address + size && reached != address;
}

Result<CopyEnds> resolve(CopyOperation &copy) {
    const CUDA_MEMCPY3D &shape = copy.description;
    const auto source =
        place({shape.srcMemoryType, shape.srcArray, address_of(shape.srcHost), shape.srcDevice,
               shape.srcXInBytes, shape.srcY, shape.srcZ, shape.srcPitch, shape.srcHeight},
              shape, copy.holds);
    if (!source)
        return refused(source.error());
    const auto target =
        place({shape.dstMemoryType, shape.dstArray, address_of(shape.dstHost), shape.dstDevice,
               shape.dstXInBytes, shape.dstY, shape.dstZ, shape.dstPitch, shape.dstHeight},
              shape, copy.holds);
    if (!target)
        return refused(target.error());
    copy.source = source->start;
    copy.source_pitch = source->pitch;
    copy.source_slice = source->slice;
    copy.target = target->start;
    copy.target_pitch = target->pitch;
    copy.target_slice = target->slice;
    copy.resolved = true;
    return CopyEnds{source->pageable, target->pageable, source->host || target->host};
}

CUresult resolve(FillOperation &fill) {
    const auto &shape = fill.description;
    const std::uint64_t unit = shape.elementSize;
    if (unit != 1 && unit != 2 && unit != 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (shape.dst % unit != 0 || shape.width > kAddresses)
        return CUDA_ERROR_INVALID_VALUE;
    const std::uint64_t width = shape.width * unit;
    const std::uint64_t height = std::max<std::uint64_t>(shape.height, 1);
    if (height > 1 && (shape.pitch < width || shape.pitch % unit != 0))
        return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t rows = 0;
    if (__builtin_mul_overflow(height - 1, shape.pitch, &rows) || rows > kAddresses ||
        !hold(shape.dst, rows + width, fill.holds))
        return CUDA_ERROR_INVALID_VALUE;
    fill.resolved = true;
    return CUDA_SUCCESS;
}

void run(const CopyOperation &copy) {
    const std::uint64_t width = copy.description.WidthInBytes;
    const std::uint64_t height = std::max<std::uint64_t>(copy.description.Height, 1);
    const std::uint64_t depth = std::max<std::uint64_t>(copy.description.Depth, 1);
    for (std::uint64_t z = 0; z < depth; ++z) {
        const std::uint64_t source = copy.source + (z * copy.source_slice);
        const std::uint64_t target = copy.target + (z * copy.target_slice);
        if (copy.source_pitch == width && copy.target_pitch == width) {
            std::memmove(bytes(target), bytes(source), width * height);
            continue;
        }
        for (std::uint64_t y = 0; y < height; ++y)
            std::memmove(bytes(target + (y * copy.target_pitch)), bytes(source + (y * copy.source_pitch)),
                         width);
    }
}

void run(const FillOperation &fill) {
    const auto &shape = fill.description;
    const std::uint64_t height = std::max<std::uint64_t>(shape.height, 1);
    for (std::uint64_t y = 0; y < height; ++y) {
        std::byte *const row = bytes(shape.dst + (y * shape.pitch));
        switch (shape.elementSize) {
        case 1:
            std::memset(row, static_cast<int>(shape.value & 0xFFU), shape.width);
            break;
        case 2:
            std::fill_n(std::bit_cast<std::uint16_t *>(row), shape.width,
                        static_cast<std::uint16_t>(shape.value));
            break;
        default:
            std::fill_n(std::bit_cast<std::uint32_t *>(row), shape.width, shape.value);
        }
    }
}

CUDA_MEMCPY3D linear_copy(std::uint64_t target, CUmemorytype target_type, std::uint64_t source,
                          CUmemorytype source_type, std::uint64_t size) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = source_type;
    copy.dstMemoryType = target_type;
    if (source_type == CU_MEMORYTYPE_HOST)
        copy.srcHost = bytes(source);
    else
        copy.srcDevice = source;
    if (target_type == CU_MEMORYTYPE_HOST)
        copy.dstHost = bytes(target);
    else
        copy.dstDevice = target;
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = size;
    copy.srcHeight = copy.dstHeight = copy.Height = copy.Depth = 1;
    return copy;
}

CUDA_MEMCPY3D copy_of(const CUDA_MEMCPY2D &in) {
    CUDA_MEMCPY3D out{};
    out.srcXInBytes = in.srcXInBytes;
    out.srcY = in.srcY;
    out.srcMemoryType = in.srcMemoryType;
    out.srcHost = in.srcHost;
    out.srcDevice = in.srcDevice;
    out.srcArray = in.srcArray;
    out.srcPitch = in.srcPitch == 0 ? in.srcXInBytes + in.WidthInBytes : in.srcPitch;
    out.dstXInBytes = in.dstXInBytes;
    out.dstY = in.dstY;
    out.dstMemoryType = in.dstMemoryType;
    out.dstHost = in.dstHost;
    out.dstDevice = in.dstDevice;
    out.dstArray = in.dstArray;
    out.dstPitch = in.dstPitch == 0 ? in.dstXInBytes + in.WidthInBytes : in.dstPitch;
    out.WidthInBytes = in.WidthInBytes;
    out.Height = in.Height;
    out.Depth = 1;
    return out;
}

CUDA_MEMCPY3D copy_of(const CUDA_MEMCPY3D_PEER &in) {
    CUDA_MEMCPY3D out{};
    out.srcXInBytes = in.srcXInBytes;
    out.srcY = in.srcY;
    out.srcZ = in.srcZ;
    out.srcLOD = in.srcLOD;
    out.srcMemoryType = in.srcMemoryType;
    out.srcHost = in.srcHost;
    out.srcDevice = in.srcDevice;
    out.srcArray = in.srcArray;
    out.srcPitch = in.srcPitch;
    out.srcHeight = in.srcHeight;
    out.dstXInBytes = in.dstXInBytes;
    out.dstY = in.dstY;
    out.dstZ = in.dstZ;
    out.dstLOD = in.dstLOD;
    out.dstMemoryType = in.dstMemoryType;
    out.dstHost = in.dstHost;
    out.dstDevice = in.dstDevice;
    out.dstArray = in.dstArray;
    out.dstPitch = in.dstPitch;
    out.dstHeight = in.dstHeight;
    out.WidthInBytes = in.WidthInBytes;
    out.Height = in.Height;
    out.Depth = in.Depth;
    return out;
}

namespace {

// The source's bytes as they are now: the program may change them as soon as the call returns.
void stage(CopyOperation &copy) {
    const std::uint64_t width = copy.description.WidthInBytes;
    const std::uint64_t height = std::max<std::uint64_t>(copy.description.Height, 1);
    const std::uint64_t depth = std::max<std::uint64_t>(copy.description.Depth, 1);
    auto staged = std::make_shared<std::vector<std::byte>>(width * height * depth);
    CopyOperation in = copy;
    in.target = address_of(staged->data());
    in.target_pitch = width;
    in.target_slice = width * height;
    run(in);
    copy.source = in.target;
    copy.source_pitch = in.target_pitch;
    copy.source_slice = in.target_slice;
    copy.holds.push_back(std::move(staged));
}

bool is_idle(Context &context, Stream &stream) { return context.outstanding(stream).empty(); }

} // namespace

CUresult perform(Context &context, CUstream handle, const CUDA_MEMCPY3D &description, bool asynchronous) {
    const auto stream = stream_of(context, handle);
    if (!stream)
        return stream.error();
    CopyOperation copy;
    copy.description = description;
    copy.copy_context = context.handle();
    if (description.WidthInBytes == 0 || description.Height == 0 || description.Depth == 0)
        return CUDA_SUCCESS;
    if (const auto captured = capture(context, **stream, copy, asynchronous))
        return *captured;
    const auto ends = resolve(copy);
    if (!ends)
        return ends.error();
    const std::uint64_t size = description.WidthInBytes * description.Height * description.Depth;
    // cuda.h, "API synchronization behavior": a synchronous copy within the device does not wait for its end,
    // an asynchronous one to pageable memory does, one from there returns once the source has been read.
    bool wait = asynchronous ? ends->pageable_target : ends->host;
    const bool read_now = asynchronous && ends->pageable_source && !ends->pageable_target;
    if (read_now && !is_idle(context, **stream))
        stage(copy);
    else if (read_now)
        wait = true;
    const CompletionPtr done = submit(**stream, std::move(copy), {{}, wait || size <= kShort, nullptr});
    return wait ? wait_for(context, {done}) : CUDA_SUCCESS;
}

CUresult perform(Context &context, CUstream handle, const CUDA_MEMSET_NODE_PARAMS &description,
                 bool asynchronous) {
    const auto stream = stream_of(context, handle);
    if (!stream)
        return stream.error();
    FillOperation fill;
    fill.description = description;
    fill.context = context.handle();
    if (description.width == 0 || description.height == 0)
        return CUDA_SUCCESS;
    if (const auto captured = capture(context, **stream, fill, asynchronous))
        return *captured;
    if (const CUresult checked = resolve(fill); checked != CUDA_SUCCESS)
        return checked;
    const auto known = memory_map().holding(description.dst);
    const bool wait = !asynchronous && known && known->on_host();
    const std::uint64_t size = description.width * description.height * description.elementSize;
    const CompletionPtr done = submit(**stream, std::move(fill), {{}, wait || size <= kShort, nullptr});
    return wait ? wait_for(context, {done}) : CUDA_SUCCESS;
}

Result<MemoryOperations> memory_operations(Context &context, const CUstreamBatchMemOpParams *list,
                                           unsigned count, unsigned flags) {
    constexpr unsigned kMost = 256; // as cuda.h says
    if (list == nullptr || count == 0 || count > kMost || flags != 0)
        return refused(CUDA_ERROR_INVALID_VALUE);
    MemoryOperations out;
    out.operations.assign(list, list + count);
    out.context = context.handle();
    for (const auto &one : out.operations) {
        std::uint64_t size = 0;
        std::uint64_t address = 0;
        switch (one.operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            size = one.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ? 4 : 8;
            address = one.waitValue.address;
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            size = one.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ? 4 : 8;
            address = one.writeValue.address;
            break;
        case CU_STREAM_MEM_OP_BARRIER:
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            break;
        default:
            return refused(CUDA_ERROR_INVALID_VALUE);
        }
        if (size != 0 && (address % size != 0 || !hold(address, size, out.holds)))
            return refused(CUDA_ERROR_INVALID_VALUE);
    }
    return out;
}

} // namespace singularity::softgpu::driver
