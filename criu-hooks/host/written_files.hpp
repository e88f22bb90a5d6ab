// SPDX-License-Identifier: GPL-2.0-or-later
// The files of the host's file systems that a node had open for writing when it was saved, as they were then:
// a table in the image, and beside it the content of those that are not too large.
#pragma once

#include "common/unique_fd.hpp"
#include "criu-hooks/host/node.hpp"
#include "file_content.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>

namespace singularity::host {

// In the image directory.
inline constexpr const char *kFilesTable = "written-files";
inline constexpr const char *kFilesContent = "written-content";
// Followed by a number: the tables of the checkpoint's other nodes, which may have the same files open, those
// of nodes before this one in the manifest and those of nodes behind it.
inline constexpr std::string_view kEarlierTables = "written-files-0.";
inline constexpr std::string_view kLaterTables = "written-files-1.";

// Names are looked for in directories that have no more than these.
inline constexpr std::size_t kMostNames = 4096;

struct WrittenFile {
    std::string name;         // as the node sees it
    std::uint64_t mount = 0;  // the number of its mount in the node
    std::string identity;     // identity_of its inode
    std::uint64_t size = 0;   // bytes
    std::int64_t changed = 0; // its time of modification, in nanoseconds since 1970
    bool doubtful = false;    // that time may stay as it is when the content changes
    std::uint32_t mode = 0;   // as of stat(2)
    std::uint32_t directory_mode = 0;
    bool appends = false;  // all descriptors that can write to it were opened with O_APPEND
    std::uint64_t end = 0; // the furthest position of a descriptor; of one that appends, where it wrote last
    bool shared = false;   // another job has it open as well, by the mark that it left
    bool open = true;      // false: nobody has it open, but it belongs to a file that is (SQLite's journal)
    bool kept = false;     // its content is in the image
    Copy copy;             // if so
    std::string fingerprint; // fingerprint_of it
    // Files in its directory whose names begin with its own, such as "out.log.1": the rest of the name, and
    // the identity. They are known only if the directory could be read and was not too large.
    std::map<std::string, std::string> relatives;
    bool relatives_known = false;
};

// One in which a process works, or that it has open.
struct UsedDirectory {
    std::string name; // as the node sees it
    std::uint64_t mount = 0;
    std::uint32_t mode = 0;
};

struct WrittenFiles {
    bool ran_on = false;   // after this checkpoint the node went on writing
    std::int64_t made = 0; // time(2)
    std::vector<WrittenFile> files;
    std::vector<UsedDirectory> directories; // parents first
};

struct KeptFiles {
    WrittenFiles table;
    std::vector<UniqueFd> to_sync; // their content must be on the disk before the checkpoint counts
    std::vector<std::string> not_copied;
    std::set<std::string> in_kept; // DumpReport::written_in_kept
};

// At a dump, while all processes of the node stand still, on a thread of its own (UserIds). A file that its
// user cannot read is left out; one that cannot be read for another reason is not copied. An error: of the
// image, or this process has no more descriptors.
[[nodiscard]] Expected<KeptFiles> keep_written_files(const Context &context, const DumpRequest &request);

[[nodiscard]] Expected<void> write_written_files(int images, const WrittenFiles &all);
// Nothing for an image without a table.
[[nodiscard]] Expected<WrittenFiles> read_written_files(int images, const std::string &name = kFilesTable);

// What tells an inode from all others of its file system, also from a later one of the same number, and is
// the same on all hosts that have the file system. A descriptor of any kind, O_PATH included.
[[nodiscard]] std::string identity_of(int file);

// Who has had a file open for writing when it was saved, or when it went on after a restore: a record in the
// file itself (an extended attribute), where its file system can hold one.
struct WriterMark {
    std::string owner;     // DumpRequest::owner
    std::int64_t time = 0; // time(2)
};
[[nodiscard]] std::optional<WriterMark> mark_of(int file);
void set_mark(int file, const WriterMark &mark);

// What a file on such a file system says of itself may differ from host to host, and leases mean little
// there.
[[nodiscard]] bool is_on_network(int file);

// Of its last change, in nanoseconds since 1970, for WrittenFile::changed.
[[nodiscard]] std::int64_t time_of(const struct stat &about);

// The rest of the name of a relative that SQLite keeps beside a database ("-journal", ...), whose content
// means something only together with it.
[[nodiscard]] bool is_part_of_database(std::string_view rest);
// Of "base-wal": "base"; of all others the name itself.
[[nodiscard]] std::string base_of(const std::string &name);
// "1" of "out.log.1": where logs that are rotated go.
[[nodiscard]] bool is_rotated(std::string_view rest);

} // namespace singularity::host
