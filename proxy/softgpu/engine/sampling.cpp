// SPDX-License-Identifier: GPL-2.0-or-later
#include "engine/sampling.hpp"

#include "engine/small_floats.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace singularity::softgpu::engine {

namespace {

// Coordinates are floats of 32 bits: what is further away than this is outside, and integers stay exact.
constexpr double kFar = 0x1p40;
constexpr double kFractions = 256;

double bounded(double value) { return value != value ? 0 : std::clamp(value, -kFar, kFar); }

std::uint32_t size_along(const TexelImage &image, unsigned dimension) {
    return dimension == 0 ? image.width : dimension == 1 ? image.height : image.depth;
}

// Which texel; -1: none.
std::int64_t addressed(double index, std::uint32_t size, Addressing how) {
    const auto at = static_cast<std::int64_t>(index);
    const auto count = static_cast<std::int64_t>(size);
    const auto around = [&](std::int64_t period) { return ((at % period) + period) % period; };
    switch (how) {
    case Addressing::wrap:
        return around(count);
    case Addressing::mirror: {
        const std::int64_t there_and_back = around(2 * count);
        return there_and_back < count ? there_and_back : (2 * count) - 1 - there_and_back;
    }
    case Addressing::border:
        return at < 0 || at >= count ? -1 : at;
    default:
        return std::clamp<std::int64_t>(at, 0, count - 1);
    }
}

std::uint32_t bits_of(double value) { return std::bit_cast<std::uint32_t>(static_cast<float>(value)); }

// 0 to 1 in steps of the weights that there are.
double weight(double fraction) { return std::floor(fraction * kFractions + 0.5) / kFractions; }

} // namespace

void place_on_face(SamplePlace &place, double x, double y, double z, std::uint32_t layer) {
    const double ax = std::fabs(x);
    const double ay = std::fabs(y);
    const double az = std::fabs(z);
    std::uint32_t face = 0;
    double major = 0;
    double s = 0;
    double t = 0;
    if (ax >= ay && ax >= az) {
        face = std::signbit(x) ? 1 : 0;
        major = ax;
        s = face == 0 ? -z : z;
        t = -y;
    } else if (ay >= az) {
        face = std::signbit(y) ? 3 : 2;
        major = ay;
        s = x;
        t = face == 2 ? z : -z;
    } else {
        face = std::signbit(z) ? 5 : 4;
        major = az;
        s = face == 4 ? x : -x;
        t = -y;
    }
    place.on_face = true;
    place.dimensions = 2;
    place.slice = layer * 6 + face;
    place.at = {major == 0 ? 0.5 : (s / major + 1) / 2, major == 0 ? 0.5 : (t / major + 1) / 2, 0};
}

std::array<double, 3> ImageSampler::scaled(const TexelImage &image, const SamplePlace &place) const {
    const bool parts = place.on_face || (texture_.sampler.normalized && !place.texel_numbers);
    std::array<double, 3> out{};
    for (unsigned d = 0; d < place.dimensions; ++d)
        out[d] = bounded(parts ? place.at[d] * size_along(image, d) : place.at[d]);
    return out;
}

const std::byte *ImageSampler::texel(const TexelImage &image, const SamplePlace &place,
                                     const std::array<double, 3> &index) const {
    std::array<std::int64_t, 3> at{};
    for (unsigned d = 0; d < place.dimensions; ++d) {
        Addressing how = texture_.sampler.addressing[d];
        // There is no border at the edge of a face. Nothing repeats in coordinates that are texels' numbers.
        const bool repeats = texture_.sampler.normalized && !place.texel_numbers;
        if (texture_.source == TexelSource::linear)
            how = Addressing::border;
        else if (place.on_face || (how != Addressing::border && !repeats))
            how = Addressing::clamp;
        at[d] = addressed(index[d], size_along(image, d), how);
        if (at[d] < 0)
            return nullptr;
    }
    if (place.dimensions < 3)
        at[2] = place.slice;
    const std::byte *const found = image.texels + static_cast<std::uint64_t>(at[2]) * image.slice +
                                   static_cast<std::uint64_t>(at[1]) * image.row +
                                   static_cast<std::uint64_t>(at[0]) * image.form.size();
    if (check_)
        check_(found);
    return found;
}

std::uint32_t ImageSampler::integer_at(const TexelImage &image, const std::byte *texel, unsigned channel) {
    const TexelForm &form = image.form;
    std::uint32_t bits = 0;
    std::memcpy(&bits, texel + std::size_t{channel} * form.bytes, form.bytes);
    if (form.kind == TexelKind::signed_integer && form.bytes < 4) {
        const unsigned unused = 32U - 8U * form.bytes;
        bits = std::bit_cast<std::uint32_t>(std::bit_cast<std::int32_t>(bits << unused) >> unused);
    }
    return bits;
}

double ImageSampler::float_at(const TexelImage &image, const std::byte *texel, unsigned channel) const {
    const TexelForm &form = image.form;
    if (texel == nullptr)
        return texture_.sampler.border[channel];
    const std::uint32_t bits = integer_at(image, texel, channel);
    switch (form.kind) {
    case TexelKind::floating:
        return form.bytes == 2 ? SmallFloat<5, 10>::to_double(bits) : std::bit_cast<float>(bits);
    case TexelKind::signed_integer:
        return std::max(std::bit_cast<std::int32_t>(bits) / (form.bytes == 1 ? 127. : 32767.), -1.);
    default:
        return bits / (form.bytes == 1 ? 255. : 65535.);
    }
}

SampleBits ImageSampler::sample_integers(const TexelImage &image, const SamplePlace &place) const {
    auto at = scaled(image, place);
    std::ranges::transform(at, at.begin(), [](double value) { return std::floor(value); });
    SampleBits out{};
    if (const std::byte *const found = texel(image, place, at))
        for (unsigned channel = 0; channel < image.form.channels; ++channel)
            out[channel] = integer_at(image, found, channel);
    return out;
}

std::array<double, 4> ImageSampler::sample_floats(const TexelImage &image, const SamplePlace &place) const {
    auto at = scaled(image, place);
    std::array<double, 4> out{};
    if (!texture_.sampler.linear || place.texel_numbers) {
        std::ranges::transform(at, at.begin(), [](double value) { return std::floor(value); });
        const std::byte *const found = texel(image, place, at);
        for (unsigned channel = 0; channel < image.form.channels; ++channel)
            out[channel] = float_at(image, found, channel);
        return out;
    }
    std::array<double, 3> first{};
    std::array<double, 3> weights{};
    for (unsigned d = 0; d < place.dimensions; ++d) {
        first[d] = std::floor(at[d] - 0.5);
        weights[d] = weight(at[d] - 0.5 - first[d]);
    }
    for (unsigned corner = 0; corner < 1U << place.dimensions; ++corner) {
        double share = 1;
        auto index = first;
        for (unsigned d = 0; d < place.dimensions; ++d) {
            const bool second = (corner >> d & 1U) != 0;
            share *= second ? weights[d] : 1 - weights[d];
            index[d] += second ? 1 : 0;
        }
        if (share == 0)
            continue; // and what is there may be infinite
        const std::byte *const found = texel(image, place, index);
        for (unsigned channel = 0; channel < image.form.channels; ++channel)
            out[channel] += share * float_at(image, found, channel);
    }
    return out;
}

SampleBits ImageSampler::sample(const SamplePlace &place, double level) const {
    const Sampler &sampler = texture_.sampler;
    const auto last = static_cast<double>(texture_.levels.size() - 1);
    double wanted = 0;
    if (last > 0)
        wanted = std::clamp(std::clamp<double>(bounded(level) + sampler.level_bias, sampler.lowest_level,
                                               std::max(sampler.lowest_level, sampler.highest_level)),
                            0., last);
    const double nearest = std::floor(sampler.between_levels ? wanted : wanted + 0.5);
    const TexelImage &image = texture_.levels[static_cast<std::size_t>(nearest)];
    if (!gives_floats(image))
        return sample_integers(image, place);
    auto values = sample_floats(image, place);
    const double part = sampler.between_levels ? weight(wanted - nearest) : 0;
    if (part != 0) {
        const auto other = sample_floats(texture_.levels[static_cast<std::size_t>(nearest) + 1], place);
        for (unsigned channel = 0; channel < values.size(); ++channel)
            values[channel] = (1 - part) * values[channel] + part * other[channel];
    }
    SampleBits out{};
    std::ranges::transform(values, out.begin(), bits_of);
    return out;
}

SampleBits ImageSampler::gather(const SamplePlace &place, unsigned channel) const {
    const TexelImage &image = texture_.levels.front();
    SampleBits out{};
    if (channel >= image.form.channels)
        return out;
    const auto at = scaled(image, place);
    static constexpr std::array<std::array<unsigned, 2>, 4> kCorners{{{0, 1}, {1, 1}, {1, 0}, {0, 0}}};
    for (unsigned corner = 0; corner < out.size(); ++corner) {
        const std::array<double, 3> index{std::floor(at[0] - 0.5) + kCorners[corner][0],
                                          std::floor(at[1] - 0.5) + kCorners[corner][1], 0};
        const std::byte *const found = texel(image, place, index);
        if (gives_floats(image))
            out[corner] = bits_of(float_at(image, found, channel));
        else if (found != nullptr)
            out[corner] = integer_at(image, found, channel);
    }
    return out;
}

} // namespace singularity::softgpu::engine
