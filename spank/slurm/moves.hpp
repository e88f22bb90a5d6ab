// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs that go on elsewhere, or on another number of GPUs: what agents do (begin, look, note), and what users
// ask for (ask). A verb stays in a job's comment until it has been seen to, so nothing is lost if any of it
// dies.
#pragma once

#include "common/error.hpp"
#include "common/slurm/verb.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace singularity::slurm {

// A job that has been requeued may run in a few seconds: it must otherwise wait for AuthInfo's cred_expire to
// pass. What its comment asks for, or else what singularity-planner has decided, is seen to before, with the
// rights of its user; where slurmctld refuses that, the comment says so, and the job runs without.
[[nodiscard]] Expected<void> begin(std::uint32_t id);

struct Seen {
    std::string leave;               // why the node is to be left; empty: it is not
    std::vector<std::uint32_t> move; // jobs whose comment asks for another place or size
    std::vector<std::uint32_t> save; // jobs whose comment asks for a checkpoint
};
// Comments that ask for what there is not, or cannot be, are answered.
[[nodiscard]] Expected<Seen> look(const std::string &node, std::span<const std::uint32_t> jobs);

// Takes KEY=VALUE words into the job's note (note.hpp), with the nodes and GPUs that it has.
[[nodiscard]] Expected<void> note(std::uint32_t id, const std::vector<std::string> &words);

// It is requeued, and waits until somebody releases it. Its comment says why, if that is not its user's own.
[[nodiscard]] Expected<void> hold(std::uint32_t id, const std::string &why);

// A checkpoint that the comment asked for has been seen to.
[[nodiscard]] Expected<void> answer_checkpoint(std::uint32_t id, const std::string &words);

// On behalf of whoever calls. What was done, in words. A checkpoint is waited for.
[[nodiscard]] Expected<std::string> ask(std::uint32_t id, const Verb &verb);

} // namespace singularity::slurm
