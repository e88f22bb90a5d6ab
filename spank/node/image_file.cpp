// SPDX-License-Identifier: GPL-2.0-or-later
#include "image_file.hpp"

#include "common/text.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::node {

namespace {

using namespace std::string_view_literals;

// What a file is by its first bytes, and what its user can do with it.
struct Kind {
    std::size_t offset;
    std::string_view magic;
    std::string_view advice;
};
constexpr std::array kOthers{
    Kind{.offset = 0,
         .magic = "\x1f\x8b"sv,
         .advice = "it is compressed by gzip: unpack it to a directory, or make a squashfs of it"},
    Kind{.offset = 257,
         .magic = "ustar"sv,
         .advice =
             "it is an archive of tar: unpack it to a directory (docker export, not docker save), or make "
             "a squashfs of that (mksquashfs DIR FILE)"},
    Kind{.offset = 1080,
         .magic = "\x53\xef"sv,
         .advice =
             "it is an ext file system, which only the kernel could read: make a squashfs of what it holds"},
    Kind{.offset = 1024,
         .magic = "\xe2\xe1\xf5\xe0"sv,
         .advice = "it is an erofs, which is not served here: make a squashfs of what it holds"},
};
constexpr std::size_t kHeadSize = 4096;

constexpr std::string_view kSquashfs = "hsqs";

// SIF, version 1: a header without padding, and descriptors of one size. All numbers are little-endian.
constexpr std::size_t kSifMagicAt = 32;
constexpr std::string_view kSifMagic = "SIF_MAGIC\0"sv;
constexpr std::size_t kDescriptorCountAt = 88;
constexpr std::size_t kDescriptorsAt = 96;
constexpr std::size_t kSifHeaderSize = 128;
constexpr std::uint64_t kSifDescriptorLimit = 4096;
constexpr std::size_t kSifDescriptorSize = 585;
constexpr std::size_t kUsedAt = 4;
constexpr std::size_t kContentAt = 17;
constexpr std::size_t kContentSizeAt = 25;
constexpr std::size_t kFileSystemAt = 201;
constexpr std::size_t kPartitionKindAt = 205;
constexpr std::uint32_t kPartition = 0x4004;
constexpr std::uint32_t kPrimarySystem = 2;
constexpr std::uint32_t kSifSquashfs = 1;
constexpr std::uint32_t kSifEncrypted = 5;

class ImageFile {
  public:
    ImageFile(const UniqueFd &file, const std::string &name) : file_(file), name_(name) {}

    [[nodiscard]] std::unexpected<Error> refuse(std::string why) const {
        return failure("use the image", quote(name_), std::move(why), EINVAL);
    }
    // As many bytes as the file has there.
    [[nodiscard]] Expected<std::string> read(std::uint64_t offset, std::size_t size) const {
        std::string out(size, '\0');
        std::size_t done = 0;
        while (done < size) {
            const ssize_t got =
                pread(file_.get(), out.data() + done, size - done, static_cast<off_t>(offset + done));
            if (got < 0 && errno == EINTR)
                continue;
            if (got < 0)
                return std::unexpected(errno_error("read the image", quote(name_)));
            if (got == 0)
                break;
            done += static_cast<std::size_t>(got);
        }
        out.resize(done);
        return out;
    }

  private:
    const UniqueFd &file_;
    const std::string &name_;
};

template <class Number>
Number number_at(std::string_view bytes, std::size_t offset) {
    Number out{};
    std::memcpy(&out, bytes.data() + offset, sizeof(out));
    return out;
}

bool has(std::string_view bytes, std::size_t offset, std::string_view magic) {
    return bytes.size() >= offset + magic.size() && bytes.substr(offset, magic.size()) == magic;
}

struct Partition {
    std::uint64_t offset;
    std::uint64_t size;
    std::uint32_t file_system;
};

std::optional<Partition> primary_system(std::string_view descriptors) {
    for (; descriptors.size() >= kSifDescriptorSize; descriptors.remove_prefix(kSifDescriptorSize))
        if (descriptors[kUsedAt] != 0 && number_at<std::uint32_t>(descriptors, 0) == kPartition &&
            number_at<std::uint32_t>(descriptors, kPartitionKindAt) == kPrimarySystem)
            return Partition{.offset = number_at<std::uint64_t>(descriptors, kContentAt),
                             .size = number_at<std::uint64_t>(descriptors, kContentSizeAt),
                             .file_system = number_at<std::uint32_t>(descriptors, kFileSystemAt)};
    return std::nullopt;
}

Expected<std::uint64_t> offset_in_sif(const ImageFile &file, std::string_view head, std::uint64_t size) {
    if (head.size() < kSifHeaderSize)
        return file.refuse("it begins as an Apptainer image (SIF) and ends in the middle of its header");
    const auto count = number_at<std::uint64_t>(head, kDescriptorCountAt);
    const auto at = number_at<std::uint64_t>(head, kDescriptorsAt);
    if (count > kSifDescriptorLimit || at > size)
        return file.refuse(
            fmt::format("its header, that of an Apptainer image (SIF), tells of {} descriptors at byte "
                        "{}, and the file has {} bytes: it is damaged",
                        count, at, size));
    auto descriptors = file.read(at, static_cast<std::size_t>(count) * kSifDescriptorSize);
    if (!descriptors)
        return propagate(descriptors);
    const auto system = primary_system(*descriptors);
    if (!system)
        return file.refuse(
            "it is an Apptainer image (SIF) without a primary system partition: build it anew");
    if (system->file_system == kSifEncrypted)
        return file.refuse(
            "it is an encrypted Apptainer image (SIF), whose key nobody has here: build one that is not");
    if (system->file_system != kSifSquashfs)
        return file.refuse(
            "it is an Apptainer image (SIF) with another file system than squashfs: build it anew");
    if (system->offset > size || system->size > size - system->offset)
        return file.refuse(
            fmt::format("its system partition is {} bytes at byte {}, and the file has {}: it is "
                        "damaged",
                        system->size, system->offset, size));
    return system->offset;
}

} // namespace

Expected<std::uint64_t> squashfs_offset(const UniqueFd &file, const std::string &name) {
    const ImageFile reader(file, name);
    struct stat about{};
    if (fstat(file.get(), &about) != 0)
        return std::unexpected(errno_error("look at the image", quote(name)));
    auto head = reader.read(0, kHeadSize);
    if (!head)
        return propagate(head);
    if (has(*head, 0, kSquashfs))
        return 0;
    if (has(*head, kSifMagicAt, kSifMagic)) {
        auto offset = offset_in_sif(reader, *head, static_cast<std::uint64_t>(about.st_size));
        if (!offset)
            return offset;
        auto there = reader.read(*offset, kSquashfs.size());
        if (!there)
            return propagate(there);
        if (*there != kSquashfs)
            return reader.refuse("its system partition holds no squashfs: it is damaged");
        return offset;
    }
    for (const auto &kind : kOthers)
        if (has(*head, kind.offset, kind.magic))
            return reader.refuse(std::string(kind.advice));
    return reader.refuse(
        "it is a file, and neither a squashfs (enroot import, mksquashfs) nor an Apptainer image "
        "(SIF): an image is one of these, or a directory with a root file system in it");
}

} // namespace singularity::node
