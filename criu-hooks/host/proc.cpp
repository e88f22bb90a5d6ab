// SPDX-License-Identifier: GPL-2.0-or-later
#include "proc.hpp"

#include "common/proc.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "file.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>

namespace singularity::host {
namespace {

template <class T>
std::vector<T> numbers_in(std::string_view line) {
    std::vector<T> numbers;
    while (!line.empty()) {
        T value{};
        const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
        if (error == std::errc()) {
            numbers.push_back(value);
            line.remove_prefix(static_cast<std::size_t>(end - line.data()));
        } else {
            line.remove_prefix(1);
        }
    }
    return numbers;
}

template <class T>
bool take_four(std::string_view line, std::array<T, 4> &out) {
    const auto numbers = numbers_in<T>(line);
    if (numbers.size() != out.size())
        return false;
    std::ranges::copy(numbers, out.begin());
    return true;
}

Expected<Status> read_status(const std::string &path) {
    auto text = proc::read(path);
    if (!text)
        return propagate(text);
    Status status;
    status.name = proc::status_line(*text, "Name");
    const std::string_view state = proc::status_line(*text, "State");
    const auto parent = numbers_in<pid_t>(proc::status_line(*text, "PPid"));
    const auto tracer = numbers_in<pid_t>(proc::status_line(*text, "TracerPid"));
    status.pid_in = numbers_in<pid_t>(proc::status_line(*text, "NSpid"));
    status.session_in = numbers_in<pid_t>(proc::status_line(*text, "NSsid"));
    status.group_in = numbers_in<pid_t>(proc::status_line(*text, "NSpgid"));
    if (state.empty() || parent.size() != 1 || tracer.size() != 1 || status.pid_in.empty() ||
        !take_four(proc::status_line(*text, "Uid"), status.uid) ||
        !take_four(proc::status_line(*text, "Gid"), status.gid))
        return failure("understand", path, "a line that every Linux has since 4.1 is missing");
    for (const char *set : {"CapInh", "CapPrm", "CapEff", "CapAmb"})
        status.capable = status.capable ||
                         proc::status_line(*text, set).find_first_not_of("0 \t") != std::string_view::npos;
    status.state = state.front();
    status.parent = parent.front();
    status.tracer = tracer.front();
    return status;
}

bool has_gone(const Error &error) { return error.code == ENOENT || error.code == ESRCH; }

Expected<std::vector<pid_t>> numeric_names(const std::string &path) {
    auto directory = open_file(path, O_RDONLY | O_DIRECTORY);
    if (!directory)
        return propagate(directory);
    auto names = names_in(directory->get());
    if (!names)
        return propagate(names);
    std::vector<pid_t> numbers;
    for (const std::string &name : *names) {
        pid_t number = 0;
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
        if (error == std::errc() && end == name.data() + name.size())
            numbers.push_back(number);
    }
    std::ranges::sort(numbers);
    return numbers;
}

Expected<Process> process_of(pid_t pid) {
    auto status = status_of(pid);
    if (!status)
        return propagate(status);
    auto threads = threads_of(pid);
    if (!threads)
        return propagate(threads);
    return Process{.pid = pid,
                   .inner = status->pid_in.back(),
                   .name = status->name,
                   .state = status->state,
                   .parent = status->parent,
                   .threads = std::move(*threads)};
}

} // namespace

std::string Process::title() const { return fmt::format("process {} ({})", inner, escaped(name)); }

Expected<Status> status_of(pid_t pid) { return read_status(fmt::format("/proc/{}/status", pid)); }
Expected<Status> status_of(pid_t pid, pid_t thread) {
    return read_status(fmt::format("/proc/{}/task/{}/status", pid, thread));
}

Expected<std::vector<pid_t>> threads_of(pid_t pid) {
    return numeric_names(fmt::format("/proc/{}/task", pid));
}

Expected<std::vector<Process>> processes_of(pid_t init) {
    auto home = read_link(fmt::format("/proc/{}/ns/pid", init));
    if (!home)
        return propagate(home);
    auto pids = numeric_names("/proc");
    if (!pids)
        return propagate(pids);
    std::vector<Process> found;
    for (const pid_t pid : *pids) {
        auto space = read_link(fmt::format("/proc/{}/ns/pid", pid));
        if (space && *space != *home)
            continue;
        // A zombie has left its namespaces, so its link cannot be read; what it says of its ids decides.
        auto process = process_of(pid);
        if (!process && has_gone(process.error()))
            continue;
        if (!process)
            return propagate(process);
        if (!space && process->state != 'Z')
            continue;
        found.push_back(std::move(*process));
    }
    // Zombies of other namespaces go again: one belongs to the node if its parent does.
    const auto of_node = [&](const Process &each) {
        return each.state != 'Z' || std::ranges::any_of(found, [&](const Process &other) {
                   return other.pid == each.parent && other.state != 'Z';
               });
    };
    std::vector<Process> node;
    for (const Process &each : found)
        if (of_node(each))
            node.push_back(each);
    const auto first = std::ranges::find(node, init, &Process::pid);
    if (first == node.end())
        return failure("find", fmt::format("process {}", init), "it has ended", ESRCH);
    std::rotate(node.begin(), first, first + 1);
    return node;
}

} // namespace singularity::host
