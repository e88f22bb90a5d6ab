// SPDX-License-Identifier: GPL-2.0-or-later
// tex, tld4 and txq; where the handlers of surfaces are found.
#include "engine/context.hpp"
#include "engine/handlers.hpp"
#include "engine/sampling.hpp"
#include "engine/surfaces.hpp"

#include <algorithm>
#include <bit>

#include <fmt/core.h>

namespace singularity::softgpu::engine {

namespace {

using ptx::Flag;
using ptx::Geometry;
using ptx::Instruction;
using ptx::Mode;
using ptx::Opcode;

const Ref *rows_of(const Context &context, const Op &op) { return context.code->extra.data() + op.extra; }

const Texture &texture_of(const Context &context, unsigned lane, std::uint64_t number) {
    if (context.textures != nullptr)
        if (const auto found = context.textures->textures.find(number);
            found != context.textures->textures.end())
            return *found->second;
    raise_fault(FaultKind::illegal_address, lane, fmt::format("there is no texture object {:#x}", number));
}

// The same for all lanes, mostly.
class LastTexture {
  public:
    const Texture &find(const Context &context, const Op &op, unsigned lane) {
        const std::uint64_t number = row<std::uint64_t>(context, op.o[0])[lane];
        if (texture_ == nullptr || number != number_) {
            texture_ = &texture_of(context, lane, number);
            number_ = number;
        }
        return *texture_;
    }

  private:
    std::uint64_t number_ = 0;
    const Texture *texture_ = nullptr;
};

struct Coordinates {
    std::array<double, 3> at{};
    std::uint32_t layer = 0;
};

// Of one lane; first: the row of the first one.
Coordinates coordinates(const Context &context, const Instruction &instruction, const Ref *first,
                        unsigned lane) {
    Coordinates out;
    unsigned next = 0;
    if (has_layers(instruction.geometry)) {
        // Negative numbers are the first layer, as the largest are the last one.
        const auto layer = row<std::int32_t>(context, first[next++])[lane];
        out.layer = static_cast<std::uint32_t>(std::max(layer, 0));
    }
    const bool integers = instruction.types[1] == ptx::Type::s32;
    for (unsigned d = 0; next < coordinates_of(instruction.geometry); ++d, ++next)
        out.at[d] = integers ? row<std::int32_t>(context, first[next])[lane]
                             : double{row<float>(context, first[next])[lane]};
    return out;
}

struct Wanted {
    unsigned dimensions;
    bool layered;
    bool cube;
};
Wanted wanted(Geometry geometry) {
    switch (geometry) {
    case Geometry::line:
        return {1, false, false};
    case Geometry::lines:
        return {1, true, false};
    case Geometry::plane:
        return {2, false, false};
    case Geometry::planes:
        return {2, true, false};
    case Geometry::cube:
        return {2, false, true};
    case Geometry::cubes:
        return {2, true, true};
    default:
        return {3, false, false};
    }
}

SamplePlace place_of(const Context &context, const Instruction &instruction, const Texture &texture,
                     const Ref *rows, unsigned lane) {
    const TexelImage &image = texture.levels.front();
    const Wanted shape = wanted(instruction.geometry);
    // What a GPU makes of a texture of another shape is not documented.
    if (shape.dimensions != image.dimensions || shape.cube != image.cube || shape.layered != image.layered)
        raise_fault(FaultKind::not_supported, lane,
                    fmt::format("a texture of {} dimensions{}{} is read as {}", image.dimensions,
                                image.layered ? " and layers" : "", image.cube ? " and faces" : "",
                                ptx::word_text(ptx::Field::geometry,
                                               static_cast<std::uint8_t>(instruction.geometry))));
    const bool integers = instruction.types[1] == ptx::Type::s32;
    if (texture.source == TexelSource::linear && !integers)
        raise_fault(FaultKind::not_supported, lane, "a texture of linear memory is read at a float");
    const Coordinates at = coordinates(context, instruction, rows, lane);
    SamplePlace place;
    place.texel_numbers = integers;
    if (shape.cube) {
        const std::uint32_t layers = image.depth / 6;
        place_on_face(place, at.at[0], at.at[1], at.at[2], std::min(at.layer, layers - 1));
        return place;
    }
    place.at = at.at;
    place.dimensions = shape.dimensions;
    place.slice = shape.layered ? std::min(at.layer, image.depth - 1) : 0;
    return place;
}

// Memory of the program's, which it may have freed since.
ImageSampler::Check check_of(Context &context, const Op &op, const Texture &texture, unsigned lane) {
    if (texture.source == TexelSource::array)
        return {};
    const std::uint32_t size = texture.levels.front().form.size();
    return [&context, &op, size, lane](const std::byte *texel) {
        const auto address = std::bit_cast<std::uint64_t>(texel);
        if (find_range(context, op, address, address + size - 1) == nullptr)
            raise_address_fault(FaultKind::illegal_address, lane, address, size, Place::global, false);
    };
}

template <class Sample>
void on_lanes(Context &context, const Op &op, Sample sample) {
    const Ref *const rows = rows_of(context, op);
    const Instruction &instruction = context.code->instruction(op);
    LastTexture last;
    // Results may go where coordinates are: all are read before any is written.
    std::array<SampleBits, kLanes> results;
    for (std::uint32_t lanes = context.mask; lanes != 0; lanes &= lanes - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
        const Texture &texture = last.find(context, op, lane);
        const SamplePlace place = place_of(context, instruction, texture, rows + op.count, lane);
        const auto check = check_of(context, op, texture, lane);
        results[lane] = sample(ImageSampler(texture, check), place, texture, instruction, lane);
    }
    for (unsigned channel = 0; channel < op.count; ++channel)
        for (std::uint32_t lanes = context.mask; lanes != 0; lanes &= lanes - 1) {
            const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
            row<std::uint32_t>(context, rows[channel])[lane] = results[lane][channel];
        }
}

void sample(Context &context, const Op &op) {
    on_lanes(context, op,
             [&](const ImageSampler &sampler, const SamplePlace &place, const Texture &texture,
                 const Instruction &instruction, unsigned lane) {
                 double level = 0;
                 if (instruction.mode == Mode::level)
                     level = instruction.types[1] == ptx::Type::s32
                                 ? row<std::int32_t>(context, op.o[1])[lane]
                                 : double{row<float>(context, op.o[1])[lane]};
                 if (instruction.mode == Mode::grad && texture.levels.size() > 1)
                     raise_fault(FaultKind::not_supported, lane,
                                 "levels of a mipmapped array are not chosen by gradients");
                 return sampler.sample(place, level);
             });
}

unsigned channel_of(const Instruction &instruction) {
    static constexpr std::array<Flag, 4> kChannels{Flag::right, Flag::green, Flag::matrix_b, Flag::matrix_a};
    unsigned channel = 0;
    while (channel + 1 < kChannels.size() && !instruction.has(kChannels[channel]))
        ++channel;
    return channel;
}

void gather(Context &context, const Op &op) {
    on_lanes(context, op,
             [](const ImageSampler &sampler, const SamplePlace &place, const Texture &,
                const Instruction &instruction,
                unsigned) { return sampler.gather(place, channel_of(instruction)); });
}

std::uint32_t answer(Mode question, const TexelImage &image, std::size_t levels, bool normalized) {
    const bool spatial = !image.layered && !image.cube;
    switch (question) {
    case Mode::width:
        return image.width;
    case Mode::height:
        return image.dimensions > 1 ? image.height : 0;
    case Mode::depth:
        return spatial && image.dimensions > 2 ? image.depth : 0;
    case Mode::array_size:
        return image.layered ? image.depth / (image.cube ? 6 : 1) : 0;
    case Mode::mipmap_levels:
        return static_cast<std::uint32_t>(levels);
    default:
        return normalized ? 1 : 0;
    }
}

void query(Context &context, const Op &op) {
    const Ref *const rows = rows_of(context, op);
    const Instruction &instruction = context.code->instruction(op);
    for (std::uint32_t lanes = context.mask; lanes != 0; lanes &= lanes - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
        const std::uint64_t number = row<std::uint64_t>(context, op.o[0])[lane];
        std::uint32_t value = 0;
        if (instruction.opcode == Opcode::suq) {
            value = answer(instruction.mode, surface_of(context, lane, number).image, 1, false);
        } else {
            const Texture &texture = texture_of(context, lane, number);
            value = answer(instruction.mode, texture.levels.front(), texture.levels.size(),
                           texture.sampler.normalized);
        }
        row<std::uint32_t>(context, rows[0])[lane] = value;
    }
}

} // namespace

Handler select_texture(const Instruction &instruction) {
    switch (instruction.opcode) {
    case Opcode::tex:
        return sample;
    case Opcode::tld4:
        return gather;
    case Opcode::txq:
    case Opcode::suq:
        return query;
    default:
        return select_surface(instruction);
    }
}

} // namespace singularity::softgpu::engine
