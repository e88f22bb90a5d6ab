// SPDX-License-Identifier: GPL-2.0-or-later
#include "supervised.hpp"

#include "common/unique_fd.hpp"
#include "store_fixture.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

namespace singularity::test {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#else
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

constexpr std::chrono::minutes kPatience{2};

struct Watched {
    int number;
    std::string_view name;
    bool changes;
    bool named;  // arguments: a directory and a name in it; else a descriptor
    bool target; // two more arguments: where to
};

constexpr std::array kWatched{
    Watched{SYS_openat, "openat", true, true, false},
    Watched{SYS_mkdirat, "mkdirat", true, true, false},
    Watched{SYS_renameat, "renameat", true, true, true},
    Watched{SYS_unlinkat, "unlinkat", true, true, false},
    Watched{SYS_pwrite64, "pwrite64", true, false, false},
    Watched{SYS_ftruncate, "ftruncate", true, false, false},
    Watched{SYS_fsync, "fsync", true, false, false},
    Watched{SYS_fdatasync, "fdatasync", true, false, false},
    Watched{SYS_pread64, "pread64", false, false, false},
    Watched{SYS_getdents64, "getdents64", false, false, false},
};

// What is not watched happens as if there were no filter. Returns the descriptor on which calls are told.
int install_filter() {
    std::vector<sock_filter> program;
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
    for (const Watched &watched : kWatched) {
        program.push_back(
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(watched.number), 0, 1));
        program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
    }
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return static_cast<int>(
        ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter));
}

// One descriptor as a message, and a byte to carry it.
struct Parcel {
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{nullptr, 0, &part, 1, control.data(), control.size(), 0};
};

bool send_descriptor(int socket, int descriptor) {
    Parcel parcel;
    cmsghdr *header = CMSG_FIRSTHDR(&parcel.message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    return ::sendmsg(socket, &parcel.message, 0) == 1;
}

UniqueFd receive_descriptor(int socket) {
    Parcel parcel;
    if (::recvmsg(socket, &parcel.message, MSG_CMSG_CLOEXEC) != 1)
        return {};
    const cmsghdr *header = CMSG_FIRSTHDR(&parcel.message);
    if (header == nullptr || header->cmsg_type != SCM_RIGHTS)
        return {};
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return UniqueFd(descriptor);
}

std::string name_in(pid_t thread, std::uint64_t address) {
    std::array<char, 4096> text{};
    // A page at a time: the next one may not be there.
    std::size_t size = std::min<std::size_t>(text.size(), 4096 - (address % 4096));
    for (int part = 0; part < 2; ++part) {
        const iovec here{text.data(), size};
        const iovec there{reinterpret_cast<void *>(address), // NOLINT: of another process
                          size};
        if (::process_vm_readv(thread, &here, 1, &there, 1, 0) != static_cast<ssize_t>(size))
            return {};
        if (std::memchr(text.data(), 0, size) != nullptr)
            break;
        size = text.size();
    }
    return text.data();
}

fs::path path_of(pid_t thread, std::uint64_t descriptor) {
    std::error_code error;
    return fs::read_symlink(fmt::format("/proc/{}/fd/{}", thread, static_cast<int>(descriptor)), error);
}

// Nothing for a call that has nothing to do with the directory, or changes nothing although it could.
std::optional<Call> call_of(const seccomp_notif &told, const fs::path &directory) {
    const auto watched = std::ranges::find(kWatched, told.data.nr, &Watched::number);
    assert_true(watched != kWatched.end());
    const auto thread = static_cast<pid_t>(told.pid);
    const auto &arguments = told.data.args;
    Call call;
    call.thread = thread;
    call.name = watched->name;
    call.changes = watched->changes;
    const auto below = [&directory](const fs::path &path) {
        if (!path.native().starts_with(directory.native()))
            return std::string();
        return "/" + path.lexically_relative(directory).native();
    };
    if (!watched->named) {
        call.file = static_cast<int>(arguments[0]);
        call.path = below(path_of(thread, arguments[0]));
    } else {
        if (told.data.nr == SYS_openat && (arguments[2] & O_CREAT) == 0)
            return std::nullopt;
        call.path = below(path_of(thread, arguments[0]) / name_in(thread, arguments[1]));
        if (watched->target)
            call.to = below(path_of(thread, arguments[2]) / name_in(thread, arguments[3]));
    }
    if (call.path.empty())
        return std::nullopt;
    return call;
}

class Supervisor {
  public:
    Supervisor(pid_t child, UniqueFd told, fs::path directory)
        : child_(child), told_(std::move(told)), directory_(std::move(directory)) {}

    Outcome run(const std::function<Verdict(const Call &)> &decide) {
        const auto deadline = Deadline::after(kPatience);
        Outcome outcome;
        while (wait(deadline)) {
            seccomp_notif told{};
            if (::ioctl(told_.get(), SECCOMP_IOCTL_NOTIF_RECV, &told) != 0) {
                if (errno == ENOENT || errno == EINTR)
                    continue; // its thread has been killed meanwhile
                fail(std::string("SECCOMP_IOCTL_NOTIF_RECV: ") + std::strerror(errno));
            }
            seccomp_notif_resp response{told.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE};
            auto call = call_of(told, directory_);
            if (outcome.killed) {
                refuse(response); // a thread that has not noticed yet
            } else if (call) {
                call->number = outcome.calls++;
                apply(decide(*call), *call, response, outcome);
            }
            // Fails where there is nobody any more to answer.
            (void)::ioctl(told_.get(), SECCOMP_IOCTL_NOTIF_SEND, &response);
        }
        const int status = wait_for(child_);
        if (WIFSIGNALED(status) && !(outcome.killed && WTERMSIG(status) == SIGKILL))
            fail(fmt::format("the process ended by signal {}", WTERMSIG(status)));
        outcome.killed = WIFSIGNALED(status);
        outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
        return outcome;
    }

  private:
    // False: it has ended.
    bool wait(const Deadline &deadline) {
        pollfd poll{told_.get(), POLLIN, 0};
        const int ready = ::poll(&poll, 1, deadline.poll_timeout());
        if (ready == 0) {
            ::kill(child_, SIGKILL);
            fail("the process hangs");
        }
        return ready < 0 || (poll.revents & POLLIN) != 0;
    }

    static void refuse(seccomp_notif_resp &response) {
        response.flags = 0;
        response.error = -EIO;
    }

    void apply(const Verdict &verdict, const Call &call, seccomp_notif_resp &response, Outcome &outcome) {
        if (std::holds_alternative<Proceed>(verdict))
            return;
        response.flags = 0;
        if (const auto *failing = std::get_if<Fail>(&verdict))
            response.error = -failing->code;
        if (!std::holds_alternative<Kill>(verdict))
            return;
        ::kill(child_, SIGKILL);
        refuse(response);
        outcome.killed = true;
        outcome.last = text_of(call);
    }

    pid_t child_;
    UniqueFd told_;
    fs::path directory_;
};

} // namespace

fs::path descriptor_of(const Call &call) { return fmt::format("/proc/{}/fd/{}", call.thread, call.file); }

std::string text_of(const Call &call) {
    return call.to.empty() ? fmt::format("{} {}", call.name, call.path)
                           : fmt::format("{} {} -> {}", call.name, call.path, call.to);
}

Outcome supervise(const fs::path &directory, const std::function<int()> &body,
                  const std::function<Verdict(const Call &)> &decide) {
    int ends[2];
    assert_int_equal(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const pid_t child = start_process([&] {
        const int told = install_filter();
        if (told < 0 || !send_descriptor(ends[1], told))
            ::_exit(99);
        ::close(told);
        ::close(ends[0]);
        ::close(ends[1]);
        ::_exit(body());
        return false;
    });
    ::close(ends[1]);
    UniqueFd told = receive_descriptor(ends[0]);
    ::close(ends[0]);
    if (!told)
        fail("seccomp(2) does not tell of system calls here: Linux 5.5 or newer is needed");
    return Supervisor(child, std::move(told), directory).run(decide);
}

} // namespace singularity::test
