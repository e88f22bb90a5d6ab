// SPDX-License-Identifier: GPL-2.0-or-later
// Directories and files that only their owner can reach, opened so that nobody can plant anything on the way.
// Everything below an open directory is named relative to it, one component at a time.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>

namespace singularity::store {

// What to do about a directory that is not there. kCreateSoon leaves it to the caller to sync the parent.
enum class Missing : std::uint8_t { kRefuse, kCreate, kCreateSoon };

// Invariant: an open directory that belongs to the effective user and is closed to everybody else.
// All functions may be called from several threads at once. All names are single components; others are
// refused.
class Directory {
  public:
    // Walks an absolute path without following any symbolic link. Directories on the way must belong to root
    // or to the effective user and must not be writable by others, unless they are sticky, as /tmp is.
    [[nodiscard]] static Expected<Directory> open(const std::filesystem::path &path, Missing missing);

    // `name` is one component. A directory that kCreate made is durable on return.
    [[nodiscard]] Expected<Directory> child(std::string_view name, Missing missing) const;

    // A regular file of the effective user, closed to everybody else and with one name; code ENOENT where
    // there is none.
    [[nodiscard]] Expected<UniqueFd> open_file(std::string_view name) const;
    // A new file, mode 0600, for writing and reading.
    [[nodiscard]] Expected<UniqueFd> create_file(std::string_view name) const;

    [[nodiscard]] Expected<struct stat> status(std::string_view name) const;
    // Both false where there is no such file.
    [[nodiscard]] Expected<bool> rename(std::string_view name, const Directory &to,
                                        std::string_view new_name) const;
    [[nodiscard]] Expected<bool> remove(std::string_view name) const;

    // What is there now, without "." and "..", in no order.
    [[nodiscard]] Expected<std::vector<std::string>> names() const;

    // Makes what was renamed, created and removed here durable.
    [[nodiscard]] Expected<void> sync() const;

    // For messages.
    [[nodiscard]] const std::string &path() const { return path_; }
    [[nodiscard]] std::string path_of(std::string_view name) const;

  private:
    Directory(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

    UniqueFd fd_;
    std::string path_;
};

// All of it at an offset; the error names the file.
[[nodiscard]] Expected<void> write_all(const UniqueFd &file, std::span<const std::byte> data,
                                       std::uint64_t offset, const std::string &name);
// As much as there is; the number of bytes read is less than asked for only at the end of the file.
[[nodiscard]] Expected<std::size_t> read_all(const UniqueFd &file, std::span<std::byte> data,
                                             std::uint64_t offset, const std::string &name);
// fdatasync(2): the data and the size.
[[nodiscard]] Expected<void> sync_data(const UniqueFd &file, const std::string &name);

} // namespace singularity::store
