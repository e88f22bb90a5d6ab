// SPDX-License-Identifier: GPL-2.0-or-later
#include "node_maker.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <fmt/core.h>
#include <grp.h>
#include <linux/sched.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

namespace checkpoint {
namespace {

using singularity::errno_error;
using singularity::Expected;
using singularity::UniqueFd;

constexpr int kFailed = 125;

// The child has nobody to hand an error to.
void must(bool condition, std::string_view what) {
    if (condition)
        return;
    fmt::print(stderr, "node: cannot {}: {}\n", what, std::strerror(errno));
    _exit(kFailed);
}

void mount_new(const char *type, const std::string &where, const char *options) {
    mkdir(where.c_str(), 0755); // may be there
    must(mount(type, where.c_str(), type, MS_NOSUID, options) == 0, "mount " + where);
}

void bind_mount(const std::filesystem::path &from, const std::filesystem::path &to) {
    must(mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0, "bind " + to.string());
}

void make_devices(const std::string &dev) {
    mount_new("tmpfs", dev, "mode=755,size=1m");
    struct Device {
        const char *name;
        unsigned minor;
        unsigned major = 1;
    };
    for (const Device &each : {Device{"null", 3}, Device{"zero", 5}, Device{"full", 7}, Device{"random", 8},
                               Device{"urandom", 9}, Device{"tty", 0, 5}}) {
        const std::string path = dev + '/' + each.name;
        must(mknod(path.c_str(), S_IFCHR | 0666, makedev(each.major, each.minor)) == 0 &&
                 chmod(path.c_str(), 0666) == 0,
             "make " + path);
    }
    mount_new("devpts", dev + "/pts", "newinstance,ptmxmode=0666,mode=620,gid=5");
    must(symlink("pts/ptmx", (dev + "/ptmx").c_str()) == 0, "make /dev/ptmx");
    must(symlink("/proc/self/fd", (dev + "/fd").c_str()) == 0, "make /dev/fd");
    mount_new("tmpfs", dev + "/shm", "mode=1777");
    mount_new("mqueue", dev + "/mqueue", "");
}

bool raise_loopback() {
    const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    std::strcpy(static_cast<char *>(request.ifr_name), "lo");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    return ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0;
}

[[noreturn]] void become_init(const NodeSpec &spec) {
    const std::string root = spec.root.string();
    must(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "make mounts private");
    bind_mount(root, root); // its own copy, so that what is mounted below is seen by nobody else
    make_devices(root + "/dev");
    mount_new("tmpfs", root + "/tmp", "mode=1777");
    mount_new("tmpfs", root + "/run", "mode=755");
    std::filesystem::create_directories(root + spec.shared.string()); // in that /tmp
    bind_mount(spec.shared, root + spec.shared.string());
    must(chdir(root.c_str()) == 0 && syscall(SYS_pivot_root, ".", ".") == 0, "change the root");
    must(umount2(".", MNT_DETACH) == 0, "leave the old root");
    mount_new("proc", "/proc", "");
    must(sethostname("node", 4) == 0 && raise_loopback(), "name the node and raise its loopback");
    must(chdir(spec.shared.c_str()) == 0, "enter " + spec.shared.string());
    const UniqueFd nothing(open("/dev/null", O_RDONLY));
    must(spec.keep_input || dup2(nothing.get(), 0) == 0, "open /dev/null");
    must(syscall(SYS_close_range, 3U, ~0U, 0U) == 0, "close what was inherited");
    must(setsid() > 0 || errno == EPERM, "start a session");
    must(setgroups(0, nullptr) == 0 && setresgid(spec.gid, spec.gid, spec.gid) == 0 &&
             setresuid(spec.uid, spec.uid, spec.uid) == 0,
         "become the job's user");
    const std::string program = spec.shared.string() + "/init"; // a copy of this program
    std::vector<std::string> words{program, "init"};
    words.insert(words.end(), spec.command.begin(), spec.command.end());
    std::vector<char *> arguments;
    for (std::string &word : words)
        arguments.push_back(word.data());
    arguments.push_back(nullptr);
    std::array<const char *, 5> environment{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8",
                                            "HOME=/tmp", "OMP_NUM_THREADS=1", nullptr};
    execve(program.c_str(), arguments.data(), const_cast<char *const *>(environment.data()));
    must(false, "start the init");
    _exit(kFailed);
}

} // namespace

Expected<pid_t> start_node(const NodeSpec &spec) {
    clone_args arguments{};
    arguments.flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC;
    arguments.exit_signal = SIGCHLD;
    const auto pid = static_cast<pid_t>(syscall(SYS_clone3, &arguments, sizeof(arguments)));
    if (pid < 0)
        return std::unexpected(errno_error("make", "a virtual node"));
    if (pid == 0)
        become_init(spec);
    return pid;
}

int run_as_init(char **command) {
    signal(SIGTERM, SIG_IGN);
    const pid_t first = fork();
    if (first == 0) {
        signal(SIGTERM, SIG_DFL);
        execvp(command[0], command);
        fmt::print(stderr, "node: cannot start {}: {}\n", command[0], std::strerror(errno));
        _exit(kFailed);
    }
    int result = kFailed;
    for (;;) {
        int status = 0;
        const pid_t ended = wait(&status);
        if (ended < 0 && errno == EINTR)
            continue;
        if (ended < 0)
            return result;
        if (ended == first) {
            result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            return result; // the kernel ends the rest
        }
    }
}

Expected<UniqueFd> make_network() {
    std::array<int, 2> ready{};
    if (pipe2(ready.data(), O_CLOEXEC) != 0)
        return std::unexpected(errno_error("make", "a pipe"));
    const UniqueFd here(ready[0]);
    UniqueFd there(ready[1]);
    const pid_t pid = fork();
    if (pid == 0) {
        const bool good = unshare(CLONE_NEWNET) == 0 && raise_loopback();
        must(write(there.get(), good ? "y" : "n", 1) == 1, "report");
        pause();
    }
    there.reset();
    char answer = 0;
    Expected<UniqueFd> network =
        singularity::failure("make", "a network namespace", "unshare or loopback failed");
    if (read(here.get(), &answer, 1) == 1 && answer == 'y')
        network = singularity::open_file(fmt::format("/proc/{}/ns/net", pid), O_RDONLY);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return network;
}

} // namespace checkpoint
