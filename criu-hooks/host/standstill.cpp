// SPDX-License-Identifier: GPL-2.0-or-later
#include "standstill.hpp"

#include "children.hpp"
#include "common/proc.hpp"
#include "proc.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace singularity::host {
namespace {

using namespace std::chrono_literals;

// Where somebody is dead already. Programs have dead children of their own as well, so it takes more than
// that.
constexpr std::chrono::seconds kWithDead = 3s;

struct Doing {
    std::uint64_t done = 0; // grows with whatever it does
    bool waits = false;     // for a disk or a processor
    bool dead = false;
};

// Of a process that has just ended: nothing.
Doing doing_of(pid_t pid) {
    const auto text = proc::read(fmt::format("/proc/{}/stat", pid));
    // state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime
    constexpr std::size_t kFaults = 7;
    constexpr std::size_t kEnd = 13;
    const auto columns = text ? proc::stat_columns(*text) : std::vector<std::string_view>();
    if (columns.size() < kEnd)
        return {};
    Doing out;
    out.waits = columns[0] == "D" || columns[0] == "R";
    out.dead = columns[0] == "Z";
    for (std::size_t at = kFaults; at < kEnd; ++at) {
        std::uint64_t value = 0;
        std::from_chars(columns[at].data(), columns[at].data() + columns[at].size(), value);
        out.done += value;
    }
    return out;
}

void add(pid_t pid, Doing &all) {
    const auto [done, waits, dead] = doing_of(pid);
    all.done += done + 1; // processes that come and go count as well
    all.waits = all.waits || waits;
    all.dead = all.dead || dead;
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
    const auto patience = all.dead ? std::min(patience_, kWithDead) : patience_;
    if (now - since_ < patience)
        return {};
    return failure(
        "wait for", "criu",
        fmt::format("it and what it makes have done nothing for {} s; was one of its processes killed?",
                    patience.count()),
        ETIMEDOUT);
}

} // namespace singularity::host
