// SPDX-License-Identifier: GPL-2.0-or-later
#include "fatbins.hpp"

#include "proxy/protocol/code.hpp"

#include <algorithm>
#include <cstring>

namespace singularity::proxyd {

namespace {

// fatbinary header of the CUDA toolkit: magic, version, its own size, size of what follows.
struct FatbinHeader {
    std::uint32_t magic;
    std::uint16_t version;
    std::uint16_t header_size;
    std::uint64_t size;
};

} // namespace

std::optional<std::vector<std::span<const std::byte>>> fatbins_of(std::span<const std::byte> image) {
    std::vector<std::span<const std::byte>> out;
    while (image.size() >= sizeof(FatbinHeader)) {
        FatbinHeader header{};
        std::memcpy(&header, image.data(), sizeof(header));
        if (header.magic != kFatbinMagic)
            break;
        if (header.header_size < sizeof(header) || header.header_size > image.size() ||
            header.size > image.size() - header.header_size)
            return std::nullopt;
        const std::size_t size = header.header_size + header.size;
        out.push_back(image.first(size));
        const std::size_t padding = -size % protocol::kFatbinAlignment;
        image = image.subspan(std::min(image.size(), size + padding));
    }
    if (out.empty())
        return std::nullopt;
    return out;
}

} // namespace singularity::proxyd
