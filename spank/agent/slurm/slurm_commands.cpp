// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_commands.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <unistd.h>

namespace singularity::agent {

namespace {

// Not those that a site may have on some hosts only (sview, sh5util, scrun): a node goes only where all of
// its commands are.
constexpr std::array<std::string_view, 19> kOfSlurm{"sacct",   "sacctmgr", "salloc",   "sattach",  "sbatch",
                                                    "sbcast",  "scancel",  "scontrol", "scrontab", "sdiag",
                                                    "sgather", "sinfo",    "sprio",    "squeue",   "sreport",
                                                    "srun",    "sshare",   "sstat",    "strigger"};
constexpr std::string_view kOurs = "singularityctl";

} // namespace

std::vector<std::string> slurm_commands() {
    std::vector<std::string> out;
    const auto add = [&](std::string_view directory, std::string_view name) {
        std::error_code error;
        auto path = std::filesystem::canonical(std::filesystem::path(directory) / name, error);
        if (error || access(path.c_str(), X_OK) != 0 || std::ranges::find(out, path.native()) != out.end())
            return;
        out.push_back(std::move(path).native());
    };
    for (const auto name : kOfSlurm)
        add(SINGULARITY_SLURM_BINDIR, name);
    add(SINGULARITY_BINDIR, kOurs);
    return out;
}

} // namespace singularity::agent
