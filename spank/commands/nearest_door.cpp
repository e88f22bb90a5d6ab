// SPDX-License-Identifier: GPL-2.0-or-later
#include "nearest_door.hpp"

#include "node/door.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include <sys/types.h>
#include <unistd.h>

namespace singularity::commands {

namespace {

constexpr std::string_view kRank = "SLURM_PROCID=";
constexpr pid_t kInit = 1;       // of the node, in its PID namespace
constexpr int kGenerations = 64; // that are looked at; a process that ends meanwhile makes no circle

template <class Number>
std::optional<Number> number_in(std::string_view text) {
    Number out{};
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
    return code == std::errc() && end == text.data() + text.size() ? std::optional(out) : std::nullopt;
}

// Empty where it cannot be read.
std::string about(pid_t pid, std::string_view what) {
    std::ifstream file("/proc/" + std::to_string(pid) + '/' + std::string(what), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<std::uint32_t> rank_in(std::string_view environment) {
    while (!environment.empty()) {
        const auto entry = environment.substr(0, environment.find('\0'));
        if (entry.starts_with(kRank))
            return number_in<std::uint32_t>(entry.substr(kRank.size()));
        environment.remove_prefix(std::min(entry.size() + 1, environment.size()));
    }
    return std::nullopt;
}

// 0: it has ended, or its parent is in another PID namespace.
pid_t parent_of(pid_t pid) {
    const auto stat = about(pid, "stat");
    // "PID (NAME) STATE PARENT ...", where NAME may be anything.
    const auto name_end = stat.rfind(") ");
    if (name_end == std::string::npos || stat.size() < name_end + 4)
        return 0;
    const auto rest = std::string_view(stat).substr(name_end + 4);
    return number_in<pid_t>(rest.substr(0, rest.find(' '))).value_or(0);
}

} // namespace

std::optional<std::uint32_t> rank_of_this_process() {
    std::optional<std::uint32_t> out;
    pid_t pid = getpid();
    for (int generation = 0; generation < kGenerations && pid > kInit; ++generation) {
        if (const auto rank = rank_in(about(pid, "environ")))
            out = rank;
        pid = parent_of(pid);
    }
    return out;
}

std::vector<std::string> doors_in(const std::string &directory) {
    std::vector<std::string> out;
    std::error_code error;
    for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
         at.increment(error)) {
        const auto name = at->path().filename().native();
        if (name.starts_with(node::kDoorPrefix) && name.ends_with(node::kDoorSuffix))
            out.push_back(at->path().native());
    }
    return out;
}

} // namespace singularity::commands
