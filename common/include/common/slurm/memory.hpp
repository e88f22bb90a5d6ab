// SPDX-License-Identifier: GPL-2.0-or-later
// Whether a job fits on fewer GPUs: ranks that share one each have the memory of a whole GPU, and what does
// not fit on it is in memory of the job's hosts. Pure.
#pragma once

#include "common/error.hpp"
#include "common/slurm/note.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace singularity::slurm {

// What Slurm gives a job on its hosts, in MiB; 0: nobody knows, or there is no limit.
struct HostMemory {
    std::uint64_t all = 0;     // on all of its nodes
    std::uint64_t per_gpu = 0; // it grows and shrinks with the job's GPUs (--mem-per-gpu)
};

// Of a job, as its last checkpoint has told ("memory=245760:81920:12288" of its note), in MiB.
struct Footprint {
    std::uint64_t ranks = 0;
    std::uint64_t devices = 0; // that all ranks together have on devices
    std::uint64_t device = 0;  // that one device has
    std::uint64_t host = 0;    // of the programs themselves, on all hosts
};
// Nothing: no checkpoint has told.
[[nodiscard]] std::optional<Footprint> footprint_of(const Note &note);
inline constexpr const char *kFootprint = "memory"; // its word
[[nodiscard]] std::string footprint_text(const Footprint &footprint);

// MiB that would be in memory of the hosts on so many GPUs. Ranks count as equal, and are spread evenly.
[[nodiscard]] std::uint64_t away_on(const Footprint &footprint, std::uint64_t gpus);

// An error, in the user's words: it does not fit. Where nobody knows, it may; and where more would be on the
// device than with the GPUs that the job has had last.
[[nodiscard]] Expected<void> check_memory(std::uint64_t gpus, const Note &note, const HostMemory &memory);

// "1.5 GiB"
[[nodiscard]] std::string in_gibibytes(std::uint64_t mebibytes);

// "4000M" and "1.5G" of "cpu=4,mem=4000M", in MiB; 0: it is not there.
[[nodiscard]] std::uint64_t memory_in_tres(std::string_view text);
// 4096 of "gres/gpu:4096", in MiB (Slurm's mem_per_tres); 0: it is not there.
[[nodiscard]] std::uint64_t memory_per_gpu(std::string_view text);

} // namespace singularity::slurm
