// SPDX-License-Identifier: GPL-2.0-or-later
#include "calls.hpp"

#include "switch.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <elf.h>
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <unistd.h>

namespace singularity::as_user {
namespace {

constexpr std::uint64_t kPage = 4096;

long call(int request, pid_t pid, void *address, void *data) {
    return syscall(SYS_ptrace, request, pid, address, data);
}

#if defined(__x86_64__)

struct Code {
    std::uint64_t begin = 0;
    bool private_or_writable = false;
};

// The mappings of a process with code, in their order, until `see` wants no more. A line of maps is
// "561dd5000000-561dd9000000 r-xs 00000000 00:01 1234    /dev/zero (deleted)".
template <typename See>
void for_each_code(pid_t pid, See see) {
    std::array<char, 64> path{};
    std::snprintf(path.data(), path.size(), "/proc/%d/maps", pid);
    const int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.data(), O_RDONLY | O_CLOEXEC));
    if (file < 0)
        return;
    std::array<char, 128> head{}; // of a line
    std::size_t known = 0;
    std::array<char, 4096> text{};
    bool more = true;
    for (ssize_t size = 0; more && (size = read(file, text.data(), text.size())) > 0;)
        for (ssize_t at = 0; more && at < size; ++at) {
            if (text[static_cast<std::size_t>(at)] != '\n') {
                if (known + 1 < head.size())
                    head[known++] = text[static_cast<std::size_t>(at)];
                continue;
            }
            head[known] = '\0';
            known = 0;
            std::uint64_t begin = 0;
            std::uint64_t end = 0;
            std::array<char, 5> rights{};
            if (std::sscanf(head.data(), "%lx-%lx %4s", &begin, &end, rights.data()) ==
                    3 && // NOLINT(cert-err34-c)
                rights[0] == 'r' &&
                rights[2] == 'x' && end - begin >= kPage)
                more = see(Code{.begin = begin, .private_or_writable = rights[1] == 'w' || rights[3] == 'p'});
        }
    close(file);
}

// Of the process whose code criu changes.
struct Place {
    pid_t pid = 0;
    std::uint64_t wanted = 0; // where criu would write, the beginning of a page
    std::uint64_t used = 0;   // where it writes
    bool about_to_call = false;
};
Place the_place;

void find_place(pid_t pid, std::uint64_t page) {
    the_place = {.pid = pid, .wanted = page, .used = page, .about_to_call = false};
    bool refused = false;
    for_each_code(pid, [&](const Code &code) {
        if (code.begin == page)
            refused = !code.private_or_writable;
        else if (refused && code.private_or_writable)
            the_place.used = code.begin;
        return code.begin < page || (refused && the_place.used == page);
    });
}

std::uint64_t number_of(void *address) { return reinterpret_cast<std::uintptr_t>(address); }

std::uint64_t instead_of(std::uint64_t address) {
    return address - the_place.wanted < kPage ? address - the_place.wanted + the_place.used : address;
}

void *instead_of(pid_t pid, void *address) {
    const std::uint64_t page = number_of(address) & ~(kPage - 1);
    if (the_place.pid != pid || the_place.wanted != page)
        find_place(pid, page);
    return reinterpret_cast<void *>(instead_of(number_of(address))); // NOLINT(performance-no-int-to-ptr)
}

// `syscall` or `int $0x80`, with which what criu writes begins.
bool is_call(void *data) {
    constexpr std::uint64_t kSyscall = 0x050f;
    constexpr std::uint64_t kInterrupt = 0x80cd;
    const std::uint64_t begin = number_of(data) & 0xffff;
    return begin == kSyscall || begin == kInterrupt;
}

// The registers with which the call is made: its place, and the name of a file beside it (memfd_create).
long make_call(int request, pid_t pid, void *address, iovec *registers) {
    user_regs_struct changed{};
    if (registers->iov_len != sizeof(changed))
        return call(request, pid, address, registers);
    std::memcpy(&changed, registers->iov_base, sizeof(changed));
    if (changed.rip != the_place.wanted)
        return call(request, pid, address, registers);
    the_place.about_to_call = false;
    changed.rip = the_place.used;
    changed.rdi = instead_of(changed.rdi);
    iovec given{.iov_base = &changed, .iov_len = sizeof(changed)};
    return call(request, pid, address, &given);
}

long trace_dumped(int request, pid_t pid, void *address, void *data) {
    switch (request) {
    case PTRACE_PEEKDATA:
        return call(request, pid, instead_of(pid, address), data);
    case PTRACE_POKEDATA:
        address = instead_of(pid, address);
        if (the_place.used != the_place.wanted && number_of(address) == the_place.used)
            the_place.about_to_call = is_call(data);
        return call(request, pid, address, data);
    case PTRACE_SETREGSET:
        if (the_place.about_to_call && the_place.pid == pid && number_of(address) == NT_PRSTATUS)
            return make_call(request, pid, address, static_cast<iovec *>(data));
        break;
    default:
        break;
    }
    return call(request, pid, address, data);
}

#else

long trace_dumped(int request, pid_t pid, void *address, void *data) {
    return call(request, pid, address, data);
}

#endif

} // namespace

// The system call writes what it has read, the C library returns it.
long trace(int request, pid_t pid, void *address, void *data) {
    const bool reads = request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER;
    long value = 0;
    const long done = node().dumped ? trace_dumped(request, pid, address, reads ? &value : data)
                                    : call(request, pid, address, reads ? &value : data);
    if (!reads || done < 0)
        return done;
    errno = 0;
    return value;
}

} // namespace singularity::as_user
