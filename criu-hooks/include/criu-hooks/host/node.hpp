// SPDX-License-Identifier: GPL-2.0-or-later
// Host images: a virtual node, that is the init of a PID namespace and everything under it, as files that
// CRIU writes and restores. README.md of criu-hooks/host says what a virtual node must look like for that.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace singularity::host {

// What all functions here need to know of this machine and of whose node it is.
struct Context {
    uid_t uid = 0; // every process of the node has these ids and no others
    gid_t gid = 0;
    std::vector<gid_t> groups;      // that a process may be in besides
    bool no_new_privileges = false; // true: every thread must have no_new_privs
    std::filesystem::path criu = "/usr/sbin/criu";
    // libsingularity_criu_user.so, which is loaded into CRIU: ../../as_user/README.md.
    std::filesystem::path as_user;
    // CRIU's log is copied here when something fails, readable by root only; the error names it.
    std::filesystem::path log;
    // Called with CRIU's name of each stage it reaches: "pre-dump", "network-lock", ... An error ends what is
    // under way as if CRIU itself had failed.
    std::function<Expected<void>(std::string_view stage)> progress;
};

// A descriptor that leads out of the node: the other end of a pipe, a terminal. At a dump, any descriptor of
// the same pipe, terminal or file, or for Unix sockets the node's own end; at a restore, what takes its
// place.
struct OutsideDescriptor {
    std::string key; // "stdout"
    int fd = -1;
};

// A mount of the node whose content is not saved. At a dump, where it is in the node; at a restore, the
// directory or file that is bound there.
struct OutsideMount {
    std::string key;
    std::filesystem::path path;
    // The caller saves what is in it, while the node stands still, and brings it back before the restore. It
    // is the user's, at a place that the user may not reach from outside.
    bool kept = false;
};

// What becomes of the node once its image is complete.
enum class Afterwards : std::uint8_t {
    kRun,  // it runs on; calls that wait fail with EINTR
    kStop, // all processes are stopped until resume() or a kill: for who must first store the image safely
    kEnd,  // all processes are killed
};

struct DumpRequest {
    pid_t init = 0;  // the node's init; the caller must make sure that it is not reaped meanwhile
    int images = -1; // an empty directory that only root can reach; of a failed dump nothing in it is of use
    std::vector<OutsideDescriptor> descriptors;
    std::vector<OutsideMount> mounts;
    Afterwards afterwards = Afterwards::kEnd;
    // Files that are open and have no name any more are saved with their content, up to this size each.
    std::uint32_t largest_deleted_file = std::uint32_t{1} << 31U;
    // Directories of the node that are of this machine only: a file open there cannot be opened again
    // elsewhere.
    std::vector<std::filesystem::path> local_directories;
    // Addresses of nodes that are saved with this one: of the same moment, with the network between them
    // cut since before the first of them was saved. TCP connections to them are saved as well.
    std::vector<std::string> neighbours;
    // Connections to all others are saved, too: the network in which the node is restored resets them. Those
    // that no program has accepted yet are left out: they stay while the node runs on.
    bool others_are_reset = false;
    // The node goes on after this checkpoint: what its files are then, a restore undoes.
    bool goes_on = false;
    // Whose the node's writing is: the same at each checkpoint and restore of a job and of all its nodes, and
    // another's for others. Files that are open for writing are marked with it.
    std::string owner;
    std::int64_t since = 0; // time(2) from which on it writes: older marks are of those that wrote before it
    // Files that the node has open for writing are copied into the image if their data is not larger than
    // this, in bytes, and as long as all copies together are not larger than that.
    std::uint64_t largest_copy = std::uint64_t{16} << 20U;
    std::uint64_t all_copies = std::uint64_t{256} << 20U;
};

struct DumpReport {
    std::uint64_t bytes = 0; // of all image files
    std::size_t files = 0;
    std::size_t processes = 0;
    // Of a node that stands still: who has not ended, by the ids in the node.
    std::vector<pid_t> alive;
    std::vector<pid_t> alive_here; // the same processes, by their ids on this host
    std::chrono::microseconds frozen{0};
    // Files that the node has open for writing. fsync(2) them before the checkpoint counts: a restore relies
    // on their content.
    std::vector<UniqueFd> written;
    // Those of them that were not copied, as the node sees them; files to which it only appends left out.
    std::vector<std::string> not_copied;
    // Files that the node has open for writing in mounts that the caller keeps, as the node sees them.
    std::vector<std::string> written_in_kept;
};

// fsync(2) of DumpReport::written. go_on is asked several times a second; its error ends the wait.
[[nodiscard]] Expected<void> write_to_disk(std::vector<UniqueFd> files,
                                           const std::function<Expected<void>()> &go_on);

// Code of the error when CRIU was killed by somebody at a moment at which a process of the node could not be
// brought back: the node is of no use any more and the caller should end it. With every other error of a dump
// the node runs on.
inline constexpr int kNodeLost = EOWNERDEAD;

// Looks for what an image cannot hold, while the node runs. The error says which process and descriptor it
// is, and what to do; code EOPNOTSUPP. What it finds good may change before a dump, which then fails by
// itself.
[[nodiscard]] Expected<void> check(const Context &context, const DumpRequest &request);

// Checks first. After an error the node runs on, see kNodeLost.
[[nodiscard]] Expected<DumpReport> dump(const Context &context, const DumpRequest &wanted,
                                        const Deadline &deadline);

// After a dump with kStop, or after whoever dumped it has died. Code kNodeLost: criu's code cannot be
// removed.
[[nodiscard]] Expected<void> resume(pid_t init);

// Where a process of a restored node is from its first moment on, before it takes any memory: once for each
// hierarchy.
struct Placed {
    pid_t pid = 0;         // in the node
    int cgroup_procs = -1; // the cgroup's file of that name, open for writing
};

struct RestoreRequest {
    int images = -1;            // as a dump left it
    int network = -1;           // network namespace, with the addresses that the node had
    std::filesystem::path root; // a mount point: the node's root directory
    std::vector<OutsideDescriptor> descriptors;
    std::vector<OutsideMount> mounts;
    // Others are where the caller is.
    std::vector<Placed> placed{}; // NOLINT(readability-redundant-member-init): GCC warns without
    std::string owner;            // as of DumpRequest
    // What put_back_files would remove is kept beside it.
    bool keep_aside = false;
    // Called for each file that is not as it was at the checkpoint, or that lies beside one: for the user.
    std::function<void(std::string)> notice = nullptr;
    // Called when everything is there and nothing runs yet, with the node's init; it may take its time, which
    // does not count. An error, or the caller's death: nothing of the node is left.
    std::function<Expected<void>(pid_t init)> hold = nullptr;
    // After that, when TCP connections have sent their first packets and still nothing runs. An error: as of
    // hold.
    std::function<Expected<void>()> connected = nullptr;
};

// The process id of the node's init, which runs, and is a child of the calling process. After an error
// nothing of the node is left.
[[nodiscard]] Expected<pid_t> restore(const Context &context, const RestoreRequest &wanted,
                                      const Deadline &deadline);

} // namespace singularity::host
