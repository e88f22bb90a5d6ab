// SPDX-License-Identifier: GPL-2.0-or-later
#include "engine/surfaces.hpp"

#include "engine/handlers.hpp"
#include "engine/sampling.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include <fmt/core.h>

namespace singularity::softgpu::engine {

const Surface &surface_of(const Context &context, unsigned lane, std::uint64_t number) {
    if (context.textures != nullptr)
        if (const auto found = context.textures->surfaces.find(number);
            found != context.textures->surfaces.end())
            return *found->second;
    raise_fault(FaultKind::illegal_address, lane, fmt::format("there is no surface object {:#x}", number));
}

namespace {

using ptx::Instruction;
using ptx::Mode;
using ptx::Operation;
using ptx::Type;

// Within [0, limit]; what is outside is not there, or means the nearest that is, or ends the kernel.
bool inside(std::int64_t &at, std::int64_t limit, Mode mode, unsigned lane, const char *what) {
    if (at >= 0 && at <= limit)
        return true;
    if (mode == Mode::clamp) {
        at = std::clamp<std::int64_t>(at, 0, limit);
        return true;
    }
    if (mode == Mode::trap)
        raise_fault(FaultKind::trap, lane,
                    fmt::format("an access to a surface is outside of it: {} {} of {}", what, at, limit));
    return false;
}

// The bytes that a lane accesses; nullptr: there are none there. The first coordinate is in bytes.
std::byte *bytes_of(Context &context, const Op &op, const Instruction &instruction, unsigned lane,
                    std::uint32_t size) {
    const Ref *const rows = context.code->extra.data() + op.extra + op.count;
    const TexelImage &image = surface_of(context, lane, row<std::uint64_t>(context, op.o[0])[lane]).image;
    std::array<std::int64_t, 4> said{};
    for (unsigned i = 0; i < coordinates_of(instruction.geometry); ++i)
        said[i] = row<std::int32_t>(context, rows[i])[lane];
    const bool layers = has_layers(instruction.geometry);
    const unsigned dimensions = coordinates_of(instruction.geometry) - (layers ? 1 : 0);
    // Faces of cubes are layers here.
    if (dimensions != image.dimensions || layers != (image.layered || image.cube))
        raise_fault(FaultKind::not_supported, lane,
                    fmt::format("a surface of {} dimensions{} is accessed as {}", image.dimensions,
                                image.layered || image.cube ? " and layers" : "",
                                ptx::word_text(ptx::Field::geometry,
                                               static_cast<std::uint8_t>(instruction.geometry))));
    const unsigned first = layers ? 1 : 0;
    std::int64_t x = said[first];
    std::int64_t y = dimensions > 1 ? said[first + 1] : 0;
    std::int64_t z = layers ? said[0] : dimensions > 2 ? said[2] : 0;
    if (x % size != 0)
        raise_fault(FaultKind::misaligned_address, lane,
                    fmt::format("an access of {} bytes to a surface is at byte {}", size, x));
    if (size > image.row)
        raise_fault(FaultKind::trap, lane, "an access to a surface is wider than the surface");
    const std::int64_t last = static_cast<std::int64_t>(image.row - size) / size * size;
    const Mode mode = instruction.mode;
    if (!inside(x, last, mode, lane, "byte") || !inside(y, image.height - 1LL, mode, lane, "row") ||
        !inside(z, image.depth - 1LL, mode, lane, "slice or layer"))
        return nullptr;
    return image.texels + static_cast<std::uint64_t>(z) * image.slice +
           static_cast<std::uint64_t>(y) * image.row + static_cast<std::uint64_t>(x);
}

// Rows have 8 bytes for values of 8, else 4; what is narrower is the low part of the 4.
std::byte *value_of(const Context &context, Ref ref, std::uint32_t size, unsigned lane) {
    return row<std::byte>(context, ref) + std::size_t{size == 8 ? 8U : 4U} * lane;
}

void load(Context &context, const Op &op) {
    const Instruction &instruction = context.code->instruction(op);
    const Ref *const rows = context.code->extra.data() + op.extra;
    const std::uint32_t size = ptx::type_size(instruction.types[0]);
    std::array<const std::byte *, kLanes> from{};
    for (std::uint32_t lanes = context.mask; lanes != 0; lanes &= lanes - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
        from[lane] = bytes_of(context, op, instruction, lane, size * op.count);
    }
    for (std::uint32_t lanes = context.mask; lanes != 0; lanes &= lanes - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
        for (unsigned i = 0; i < op.count; ++i) {
            std::uint64_t value = 0;
            if (from[lane] != nullptr)
                std::memcpy(&value, from[lane] + std::size_t{i} * size, size);
            std::memcpy(value_of(context, rows[i], size, lane), &value, size == 8 ? 8 : 4);
        }
    }
}

void store(Context &context, const Op &op) {
    const Instruction &instruction = context.code->instruction(op);
    const Ref *const rows = context.code->extra.data() + op.extra;
    const std::uint32_t size = ptx::type_size(instruction.types[0]);
    for (std::uint32_t lanes = context.mask; lanes != 0; lanes &= lanes - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
        std::byte *const to = bytes_of(context, op, instruction, lane, size * op.count);
        for (unsigned i = 0; to != nullptr && i < op.count; ++i)
            std::memcpy(to + std::size_t{i} * size, value_of(context, rows[i], size, lane), size);
    }
}

template <class T>
T combined(Operation operation, T before, T value) {
    switch (operation) {
    case Operation::add: // of unsigned numbers: signed ones wrap around alike
        return static_cast<T>(static_cast<std::make_unsigned_t<T>>(before) +
                              static_cast<std::make_unsigned_t<T>>(value));
    case Operation::min:
        return std::min(before, value);
    case Operation::max:
        return std::max(before, value);
    case Operation::and_:
        return before & value;
    default:
        return before | value;
    }
}

template <class T>
void reduce(Context &context, const Op &op) {
    const Instruction &instruction = context.code->instruction(op);
    const Ref values = context.code->extra[op.extra];
    for (std::uint32_t lanes = context.mask; lanes != 0; lanes &= lanes - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
        std::byte *const to = bytes_of(context, op, instruction, lane, sizeof(T));
        if (to == nullptr)
            continue;
        const T value = row<T>(context, values)[lane];
        const std::atomic_ref<T> shared(*reinterpret_cast<T *>(to));
        T before = shared.load(std::memory_order_relaxed);
        while (!shared.compare_exchange_weak(before, combined(instruction.operation, before, value),
                                             std::memory_order_relaxed))
            ;
    }
}

} // namespace

Handler select_surface(const Instruction &instruction) {
    switch (instruction.opcode) {
    case ptx::Opcode::suld:
        return load;
    case ptx::Opcode::sust:
        return store;
    default:
        break;
    }
    switch (instruction.types[0]) {
    case Type::s32:
        return reduce<std::int32_t>;
    case Type::s64:
        return reduce<std::int64_t>;
    default:
        return ptx::type_size(instruction.types[0]) == 8 ? Handler{reduce<std::uint64_t>}
                                                         : Handler{reduce<std::uint32_t>};
    }
}

} // namespace singularity::softgpu::engine
