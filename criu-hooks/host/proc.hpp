// SPDX-License-Identifier: GPL-2.0-or-later
// What /proc says of the processes of a node.
#pragma once

#include "common/error.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace singularity::host {

// /proc/PID/status, of a process or of a thread.
struct Status {
    std::string name;
    char state = '?';
    pid_t parent = 0;
    pid_t tracer = 0;
    std::array<uid_t, 4> uid{}; // real, effective, saved, of the file system
    std::array<gid_t, 4> gid{};
    bool capable = false;          // has a capability, or could have one
    std::vector<pid_t> pid_in;     // the process id in each namespace, the innermost last
    std::vector<pid_t> session_in; // likewise; 0 where the session's leader is outside of the namespace
    std::vector<pid_t> group_in;
};

[[nodiscard]] Expected<Status> status_of(pid_t pid);
[[nodiscard]] Expected<Status> status_of(pid_t pid, pid_t thread);

[[nodiscard]] Expected<std::vector<pid_t>> threads_of(pid_t pid);

struct Process {
    pid_t pid = 0;
    pid_t inner = 0; // its id in the node
    std::string name;
    char state = '?';
    pid_t parent = 0;
    std::vector<pid_t> threads;

    // "process 27 (python3)": by the id that its user knows
    [[nodiscard]] std::string title() const;
};

// All processes whose PID namespace is that of `init`, init first. A process that ends meanwhile is left out.
[[nodiscard]] Expected<std::vector<Process>> processes_of(pid_t init);

// Its first thread has ended, and others have not yet: it is about to end, or runs on for as long as it
// likes.
[[nodiscard]] inline bool is_half_ended(const Process &process) {
    return process.state == 'Z' && process.threads.size() > 1;
}

// The decimal number that follows a label in the text of a file such as fdinfo.
[[nodiscard]] inline std::optional<std::uint64_t> number_after(std::string_view text, std::string_view label,
                                                               int base = 10) {
    const std::size_t at = text.find(label);
    if (at == std::string_view::npos)
        return std::nullopt;
    text.remove_prefix(at + label.size());
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t'))
        text.remove_prefix(1);
    std::uint64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value, base).ec != std::errc())
        return std::nullopt;
    return value;
}

} // namespace singularity::host
