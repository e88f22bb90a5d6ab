// SPDX-License-Identifier: GPL-2.0-or-later
#include "images.hpp"

#include "fatbins.hpp"
#include "proxy/driver-api/wire.hpp"

#include <cstdint>
#include <cstring>
#include <optional>

#include <elf.h>

namespace singularity::proxyd::handlers {

namespace {

using driver_api::Length;

template <class T>
std::optional<T> read_at(std::span<const std::byte> image, std::uint64_t at) {
    if (at > image.size() || image.size() - at < sizeof(T))
        return std::nullopt;
    T value;
    std::memcpy(&value, image.data() + at, sizeof(T));
    return value;
}

bool inside(std::span<const std::byte> image, Length at, Length size) {
    return (at + size).valid() && (at + size).value() <= image.size();
}

bool elf_is_whole(std::span<const std::byte> image) {
    const auto header = read_at<Elf64_Ehdr>(image, 0);
    if (!header || header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB)
        return false;
    if (header->e_shnum != 0 && header->e_shentsize != sizeof(Elf64_Shdr))
        return false;
    if (header->e_phnum != 0 && header->e_phentsize != sizeof(Elf64_Phdr))
        return false;
    for (std::uint64_t section = 0; section < header->e_shnum; ++section) {
        if (!inside(image, Length(header->e_shoff), Length((section + 1) * sizeof(Elf64_Shdr))))
            return false;
        const auto entry = read_at<Elf64_Shdr>(image, header->e_shoff + section * sizeof(Elf64_Shdr));
        if (!entry || (entry->sh_type != SHT_NOBITS && entry->sh_type != SHT_NULL &&
                       !inside(image, Length(entry->sh_offset), Length(entry->sh_size))))
            return false;
    }
    for (std::uint64_t segment = 0; segment < header->e_phnum; ++segment) {
        if (!inside(image, Length(header->e_phoff), Length((segment + 1) * sizeof(Elf64_Phdr))))
            return false;
        const auto entry = read_at<Elf64_Phdr>(image, header->e_phoff + segment * sizeof(Elf64_Phdr));
        if (!entry || !inside(image, Length(entry->p_offset), Length(entry->p_filesz)))
            return false;
    }
    return true;
}

} // namespace

bool is_whole(std::span<const std::byte> image) {
    const auto magic = read_at<std::uint32_t>(image, 0);
    if (magic && std::memcmp(image.data(), ELFMAG, SELFMAG) == 0)
        return elf_is_whole(image);
    return !magic || *magic != kFatbinMagic || fatbins_of(image).has_value();
}

DriverImage::DriverImage(std::span<const std::byte> image) : data_(image.data()) {
    const auto fatbins = fatbins_of(image);
    if (!fatbins || fatbins->size() == 1)
        return;
    wrapper_.fatbin = fatbins->front().data();
    for (const auto &fatbin : std::span(*fatbins).subspan(1))
        others_.push_back(fatbin.data());
    others_.push_back(nullptr);
    wrapper_.others = others_.data();
    data_ = &wrapper_;
}

} // namespace singularity::proxyd::handlers
