// SPDX-License-Identifier: GPL-2.0-or-later
// Where, and on how many GPUs, a job is to go on that has been requeued. A verb in its comment holds for one
// run: what it has changed is taken back before the next.
#pragma once

#include "common/error.hpp"
#include "common/slurm/gres.hpp"
#include "common/slurm/memory.hpp"
#include "common/slurm/note.hpp"
#include "common/slurm/verb.hpp"

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>

namespace singularity::slurm {

// What is to be different in a job's record; what is not filled in stays. An empty text takes out what is
// there.
struct Change {
    std::optional<std::string> comment = std::nullopt;
    std::optional<std::string> admin_comment = std::nullopt;
    std::optional<std::string> required_nodes = std::nullopt; // Slurm's list of names
    std::optional<std::string> excluded_nodes = std::nullopt;
    GpuChange gpus = {};
    std::optional<std::time_t> begin = std::nullopt;
    std::optional<std::int32_t> site_factor = std::nullopt; // only root and SlurmUser may
    friend bool operator==(const Change &, const Change &) = default;
};

struct Wishes {
    std::string required_nodes;
    std::string excluded_nodes;
    GpuWish gpus;
    HostMemory memory = {};
};

// What singularity-planner has decided for the job, as "plan" of its note: "wait", "4" GPUs, or "4@n1,n2".
struct Decision {
    bool waits = false; // it makes room, and begins when the planner says so
    std::uint32_t gpus = 0;
    std::string nodes; // names, commas between them; empty: Slurm chooses
};
[[nodiscard]] std::optional<Decision> decision_of(const Note &note);
// An error: the names are too many, or none.
[[nodiscard]] Expected<void> decide(Note &note, const Decision &decision);
void forget_decision(Note &note);

// A job that makes room begins so much later, if the planner says nothing more.
constexpr std::time_t kPause = 60;

struct Placement {
    Change change; // as the job's user may make it
    Note note;     // when that has been made
    bool waits = false;
};
// verb: of the comment, if there is one: it goes before what the planner has decided. note: has the nodes of
// the last run, what is to be taken back, and what the planner has decided.
[[nodiscard]] Expected<Placement> place(const std::optional<Verb> &verb, const Wishes &wishes, Note note);

// Whether elastic=2-8 in the note allows so many GPUs. An error, in the user's words: it does not.
[[nodiscard]] Expected<void> check_size(std::uint32_t gpus, const Note &note);

} // namespace singularity::slurm
