// SPDX-License-Identifier: GPL-2.0-or-later
// What Slurm's commands print and its files hold.
#pragma once

#include "facts.hpp"

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::doctor {

// `scontrol show config`: "Key = value" lines. Of a key that comes twice, the first: the sections behind
// slurm.conf's own repeat some.
[[nodiscard]] Settings parse_config(std::string_view text);

// When slurmctld wrote that, by its own clock: "Configuration data as of 2026-01-31T12:00:00", in this host's
// time zone. Nothing: Slurm has been told to write times otherwise (SLURM_TIME_FORMAT).
[[nodiscard]] std::optional<std::time_t> written_at(std::string_view text);

// `scontrol -o show partition`: a record of Key=value words per line.
[[nodiscard]] std::vector<Settings> parse_records(std::string_view text);

// A file of Key=value lines with # comments; keys in lower case, as Slurm does not tell their cases apart. Of
// a key that comes twice, the last.
[[nodiscard]] Settings parse_conf(std::string_view text);

// GPUs in what sinfo calls Gres: "gpu:a100:4(S:0-1),shard:8".
[[nodiscard]] std::uint64_t gpus_of(std::string_view gres);

// A whole number, whatever unit stands behind: "30 sec".
[[nodiscard]] std::optional<std::int64_t> number_of(std::string_view text);

// The value of NAME=VALUE, or of NAME alone the empty text, in a list that commas separate.
[[nodiscard]] std::optional<std::string> option_of(std::string_view list, std::string_view name);
[[nodiscard]] bool has_word(std::string_view list, std::string_view word);

// plugstack.conf(5) of spank(8): "required|optional PLUGIN ARGUMENTS", "include PATTERN".
struct PlugstackWord {
    std::size_t number = 0; // of the line
    std::string kind;
    std::string what;
};
[[nodiscard]] std::vector<PlugstackWord> parse_plugstack(std::string_view text);

// "24.11.5" or "slurm-wlm 24.11.5" as plugins have it: 0x180b05; 0 if it is none.
[[nodiscard]] std::uint32_t version_of(std::string_view release);
[[nodiscard]] std::string release_of(std::uint32_t version);

} // namespace singularity::doctor
