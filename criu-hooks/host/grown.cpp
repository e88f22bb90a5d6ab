// SPDX-License-Identifier: GPL-2.0-or-later
#include "grown.hpp"

#include "common/text.hpp"
#include "file.hpp"
#include "places.hpp"
#include "records.hpp"

#include <initializer_list>
#include <optional>
#include <span>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::host {
namespace {

// Field numbers of CRIU's images/{fdinfo,regfile}.proto.
namespace file {
constexpr std::uint32_t kType = 1;
constexpr std::uint32_t kRegular = 3;
constexpr std::uint64_t kTypeRegular = 1;
} // namespace file
namespace regular {
constexpr std::uint32_t kFlags = 2;
constexpr std::uint32_t kName = 6;
constexpr std::uint32_t kMount = 7; // zigzag
constexpr std::uint32_t kSize = 8;
constexpr std::uint32_t kOutside = 9;
constexpr std::uint32_t kMode = 10;
} // namespace regular

Expected<std::optional<std::string>> without_numbers(Bytes entry, const Field &body,
                                                     std::initializer_list<std::uint32_t> numbers) {
    std::string left(body.text());
    for (const std::uint32_t number : numbers) {
        const auto bytes = std::as_bytes(std::span(left));
        auto fields = fields_of(bytes);
        if (!fields)
            return propagate(fields);
        if (const Field *const field = find(*fields, number); field != nullptr)
            left = without(bytes, *field);
    }
    return with_bytes(entry, body, left);
}

// The entry with the present size if it has grown and may have, or without one; nothing if it stays as it is.
Expected<std::optional<std::string>> with_present_size(const Places &places, const FileNames &put_back,
                                                       Bytes entry) {
    constexpr auto kNothing = std::nullopt;
    auto outer = fields_of(entry);
    if (!outer)
        return propagate(outer);
    const Field *const type = find(*outer, file::kType);
    const Field *const body = find(*outer, file::kRegular);
    if (type == nullptr || type->value != file::kTypeRegular || body == nullptr)
        return kNothing;
    auto fields = fields_of(body->bytes);
    if (!fields)
        return propagate(fields);
    const Field *const mount = find(*fields, regular::kMount);
    if (mount == nullptr || find(*fields, regular::kOutside) != nullptr)
        return kNothing;
    const std::string name = text_of(*fields, regular::kName);
    auto found = present_path(places, mount->value >> 1U, name);
    if (!found)
        return propagate(found);
    const auto &path = *found;
    struct stat status{};
    // CRIU would wait for somebody at its other end.
    const Field *const mode = find(*fields, regular::kMode);
    if (path && mode != nullptr && S_ISREG(mode->value) && stat(path->c_str(), &status) == 0 &&
        S_ISFIFO(status.st_mode))
        return failure("restore", quote(name),
                       "it was a regular file at the checkpoint and is a pipe now; put back what it was");
    const Field *const size = find(*fields, regular::kSize);
    const Field *const flags = find(*fields, regular::kFlags);
    if (size == nullptr || flags == nullptr)
        return kNothing;
    const auto place = places.find(mount->value >> 1U);
    if (put_back.contains(name) || (place != places.end() && place->second.kept))
        return without_numbers(entry, *body, {regular::kSize, regular::kMode});
    if (!path || lstat(path->c_str(), &status) != 0 || !S_ISREG(status.st_mode))
        return kNothing; // CRIU's own check says what is wrong, if it is
    const auto now = static_cast<std::uint64_t>(status.st_size);
    if (now == size->value)
        return kNothing;
    const bool appends = (flags->value & O_APPEND) != 0;
    if (now < size->value || !appends)
        return failure("restore", quote(name),
                       fmt::format("it had {} bytes at the checkpoint and has {} now; {}", size->value, now,
                                   now < size->value
                                       ? "put back what it had, or restore an older checkpoint"
                                       : "only files that are open for appending (O_APPEND) may have grown: "
                                         "cut off what was added"));
    const std::string changed = with_number(body->bytes, *size, now);
    return with_bytes(entry, *body, changed);
}

} // namespace

Expected<void> accept_grown_files(const RestoreRequest &request, const Places &places,
                                  const FileNames &put_back) {
    constexpr const char *kFiles = "files.img";
    constexpr const char *kBeside = "files.new";
    std::vector<std::string> entries;
    bool changed = false;
    auto read = for_each_record(request.images, kFiles, Magic::kFiles, [&](Bytes message) -> Expected<void> {
        auto present = with_present_size(places, put_back, message);
        if (!present)
            return propagate(present);
        changed |= present->has_value();
        entries.push_back(
            present->value_or(std::string(reinterpret_cast<const char *>(message.data()), message.size())));
        return {};
    });
    if (!read || !changed)
        return read;
    if (auto written = write_file_at(request.images, kBeside, framed(Magic::kFiles, entries)); !written)
        return written;
    if (renameat(request.images, kBeside, request.images, kFiles) != 0)
        return std::unexpected(errno_error("replace", kFiles));
    return {};
}

} // namespace singularity::host
