// SPDX-License-Identifier: GPL-2.0-or-later
// What garbage collection must wait for. A round is a file in the directory "rounds" that says: these chunks
// were condemned, and every host knew it, before these leases were listed; or, while it is settling, only the
// former. It never changes. Who removes the chunks, or writes the round that follows a settling one, removes
// it.
#pragma once

#include "common/error.hpp"
#include "state.hpp"

#include <span>
#include <string>
#include <vector>

namespace singularity::store {

struct Round {
    std::string name;
    bool settling = false;
    std::vector<std::string> leases;
    std::vector<std::string> files; // in the directory "condemned"
};

struct Rounds {
    std::vector<Round> whole;
    std::vector<Error> damaged;
    std::vector<std::string> damaged_names;
};

[[nodiscard]] Expected<Rounds> read_rounds(const UserSpace &space);

// As many rounds as it takes, like `model` but for name and files.
[[nodiscard]] Expected<void> write_rounds(const UserSpace &space, const Round &model,
                                          std::span<const std::string> files);

} // namespace singularity::store
