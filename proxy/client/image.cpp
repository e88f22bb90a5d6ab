// SPDX-License-Identifier: GPL-2.0-or-later
#include "image.hpp"

#include "proxy/protocol/code.hpp"
#include "proxy/protocol/ids.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include <elf.h>
#include <fmt/format.h>

namespace singularity::client {

namespace {

constexpr std::uint32_t kWrapperMagic = 0x466243B1;
constexpr std::uint32_t kFatbinMagic = 0xBA55ED50;
constexpr const char *kDoing = "find the end of";
constexpr const char *kImage = "a module image";

// Of a program with separately compiled device code: `file_or_list` points to pointers to fatbins, ended by a
// null one. (fatbinary_section.h)
constexpr std::uint32_t kVersionWithList = 2;

struct Wrapper { // __fatBinC_Wrapper_t
    std::uint32_t magic;
    std::uint32_t version;
    std::uint64_t fatbin;
    std::uint64_t file_or_list;
};

struct FatbinHeader {
    std::uint32_t magic;
    std::uint16_t version;
    std::uint16_t header_size;
    std::uint64_t size; // of what follows the header
};

template <class T>
bool read(std::span<const std::byte> bytes, std::uint64_t at, T &value) {
    if (at > bytes.size() || bytes.size() - at < sizeof(T))
        return false;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    return true;
}

// What begins at `at` and has `size` bytes ends inside.
bool inside(std::span<const std::byte> bytes, std::uint64_t at, std::uint64_t size) {
    return at <= bytes.size() && size <= bytes.size() - at;
}

Expected<std::size_t> fatbin_length(std::span<const std::byte> bytes) {
    FatbinHeader header{};
    if (!read(bytes, 0, header))
        return failure(kDoing, "a fatbin", "its header is cut off");
    if (header.header_size < sizeof(header))
        return failure(kDoing, "a fatbin", fmt::format("its header has {} bytes", header.header_size));
    if (!inside(bytes, header.header_size, header.size) || header.size > protocol::kMostBlob)
        return failure(kDoing, "a fatbin", fmt::format("its entries have {} bytes", header.size));
    return header.header_size + header.size;
}

// To the end of whatever ends last: the header tables, the sections, the segments.
Expected<std::size_t> elf_length(std::span<const std::byte> bytes) {
    Elf64_Ehdr header{};
    if (!read(bytes, 0, header) || header.e_ident[EI_CLASS] != ELFCLASS64)
        return failure(kDoing, "an ELF image", "it is cut off, or not of 64 bits");
    std::uint64_t end = sizeof(header);
    const auto reaches = [&](std::uint64_t at, std::uint64_t size) {
        if (!inside(bytes, at, size))
            return false;
        end = std::max(end, at + size);
        return true;
    };
    if (header.e_shnum != 0 && header.e_shentsize < sizeof(Elf64_Shdr))
        return failure(kDoing, "an ELF image", "its section headers are too short");
    if (header.e_phnum != 0 && header.e_phentsize < sizeof(Elf64_Phdr))
        return failure(kDoing, "an ELF image", "its program headers are too short");
    if (!reaches(header.e_shoff, std::uint64_t{header.e_shnum} * header.e_shentsize) ||
        !reaches(header.e_phoff, std::uint64_t{header.e_phnum} * header.e_phentsize))
        return failure(kDoing, "an ELF image", "a header table lies outside of it");
    for (std::uint64_t index = 0; index < header.e_shnum; ++index) {
        Elf64_Shdr section{};
        if (!read(bytes, header.e_shoff + index * header.e_shentsize, section) ||
            (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL &&
             !reaches(section.sh_offset, section.sh_size)))
            return failure(kDoing, "an ELF image", fmt::format("section {} lies outside of it", index));
    }
    for (std::uint64_t index = 0; index < header.e_phnum; ++index) {
        Elf64_Phdr segment{};
        if (!read(bytes, header.e_phoff + index * header.e_phentsize, segment) ||
            !reaches(segment.p_offset, segment.p_filesz))
            return failure(kDoing, "an ELF image", fmt::format("segment {} lies outside of it", index));
    }
    if (end > protocol::kMostBlob)
        return failure(kDoing, "an ELF image", fmt::format("it has {} bytes", end));
    return end;
}

Expected<std::size_t> text_length(std::span<const std::byte> bytes) {
    const auto *const end = std::memchr(bytes.data(), 0, bytes.size());
    const auto length = end == nullptr
                            ? bytes.size()
                            : static_cast<std::size_t>(static_cast<const std::byte *>(end) - bytes.data());
    const std::string_view text(static_cast<const char *>(static_cast<const void *>(bytes.data())),
                                std::min<std::size_t>(length, std::size_t{64} * 1024));
    // A PTX file begins with comments and .version (PTX ISA, 11.1.1); this is what tells it from garbage.
    if (length == 0 || !text.contains(".version"))
        return failure(kDoing, kImage, "it is neither a fatbin, nor an ELF file, nor PTX");
    return length;
}

// The span that image_length() gets only says where reading must end at the latest.
Expected<std::span<const std::byte>> reach(const std::byte *bytes) {
    const std::span<const std::byte> reachable(bytes, protocol::kMostBlob);
    const auto length = image_length(reachable);
    if (!length)
        return std::unexpected(length.error());
    return reachable.first(*length);
}

} // namespace

Expected<std::size_t> image_length(std::span<const std::byte> bytes) {
    std::uint32_t magic = 0;
    // PTX may be shorter than a magic number only by being no PTX.
    if (!read(bytes, 0, magic))
        return failure(kDoing, kImage, "it has less than four bytes");
    if (magic == kFatbinMagic)
        return fatbin_length(bytes);
    if (std::memcmp(bytes.data(), ELFMAG, SELFMAG) == 0)
        return elf_length(bytes);
    return text_length(bytes);
}

Expected<FoundImage> image_at(const void *memory) {
    if (memory == nullptr)
        return failure(kDoing, kImage, "there is none");
    const auto *bytes = static_cast<const std::byte *>(memory);
    Wrapper wrapper{};
    // Text may end right at the end of a page: look at as little as tells the kinds apart.
    std::memcpy(&wrapper.magic, bytes, 1);
    if (wrapper.magic == (kWrapperMagic & 0xFF)) {
        std::memcpy(&wrapper.magic, bytes, sizeof(wrapper.magic));
        if (wrapper.magic == kWrapperMagic) {
            std::memcpy(&wrapper, bytes, sizeof(wrapper));
            bytes = std::bit_cast<const std::byte *>(wrapper.fatbin);
            if (bytes == nullptr)
                return failure(kDoing, "a fatbin's wrapper", "it points to nothing");
        }
    }
    const auto first = reach(bytes);
    if (!first)
        return std::unexpected(first.error());
    const auto *const *next = std::bit_cast<const void *const *>(wrapper.file_or_list);
    if (wrapper.version != kVersionWithList || next == nullptr || *next == nullptr)
        return FoundImage{.bytes = *first, .joined = {}};
    FoundImage all;
    all.joined.assign(first->begin(), first->end());
    for (; *next != nullptr; ++next) {
        const auto part = reach(static_cast<const std::byte *>(*next));
        if (!part)
            return std::unexpected(part.error());
        all.joined.resize((all.joined.size() + protocol::kFatbinAlignment - 1) / protocol::kFatbinAlignment *
                          protocol::kFatbinAlignment);
        if (part->size() > protocol::kMostBlob - all.joined.size())
            return failure(kDoing, "a fatbin's wrapper", "its fatbins together are larger than any image");
        all.joined.insert(all.joined.end(), part->begin(), part->end());
    }
    all.bytes = all.joined;
    return all;
}

} // namespace singularity::client
