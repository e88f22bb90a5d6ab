// SPDX-License-Identifier: GPL-2.0-or-later
#include "interrupted.hpp"

#include "common/proc.hpp"
#include "file.hpp"
#include "process_tree.hpp"
#include "records.hpp"
#include "stopped_thread.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h> // NOLINT(modernize-deprecated-headers): renameat
#include <sys/syscall.h>

namespace singularity::host {

#if defined(__x86_64__)
namespace {

constexpr std::uint64_t kCode64 = 0x33; // cs of 64-bit code
constexpr std::uint64_t kInterrupted = -static_cast<std::uint64_t>(EINTR);
constexpr std::uint64_t kCallInstruction = 2; // its length

// Calls that a stop makes fail with EINTR although no signal was handled: those that the kernel would have
// gone on with by itself, if it were not for CRIU, and those of signal(7), "interruption of system calls by
// stop signals". Each has done nothing when it fails so, and can be made again.
struct Call {
    std::uint64_t number;
    std::uint64_t CallRegisters::*time = nullptr; // where the address of the time is that it waits,
    std::uint64_t CallRegisters::*rest = nullptr; // and of what was left of it, or 0
};
constexpr std::array kCalls{
    Call{.number = SYS_nanosleep, .time = &CallRegisters::rdi, .rest = &CallRegisters::rsi},
    Call{.number = SYS_clock_nanosleep, .time = &CallRegisters::rdx, .rest = &CallRegisters::r10},
    Call{.number = SYS_poll},
    Call{.number = SYS_futex},
    Call{.number = SYS_epoll_wait},
    Call{.number = SYS_epoll_pwait},
    Call{.number = SYS_epoll_pwait2},
    Call{.number = SYS_semop},
    Call{.number = SYS_semtimedop},
    Call{.number = SYS_rt_sigtimedwait},
    Call{.number = SYS_io_getevents},
    Call{.number = SYS_io_pgetevents},
    // Of sockets with a time limit (SO_RCVTIMEO, SO_SNDTIMEO).
    Call{.number = SYS_read},
    Call{.number = SYS_readv},
    Call{.number = SYS_recvfrom},
    Call{.number = SYS_recvmsg},
    Call{.number = SYS_write},
    Call{.number = SYS_writev},
    Call{.number = SYS_sendto},
    Call{.number = SYS_sendmsg},
    Call{.number = SYS_accept},
    Call{.number = SYS_accept4},
};

// Field numbers of CRIU's images/{core,core-x86,siginfo}.proto.
namespace core_fields {
constexpr std::uint32_t kX86 = 2;
constexpr std::uint32_t kTask = 3;
constexpr std::uint32_t kThread = 5;
} // namespace core_fields
namespace x86_fields {
constexpr std::uint32_t kRegisters = 2;
} // namespace x86_fields
namespace task_fields {
constexpr std::uint32_t kState = 1;
constexpr std::uint64_t kDead = 2; // TASK_DEAD
constexpr std::uint32_t kBlocked = 5;
constexpr std::uint32_t kSignals = 10;
} // namespace task_fields
namespace thread_fields {
constexpr std::uint32_t kBlocked = 6;
constexpr std::uint32_t kSignals = 9;
} // namespace thread_fields
struct RegisterField {
    std::uint32_t number;
    std::uint64_t CallRegisters::*value;
};
constexpr std::array kRegisterFields{
    RegisterField{8, &CallRegisters::r10},  RegisterField{11, &CallRegisters::rax},
    RegisterField{13, &CallRegisters::rdx}, RegisterField{14, &CallRegisters::rsi},
    RegisterField{15, &CallRegisters::rdi}, RegisterField{16, &CallRegisters::orig_rax},
    RegisterField{17, &CallRegisters::rip}, RegisterField{18, &CallRegisters::cs},
};

// The set of the signals in a queue (signal_queue_entry); empty without one.
Expected<std::uint64_t> signals_in(const Field *queue) {
    std::uint64_t set = 0;
    if (queue == nullptr)
        return set;
    auto entries = fields_of(queue->bytes);
    if (!entries)
        return propagate(entries);
    for (const Field &entry : *entries) {
        auto inner = fields_of(entry.bytes);
        if (!inner)
            return propagate(inner);
        const Field *const info = find(*inner, 1);
        std::int32_t number = 0; // the first word of siginfo_t
        if (info == nullptr || info->bytes.size() < sizeof(number))
            continue;
        std::memcpy(&number, info->bytes.data(), sizeof(number));
        if (number >= 1 && number <= 64)
            set |= std::uint64_t{1} << static_cast<unsigned>(number - 1);
    }
    return set;
}

Expected<std::vector<Field>> fields_of_part(const std::vector<Field> &fields, std::uint32_t number) {
    const Field *const part = find(fields, number);
    return part == nullptr ? Expected<std::vector<Field>>() : fields_of(part->bytes);
}

// Signals that this thread would act on: its own, and its process'.
Expected<std::uint64_t> signals_for_thread(const std::vector<Field> &core, std::uint64_t process_signals) {
    auto task = fields_of_part(core, core_fields::kTask);
    if (!task)
        return propagate(task);
    auto thread = fields_of_part(core, core_fields::kThread);
    if (!thread)
        return propagate(thread);
    auto own = signals_in(find(*thread, thread_fields::kSignals));
    if (!own)
        return propagate(own);
    const Field *blocked = find(*thread, thread_fields::kBlocked);
    if (blocked == nullptr)
        blocked = find(*task, task_fields::kBlocked);
    return (*own | process_signals) & ~(blocked == nullptr ? 0 : blocked->value);
}

// Signals that wait for the whole process, of which the message is of its first thread; nothing for a zombie,
// of which no thread is left, whatever CRIU writes of them.
Expected<std::optional<std::uint64_t>> signals_for_process(Bytes core) {
    auto fields = fields_of(core);
    if (!fields)
        return propagate(fields);
    auto task = fields_of_part(*fields, core_fields::kTask);
    if (!task)
        return propagate(task);
    const Field *const state = find(*task, task_fields::kState);
    if (state != nullptr && state->value == task_fields::kDead)
        return std::nullopt;
    auto signals = signals_in(find(*task, task_fields::kSignals));
    if (!signals)
        return propagate(signals);
    return *signals;
}

// The message with other registers; nothing if one of them is missing.
Expected<std::optional<std::string>> registers_to_call_again(Bytes message) {
    auto fields = fields_of(message);
    if (!fields)
        return propagate(fields);
    CallRegisters before;
    for (const auto &[number, value] : kRegisterFields) {
        const Field *const field = find(*fields, number);
        if (field == nullptr)
            return std::nullopt;
        before.*value = field->value;
    }
    const auto after = to_call_again(before);
    if (!after)
        return std::nullopt;
    std::string changed(reinterpret_cast<const char *>(message.data()), message.size());
    for (const auto &[number, value] : kRegisterFields) {
        const Bytes bytes = std::as_bytes(std::span(changed));
        auto present = fields_of(bytes);
        if (!present)
            return propagate(present);
        changed = with_number(bytes, *find(*present, number), (*after).*value);
    }
    return changed;
}

Expected<void> call_again_in_core(int images, const std::string &file, std::uint64_t process_signals) {
    constexpr const char *kBeside = "core.new";
    auto core = first_record(images, file, Magic::kCore);
    if (!core)
        return propagate(core);
    const std::optional<std::string> &before = *core;
    if (!before)
        return {};
    auto changed = core_to_call_again(std::as_bytes(std::span(*before)), process_signals);
    if (!changed)
        return propagate(changed);
    const std::optional<std::string> &after = *changed;
    if (!after)
        return {};
    if (auto written = write_file_at(images, kBeside, framed(Magic::kCore, {*after})); !written)
        return written;
    if (renameat(images, kBeside, images, file.c_str()) != 0)
        return std::unexpected(errno_error("replace", file));
    return {};
}

// Signals that a thread is about to act on.
Expected<std::uint64_t> waiting_for(pid_t pid, pid_t thread) {
    auto text = proc::read(fmt::format("/proc/{}/task/{}/status", pid, thread));
    if (!text)
        return propagate(text);
    const auto set = [&text](std::string_view label) {
        constexpr int kHexadecimal = 16;
        return number_after(*text, label, kHexadecimal).value_or(0);
    };
    return (set("SigPnd:") | set("ShdPnd:")) & ~set("SigBlk:");
}

// Those that have ended meanwhile need nothing.
std::vector<pid_t> threads_in_calls(const Process &process) {
    std::vector<pid_t> found;
    for (const pid_t thread : threads_of(process.pid).value_or(std::vector<pid_t>())) {
        auto text = proc::read(fmt::format("/proc/{}/task/{}/syscall", process.pid, thread));
        std::uint64_t number = 0; // "7 0x7ffc...", or "running"
        if (text && std::from_chars(text->data(), text->data() + text->size(), number).ec == std::errc() &&
            std::ranges::find(kCalls, number, &Call::number) != kCalls.end())
            found.push_back(thread);
    }
    return found;
}

Expected<void> call_again_in(const StoppedThread &thread, pid_t pid) {
    auto registers = thread.registers();
    if (!registers)
        return propagate(registers);
    const auto again = to_call_again({.rax = registers->rax,
                                      .orig_rax = registers->orig_rax,
                                      .rip = registers->rip,
                                      .rdi = registers->rdi,
                                      .rsi = registers->rsi,
                                      .rdx = registers->rdx,
                                      .r10 = registers->r10,
                                      .cs = registers->cs});
    if (!again || thread.has_signal())
        return {};
    auto waiting = waiting_for(pid, thread.id());
    if (!waiting)
        return propagate(waiting);
    if (*waiting != 0)
        return {};
    registers->rax = again->rax;
    registers->rip = again->rip;
    registers->rdi = again->rdi;
    registers->rdx = again->rdx;
    return thread.set_registers(*registers);
}

} // namespace

std::optional<CallRegisters> to_call_again(CallRegisters registers) {
    const auto *const call = std::ranges::find(kCalls, registers.orig_rax, &Call::number);
    if (call == kCalls.end() || registers.rax != kInterrupted || registers.cs != kCode64)
        return std::nullopt;
    registers.rax = registers.orig_rax;
    registers.rip -= kCallInstruction;
    if (call->rest != nullptr && registers.*call->rest != 0)
        registers.*call->time = registers.*call->rest;
    return registers;
}

Expected<std::optional<std::string>> core_to_call_again(Bytes core, std::uint64_t process_signals) {
    auto fields = fields_of(core);
    if (!fields)
        return propagate(fields);
    const Field *const x86 = find(*fields, core_fields::kX86);
    if (x86 == nullptr)
        return std::nullopt;
    auto waiting = signals_for_thread(*fields, process_signals);
    if (!waiting)
        return propagate(waiting);
    if (*waiting != 0)
        return std::nullopt;
    auto parts = fields_of(x86->bytes);
    if (!parts)
        return propagate(parts);
    const Field *const registers = find(*parts, x86_fields::kRegisters);
    if (registers == nullptr)
        return std::nullopt;
    auto changed = registers_to_call_again(registers->bytes);
    if (!changed)
        return propagate(changed);
    const std::optional<std::string> &again = *changed;
    if (!again)
        return std::nullopt;
    return with_bytes(core, *x86, with_bytes(x86->bytes, *registers, *again));
}

Expected<void> call_again_in_images(int images) {
    auto processes = processes_in(images);
    if (!processes)
        return propagate(processes);
    for (const ProcessEntry &process : *processes) {
        auto first = first_record(images, core_file(process.pid), Magic::kCore);
        if (!first)
            return propagate(first);
        const std::optional<std::string> &core = *first;
        if (!core)
            continue;
        auto signals = signals_for_process(std::as_bytes(std::span(*core)));
        if (!signals)
            return propagate(signals);
        const std::optional<std::uint64_t> &waiting = *signals;
        if (!waiting)
            continue;
        for (const std::uint64_t thread : process.threads)
            if (auto done = call_again_in_core(images, core_file(thread), *waiting); !done)
                return done;
    }
    return {};
}

Expected<void> call_again_in(const std::vector<Process> &node, const Deadline &deadline) {
    for (const Process &process : node) {
        auto status = status_of(process.pid);
        // A debugger inside of the node has its own plans with the process.
        if (!status || status->state == 'Z' || status->tracer != 0)
            continue;
        auto threads = stop_all(threads_in_calls(process), deadline);
        if (!threads)
            return propagate(threads);
        for (const StoppedThread &thread : *threads)
            if (auto done = call_again_in(thread, process.pid); !done && done.error().code != ESRCH)
                return done;
    }
    return {};
}
#else
std::optional<CallRegisters> to_call_again(CallRegisters) { return std::nullopt; }
Expected<std::optional<std::string>> core_to_call_again(Bytes, std::uint64_t) { return std::nullopt; }
Expected<void> call_again_in_images(int) { return {}; }
Expected<void> call_again_in(const std::vector<Process> &, const Deadline &) { return {}; }
#endif

} // namespace singularity::host
