// SPDX-License-Identifier: GPL-2.0-or-later
// A directory of the user's, in which files are looked at and changed by name. No name leads on: links in the
// place of files are seen as what they are, and none of /proc's is followed on the way to the directory.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <sys/stat.h>

namespace singularity::host {

// A regular file of the user's.
struct FileThere {
    std::string identity; // identity_of it
    struct stat about{};
    UniqueFd link; // O_PATH
};

class Directory {
  public:
    // Nothing if there is none.
    [[nodiscard]] static std::optional<Directory> open(const std::filesystem::path &path);
    // Makes what is missing of it: the last with that mode.
    [[nodiscard]] static Expected<Directory> make(const std::filesystem::path &path, mode_t mode);

    enum class Is : std::uint8_t { nothing, file, other };
    [[nodiscard]] Is look(const std::string &name, uid_t uid, FileThere &out) const;
    // The regular files of the user's: name -> identity. Nothing if there are more than `most` names.
    [[nodiscard]] std::optional<std::map<std::string, std::string>> files(uid_t uid, std::size_t most) const;

    // For who changes several names, as far as others take it as well: it is not waited for long.
    [[nodiscard]] UniqueFd lock() const;
    // errno, or 0.
    [[nodiscard]] int exchange(const std::string &one, const std::string &other) const;
    [[nodiscard]] int rename(const std::string &from, const std::string &to, bool replace) const;
    [[nodiscard]] int link(const std::string &from, const std::string &to) const;
    [[nodiscard]] int unlink(const std::string &name) const;
    // A new file; EEXIST.
    [[nodiscard]] Expected<UniqueFd> create(const std::string &name, mode_t mode) const;
    // A new file that `fill` has filled, or none. EEXIST.
    [[nodiscard]] Expected<void> create_whole(const std::string &name, mode_t mode,
                                              const std::function<Expected<void>(int)> &fill) const;

    // For extended attributes.
    [[nodiscard]] int fd() const { return fd_.get(); }

  private:
    explicit Directory(UniqueFd fd) : fd_(std::move(fd)) {}

    UniqueFd fd_;
};

// A file that was looked at, and not what has its name meanwhile.
[[nodiscard]] UniqueFd reopened(const FileThere &file, int flags);

} // namespace singularity::host
