// SPDX-License-Identifier: GPL-2.0-or-later
#include "remote_call.hpp"

#include "proc.hpp"
#include "stopped_thread.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/uio.h>

namespace singularity::host {

#if defined(__x86_64__)
namespace {

// The vdso has a `syscall` instruction in every process.
std::optional<std::uint64_t> call_instruction(pid_t pid, const std::vector<Mapping> &mappings) {
    constexpr std::string_view kSyscall = "\x0f\x05";
    const auto vdso = std::ranges::find(mappings, "[vdso]", &Mapping::name);
    if (vdso == mappings.end())
        return std::nullopt;
    std::string code(vdso->end - vdso->begin, '\0');
    const iovec local{.iov_base = code.data(), .iov_len = code.size()};
    const iovec remote{.iov_base = reinterpret_cast<void *>(vdso->begin), // NOLINT(performance-no-int-to-ptr)
                       .iov_len = code.size()};
    if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(code.size()))
        return std::nullopt;
    const std::size_t at = code.find(kSyscall);
    return at == std::string::npos ? std::nullopt : std::optional(vdso->begin + at);
}

} // namespace

Expected<bool> unmap_in(pid_t pid, const std::vector<Mapping> &mappings, const Mapping &what,
                        const Deadline &deadline) {
    const auto instruction = call_instruction(pid, mappings);
    if (!instruction)
        return failure("find", fmt::format("a system call instruction in process {}", pid),
                       "its vdso cannot be read");
    auto ids = threads_of(pid);
    if (!ids)
        return propagate(ids);
    auto threads = stop_all(*ids, deadline);
    if (!threads)
        return propagate(threads);
    std::optional<user_regs_struct> before;
    for (const StoppedThread &each : *threads) {
        auto registers = each.registers();
        if (!registers)
            return propagate(registers);
        if (registers->rip >= what.begin && registers->rip < what.end)
            return false;
        if (!before)
            before = *registers;
    }
    if (!before)
        return failure("attach to", fmt::format("process {}", pid), "it has ended", ESRCH);
    user_regs_struct call = *before;
    call.rip = *instruction;
    call.orig_rax = ~0ULL; // a system call that was interrupted must not be restarted here
    call.rax = SYS_munmap;
    call.rdi = what.begin;
    call.rsi = what.end - what.begin;
    StoppedThread &caller = threads->front();
    if (auto set = caller.set_registers(call); !set)
        return propagate(set);
    auto stepped = caller.step(deadline);
    if (auto restored = caller.set_registers(*before); !restored)
        return propagate(restored);
    if (!stepped)
        return propagate(stepped);
    return true;
}
#else
Expected<bool> unmap_in(pid_t, const std::vector<Mapping> &, const Mapping &, const Deadline &) {
    return true; // a few pages stay, which nothing uses
}
#endif

} // namespace singularity::host
