// SPDX-License-Identifier: GPL-2.0-or-later
// What was submitted, when, and for how long it ran: the simulator's input.
#pragma once

#include "common/error.hpp"
#include "units.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::simulator {

struct TraceJob {
    std::int64_t id;
    Time submit;
    Time duration;            // on all its GPUs
    std::int32_t gpus;        // gang size
    std::optional<Tier> tier; // where the trace has such a column
};

// A table of comma-separated values with a header line. Columns are found by name, others are ignored:
// job_id, submit_s, gpus, duration_s and, if there is one, tier. Values are whole numbers. Jobs come back in
// the order of submission. An error names file, line, column, what was expected and what was found.
[[nodiscard]] Expected<std::vector<TraceJob>> parse_trace(std::string_view text, std::string_view file_name);

// The same from a file, which may be compressed with zstd (by its content, whatever its name).
[[nodiscard]] Expected<std::vector<TraceJob>> read_trace(const std::filesystem::path &path);

// A larger system's trace made of a smaller one's: every gang `gang` times as large, and `copies` of each
// job. Copy i is i/copies of the trace's length later, and what would come behind the trace's end comes at
// its beginning, so that the daily peaks spread as they do over many groups of users.
struct Scale {
    std::int32_t gang = 1;
    std::int32_t copies = 1;
};
[[nodiscard]] Expected<Scale> parse_scale(std::string_view text); // "8x11": gangs x8, 11 copies
[[nodiscard]] std::vector<TraceJob> scaled(const std::vector<TraceJob> &jobs, Scale scale);

// The most GPUs that jobs would hold at once if every one started when it was submitted.
[[nodiscard]] std::int64_t peak_demand(const std::vector<TraceJob> &jobs);

} // namespace singularity::simulator
