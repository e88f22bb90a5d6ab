// SPDX-License-Identifier: GPL-2.0-or-later
#include "written_files.hpp"

#include "file.hpp"
#include "records.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace singularity::host {
namespace {

// Field numbers of our own messages: the first of the file is the head, the others a file each.
namespace head {
constexpr std::uint32_t kRanOn = 1;
constexpr std::uint32_t kMade = 2;
} // namespace head
namespace file {
constexpr std::uint32_t kName = 1;
constexpr std::uint32_t kMount = 2;
constexpr std::uint32_t kIdentity = 3;
constexpr std::uint32_t kSize = 4;
constexpr std::uint32_t kChanged = 5;
constexpr std::uint32_t kMode = 6;
constexpr std::uint32_t kAppends = 7;
constexpr std::uint32_t kEnd = 8;
constexpr std::uint32_t kOpen = 9;
constexpr std::uint32_t kKept = 10;
constexpr std::uint32_t kCopyBegin = 11;
constexpr std::uint32_t kExtentBegin = 12; // repeated, as many as
constexpr std::uint32_t kExtentSize = 13;
constexpr std::uint32_t kFingerprint = 14;
constexpr std::uint32_t kRelative = 15; // repeated, as many as
constexpr std::uint32_t kRelativeIdentity = 16;
constexpr std::uint32_t kDoubtful = 17;
constexpr std::uint32_t kDirectoryMode = 18;
constexpr std::uint32_t kShared = 19;
constexpr std::uint32_t kRelativesKnown = 20;
constexpr std::uint32_t kIsDirectory = 21; // which has name, mount and mode
} // namespace file

std::string encoded(const WrittenFile &one) {
    std::string out =
        encoded_field(file::kName, one.name) + encoded_field(file::kMount, one.mount) +
        encoded_field(file::kIdentity, one.identity) + encoded_field(file::kSize, one.size) +
        encoded_field(file::kChanged, static_cast<std::uint64_t>(one.changed)) +
        encoded_field(file::kMode, std::uint64_t{one.mode}) +
        encoded_field(file::kDirectoryMode, std::uint64_t{one.directory_mode}) +
        encoded_field(file::kAppends, std::uint64_t{one.appends}) + encoded_field(file::kEnd, one.end) +
        encoded_field(file::kDoubtful, std::uint64_t{one.doubtful}) +
        encoded_field(file::kShared, std::uint64_t{one.shared}) +
        encoded_field(file::kRelativesKnown, std::uint64_t{one.relatives_known}) +
        encoded_field(file::kOpen, std::uint64_t{one.open}) +
        encoded_field(file::kKept, std::uint64_t{one.kept}) +
        encoded_field(file::kCopyBegin, one.copy.begin) + encoded_field(file::kFingerprint, one.fingerprint);
    for (const Extent &extent : one.copy.extents)
        out +=
            encoded_field(file::kExtentBegin, extent.begin) + encoded_field(file::kExtentSize, extent.size);
    for (const auto &[rest, identity] : one.relatives)
        out += encoded_field(file::kRelative, rest) + encoded_field(file::kRelativeIdentity, identity);
    return out;
}

std::unexpected<Error> damaged(const std::string &why) {
    return failure("read", kFilesTable, why + ": the image is not of this job, or was changed", EPROTO);
}

constexpr const char *kMark = "user.singularity.writer";
constexpr std::uint32_t kLustre = 0x0BD00BD0; // LL_SUPER_MAGIC, lustre_user.h

std::uint32_t type_of(int file) {
    struct statfs about{};
    return fstatfs(file, &about) == 0 ? static_cast<std::uint32_t>(about.f_type) : 0;
}

std::uint64_t number_of(const std::vector<Field> &fields, std::uint32_t number) {
    const Field *const found = find(fields, number);
    return found == nullptr ? 0 : found->value;
}
std::string text_in(const std::vector<Field> &fields, std::uint32_t number) {
    const Field *const found = find(fields, number);
    return found == nullptr ? std::string() : std::string(found->text());
}

bool is_a_name(std::string_view name) { return !name.empty() && name.find('\0') == std::string_view::npos; }

// Each lies behind the one before, and all below the size.
bool are_in_order(const Extents &extents, std::uint64_t size) {
    std::uint64_t from = 0;
    for (const Extent &each : extents) {
        if (each.begin < from || each.begin > size || each.size > size - each.begin)
            return false;
        from = each.begin + each.size;
    }
    return true;
}

// Nothing: it is a file.
Expected<std::optional<UsedDirectory>> decoded_directory(Bytes message) {
    auto fields = fields_of(message);
    if (!fields)
        return propagate(fields);
    if (number_of(*fields, file::kIsDirectory) == 0)
        return std::optional<UsedDirectory>();
    UsedDirectory out{.name = text_in(*fields, file::kName),
                      .mount = number_of(*fields, file::kMount),
                      .mode = static_cast<std::uint32_t>(number_of(*fields, file::kMode))};
    if (!is_a_name(out.name) || out.name.front() != '/')
        return damaged("a directory in it has no name");
    return out;
}

Expected<WrittenFile> decoded(Bytes message) {
    auto fields = fields_of(message);
    if (!fields)
        return propagate(fields);
    WrittenFile out{.name = text_in(*fields, file::kName),
                    .mount = number_of(*fields, file::kMount),
                    .identity = text_in(*fields, file::kIdentity),
                    .size = number_of(*fields, file::kSize),
                    .changed = static_cast<std::int64_t>(number_of(*fields, file::kChanged)),
                    .doubtful = number_of(*fields, file::kDoubtful) != 0,
                    .mode = static_cast<std::uint32_t>(number_of(*fields, file::kMode)),
                    .directory_mode = static_cast<std::uint32_t>(number_of(*fields, file::kDirectoryMode)),
                    .appends = number_of(*fields, file::kAppends) != 0,
                    .end = number_of(*fields, file::kEnd),
                    .shared = number_of(*fields, file::kShared) != 0,
                    .open = number_of(*fields, file::kOpen) != 0,
                    .kept = number_of(*fields, file::kKept) != 0,
                    .copy = {},
                    .fingerprint = text_in(*fields, file::kFingerprint),
                    .relatives = {},
                    .relatives_known = number_of(*fields, file::kRelativesKnown) != 0};
    out.copy.begin = number_of(*fields, file::kCopyBegin);
    auto begins = repeated(*fields, file::kExtentBegin);
    auto sizes = repeated(*fields, file::kExtentSize);
    if (!begins || !sizes)
        return propagate(begins ? sizes : begins);
    constexpr std::uint64_t kLargest = std::uint64_t{1} << 62U; // fits off_t, whatever is added to it
    if (!is_a_name(out.name) || out.name.front() != '/' || out.size > kLargest || out.copy.begin > kLargest ||
        begins->size() != sizes->size())
        return damaged("a file in it has no name, or no size that there can be");
    for (std::size_t at = 0; at < begins->size(); ++at)
        out.copy.extents.push_back({.begin = (*begins)[at], .size = (*sizes)[at]});
    if (!are_in_order(out.copy.extents, out.size))
        return damaged(fmt::format("the pieces of {} are not in their order", out.name));
    std::string rest;
    for (const Field &field : *fields)
        if (field.number == file::kRelative)
            rest = field.text();
        else if (field.number == file::kRelativeIdentity && is_a_name(rest) &&
                 rest.find('/') == std::string::npos)
            out.relatives.emplace(rest, field.text());
    return out;
}

} // namespace

Expected<void> write_written_files(int images, const WrittenFiles &all) {
    std::vector<std::string> messages{encoded_field(head::kRanOn, std::uint64_t{all.ran_on}) +
                                      encoded_field(head::kMade, static_cast<std::uint64_t>(all.made))};
    for (const WrittenFile &one : all.files)
        messages.push_back(encoded(one));
    for (const UsedDirectory &one : all.directories)
        messages.push_back(encoded_field(file::kIsDirectory, std::uint64_t{1}) +
                           encoded_field(file::kName, one.name) + encoded_field(file::kMount, one.mount) +
                           encoded_field(file::kMode, std::uint64_t{one.mode}));
    return write_file_at(images, kFilesTable, framed(Magic::kWrittenFiles, messages));
}

Expected<WrittenFiles> read_written_files(int images, const std::string &name) {
    WrittenFiles out;
    if (faccessat(images, name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT)
        return out;
    bool first = true;
    auto read = for_each_record(images, name, Magic::kWrittenFiles, [&](Bytes message) -> Expected<void> {
        if (std::exchange(first, false)) {
            auto fields = fields_of(message);
            if (!fields)
                return propagate(fields);
            out.ran_on = number_of(*fields, head::kRanOn) != 0;
            out.made = static_cast<std::int64_t>(number_of(*fields, head::kMade));
            return {};
        }
        auto directory = decoded_directory(message);
        if (!directory)
            return propagate(directory);
        if (*directory) {
            out.directories.push_back(std::move(**directory));
            return {};
        }
        auto one = decoded(message);
        if (!one)
            return propagate(one);
        out.files.push_back(std::move(*one));
        return {};
    });
    if (!read)
        return propagate(read);
    return out;
}

std::string identity_of(int file) {
    alignas(file_handle) std::array<std::byte, sizeof(file_handle) + MAX_HANDLE_SZ> storage{};
    auto *const handle = reinterpret_cast<file_handle *>(storage.data());
    handle->handle_bytes = MAX_HANDLE_SZ;
    int mount = 0;
    // What FUSE says there is a number of this mount.
    if (type_of(file) != FUSE_SUPER_MAGIC &&
        name_to_handle_at(file, "", handle, &mount, AT_EMPTY_PATH) == 0) {
        std::string out = fmt::format("handle {}:", handle->handle_type);
        for (const unsigned char byte : std::span(handle->f_handle, handle->handle_bytes))
            out += fmt::format("{:02x}", byte);
        return out;
    }
    struct statx about{};
    if (statx(file, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &about) != 0)
        return {};
    return fmt::format("inode {}:{}.{}", about.stx_ino, about.stx_btime.tv_sec, about.stx_btime.tv_nsec);
}

std::optional<WriterMark> mark_of(int file) {
    std::array<char, 256> text{}; // "OWNER SECONDS"
    const ssize_t size = fgetxattr(file, kMark, text.data(), text.size());
    const std::string_view found(text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    const auto space = found.rfind(' ');
    WriterMark out;
    if (space == std::string_view::npos ||
        std::from_chars(found.data() + space + 1, found.data() + found.size(), out.time).ec != std::errc())
        return std::nullopt;
    out.owner = found.substr(0, space);
    return out;
}

void set_mark(int file, const WriterMark &mark) {
    const auto text = fmt::format("{} {}", mark.owner, mark.time);
    // Where there are no such attributes nothing is known of who writes.
    static_cast<void>(fsetxattr(file, kMark, text.data(), text.size(), 0));
}

bool is_on_network(int file) {
    constexpr std::array<std::uint32_t, 6> kTypes{NFS_SUPER_MAGIC,  FUSE_SUPER_MAGIC, SMB2_SUPER_MAGIC,
                                                  CIFS_SUPER_MAGIC, CEPH_SUPER_MAGIC, kLustre};
    return std::ranges::find(kTypes, type_of(file)) != kTypes.end();
}

std::int64_t time_of(const struct stat &about) {
    constexpr std::int64_t kSecond = 1'000'000'000;
    constexpr std::int64_t kMost = 9'000'000'000; // its user says what it is
    return (std::clamp<std::int64_t>(about.st_mtim.tv_sec, -kMost, kMost) * kSecond) + about.st_mtim.tv_nsec;
}

bool is_part_of_database(std::string_view rest) {
    return rest == "-journal" || rest == "-wal" || rest == "-shm";
}

std::string base_of(const std::string &name) {
    const auto dash = name.rfind('-');
    return dash != std::string::npos && is_part_of_database(std::string_view(name).substr(dash))
               ? name.substr(0, dash)
               : name;
}

bool is_rotated(std::string_view rest) {
    return rest.size() > 1 && rest.front() == '.' &&
           std::ranges::all_of(rest.substr(1), [](char c) { return c >= '0' && c <= '9'; });
}

} // namespace singularity::host
