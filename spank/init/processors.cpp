// SPDX-License-Identifier: GPL-2.0-or-later
#include "processors.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::init {

namespace {

// What is begun while the others are being bound is found by the next look, or comes of one that is bound.
constexpr int kMostLooks = 4;

struct Process {
    pid_t pid = 0;
    pid_t parent = 0;
    pid_t session = 0;
};

// The entries of a directory whose names are numbers.
std::vector<pid_t> numbers_in(const std::string &path) {
    std::vector<pid_t> out;
    const std::unique_ptr<DIR, int (*)(DIR *)> directory(opendir(path.c_str()), closedir);
    if (!directory)
        return out;
    while (const dirent *const entry =
               readdir(directory.get())) { // NOLINT(concurrency-mt-unsafe): one thread
        const std::string_view name = entry->d_name;
        pid_t number = 0;
        if (const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
            error == std::errc() && end == name.data() + name.size())
            out.push_back(number);
    }
    return out;
}

// proc(5), stat: the program's name may contain anything, so what counts comes after the last parenthesis.
bool look_at(pid_t pid, Process &process) {
    const std::unique_ptr<FILE, int (*)(FILE *)> file(
        std::fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "re"), std::fclose);
    if (!file)
        return false;
    std::string text(512, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file.get()));
    const auto after_name = text.rfind(')');
    process.pid = pid;
    return after_name != std::string::npos && std::sscanf(text.c_str() + after_name + 1, " %*c %d %*d %d",
                                                          &process.parent, // NOLINT(cert-err34-c)
                                                          &process.session) == 2;
}

std::vector<pid_t> processes_of(pid_t first) {
    std::vector<Process> others;
    for (const pid_t pid : numbers_in("/proc"))
        if (Process process; pid != first && look_at(pid, process))
            others.push_back(process);
    std::vector<pid_t> family{first};
    for (bool grown = true; grown;) {
        const auto is_one = [&](const Process &process) {
            return process.session == first || std::ranges::find(family, process.parent) != family.end();
        };
        const auto mine = std::ranges::stable_partition(others, std::not_fn(is_one));
        grown = !mine.empty();
        for (const Process &process : mine)
            family.push_back(process.pid);
        others.erase(mine.begin(), mine.end());
    }
    return family;
}

} // namespace

namespace {

CpuMask processors_of(pid_t thread) {
    CpuMask mask(kLargestCpuMask, 0);
    const auto size = syscall(SYS_sched_getaffinity, thread, mask.size(), mask.data());
    mask.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return mask;
}

// For a thread of a task that had these processors: all of cpus, or as many as it has bound itself to.
CpuMask for_thread(pid_t thread, std::span<const char> had, std::span<const char> cpus) {
    CpuMask all(cpus.begin(), cpus.end());
    const auto own = processors_of(thread);
    if (same_processors(own, had))
        return all;
    auto carried = carried_over(own, had, cpus);
    return carried.empty() ? all : carried;
}

} // namespace

CpuMask own_processors() { return processors_of(0); }

int bind_task(pid_t first, const Binding &before, std::span<const char> cpus) {
    // The task's, as a restore has carried them over to what init can use here.
    const auto had = carried_over(before.task, before.all, own_processors());
    std::set<pid_t> bound;
    bool more = true;
    for (int look = 0; look < kMostLooks && more; ++look) {
        more = false;
        for (const pid_t process : processes_of(first)) {
            for (const pid_t thread : numbers_in("/proc/" + std::to_string(process) + "/task")) {
                if (!bound.insert(thread).second)
                    continue;
                more = true;
                const auto wanted = for_thread(thread, had, cpus);
                if (syscall(SYS_sched_setaffinity, thread, wanted.size(), wanted.data()) != 0 &&
                    errno != ESRCH)
                    return errno;
            }
        }
    }
    return 0;
}

} // namespace singularity::init
