// SPDX-License-Identifier: GPL-2.0-or-later
#include "status.hpp"

#include "common/published_places.hpp"
#include "common/slurm/memory.hpp"
#include "common/slurm/note.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <pwd.h>

namespace singularity::slurm {

namespace {

// A job's tier is that of its QOS, or else of its partition.
constexpr std::array<std::string_view, 3> kTiers{"premium", "standard", "basic"};
constexpr std::string_view kNone = "-";

std::string tier_of(const Job &job) {
    for (const auto &name : {job.qos, job.partition})
        if (std::ranges::find(kTiers, name) != kTiers.end())
            return name;
    return std::string(kNone);
}

std::string user_of(const Job &job) {
    passwd entry{};
    passwd *found = nullptr;
    std::array<char, 16384> texts{};
    if (getpwuid_r(job.uid, &entry, texts.data(), texts.size(), &found) == 0 && found != nullptr)
        return found->pw_name;
    return std::to_string(job.uid);
}

std::string or_none(const std::string &text) { return text.empty() ? std::string(kNone) : escaped(text); }

// "12s", "3m", "5h", "2d".
std::string span(std::time_t seconds) {
    struct Unit {
        std::time_t least;
        std::time_t size;
        char letter;
    };
    constexpr std::time_t kMinute = 60;
    constexpr std::time_t kHour = 60 * kMinute;
    constexpr std::time_t kDay = 24 * kHour;
    constexpr std::array kUnits{Unit{2 * kDay, kDay, 'd'}, Unit{2 * kHour, kHour, 'h'},
                                Unit{2 * kMinute, kMinute, 'm'}, Unit{0, 1, 's'}};
    const auto *const unit =
        std::ranges::find_if(kUnits, [&](const Unit &one) { return seconds >= one.least; });
    return unit == kUnits.end() ? "0s" : fmt::format("{}{}", seconds / unit->size, unit->letter);
}

std::string ago(const std::optional<std::uint64_t> &when, std::time_t now) {
    if (!when || *when == 0 || std::cmp_greater(*when, now))
        return std::string(kNone);
    return fmt::format("{} ago", span(now - static_cast<std::time_t>(*when)));
}

struct Row {
    Note note;
    std::string gpus; // now; of one that waits none
    std::string nodes;
};

Row row_of(const Job &job) {
    Row row{.note = Note::parse(job.admin_comment).value_or(Note()), .gpus = {}, .nodes = {}};
    row.gpus = job.gpus ? std::to_string(*job.gpus) : std::string(kNone);
    row.nodes = job.running ? or_none(job.nodes) : std::string(kNone);
    return row;
}

// What its ranks have on devices, and what sharing GPUs would cost: at its size now, and at its MIN.
std::optional<std::string> memory_line(const Note &note, const Job &job) {
    const auto footprint = footprint_of(note);
    if (!footprint)
        return std::nullopt;
    auto out = fmt::format("{} on devices of {}, {} of programs", in_gibibytes(footprint->devices),
                           in_gibibytes(footprint->device), in_gibibytes(footprint->host));
    const auto range = note.get("elastic");
    std::uint64_t least = 0;
    std::from_chars(range.data(), range.data() + range.size(), least);
    for (const auto gpus : std::set<std::uint64_t>{job.gpus.value_or(0), least})
        if (const auto away = away_on(*footprint, gpus); away != 0)
            out += fmt::format("; with {} {} {} of it in memory of the hosts", gpus,
                               gpus == 1 ? "GPU" : "GPUs", in_gibibytes(away));
    return out;
}

} // namespace

std::string table(std::span<const Job> jobs, std::time_t now) {
    std::string out;
    for (const auto &job : jobs) {
        const auto row = row_of(job);
        if (row.note.empty())
            continue;
        if (out.empty())
            out = fmt::format("{:<10} {:<10} {:<9} {:<11} {:>6} {:<10} {:>6} {:>5} {:>11} {:<10} {}\n", "JOB",
                              "USER", "TIER", "STATE", "GPUS", "MIN-MAX", "RANKS", "RUNS", "CHECKPOINTS",
                              "LAST", "NODES");
        out += fmt::format("{:<10} {:<10} {:<9} {:<11} {:>6} {:<10} {:>6} {:>5} {:>11} {:<10} {}\n", job.id,
                           user_of(job), tier_of(job), job.state, row.gpus, or_none(row.note.get("elastic")),
                           or_none(row.note.get("ranks")), job.restarts + 1,
                           row.note.number("checkpoints").value_or(0), ago(row.note.number("saved"), now),
                           row.nodes);
    }
    return out;
}

std::string in_full(const Job &job, std::time_t now) {
    const auto row = row_of(job);
    std::string out;
    const auto line = [&](std::string_view key, const std::string &value) {
        out += fmt::format("{:<13} {}\n", fmt::format("{}:", key), value);
    };
    line("job", fmt::format("{} {}", job.id, quote(job.name)));
    line("user", user_of(job));
    line("tier",
         fmt::format("{} (QOS {}, partition {})", tier_of(job), or_none(job.qos), or_none(job.partition)));
    line("state", fmt::format("{}{}", job.state,
                              job.running ? fmt::format(" for {}", span(now - job.started)) : std::string()));
    if (row.note.empty()) {
        line("elastic", "nothing is known of an elastic step of it");
        return out;
    }
    line("elastic", fmt::format("{} GPUs", or_none(row.note.get("elastic"))));
    line("GPUs", row.gpus);
    line("nodes", row.nodes);
    line("ranks", or_none(row.note.get("ranks")));
    line("runs",
         fmt::format("{}{}", job.restarts + 1,
                     job.restarts == 0 ? std::string()
                                       : fmt::format(", went on {}", ago(row.note.number("resumed"), now))));
    line("checkpoints", fmt::format("{}, the last {}", row.note.number("checkpoints").value_or(0),
                                    ago(row.note.number("saved"), now)));
    if (job.running)
        for (const auto &one : places_in(row.note.get(std::string(kPublishedKey)), job.restarts))
            line("published", fmt::format("{}:{} is port {} of {} in step {}", one.host, one.at, one.port,
                                          one.node, one.step));
    if (const auto memory = memory_line(row.note, job))
        line("memory", *memory);
    if (!row.note.get("unsavable").empty())
        line("unsavable", "it could not be saved when that was tried last: its output says why. The planner "
                          "leaves it alone");
    if (!job.comment.empty())
        line("comment", escaped(job.comment));
    return out;
}

} // namespace singularity::slurm
