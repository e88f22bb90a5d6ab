// SPDX-License-Identifier: GPL-2.0-or-later
// Where, and on how many GPUs, a job is to go on that has been requeued. A verb in its comment holds for one
// run: what it has changed is taken back before the next.
#pragma once

#include "common/error.hpp"
#include "gres.hpp"
#include "note.hpp"
#include "verb.hpp"

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
    friend bool operator==(const Change &, const Change &) = default;
};

struct Wishes {
    std::string required_nodes;
    std::string excluded_nodes;
    GpuWish gpus;
};

struct Placement {
    Change change; // as the job's user may make it
    Note note;     // when that has been made
};
// verb: of the comment, if there is one. note: has the nodes of the last run, and what is to be taken back.
[[nodiscard]] Expected<Placement> place(const std::optional<Verb> &verb, const Wishes &wishes, Note note);

// Whether elastic=2-8 in the note allows so many GPUs. An error, in the user's words: it does not.
[[nodiscard]] Expected<void> check_size(std::uint32_t gpus, const Note &note);

} // namespace singularity::slurm
