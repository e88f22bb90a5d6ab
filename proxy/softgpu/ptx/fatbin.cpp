// SPDX-License-Identifier: GPL-2.0-or-later
#include "ptx/fatbin.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

#include <fmt/core.h>
#include <lz4.h>
#include <zstd.h>

namespace singularity::ptx {

namespace {

constexpr std::uint32_t kFatbinMagic = 0xBA55ED50;
constexpr std::uint32_t kWrapperMagic = 0x466243B1;
constexpr std::uint64_t kFatbinHeader = 16;
constexpr std::uint64_t kEntryHeader = 64;

constexpr std::uint16_t kKindPtx = 1;
constexpr std::uint16_t kKindElf = 2;

// LZ4's best case: one byte of a length stands for 255 bytes (lz4_Block_format.md).
constexpr std::uint64_t kLz4MaxRatio = 255;

template <class T>
T at(std::span<const std::byte> bytes, std::uint64_t offset) {
    static_assert(std::is_integral_v<T>);
    T value{};
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

std::string_view text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

std::unexpected<Error> broken(std::uint64_t offset, std::string why) {
    return failure("read", fmt::format("fatbin at offset {}", offset), std::move(why));
}

// A part of the entry's header that a field of it points to; empty if the field is 0.
Expected<std::string_view> header_text(std::span<const std::byte> header, std::uint64_t entry_offset,
                                       std::uint64_t offset, std::uint64_t length) {
    if (offset == 0 || length == 0)
        return std::string_view{};
    if (offset > header.size() || length > header.size() - offset)
        return broken(entry_offset,
                      fmt::format("text of {} bytes at {} is outside of the entry's header of {} bytes",
                                  length, offset, header.size()));
    std::string_view found = text(header.subspan(offset, length));
    return found.substr(0, found.find('\0'));
}

Expected<FatbinEntry> read_entry(std::span<const std::byte> bytes, std::uint64_t offset) {
    FatbinEntry entry;
    entry.offset = offset;
    if (bytes.size() < kEntryHeader)
        return broken(offset,
                      fmt::format("{} bytes are left, an entry's header has {}", bytes.size(), kEntryHeader));
    const std::uint64_t header_size = at<std::uint32_t>(bytes, 4);
    const auto padded = at<std::uint64_t>(bytes, 8);
    if (header_size < kEntryHeader || header_size > bytes.size())
        return broken(offset, fmt::format("header size {} is not between {} and the {} bytes that are left",
                                          header_size, kEntryHeader, bytes.size()));
    if (padded > bytes.size() - header_size)
        return broken(offset, fmt::format("payload size {} is more than the {} bytes that are left", padded,
                                          bytes.size() - header_size));
    const auto header = bytes.first(header_size);
    entry.raw_kind = at<std::uint16_t>(bytes, 0);
    entry.kind = entry.raw_kind == kKindPtx   ? EntryKind::ptx
                 : entry.raw_kind == kKindElf ? EntryKind::elf
                                              : EntryKind::other;
    entry.version_minor = at<std::uint16_t>(bytes, 24);
    entry.version_major = at<std::uint16_t>(bytes, 26);
    entry.sm = at<std::uint32_t>(bytes, 28);
    entry.flags = at<std::uint64_t>(bytes, 40);
    entry.stored = bytes.subspan(header_size, padded);
    entry.size = padded;

    auto name = header_text(header, offset, at<std::uint32_t>(bytes, 32), at<std::uint32_t>(bytes, 36));
    if (!name)
        return propagate(name);
    entry.name = *name;
    if (const std::uint64_t record = at<std::uint32_t>(bytes, 20);
        record != 0 && entry.kind == EntryKind::ptx) {
        if (record > header_size - 8)
            return broken(offset,
                          fmt::format("options record at {} is outside of the entry's header of {} bytes",
                                      record, header_size));
        auto options = header_text(header, offset, at<std::uint32_t>(bytes, record),
                                   at<std::uint32_t>(bytes, record + 4));
        if (!options)
            return propagate(options);
        entry.options = *options;
    }

    if ((entry.flags & (fatbin_flag::kLz4 | fatbin_flag::kZstd)) == 0)
        return entry;
    entry.compression = (entry.flags & fatbin_flag::kLz4) != 0 ? Compression::lz4 : Compression::zstd;
    const std::uint64_t compressed = at<std::uint32_t>(bytes, 16);
    entry.size = at<std::uint64_t>(bytes, 56);
    if (compressed == 0 || compressed > padded)
        return broken(offset, fmt::format("compressed size {} is not between 1 and the payload's {} bytes",
                                          compressed, padded));
    entry.stored = entry.stored.first(compressed);
    return entry;
}

// Appends the entries of the fatbin that starts at `offset`; returns the offset of its end.
Expected<std::uint64_t> append_fatbin(std::span<const std::byte> bytes, std::uint64_t offset,
                                      std::vector<FatbinEntry> &entries) {
    auto size = fatbin_size(bytes.subspan(offset));
    if (!size)
        return broken(offset, size.error().why);
    if (*size > bytes.size() - offset)
        return broken(offset, fmt::format("size {} is more than the {} bytes that are left", *size,
                                          bytes.size() - offset));
    const std::uint64_t end = offset + *size;
    std::uint64_t next = offset + at<std::uint16_t>(bytes, offset + 6);
    while (next < end) {
        auto entry = read_entry(bytes.subspan(next, end - next), next);
        if (!entry)
            return propagate(entry);
        entries.push_back(*entry);
        next += at<std::uint32_t>(bytes, next + 4) + at<std::uint64_t>(bytes, next + 8);
    }
    return end;
}

Expected<std::vector<std::byte>> unpack_lz4(const FatbinEntry &entry) {
    if (entry.size / kLz4MaxRatio > entry.stored.size())
        return broken(entry.offset,
                      fmt::format("{} bytes of LZ4 cannot become {} bytes", entry.stored.size(), entry.size));
    std::vector<std::byte> result(entry.size);
    const int written = LZ4_decompress_safe(
        reinterpret_cast<const char *>(entry.stored.data()), reinterpret_cast<char *>(result.data()),
        static_cast<int>(entry.stored.size()), static_cast<int>(result.size()));
    if (written < 0 || static_cast<std::uint64_t>(written) != entry.size)
        return broken(entry.offset, fmt::format("LZ4 block of {} bytes is corrupt: got {} of {} bytes",
                                                entry.stored.size(), std::max(written, 0), entry.size));
    return result;
}

Expected<std::vector<std::byte>> unpack_zstd(const FatbinEntry &entry) {
    // The frame's own word is asked before memory is: a corrupt size field then costs nothing.
    const unsigned long long content = ZSTD_getFrameContentSize(entry.stored.data(), entry.stored.size());
    if (content != entry.size)
        return broken(entry.offset,
                      fmt::format("Zstandard frame says {} bytes, the entry {}",
                                  content == ZSTD_CONTENTSIZE_ERROR     ? "no number of"
                                  : content == ZSTD_CONTENTSIZE_UNKNOWN ? "an unknown number of"
                                                                        : std::to_string(content),
                                  entry.size));
    std::vector<std::byte> result(entry.size);
    const std::size_t written =
        ZSTD_decompress(result.data(), result.size(), entry.stored.data(), entry.stored.size());
    if (ZSTD_isError(written) != 0)
        return broken(entry.offset, fmt::format("Zstandard frame of {} bytes is corrupt: {}",
                                                entry.stored.size(), ZSTD_getErrorName(written)));
    if (written != entry.size)
        return broken(entry.offset,
                      fmt::format("Zstandard frame has {} bytes, the entry says {}", written, entry.size));
    return result;
}

FatbinEntry whole_image(EntryKind kind, std::span<const std::byte> image) {
    FatbinEntry entry;
    entry.kind = kind;
    entry.raw_kind = kind == EntryKind::ptx ? kKindPtx : kKindElf;
    entry.flags = fatbin_flag::kAddress64;
    entry.stored = image;
    entry.size = image.size();
    return entry;
}

// PTX starts with blanks and comments; its first word is .version.
bool is_ptx(std::string_view source) {
    constexpr std::string_view blanks = " \t\r\n\v\f";
    for (;;) {
        const std::size_t start = source.find_first_not_of(blanks);
        if (start == std::string_view::npos)
            return false;
        source.remove_prefix(start);
        std::size_t end = std::string_view::npos;
        if (source.starts_with("//"))
            end = source.find('\n');
        else if (source.starts_with("/*"))
            end = source.find("*/", 2);
        else
            return source.starts_with(".version");
        if (end == std::string_view::npos)
            return false;
        source.remove_prefix(end + 1 + (source.starts_with("/*") ? 1 : 0));
    }
}

// "90a" code runs on 9.0 only. Family code (100f) also runs on later members of the family, which the
// number does not tell; a software device claims exactly one number.
bool runs_on(const FatbinEntry &entry, std::uint32_t sm) {
    const bool exact =
        (entry.flags & (fatbin_flag::kArchitectureSpecific | fatbin_flag::kFamilySpecific)) != 0;
    return exact ? entry.sm == sm : entry.sm <= sm;
}

} // namespace

Expected<std::uint64_t> fatbin_size(std::span<const std::byte> start) {
    if (start.size() < kFatbinHeader)
        return broken(
            0, fmt::format("{} bytes are left, a fatbin's header has {}", start.size(), kFatbinHeader));
    const auto magic = at<std::uint32_t>(start, 0);
    const auto version = at<std::uint16_t>(start, 4);
    const auto header = at<std::uint16_t>(start, 6);
    const auto size = at<std::uint64_t>(start, 8);
    if (magic != kFatbinMagic)
        return broken(0, fmt::format("magic is {:#010x}, not {:#010x}", magic, kFatbinMagic));
    if (version != 1 || header != kFatbinHeader)
        return broken(0,
                      fmt::format("version {} with a header of {} bytes is not known, only version 1 with {}",
                                  version, header, kFatbinHeader));
    if (size > UINT64_MAX - header)
        return broken(0, fmt::format("size {} is impossible", size));
    return header + size;
}

Expected<std::vector<FatbinEntry>> read_image(std::span<const std::byte> image) {
    constexpr std::string_view elf = "\x7f"
                                     "ELF";
    const std::string_view content = text(image);
    if (content.starts_with(elf))
        return std::vector{whole_image(EntryKind::elf, image)};
    if (is_ptx(content))
        return std::vector{whole_image(EntryKind::ptx, image)};
    if (image.size() >= sizeof kWrapperMagic && at<std::uint32_t>(image, 0) == kWrapperMagic)
        return broken(0, "this is the wrapper of a fatbin: follow its pointer at offset 8");
    std::vector<FatbinEntry> entries;
    auto end = append_fatbin(image, 0, entries);
    if (!end)
        return propagate(end);
    return entries;
}

Expected<std::vector<FatbinEntry>> read_fatbin_section(std::span<const std::byte> section) {
    std::vector<FatbinEntry> entries;
    std::uint64_t offset = 0;
    for (;;) {
        while (offset < section.size() && section[offset] == std::byte{0})
            ++offset;
        if (offset == section.size())
            return entries;
        auto end = append_fatbin(section, offset, entries);
        if (!end)
            return propagate(end);
        offset = *end;
    }
}

Expected<std::vector<std::byte>> payload(const FatbinEntry &entry) {
    if (entry.size > kMaxPayload)
        return broken(entry.offset, fmt::format("an image of {} bytes is more than the {} that are accepted",
                                                entry.size, kMaxPayload));
    switch (entry.compression) {
    case Compression::lz4:
        return unpack_lz4(entry);
    case Compression::zstd:
        return unpack_zstd(entry);
    case Compression::none:
        break;
    }
    return std::vector<std::byte>(entry.stored.begin(), entry.stored.end());
}

Expected<std::string> ptx_text(const FatbinEntry &entry) {
    if (entry.kind != EntryKind::ptx)
        return broken(entry.offset, fmt::format("entry is of kind {}, PTX is {}", entry.raw_kind, kKindPtx));
    auto bytes = payload(entry);
    if (!bytes)
        return propagate(bytes);
    const std::string_view all = text(*bytes);
    return std::string(all.substr(0, all.find('\0')));
}

const FatbinEntry *select_ptx(std::span<const FatbinEntry> entries, std::uint32_t sm) {
    const FatbinEntry *best = nullptr;
    for (const FatbinEntry &entry : entries)
        if (entry.kind == EntryKind::ptx && runs_on(entry, sm) && (best == nullptr || entry.sm > best->sm))
            best = &entry;
    return best;
}

} // namespace singularity::ptx
