// SPDX-License-Identifier: GPL-2.0-or-later
// One of Slurm's commands as a child of the runner's process, from fork to its end.
#pragma once

#include "command_messages.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "node/seqpacket.hpp"

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <sys/types.h>

namespace singularity::commands {

// Invariant: the child is there until `reap` has told its end. Nobody else of the process may reap it, as
// waitpid(-1) would.
class RealCommand {
  public:
    // `run` is used up. Exactly kRunDescriptors descriptors; the caller closes its copies. notice: the
    // command has kNotice (notice.hpp).
    [[nodiscard]] static Expected<RealCommand> start(Run &run, const node::Descriptors &descriptors,
                                                     bool notice);

    [[nodiscard]] pid_t pid() const { return pid_; }
    // Readable when the command has ended.
    [[nodiscard]] int pidfd() const { return pidfd_.get(); }

    // EINVAL: there is no such signal. Only the process itself gets it: a process that srun starts to clear
    // up after it has to outlive it.
    [[nodiscard]] int signal(int number) const;

    // The command's end with its status; Refused: it could not be executed.
    using End = std::variant<Ended, Refused>;
    // Nothing while it runs.
    [[nodiscard]] std::optional<End> reap();
    // Readable when it has told of its step; -1: it was not asked to.
    [[nodiscard]] int notice() const { return notice_.get(); }
    // As far as it has told by now.
    [[nodiscard]] bool has_begun_step() const;

  private:
    RealCommand(std::string path, pid_t pid, UniqueFd pidfd, UniqueFd progress, UniqueFd notice)
        : path_(std::move(path)), pid_(pid), pidfd_(std::move(pidfd)), progress_(std::move(progress)),
          notice_(std::move(notice)) {}

    std::string path_;
    pid_t pid_;
    UniqueFd pidfd_;
    UniqueFd progress_; // tells why the program does not run
    UniqueFd notice_;   // of its step, if it is asked to; nothing but the command's word
};

} // namespace singularity::commands
