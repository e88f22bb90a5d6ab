// SPDX-License-Identifier: GPL-2.0-or-later
#include "timers.hpp"

#include "file.hpp"
#include "records.hpp"

#include <csignal>
#include <ranges>
#include <span>

#include <stdio.h> // NOLINT(modernize-deprecated-headers): renameat

namespace singularity::host {
namespace {

// Field numbers of CRIU's images/{core,timer}.proto.
namespace timers_fields {
constexpr std::uint32_t kTask = 3;
constexpr std::uint32_t kTimers = 7; // of a task
constexpr std::uint32_t kPosix = 4;  // of its timers, repeated
constexpr std::uint32_t kClock = 2;  // of one of these
constexpr std::uint32_t kNotify = 4;
constexpr std::uint32_t kThread = 11;
} // namespace timers_fields

// The kernel's clocks of processor time have numbers of their own, with the thread's id in them, 0 for the
// calling one (include/linux/posix-timers_types.h: CPUCLOCK_SCHED | CPUCLOCK_PERTHREAD_MASK).
constexpr std::uint32_t processor_clock_of(std::uint32_t thread) { return (~thread << 3U) | 6U; }

Expected<std::optional<std::string>> timer_as_it_was(Bytes timer, const ProcessEntry &process) {
    std::string changed(reinterpret_cast<const char *>(timer.data()), timer.size());
    auto fields = fields_of(timer);
    if (!fields)
        return propagate(fields);
    const Field *const notify = find(*fields, timers_fields::kNotify);
    const Field *const clock = find(*fields, timers_fields::kClock);
    const Field *const signalled = find(*fields, timers_fields::kThread);
    if (notify == nullptr || clock == nullptr || notify->value != SIGEV_THREAD_ID)
        return std::nullopt;
    const bool known = signalled != nullptr && signalled->value != 0;
    const std::uint64_t thread = known ? signalled->value : process.pid;
    const bool own_time = static_cast<std::uint32_t>(clock->value) == processor_clock_of(0);
    if (known && !own_time)
        return std::nullopt;
    if (own_time)
        changed = with_number(timer, *clock, processor_clock_of(static_cast<std::uint32_t>(thread)));
    if (!known) // the last one counts
        changed += encoded_field(timers_fields::kThread, thread);
    return changed;
}

} // namespace

Expected<std::optional<std::string>> core_with_timers(Bytes core, const ProcessEntry &process) {
    auto fields = fields_of(core);
    if (!fields)
        return propagate(fields);
    const Field *const task = find(*fields, timers_fields::kTask);
    if (task == nullptr)
        return std::nullopt;
    auto of_task = fields_of(task->bytes);
    if (!of_task)
        return propagate(of_task);
    const Field *const timers = find(*of_task, timers_fields::kTimers);
    if (timers == nullptr)
        return std::nullopt;
    auto each = fields_of(timers->bytes);
    if (!each)
        return propagate(each);
    std::string changed(timers->text());
    bool any = false;
    for (const Field &one : *each | std::views::reverse) { // the last first, as above
        if (one.number != timers_fields::kPosix)
            continue;
        auto timer = timer_as_it_was(one.bytes, process);
        if (!timer)
            return propagate(timer);
        const std::optional<std::string> &as_it_was = *timer;
        if (!as_it_was)
            continue;
        changed = with_bytes(std::as_bytes(std::span(changed)), one, *as_it_was);
        any = true;
    }
    if (!any)
        return std::nullopt;
    return with_bytes(core, *task, with_bytes(task->bytes, *timers, changed));
}

Expected<void> repair_timers_in_images(int images) {
    constexpr const char *kBeside = "core.new";
    auto processes = processes_in(images);
    if (!processes)
        return propagate(processes);
    for (const ProcessEntry &process : *processes) {
        const std::string name = core_file(process.pid);
        auto core = first_record(images, name, Magic::kCore);
        if (!core)
            return propagate(core);
        const std::optional<std::string> &before = *core;
        if (!before)
            continue;
        auto changed = core_with_timers(std::as_bytes(std::span(*before)), process);
        if (!changed)
            return propagate(changed);
        const std::optional<std::string> &after = *changed;
        if (!after)
            continue;
        if (auto written = write_file_at(images, kBeside, framed(Magic::kCore, {*after})); !written)
            return written;
        if (renameat(images, kBeside, images, name.c_str()) != 0)
            return std::unexpected(errno_error("replace", name));
    }
    return {};
}

} // namespace singularity::host
