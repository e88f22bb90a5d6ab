// SPDX-License-Identifier: GPL-2.0-or-later
// What a file system owes after power loss, worked out from the calls of a supervised process: the content
// that a file had when it was last synced, under the names that its directory had when that was last synced.
// What was never synced may be there or not, so both extremes are made.
#pragma once

#include "common/unique_fd.hpp"
#include "supervised.hpp"

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace singularity::test {

class Disk {
  public:
    // Everything below the directory is durable as it is now.
    explicit Disk(std::filesystem::path directory);

    // To be told of every call before it happens; answers those that sync.
    [[nodiscard]] Verdict decide(const Call &call);

    // kSynced: names and contents as of the last sync of each. kNames: all names as they are now, as file
    // systems have them that order names by a journal, and no content that was not synced.
    enum class Lost : std::uint8_t { kNames, kContents };
    // What is there when the power comes back, in a new directory.
    void recover(const std::filesystem::path &into, Lost lost) const;

  private:
    struct File {
        UniqueFd pin; // while it is open its number does not recur
        mode_t mode = 0;
        std::vector<std::byte> content;       // as synced; empty at first
        std::map<std::string, ino_t> entries; // the same of a directory
    };

    struct Renamed {
        ino_t file;
        ino_t from;
        std::string old_name;
        ino_t to;
        std::string new_name;
    };

    ino_t know(const std::filesystem::path &path);
    void sync(ino_t number, const std::filesystem::path &path);
    void sync_all(const std::filesystem::path &path);
    void make(const std::filesystem::path &path, ino_t number, const std::filesystem::path *now) const;

    std::filesystem::path directory_;
    std::map<ino_t, File> files_;
    std::vector<Renamed> renamed_; // from one directory to another, not durable yet
    ino_t top_;
};

} // namespace singularity::test
