// SPDX-License-Identifier: GPL-2.0-or-later
// What a job's comment asks for. Who may write it, slurmctld decides: the job's user, and operators.
//     scontrol update JobId=4711 Comment=singularity:migrate=n7
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace singularity::slurm {

struct Verb {
    enum class Kind : std::uint8_t {
        kMigrate,    // to other nodes than it has, or to `node`
        kResize,     // to `gpus` GPUs on all its nodes
        kCheckpoint, // it is saved, and runs on
    };
    Kind kind = Kind::kMigrate;
    std::string node; // empty: any other
    std::uint32_t gpus = 0;
};

// "singularity:migrate", "singularity:migrate=NODE", "singularity:resize=GPUS" or "singularity:checkpoint".
// Nothing: the comment is none of ours, or an answer. An error, in the user's words: it is meant for us, and
// wrong.
[[nodiscard]] Expected<std::optional<Verb>> parse_verb(std::string_view comment);

[[nodiscard]] std::string to_comment(const Verb &verb);
// For people: "migrate to n7". Without an equals sign, which scripts that read `scontrol -o show job` take
// for one of its own.
[[nodiscard]] std::string in_words(const Verb &verb);

// What takes a verb's place in the comment, once it has been seen to: "singularity: WORDS".
[[nodiscard]] std::string answer(std::string_view words);
// Whether it does.
[[nodiscard]] bool is_answer(std::string_view comment);

} // namespace singularity::slurm
