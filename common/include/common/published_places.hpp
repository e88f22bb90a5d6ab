// SPDX-License-Identifier: GPL-2.0-or-later
// Where ports of a job's virtual nodes are reached now, as agents tell it and as it is kept with a job of
// Slurm's: "2:0/6006/n1/n4:20417", which is run 2, and of step 0 port 6006 of the node n1 at port 20417 of
// n4.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace singularity {

struct PublishedPlace {
    std::string step; // "0", "batch"
    std::uint32_t port = 0;
    std::string node; // its name in the job
    std::string host;
    std::uint32_t at = 0; // port of the host
    bool operator==(const PublishedPlace &) const = default;
};

inline constexpr std::string_view kPublishedKey = "published";

// What an agent tells: "published=+0/6006/n1/n4:20417,...", that those of a step, and no others of it, are
// there; with - they are there no more.
[[nodiscard]] std::string word_of_places(std::span<const PublishedPlace> places);
[[nodiscard]] std::string word_without_places(std::span<const PublishedPlace> places);
[[nodiscard]] bool is_word_of_places(std::string_view word);

// What is kept after that word, of a job that was run again so many times before. What an earlier run has
// left goes; what is no place is left out, and so is what does not fit (kMostPlacesText).
[[nodiscard]] std::string with_places(std::string_view kept, std::uint32_t restarts, std::string_view word);
inline constexpr std::size_t kMostPlacesText = 1000;

// Of the run that it is in.
[[nodiscard]] std::vector<PublishedPlace> places_in(std::string_view kept, std::uint32_t restarts);

} // namespace singularity
