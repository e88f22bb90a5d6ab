// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_cgroup.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <vector>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

constexpr std::string_view kDigits = "0123456789";

// What follows `before`, if it is nothing but digits up to a slash or the end.
std::string_view number_after(std::string_view path, std::string_view before) {
    const auto at = path.find(before);
    if (at == std::string_view::npos)
        return {};
    auto rest = path.substr(at + before.size());
    rest = rest.substr(0, rest.find('/'));
    return rest.find_first_not_of(kDigits) == std::string_view::npos ? rest : std::string_view();
}

// As cgroups(7) has it: "ID:CONTROLLERS:PATH".
std::string_view path_of(std::string_view line) {
    const auto second = line.find(':', line.find(':') + 1);
    return second == std::string_view::npos ? std::string_view() : line.substr(second + 1);
}

// What follows the prefix; nothing, if the name does not begin so.
std::string_view without(std::string_view name, std::string_view prefix) {
    return name.starts_with(prefix) ? name.substr(prefix.size()) : std::string_view();
}

template <class Chosen>
std::string of_step_where(std::string_view text, const Chosen &chosen) {
    std::string out;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("0::") && !number_after(line, "/step_").empty() && chosen(line))
            line.resize(std::min(line.size(), line.find("/task_")));
        out += line + "\n";
    }
    return out;
}

} // namespace

SlurmCgroup slurm_cgroup(std::string_view text, std::uint32_t uid) {
    const auto users = fmt::format("uid_{}", uid);
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        std::vector<std::string_view> names;
        for (auto rest = path_of(line); !rest.empty();) {
            rest.remove_prefix(1);
            names.push_back(rest.substr(0, rest.find('/')));
            rest.remove_prefix(names.back().size());
        }
        for (std::size_t at = 1; at + 1 < names.size(); ++at) {
            SlurmCgroup out;
            const auto number = without(names[at], "job_");
            const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.job);
            if (error != std::errc() || end != number.data() + number.size() || out.job == 0)
                continue;
            out.step = without(names[at + 1], "step_");
            if (!out.step.empty() && (names[at - 1] == users || names[at - 1].ends_with("slurmstepd.scope")))
                return out;
        }
    }
    return {};
}

std::string step_of(const SlurmCgroup &place) {
    const bool is_step = !place.step.empty() && place.step.find_first_not_of(kDigits) == std::string::npos;
    return is_step ? fmt::format("{}.{}", place.job, place.step) : std::string();
}

std::uint32_t script_of(const SlurmCgroup &place) { return place.step == kBatchStep ? place.job : 0; }

std::string step_of_script(std::uint32_t job) { return fmt::format("{}.{}", job, kBatchStep); }

bool is_script(std::string_view step) {
    const auto dot = step.find('.');
    return dot != std::string_view::npos && step.substr(dot + 1) == kBatchStep;
}

std::string cgroups_of_step(std::string_view text) {
    return of_step_where(text, [](std::string_view /*line*/) { return true; });
}

std::string cgroups_of_task(std::string_view text) {
    return of_step_where(text, [](std::string_view line) {
        const auto first = line.find(':') + 1;
        return fmt::format(",{},", line.substr(first, line.find(':', first) - first)).contains(",devices,");
    });
}

} // namespace singularity::agent
