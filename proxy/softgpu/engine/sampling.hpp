// SPDX-License-Identifier: GPL-2.0-or-later
// What a texture gives at a place, as the CUDA Programming Guide's appendix "Texture Fetching" has it: the
// texel that is nearest, or a mean of those around, with weights of 8 bits of fraction.
#pragma once

#include "engine/texture.hpp"
#include "ptx/words.hpp"

#include <array>
#include <cstdint>
#include <functional>

namespace singularity::softgpu::engine {

// How many numbers say a place, the number of the layer among them.
[[nodiscard]] constexpr unsigned coordinates_of(ptx::Geometry geometry) {
    switch (geometry) {
    case ptx::Geometry::line:
        return 1;
    case ptx::Geometry::plane:
    case ptx::Geometry::lines:
        return 2;
    case ptx::Geometry::cubes:
        return 4;
    case ptx::Geometry::none:
        return 0;
    default:
        return 3;
    }
}

[[nodiscard]] constexpr bool has_layers(ptx::Geometry geometry) {
    return geometry == ptx::Geometry::lines || geometry == ptx::Geometry::planes ||
           geometry == ptx::Geometry::cubes;
}

// A place, without the layer: numbers of the program, and the layer or slice of the image. On a face of a
// cube they are from 0 to 1 whatever the sampler says.
struct SamplePlace {
    std::array<double, 3> at{};
    unsigned dimensions = 1;
    std::uint32_t slice = 0;
    bool on_face = false;
    bool texel_numbers = false; // integers
};

// Finds the face that a direction meets, and where.
void place_on_face(SamplePlace &place, double x, double y, double z, std::uint32_t layer);

// Four results as bits: integers of 32 bits, or floats.
using SampleBits = std::array<std::uint32_t, 4>;

class ImageSampler {
  public:
    // Called with each texel's address before it is read.
    using Check = std::function<void(const std::byte *)>;

    ImageSampler(const Texture &texture, const Check &check) : texture_(texture), check_(check) {}

    [[nodiscard]] SampleBits sample(const SamplePlace &place, double level) const;
    // One channel of the four texels that a mean would be made of: lower left first, against the clock.
    [[nodiscard]] SampleBits gather(const SamplePlace &place, unsigned channel) const;

  private:
    [[nodiscard]] bool gives_floats(const TexelImage &image) const {
        return image.form.kind == TexelKind::floating || (!texture_.sampler.integers && image.form.bytes < 4);
    }
    [[nodiscard]] std::array<double, 4> sample_floats(const TexelImage &image,
                                                      const SamplePlace &place) const;
    [[nodiscard]] SampleBits sample_integers(const TexelImage &image, const SamplePlace &place) const;
    // nullptr: the border.
    [[nodiscard]] const std::byte *texel(const TexelImage &image, const SamplePlace &place,
                                         const std::array<double, 3> &index) const;
    [[nodiscard]] double float_at(const TexelImage &image, const std::byte *texel, unsigned channel) const;
    [[nodiscard]] static std::uint32_t integer_at(const TexelImage &image, const std::byte *texel,
                                                  unsigned channel);
    // In texels.
    [[nodiscard]] std::array<double, 3> scaled(const TexelImage &image, const SamplePlace &place) const;

    const Texture &texture_;
    const Check &check_;
};

} // namespace singularity::softgpu::engine
