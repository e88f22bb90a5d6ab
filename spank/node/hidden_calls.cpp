// SPDX-License-Identifier: GPL-2.0-or-later
#include "hidden_calls.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::node {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

// Numbers that not every libc's headers have; the same on all architectures since Linux 5.1.
constexpr std::uint32_t kIoUringSetup = 425;
constexpr std::uint32_t kLandlockCreateRuleset = 444;
constexpr std::uint32_t kMemfdSecret = 447;
constexpr std::uint32_t kMseal = 462;

struct HiddenCall {
    std::uint32_t number;
    int error;
};
constexpr std::array kHiddenCalls{
    HiddenCall{kIoUringSetup, ENOSYS},          // rings are memory that the kernel works on
    HiddenCall{SYS_perf_event_open, ENOSYS},    // counters of this machine
    HiddenCall{SYS_fanotify_init, ENOSYS},      // marks that nobody can read
    HiddenCall{kMemfdSecret, ENOSYS},           // memory that even root cannot read
    HiddenCall{kLandlockCreateRuleset, ENOSYS}, // restrictions that a restored program would not have
    HiddenCall{kMseal, ENOSYS},                 // likewise
    HiddenCall{SYS_pkey_alloc, ENOSPC},         // as without the processor's feature: keys of memory are lost
};

struct HiddenSocket {
    std::uint32_t argument; // of socket(2): 0, the family, or 2, the protocol
    std::uint32_t value;
    int error;
};
constexpr std::uint32_t kFamily = 0;
constexpr std::uint32_t kProtocol = 2;
constexpr std::uint32_t kMultipathTcp = 262;   // IPPROTO_MPTCP
constexpr std::uint32_t kSharedMemoryTcp = 43; // AF_SMC
constexpr std::array kHiddenSockets{
    HiddenSocket{kProtocol, kMultipathTcp, EPROTONOSUPPORT},
    HiddenSocket{kFamily, AF_ALG, EAFNOSUPPORT},
    HiddenSocket{kFamily, kSharedMemoryTcp, EAFNOSUPPORT},
};

sock_filter load(std::size_t offset) {
    return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}
// The next instruction is skipped if the loaded word has the value, or if it has not.
sock_filter skip_if(std::uint32_t value) { return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0); }
sock_filter skip_unless(std::uint32_t value) { return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1); }
sock_filter answer(int error) {
    return BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error));
}
sock_filter allow() { return BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW); }

// The lower half of an argument: what the kernel takes of an int.
std::size_t argument(std::uint32_t number) {
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    return offsetof(seccomp_data, args) + (number * sizeof(std::uint64_t));
}

std::vector<sock_filter> filter_program() {
    // Calls of 32-bit programs have other numbers, and go through.
    std::vector<sock_filter> program{load(offsetof(seccomp_data, arch)), skip_if(kArchitecture), allow(),
                                     load(offsetof(seccomp_data, nr))};
    for (const HiddenCall &call : kHiddenCalls) {
        program.push_back(skip_unless(call.number));
        program.push_back(answer(call.error));
    }
    program.push_back(skip_if(SYS_socket));
    program.push_back(allow());
    for (const HiddenSocket &socket : kHiddenSockets) {
        program.push_back(load(argument(socket.argument)));
        program.push_back(skip_unless(socket.value));
        program.push_back(answer(socket.error));
    }
    program.push_back(allow());
    return program;
}

} // namespace

Expected<void> hide_unsavable_calls() {
    auto program = filter_program();
    const sock_fprog filter{.len = static_cast<unsigned short>(program.size()), .filter = program.data()};
    // Without the flag, kernels before 5.16 also slow all of its memory accesses down.
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &filter) != 0)
        return std::unexpected(errno_error("hide", "the system calls that no checkpoint can hold"));
    return {};
}

} // namespace singularity::node
