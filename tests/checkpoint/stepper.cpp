// SPDX-License-Identifier: GPL-2.0-or-later
// Takes the place of singularity-worker in a directory of links that an agent under test has as its library
// directory. Runs the real one in the process that the agent has started, and tells a test of each system
// call with an effect before it happens, its criu's included. The test may let it happen, make it fail, or
// kill anybody first. What criu makes is not traced: a seccomp filter would stay with a restored program for
// ever, therefore ptrace(2).
//
// Environment: STEPPER_PROGRAM the real program; STEPPER_SOCKET where the test listens (SOCK_SEQPACKET). The
// test says "free", or "tell" and directories of which reads are told as well, all with '\0' in between.
// It is told PID, program, kind (change, read, act), call, path, second path, and answers "go", "fail ERRNO"
// or "free": no more questions.
#include "common/unique_fd.hpp"
#include "common/unix_socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#if !defined(__x86_64__)
#error "the names of registers are x86-64's"
#endif

namespace {

using singularity::UniqueFd;

enum class Names : std::uint8_t {
    none,
    path,
    at,
    at_two,
    path_two,
    link_at,
    link_path,
    descriptor,
    second_descriptor
};

struct Watched {
    long number;
    std::string_view name;
    std::string_view kind;
    Names names;
};

constexpr std::string_view kChange = "change";
constexpr std::string_view kRead = "read";
constexpr std::string_view kAct = "act";

constexpr std::array kWatched{
    Watched{SYS_open, "open", kChange, Names::path},
    Watched{SYS_openat, "openat", kChange, Names::at},
    Watched{SYS_creat, "creat", kChange, Names::path},
    Watched{SYS_mkdir, "mkdir", kChange, Names::path},
    Watched{SYS_mkdirat, "mkdirat", kChange, Names::at},
    Watched{SYS_rmdir, "rmdir", kChange, Names::path},
    Watched{SYS_unlink, "unlink", kChange, Names::path},
    Watched{SYS_unlinkat, "unlinkat", kChange, Names::at},
    Watched{SYS_rename, "rename", kChange, Names::path_two},
    Watched{SYS_renameat, "renameat", kChange, Names::at_two},
    Watched{SYS_renameat2, "renameat2", kChange, Names::at_two},
    Watched{SYS_link, "link", kChange, Names::path_two},
    Watched{SYS_linkat, "linkat", kChange, Names::at_two},
    Watched{SYS_symlink, "symlink", kChange, Names::link_path},
    Watched{SYS_symlinkat, "symlinkat", kChange, Names::link_at},
    Watched{SYS_chmod, "chmod", kChange, Names::path},
    Watched{SYS_write, "write", kChange, Names::descriptor},
    Watched{SYS_writev, "writev", kChange, Names::descriptor},
    Watched{SYS_pwrite64, "pwrite64", kChange, Names::descriptor},
    Watched{SYS_sendfile, "sendfile", kChange, Names::descriptor},
    Watched{SYS_copy_file_range, "copy_file_range", kChange, Names::second_descriptor},
    Watched{SYS_splice, "splice", kChange, Names::second_descriptor},
    Watched{SYS_ftruncate, "ftruncate", kChange, Names::descriptor},
    Watched{SYS_fsync, "fsync", kChange, Names::descriptor},
    Watched{SYS_fdatasync, "fdatasync", kChange, Names::descriptor},
    Watched{SYS_read, "read", kRead, Names::descriptor},
    Watched{SYS_readv, "readv", kRead, Names::descriptor},
    Watched{SYS_pread64, "pread64", kRead, Names::descriptor},
    Watched{SYS_preadv, "preadv", kRead, Names::descriptor},
    Watched{SYS_getdents64, "getdents64", kRead, Names::descriptor},
    Watched{SYS_connect, "connect", kAct, Names::descriptor},
    Watched{SYS_sendto, "sendto", kAct, Names::descriptor},
    Watched{SYS_sendmsg, "sendmsg", kAct, Names::descriptor},
    Watched{SYS_clone, "clone", kAct, Names::none},
    Watched{SYS_clone3, "clone3", kAct, Names::none},
    Watched{SYS_fork, "fork", kAct, Names::none},
    Watched{SYS_vfork, "vfork", kAct, Names::none},
    Watched{SYS_execve, "execve", kAct, Names::path},
    Watched{SYS_exit_group, "exit_group", kAct, Names::none},
    Watched{SYS_kill, "kill", kAct, Names::none},
    Watched{SYS_ptrace, "ptrace", kAct, Names::none},
    Watched{SYS_setns, "setns", kAct, Names::none},
    Watched{SYS_unshare, "unshare", kAct, Names::none},
    Watched{SYS_mount, "mount", kAct, Names::none},
    Watched{SYS_umount2, "umount2", kAct, Names::none},
    Watched{SYS_flock, "flock", kAct, Names::descriptor},
    Watched{SYS_setsockopt, "setsockopt", kAct, Names::descriptor},
};

std::string link_of(const std::string &path) {
    std::array<char, 4096> text{};
    const ssize_t size = ::readlink(path.c_str(), text.data(), text.size());
    return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string();
}

std::string file_of(pid_t thread, std::uint64_t descriptor) {
    return link_of(fmt::format("/proc/{}/fd/{}", thread, static_cast<int>(descriptor)));
}

std::string text_at(pid_t thread, std::uint64_t address) {
    std::array<char, 4096> text{};
    // A page at a time: the next one may not be there.
    std::size_t size = text.size() - (address % text.size());
    for (int part = 0; part < 2; ++part) {
        const iovec here{text.data(), size};
        const iovec there{reinterpret_cast<void *>(address), size}; // NOLINT: of another process
        if (::process_vm_readv(thread, &here, 1, &there, 1, 0) != static_cast<ssize_t>(size))
            return {};
        if (std::memchr(text.data(), 0, size) != nullptr)
            return text.data();
        size = text.size();
    }
    return {};
}

std::string path_at(pid_t thread, std::uint64_t directory, std::uint64_t name) {
    auto text = text_at(thread, name);
    if (text.starts_with('/'))
        return text;
    const bool here = static_cast<int>(directory) == AT_FDCWD;
    return (here ? link_of(fmt::format("/proc/{}/cwd", thread)) : file_of(thread, directory)) + "/" + text;
}

constexpr auto kHere = static_cast<std::uint64_t>(AT_FDCWD);

struct Call {
    std::string_view name;
    std::string_view kind;
    std::string path;
    std::string to;
};

Call call_of(pid_t thread, const Watched &watched, const std::uint64_t (&arguments)[6]) { // NOLINT: ptrace's
    Call call{.name = watched.name, .kind = watched.kind, .path = {}, .to = {}};
    switch (watched.names) {
    case Names::none:
        if (watched.number == SYS_ptrace)
            call.path = std::to_string(arguments[0]);
        break;
    case Names::path:
        call.path = path_at(thread, kHere, arguments[0]);
        break;
    case Names::at:
        call.path = path_at(thread, arguments[0], arguments[1]);
        break;
    case Names::path_two:
        call.path = path_at(thread, kHere, arguments[0]);
        call.to = path_at(thread, kHere, arguments[1]);
        break;
    case Names::at_two:
        call.path = path_at(thread, arguments[0], arguments[1]);
        call.to = path_at(thread, arguments[2], arguments[3]);
        break;
    case Names::link_path:
        call.path = path_at(thread, kHere, arguments[1]);
        break;
    case Names::link_at:
        call.path = path_at(thread, arguments[1], arguments[2]);
        break;
    case Names::descriptor:
        call.path = file_of(thread, arguments[0]);
        break;
    case Names::second_descriptor:
        call.path = file_of(thread, arguments[2]);
        break;
    }
    std::uint64_t flags = O_RDWR;
    if (watched.number == SYS_open)
        flags = arguments[1];
    if (watched.number == SYS_openat)
        flags = arguments[2];
    if ((flags & O_PATH) != 0 || (flags & (O_ACCMODE | O_CREAT | O_TRUNC)) == 0)
        call.kind = kRead;
    return call;
}

bool is_question(const Call &call, std::uint64_t first) {
    // What only looks.
    return call.name != "ptrace" ||
           (first != PTRACE_PEEKTEXT && first != PTRACE_PEEKDATA && first != PTRACE_PEEKUSER &&
            first != PTRACE_GETREGS && first != PTRACE_GETREGSET && first != PTRACE_GETSIGINFO &&
            first != PTRACE_PEEKSIGINFO);
}

struct Process {
    pid_t pid = 0;
    std::string program;
};

Process process_of(pid_t thread) {
    Process process;
    std::ifstream status(fmt::format("/proc/{}/status", thread));
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("Tgid:"))
            process.pid = std::atoi(line.c_str() + 5); // NOLINT: the kernel's
        if (line.starts_with("Name:"))
            process.program = line.substr(6);
    }
    return process;
}

class Stepper {
  public:
    Stepper(UniqueFd test, std::vector<std::string> directories, pid_t worker)
        : test_(std::move(test)), directories_(std::move(directories)), worker_(worker) {}

    // Until nothing is left of the worker and its criu.
    void run() {
        int status = 0;
        for (;;) {
            const pid_t thread = ::waitpid(-1, &status, __WALL);
            if (thread < 0 && errno == EINTR)
                continue;
            if (thread < 0)
                return;
            if (WIFSTOPPED(status))
                stopped(thread, status);
            else
                failing_.erase(thread);
        }
    }

  private:
    void stopped(pid_t thread, int status) {
        const int signal = WSTOPSIG(status);
        const int event = status >> 16;
        auto request = telling_ ? PTRACE_SYSCALL : PTRACE_CONT;
        if (signal == (SIGTRAP | 0x80))
            at_call(thread);
        else if (event == PTRACE_EVENT_EXEC && thread != worker_)
            ::ptrace(PTRACE_SETOPTIONS, thread, nullptr,
                     PTRACE_O_TRACESYSGOOD); // what criu makes is not ours
        else if (event == PTRACE_EVENT_STOP && signal != SIGTRAP)
            request = PTRACE_LISTEN;
        const long deliver = event == 0 && signal != (SIGTRAP | 0x80) ? signal : 0;
        // Fails where somebody has killed it.
        ::ptrace(request, thread, nullptr, deliver);
    }

    void at_call(pid_t thread) {
        __ptrace_syscall_info info{};
        if (!telling_ || ::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(info), &info) <= 0)
            return;
        if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
            if (const auto found = failing_.find(thread); found != failing_.end()) {
                change(thread, [&](user_regs_struct &registers) {
                    registers.rax = static_cast<unsigned long long>(-found->second);
                });
                failing_.erase(found);
            }
            return;
        }
        const auto number = static_cast<long>(info.entry.nr);
        const auto *const watched = std::ranges::find(kWatched, number, &Watched::number);
        if (info.op != PTRACE_SYSCALL_INFO_ENTRY || watched == kWatched.end())
            return;
        std::uint64_t arguments[6]; // NOLINT: as in the kernel's struct
        std::ranges::copy(info.entry.args, arguments);
        const auto call = call_of(thread, *watched, arguments);
        if (!is_question(call, arguments[0]) || (call.kind == kRead && !is_below(call.path)))
            return;
        if (const int code = ask(thread, call); code != 0) {
            failing_[thread] = code;
            change(thread, [](user_regs_struct &registers) { registers.orig_rax = ~0ULL; });
        }
    }

    template <class Change>
    static void change(pid_t thread, const Change &what) {
        user_regs_struct registers{};
        if (::ptrace(PTRACE_GETREGS, thread, nullptr, &registers) != 0)
            return;
        what(registers);
        ::ptrace(PTRACE_SETREGS, thread, nullptr, &registers);
    }

    [[nodiscard]] bool is_below(const std::string &path) const {
        return std::ranges::any_of(
            directories_, [&](const auto &one) { return path.starts_with(one + "/") || path == one; });
    }

    // The errno value that the call is to have; 0: it happens.
    int ask(pid_t thread, const Call &call) {
        const auto process = process_of(thread);
        auto line = fmt::format("{}", process.pid);
        for (const std::string_view part : {std::string_view(process.program), call.kind, call.name,
                                            std::string_view(call.path), std::string_view(call.to)}) {
            line += '\0';
            line += part;
        }
        std::array<char, 64> answer{};
        if (::send(test_.get(), line.data(), line.size(), MSG_NOSIGNAL) < 0 ||
            ::recv(test_.get(), answer.data(), answer.size() - 1, 0) <= 0 ||
            std::string_view(answer.data()) == "free") {
            telling_ = false;
            return 0;
        }
        constexpr std::string_view kFail = "fail ";
        const std::string_view text(answer.data());
        return text.starts_with(kFail) ? std::atoi(answer.data() + kFail.size()) : 0; // NOLINT: the test's
    }

    UniqueFd test_;
    std::vector<std::string> directories_;
    pid_t worker_;
    bool telling_ = true;
    std::map<pid_t, int> failing_;
};

UniqueFd connect_to(const char *path) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    auto address = singularity::unix_address(path);
    if (!socket || !address ||
        ::connect(socket.get(), reinterpret_cast<const sockaddr *>(&*address), sizeof(*address)) != 0)
        return {};
    return socket;
}

std::vector<std::string> hello(const UniqueFd &test) {
    std::array<char, 4096> text{};
    const ssize_t size = ::recv(test.get(), text.data(), text.size(), 0);
    std::vector<std::string> parts;
    std::string_view left(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
    while (!left.empty()) {
        const auto end = std::min(left.find('\0'), left.size());
        parts.emplace_back(left.substr(0, end));
        left.remove_prefix(std::min(end + 1, left.size()));
    }
    return parts;
}

// In a process of its own that is nobody's child: the worker has none that it does not know of.
[[noreturn]] void step(pid_t worker, UniqueFd test, std::vector<std::string> directories, int attached) {
    ::prctl(PR_SET_NAME, "worker-stepper"); // who looks for workers takes it for none
    const int kept = ::fcntl(test.release(), F_DUPFD_CLOEXEC, 16);
    const int ready = ::fcntl(attached, F_DUPFD_CLOEXEC, 16);
    const std::pair<int, int> both = std::minmax(kept, ready);
    ::close_range(3, static_cast<unsigned>(both.first) - 1, 0);
    ::close_range(static_cast<unsigned>(both.second) + 1, ~0U, 0);
    constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                              PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC;
    if (::ptrace(PTRACE_SEIZE, worker, nullptr, kOptions) != 0 || ::write(ready, "", 1) != 1)
        ::_exit(EXIT_FAILURE);
    ::close(ready);
    Stepper(UniqueFd(kept), std::move(directories), worker).run();
    ::_exit(EXIT_SUCCESS);
}

int fail(const char *what) {
    fmt::print(stderr, "stepper: {}: {}\n", what, std::strerror(errno));
    return EXIT_FAILURE;
}

} // namespace

int main(int /*argc*/, char **argv) {
    const char *const program = std::getenv("STEPPER_PROGRAM");
    const char *const place = std::getenv("STEPPER_SOCKET");
    if (program == nullptr || place == nullptr)
        return fail("STEPPER_PROGRAM and STEPPER_SOCKET are needed");
    UniqueFd test = connect_to(place);
    const auto wish = test ? hello(test) : std::vector<std::string>();
    if (!wish.empty() && wish.front() == "tell") {
        int ends[2]; // NOLINT: pipe2's
        if (::pipe2(ends, O_CLOEXEC) != 0)
            return fail("pipe2");
        const pid_t worker = ::getpid();
        const pid_t between = ::fork();
        if (between == 0) {
            if (::fork() == 0)
                step(worker, std::move(test), {wish.begin() + 1, wish.end()}, ends[1]);
            ::_exit(EXIT_SUCCESS);
        }
        ::close(ends[1]);
        ::waitpid(between, nullptr, 0);
        char byte = 0;
        if (::read(ends[0], &byte, 1) != 1)
            return fail("ptrace(2) does not attach to the worker");
        ::close(ends[0]);
    }
    test.reset();
    ::execv(program, argv);
    return fail(program);
}
