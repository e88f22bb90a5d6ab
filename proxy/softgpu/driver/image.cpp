// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/image.hpp"

#include "ptx/fatbin.hpp"
#include "ptx/parser.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <elf.h>
#include <fmt/format.h>

namespace singularity::softgpu::driver {

namespace {

constexpr std::uint32_t kWrapperMagic = 0x466243B1;
constexpr std::uint32_t kFatbinMagic = 0xBA55ED50;

// Between the parts of linked_image(). A comment to everybody else.
constexpr std::string_view kNextPart = "\n// linked with:\n";

// The 24 bytes in .nvFatBinSegment. Version 2: `more` is an array of pointers to fatbins, ended by a null
// one.
struct Wrapper {
    std::uint32_t magic;
    std::uint32_t version;
    const void *fatbin;
    const void *more;
};

std::unexpected<ImageError> bad(CUresult result, std::string text) {
    return std::unexpected(ImageError{result, std::move(text)});
}

template <class T>
T read(const void *at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// The end of the section headers, which linkers put last.
std::size_t elf_size(const void *data) {
    const auto header = read<Elf64_Ehdr>(data);
    return header.e_shoff + (std::size_t{header.e_shnum} * header.e_shentsize);
}

std::span<const std::byte> bytes_at(const void *data, std::size_t size) {
    return {static_cast<const std::byte *>(data), size};
}

std::string found_instead(const std::vector<ptx::FatbinEntry> &entries, std::uint32_t sm) {
    std::string list;
    for (const auto &entry : entries)
        list += fmt::format("{}{} for sm_{}", list.empty() ? "" : ", ",
                            entry.kind == ptx::EntryKind::ptx   ? "PTX"
                            : entry.kind == ptx::EntryKind::elf ? "machine code"
                                                                : "other code",
                            entry.sm);
    return fmt::format("no PTX for sm_{} or older in the image, which holds {}: compile with -gencode "
                       "arch=compute_XX,code=compute_XX",
                       sm, list.empty() ? "nothing" : list);
}

} // namespace

std::expected<void, ImageError> Image::add(std::span<const std::byte> bytes, std::uint32_t sm,
                                           bool preserved) {
    const auto entries = ptx::read_image(bytes);
    if (!entries)
        return bad(CUDA_ERROR_INVALID_IMAGE, entries.error().message());
    if (entries->empty())
        return {};
    const ptx::FatbinEntry *const chosen = ptx::select_ptx(*entries, sm);
    if (chosen == nullptr)
        return bad(CUDA_ERROR_NO_BINARY_FOR_GPU, found_instead(*entries, sm));
    Part part;
    part.compression = std::to_underlying(chosen->compression);
    part.size = chosen->size;
    part.stored = chosen->stored;
    if (!preserved) {
        part.copied.assign(chosen->stored.begin(), chosen->stored.end());
        part.stored = part.copied;
    }
    parts_.push_back(std::move(part));
    parts_.back().stored =
        preserved ? parts_.back().stored : std::span<const std::byte>(parts_.back().copied);
    return {};
}

std::expected<std::shared_ptr<Image>, ImageError> Image::open(const void *data, std::size_t size,
                                                              std::uint32_t sm, bool preserved) {
    if (data == nullptr)
        return bad(CUDA_ERROR_INVALID_VALUE, "no image");
    auto image = std::make_shared<Image>();
    std::uint32_t magic = 0;
    // Text may be shorter than a magic number.
    std::memcpy(&magic, data,
                size == 0 ? strnlen(static_cast<const char *>(data), 1) == 0 ? 1 : 4
                          : std::min(size, sizeof magic));
    if (magic == kWrapperMagic) {
        const auto wrapper = read<Wrapper>(data);
        std::vector<const void *> fatbins{wrapper.fatbin};
        if (wrapper.version == 2 && wrapper.more != nullptr)
            for (const auto *next = static_cast<const void *const *>(wrapper.more); *next != nullptr; ++next)
                fatbins.push_back(*next);
        std::expected<void, ImageError> first_failure;
        for (const void *fatbin : fatbins) {
            const auto bytes = ptx::fatbin_size(bytes_at(fatbin, 16));
            if (!bytes)
                return bad(CUDA_ERROR_INVALID_IMAGE, bytes.error().message());
            auto added = image->add(bytes_at(fatbin, *bytes), sm, preserved);
            if (!added && first_failure)
                first_failure = std::move(added);
        }
        // The first fatbin of a version 2 wrapper is what was linked of the others, as machine code alone.
        if (!first_failure && image->parts_.empty())
            return std::unexpected(std::move(first_failure.error()));
        return image;
    }
    const bool elf = std::memcmp(&magic, ELFMAG, SELFMAG) == 0;
    image->is_text_ = magic != kFatbinMagic && !elf;
    if (size == 0) {
        if (magic == kFatbinMagic) {
            const auto bytes = ptx::fatbin_size(bytes_at(data, 16));
            if (!bytes)
                return bad(CUDA_ERROR_INVALID_IMAGE, bytes.error().message());
            size = *bytes;
        } else {
            size = elf ? elf_size(data) : std::strlen(static_cast<const char *>(data));
        }
    }
    if (image->is_text_) {
        const auto text = bytes_at(data, size);
        const auto printable = [](std::byte c) {
            return c >= std::byte{' '} || (c >= std::byte{'\t'} && c <= std::byte{'\r'});
        };
        if (text.empty() ||
            !std::ranges::all_of(text.first(std::min<std::size_t>(text.size(), 8)), printable))
            return bad(CUDA_ERROR_INVALID_IMAGE, "the image is no fatbin, no ELF file and no text");
        std::string_view rest(reinterpret_cast<const char *>(text.data()), text.size());
        while (!rest.empty()) {
            const auto part_bytes = std::as_bytes(std::span(rest.substr(0, rest.find(kNextPart))));
            Part part;
            part.copied.assign(part_bytes.begin(), part_bytes.end());
            part.size = part.copied.size();
            rest.remove_prefix(std::min(rest.size(), part.copied.size() + kNextPart.size()));
            image->parts_.push_back(std::move(part));
            image->parts_.back().stored = image->parts_.back().copied;
        }
        return image;
    }
    if (auto added = image->add(bytes_at(data, size), sm, preserved); !added)
        return std::unexpected(std::move(added.error()));
    return image;
}

std::vector<std::byte> linked_image(const std::vector<std::string> &texts) {
    std::string all;
    for (const std::string &text : texts)
        all.append(all.empty() ? std::string_view{} : kNextPart).append(text);
    const auto bytes = std::as_bytes(std::span(all.c_str(), all.size() + 1));
    return {bytes.begin(), bytes.end()};
}

std::expected<std::shared_ptr<const ptx::Module>, ImageError> Image::module() {
    const std::scoped_lock lock(mutex_);
    if (module_ != nullptr)
        return module_;
    std::vector<ptx::Module> modules;
    for (const Part &part : parts_) {
        ptx::FatbinEntry entry;
        entry.kind = ptx::EntryKind::ptx;
        entry.compression = static_cast<ptx::Compression>(part.compression);
        entry.size = part.size;
        entry.stored = part.stored;
        const auto text = ptx::ptx_text(entry);
        if (!text)
            return bad(CUDA_ERROR_INVALID_IMAGE, text.error().message());
        auto module = ptx::parse_module(*text);
        if (!module)
            return bad(CUDA_ERROR_INVALID_PTX, module.error().message());
        modules.push_back(*std::move(module));
    }
    auto linked = link(std::move(modules));
    if (!linked)
        return bad(CUDA_ERROR_INVALID_PTX, linked.error().message());
    module_ = std::make_shared<const ptx::Module>(*std::move(linked));
    for (Part &part : parts_)
        part = {};
    parts_.clear();
    return module_;
}

} // namespace singularity::softgpu::driver
