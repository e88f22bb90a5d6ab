// SPDX-License-Identifier: GPL-2.0-or-later
// What textures and surfaces are, for whoever makes them and for the instructions that use them. A texture
// object is an image (the levels of a mipmapped array: several) and how it is sampled; a surface is an image.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace singularity::softgpu {

enum class TexelKind : std::uint8_t { unsigned_integer, signed_integer, floating };

struct TexelForm {
    TexelKind kind = TexelKind::unsigned_integer;
    std::uint8_t bytes = 0; // of a channel: 1, 2 or 4
    std::uint8_t channels = 0;

    [[nodiscard]] std::uint32_t size() const { return std::uint32_t{bytes} * channels; }
};

struct TexelImage {
    TexelForm form;
    std::uint8_t dimensions = 1; // without layers and faces
    bool layered = false;
    bool cube = false;
    std::uint32_t width = 0;
    std::uint32_t height = 1;
    std::uint32_t depth = 1; // slices, layers, or faces of all layers
    std::uint64_t row = 0;   // bytes from row to row
    std::uint64_t slice = 0;
    std::byte *texels = nullptr;
};

enum class Addressing : std::uint8_t { wrap, clamp, mirror, border };

struct Sampler {
    std::array<Addressing, 3> addressing{Addressing::clamp, Addressing::clamp, Addressing::clamp};
    bool linear = false;     // between texels; else the nearest
    bool normalized = false; // coordinates from 0 to 1
    bool integers = false;   // integer texels as they are; else those of 8 and 16 bits as parts of one
    std::array<float, 4> border{};
    bool between_levels = false;
    float level_bias = 0;
    float lowest_level = 0;
    float highest_level = 0;
};

// Arrays cannot be touched otherwise and are held by the object. Memory is the program's, which may have
// freed it: an access is checked.
enum class TexelSource : std::uint8_t { array, linear, pitched };

struct Texture {
    Sampler sampler;
    TexelSource source = TexelSource::array;
    std::vector<TexelImage> levels;
    std::shared_ptr<const void> holds;
};

struct Surface {
    TexelImage image;
    std::shared_ptr<const void> holds;
};

// What one launch may use, by the numbers that its parameters hold.
struct TextureObjects {
    std::map<std::uint64_t, std::shared_ptr<const Texture>> textures;
    std::map<std::uint64_t, std::shared_ptr<const Surface>> surfaces;
};

} // namespace singularity::softgpu
