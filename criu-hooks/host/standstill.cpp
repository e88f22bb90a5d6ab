// SPDX-License-Identifier: GPL-2.0-or-later
#include "standstill.hpp"

#include "children.hpp"
#include "file.hpp"
#include "proc.hpp"

#include <array>
#include <cerrno>
#include <sstream>
#include <string>

#include <fmt/format.h>

namespace singularity::host {
namespace {

constexpr std::size_t kLargestStat = 4096;

struct Doing {
    std::uint64_t done = 0; // grows with whatever it does
    bool waits = false;     // for a disk
};

// Of a process that has just ended: nothing.
Doing doing_of(pid_t pid) {
    const auto text = read_whole(fmt::format("/proc/{}/stat", pid), kLargestStat);
    const auto name_end = text ? text->rfind(')') : std::string::npos;
    if (name_end == std::string::npos)
        return {};
    // state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime
    constexpr std::size_t kFaults = 7;
    constexpr std::size_t kFields = 13;
    std::istringstream fields(text->substr(name_end + 1));
    std::array<std::string, kFields> field;
    for (auto &one : field)
        fields >> one;
    Doing out;
    out.waits = field[0] == "D";
    for (std::size_t at = kFaults; at < kFields; ++at)
        out.done += std::strtoull(field.at(at).c_str(), nullptr, 10);
    return out;
}

void add(pid_t pid, Doing &all) {
    const auto [done, waits] = doing_of(pid);
    all.done += done + 1; // processes that come and go count as well
    all.waits = all.waits || waits;
    const auto threads = threads_of(pid);
    if (!threads)
        return;
    for (const pid_t thread : *threads)
        if (const auto children = children_of(fmt::format("/proc/{}/task/{}", pid, thread)))
            for (const pid_t child : *children)
                add(child, all);
}

} // namespace

Expected<void> Standstill::look(const std::vector<pid_t> &roots) {
    Doing all;
    for (const pid_t pid : roots)
        add(pid, all);
    const auto now = Deadline::Clock::now();
    if (all.waits || all.done != done_) {
        done_ = all.done;
        since_ = now;
        return {};
    }
    if (now - since_ < patience_)
        return {};
    return failure(
        "wait for", "criu",
        fmt::format("it and what it makes have done nothing for {} s; was one of its processes killed?",
                    patience_.count()),
        ETIMEDOUT);
}

} // namespace singularity::host
