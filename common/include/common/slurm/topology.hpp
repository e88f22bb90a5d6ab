// SPDX-License-Identifier: GPL-2.0-or-later
// Which nodes hang on one switch, or are one block, as scontrol prints it: the one form that all of Slurm's
// releases and topology plugins have in common.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace singularity::slurm {

struct Leaf {
    std::string name;
    std::string nodes; // Slurm's list: "n[1-3]"
    friend bool operator==(const Leaf &, const Leaf &) = default;
};

// Switches of the lowest level ("SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-3]") and single blocks
// ("BlockName=b1 BlockIndex=0 Nodes=n[1-3] BlockSize=3"), a line each. Other lines are passed over.
[[nodiscard]] std::vector<Leaf> leaves_of(std::string_view printed);

} // namespace singularity::slurm
