// SPDX-License-Identifier: GPL-2.0-or-later
// The options of the SPANK plugin, and what they come to for the one job or step that this process handles.
#pragma once

#include "common/config.hpp"
#include "elastic_range.hpp"
#include "slurm_spank.hpp"

#include <chrono>
#include <optional>
#include <string>

namespace singularity::spank {

struct Request {
    ElasticRange range;
    std::chrono::seconds checkpoint_every;      // 0: never
    std::string store;                          // its directory; empty: that of who has not chosen
    Config::Elastic::SaveScripts save_script{}; // whether the batch script is saved as steps are
    // As they were given, and checked; empty: not at all.
    std::string image;
    std::string mounts;
    std::string workdir;
    std::string root;
    std::string publish;
};

// With Slurm, in any context; an spank_err_t.
int register_options(spank_t spank, bool with_those_of_pyxis);
// The plugin's argument in plugstack.conf that asks for those of pyxis.
inline constexpr const char *kPyxisArgument = "pyxis_options";

// Once all options are known, where the job is submitted and on the node: the node checks again what was
// accepted, because the user can forge what travels between the two. Reads the configuration only for an
// elastic job: a broken singularity.yaml must not keep others from running.
[[nodiscard]] Expected<void> resolve_options();

// What they came to; nothing for a job that is not elastic.
const std::optional<Request> &requested();

// --singularity-off.
bool switched_off();

} // namespace singularity::spank
