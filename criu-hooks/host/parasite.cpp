// SPDX-License-Identifier: GPL-2.0-or-later
#include "parasite.hpp"

#include "common/proc.hpp"
#include "common/unique_fd.hpp"
#include "file.hpp"
#include "maps.hpp"
#include "remote_call.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::host {
namespace {

constexpr std::string_view kName = "/memfd:CRIUMFD (deleted)"; // of the mapping that holds criu's code

// What criu writes over code of a process for the time of one system call: `syscall` and breakpoints, and
// behind it, at times, a name.
constexpr std::array<unsigned char, 8> kCall{0x0f, 0x05, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc};
constexpr std::array<unsigned char, 8> kFileName{'C', 'R', 'I', 'U', 'M', 'F', 'D', 0};

struct ThreadPlace {
    bool known = false; // false: the thread is running
    std::optional<std::uint64_t> call;
    std::uint64_t instruction = 0;
};

// /proc/PID/task/TID/syscall: "running", or "-1 SP PC", or "NUMBER six arguments SP PC"; proc_pid_syscall(5)
Expected<ThreadPlace> place_of(pid_t pid, pid_t thread) {
    auto text = proc::read(fmt::format("/proc/{}/task/{}/syscall", pid, thread));
    if (!text)
        return propagate(text);
    ThreadPlace place;
    const std::size_t last = text->rfind(" 0x");
    const auto instruction =
        last == std::string::npos ? std::nullopt : number_after(text->substr(last), " 0x", 16);
    if (!instruction) // "running"
        return place;
    place.known = true;
    place.instruction = *instruction;
    place.call = number_after(*text, ""); // not of "-1"
    return place;
}

bool overwritten(int memory, const Mapping &code) {
    std::array<unsigned char, kCall.size() + kFileName.size()> head{};
    if (pread(memory, head.data(), head.size(), static_cast<off_t>(code.begin)) !=
        static_cast<ssize_t>(head.size()))
        return false;
    return std::equal(kCall.begin(), kCall.end(), head.begin()) ||
           std::equal(kFileName.begin(), kFileName.end(), head.begin() + kCall.size());
}

} // namespace

Presence presence_in(const Process &process) {
    auto maps = mappings_of(process.pid);
    const auto memory = open_file(fmt::format("/proc/{}/mem", process.pid), O_RDONLY);
    if (!maps || maps->empty() || !memory) // a zombie has none
        return Presence::kGone;
    for (const Mapping &each : *maps)
        if (each.executable && overwritten(memory->get(), each))
            return Presence::kEntangled;
    const auto foreign = std::ranges::find(*maps, kName, &Mapping::name);
    if (foreign == maps->end())
        return Presence::kNone;
    Presence presence = Presence::kRemains;
    auto threads = threads_of(process.pid);
    if (!threads)
        return Presence::kGone;
    for (const pid_t thread : *threads) {
        const auto place = place_of(process.pid, thread);
        if (!place)
            continue; // this thread has ended
        if (!place->known)
            return Presence::kEntangled;
        if (place->instruction < foreign->begin || place->instruction >= foreign->end)
            continue;
        if (place->call != SYS_recvfrom)
            return Presence::kEntangled;
        presence = Presence::kWaiting;
    }
    return presence;
}

Expected<bool> remove_remains(const Process &process, const Deadline &deadline) {
    auto maps = mappings_of(process.pid);
    if (!maps)
        return propagate(maps);
    for (const Mapping &each : *maps) {
        if (each.name != kName)
            continue;
        auto removed = unmap_in(process.pid, *maps, each, deadline);
        if (!removed || !*removed)
            return removed;
    }
    return true;
}

} // namespace singularity::host
