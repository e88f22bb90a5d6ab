// SPDX-License-Identifier: GPL-2.0-or-later
// One run of the criu program and the conversation with it, in the messages of libcriu. libcriu's own
// functions cannot give criu other ids, wait no longer than a deadline, or make it the sibling of what it
// restores.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "criu-hooks/host/node.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace singularity::host {

// A request as libcriu's CriuOpts has it, with owners of the strings. Fields that stay the same for every
// dump or restore are set where the request is packed.
struct CriuRequest {
    enum class Kind : std::uint8_t { kVersion, kFeatures, kDump, kRestore };
    Kind kind = Kind::kVersion;
    pid_t tree = 0;  // of a dump: the root's process id
    int images = -1; // directory
    std::string log; // file in it
    bool leave_stopped = false;
    bool leave_running = false;
    std::uint32_t ghost_limit = 0;
    bool leave_waiting = false;       // of a dump: TCP connections that nobody has accepted yet are not saved
    std::vector<std::string> watched; // of a dump: where to look for what is watched, as watched.hpp says
    std::string root;                 // of a restore
    std::vector<std::string> external;                  // "net[4026531840]:name"
    std::vector<std::pair<std::string, int>> inherited; // of a restore: resource, descriptor
};

struct CriuReply {
    bool success = false;
    int code = 0;        // errno, if criu gave one
    std::string message; // its first error, if it gave one
    pid_t root = 0;      // of a restore
    int version = 0;     // 40201 for 4.2.1, if that was asked
    // Why the caller had it undo everything, which it has done.
    std::optional<Error> refused = std::nullopt;
};

// What criu tells while it works: "pre-dump", "network-lock", "post-dump", "setup-namespaces", ... and the
// root's process id or 0. An error makes criu undo what it has done; CriuReply::refused has it then.
using Notify = std::function<Expected<void>(const std::string &stage, pid_t root)>;

// Asked once, by a dump, when all processes are stopped and nothing of them has been looked at yet: what more
// is not to be saved, as CriuRequest::external.
using External = std::function<Expected<std::vector<std::string>>()>;

// Asked several times a second while criu is waited for: an error is why its answer will never come.
using Doubt = std::function<Expected<void>()>;

// Invariant: criu has been started and not been reaped, or pid_ is -1. Ends it with SIGKILL: who wants it to
// end otherwise does that first.
class Criu {
  public:
    // Whose node it works on: ../as_user/README.md.
    struct User {
        std::filesystem::path library;
        std::filesystem::path root; // of a node that is restored: below it names are the user's
        uid_t uid = 0;
        gid_t gid = 0;
        std::vector<gid_t> groups;
        std::vector<Placed> placed{}; // NOLINT(readability-redundant-member-init): GCC warns without
    };
    struct Start {
        std::filesystem::path binary;
        // For the child; request() names them by the numbers in this process.
        std::vector<std::pair<std::string, int>> inherited;
        // What it says before it has a log, and what else it writes to its standard error.
        int complaints = -1;
        std::optional<User> user = std::nullopt;
    };
    [[nodiscard]] static Expected<Criu> start(const Start &how);

    Criu(Criu &&other) noexcept
        : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)),
          socket_(std::move(other.socket_)) {}
    Criu &operator=(Criu &&) = delete;
    Criu(const Criu &) = delete;
    Criu &operator=(const Criu &) = delete;
    ~Criu();

    // One request, and everything that criu says until it has answered. Error code ETIMEDOUT: criu still
    // works. Code EPIPE: it has ended without an answer.
    [[nodiscard]] Expected<CriuReply> ask(const CriuRequest &request, const Notify &notify,
                                          const Deadline &deadline, const Doubt &doubt = {},
                                          const External &external = {});

    // After the answer criu only has to go. True if it had to be killed.
    [[nodiscard]] Expected<void> finish(const Deadline &deadline);

    // Stops it, looks, and goes on or kills: for who must know in which state criu leaves its victims.
    [[nodiscard]] Expected<void> signal(int number) const;
    void kill_and_reap();

    [[nodiscard]] pid_t pid() const { return pid_; }

  private:
    Criu(pid_t pid, UniqueFd pidfd, UniqueFd socket)
        : pid_(pid), pidfd_(std::move(pidfd)), socket_(std::move(socket)) {}

    [[nodiscard]] Error ended_without_answer() const;
    [[nodiscard]] Expected<std::vector<std::uint8_t>> receive(const Deadline &deadline, const Doubt &doubt);
    [[nodiscard]] Expected<void> send(const std::vector<std::uint8_t> &message);

    pid_t pid_;
    UniqueFd pidfd_;
    UniqueFd socket_;
};

} // namespace singularity::host
