// SPDX-License-Identifier: GPL-2.0-or-later
#include "task_places.hpp"

#include "common/proc.hpp"
#include "node/cgroups.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace singularity::worker {

namespace {

constexpr const char *kTable = "task-places"; // among the image's files
constexpr std::size_t kLargestTable = std::size_t{4} << 20U;

struct TaskPlace {
    std::int32_t pid = 0; // in the node
    std::uint32_t task = 0;
};

// A line that is none is left out.
std::vector<TaskPlace> parse_task_places(std::string_view text) {
    std::vector<TaskPlace> out;
    while (!text.empty()) {
        const auto line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        const char *const begin = line.data();
        const char *const end = begin + line.size();
        TaskPlace place;
        const auto [space, bad_pid] = std::from_chars(begin, end, place.pid);
        if (bad_pid != std::errc() || space == end || *space != ' ' || place.pid <= 0)
            continue;
        const auto [rest, bad_task] = std::from_chars(space + 1, end, place.task);
        if (bad_task == std::errc() && rest == end)
            out.push_back(place);
    }
    return out;
}

} // namespace

Expected<void> save_task_places(const agent::WorkSave &job, const host::DumpReport &dumped, int images) {
    // The first process of each task is where the agent has put it, and what it has started is there as well.
    std::map<std::string, std::uint32_t> task_in;
    std::vector<std::string> cgroups(dumped.alive_here.size());
    for (std::size_t at = 0; at < cgroups.size(); ++at) {
        auto cgroup = proc::read(fmt::format("/proc/{}/cgroup", dumped.alive_here[at]));
        if (!cgroup)
            return propagate(cgroup);
        cgroups[at] = std::move(*cgroup);
        const auto first = std::ranges::find(job.tasks, dumped.alive[at]);
        if (first != job.tasks.end())
            task_in.emplace(cgroups[at], job.numbers[static_cast<std::size_t>(first - job.tasks.begin())]);
    }
    std::string table;
    for (std::size_t at = 0; at < cgroups.size() && table.size() < kLargestTable; ++at)
        if (const auto found = task_in.find(cgroups[at]); found != task_in.end())
            table += fmt::format("{} {}\n", dumped.alive[at], found->second);
    UniqueFd file(openat(images, kTable, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file)
        return std::unexpected(errno_error("make", kTable));
    if (!std::cmp_equal(write(file.get(), table.data(), table.size()), table.size()))
        return std::unexpected(errno_error("write", kTable));
    return file.close();
}

Expected<TaskPlaces> load_task_places(const std::vector<agent::TaskCgroups> &tasks, int images) {
    TaskPlaces out;
    const UniqueFd file(openat(images, kTable, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file && errno == ENOENT)
        return out;
    if (!file)
        return std::unexpected(errno_error("open", kTable));
    auto text = proc::read(fmt::format("/proc/self/fd/{}", file.get()), 2 * kLargestTable);
    if (!text)
        return propagate(text);
    std::map<std::uint32_t, std::vector<int>> files;
    for (const auto &task : tasks) {
        auto opened = node::open_cgroups(task.cgroups);
        if (!opened)
            return propagate(opened);
        for (auto &one : *opened) {
            files[task.task].push_back(one.get());
            out.held.push_back(std::move(one));
        }
    }
    for (const auto &place : parse_task_places(*text))
        if (const auto found = files.find(place.task); found != files.end())
            for (const int one : found->second)
                out.placed.push_back({.pid = place.pid, .cgroup_procs = one});
    return out;
}

} // namespace singularity::worker
