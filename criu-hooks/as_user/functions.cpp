// SPDX-License-Identifier: GPL-2.0-or-later
// The C library's functions by which criu opens, makes, links, binds, removes and changes files by their
// names. System calls alone do the work: criu has no C++ library.
#include "calls.hpp"
#include "cgroups.hpp"
#include "places.hpp"
#include "switch.hpp"

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

namespace singularity::as_user {
namespace {

bool is_refused(long done) { return done < 0 && (errno == EACCES || errno == EPERM); }

// Of names of the node's, as the user. What fails is done as root where no user can change what the name
// leads to: a library that the system's packages have removed and a process has mapped is made again where
// it was.
template <typename... Arguments>
int act(int directory, const char *name, long number, Arguments... arguments) {
    if (!is_of_node(directory, name))
        return static_cast<int>(syscall(number, arguments...));
    long done = -1;
    {
        const Switch to_user;
        done = syscall(number, arguments...);
    }
    if (is_refused(done) && is_below_roots_directories(directory, name))
        done = syscall(number, arguments...);
    return static_cast<int>(done);
}

// Nothing is made or changed. In a dump the user looks first, with root's rights added: there are file
// systems that let root do nothing (root_squash), and some forget a name that root has asked for in vain.
template <typename... Arguments>
int look(int directory, const char *name, long number, Arguments... arguments) {
    if (!node().dumped)
        return act(directory, name, number, arguments...);
    long done = -1;
    {
        const Switch to_user;
        done = syscall(number, arguments...);
    }
    return static_cast<int>(is_refused(done) ? syscall(number, arguments...) : done);
}

// "/proc/27/status", as the kernel names what is open: a file of a process of the node's.
bool is_of_process(int fd) {
    constexpr const char *kProc = "/proc/";
    std::array<char, 64> link{};
    std::array<char, 64> name{};
    std::snprintf(link.data(), link.size(), "/proc/thread-self/fd/%d", fd);
    const auto size = syscall(SYS_readlink, link.data(), name.data(), name.size() - 1);
    return size > 0 && std::strncmp(name.data(), kProc, std::strlen(kProc)) == 0 &&
           name[std::strlen(kProc)] >= '0' && name[std::strlen(kProc)] <= '9' && is_in_proc(fd);
}

// By the inode that the user has reached: nobody can put another one in its place.
int open_again(int there, int flags) {
    std::array<char, 64> link{};
    std::snprintf(link.data(), link.size(), "/proc/thread-self/fd/%d", there);
    const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, link.data(), flags & ~O_NOFOLLOW, 0));
    struct stat wanted{};
    struct stat found{};
    if (fd < 0 || (fstat(there, &wanted) == 0 && fstat(fd, &found) == 0 && wanted.st_dev == found.st_dev &&
                   wanted.st_ino == found.st_ino))
        return fd;
    close(fd);
    errno = EACCES;
    return -1;
}

// What the user may not open so by its name now, and what the program can have all the same.
int open_what_is_reached(int directory, const char *name, int flags) {
    int there = -1;
    bool may_execute = false;
    {
        const Switch to_user;
        there = static_cast<int>(syscall(SYS_openat, directory, name,
                                         O_PATH | O_CLOEXEC | (flags & (O_NOFOLLOW | O_DIRECTORY)), 0));
        may_execute = there >= 0 && syscall(SYS_faccessat2, there, "", X_OK, AT_EMPTY_PATH | AT_EACCESS) == 0;
    }
    struct stat about{};
    if (there < 0)
        return -1;
    int opened = -1;
    if (fstat(there, &about) == 0) {
        if (S_ISDIR(about.st_mode) && may_execute && about.st_uid != node().uid)
            return there; // it can be where the process is, and no more
        const bool is_program = S_ISREG(about.st_mode) && may_execute && (flags & O_ACCMODE) == O_RDONLY;
        if (about.st_uid == node().uid || // who could change its mode
            is_of_process(there) ||       // one that is root's until it is complete
            (is_program && is_below_roots_directories(directory, name)))
            opened = open_again(there, flags);
        else
            errno = EACCES;
    }
    const int why = errno;
    close(there);
    errno = why;
    return opened;
}

int open_at(int directory, const char *name, int flags, mode_t mode) {
    if ((flags & O_CREAT) != 0)
        return act(directory, name, SYS_openat, directory, name, flags, mode);
    if (node().dumped)
        return look(directory, name, SYS_openat, directory, name, flags, mode);
    if (is_criu_s_own(name) || !is_of_node(directory, name))
        return static_cast<int>(syscall(SYS_openat, directory, name, flags, mode));
    int fd = -1;
    {
        const Switch to_user;
        fd = static_cast<int>(syscall(SYS_openat, directory, name, flags, mode));
    }
    if (!is_refused(fd))
        return fd;
    return open_what_is_reached(directory, name, flags);
}

// No name is followed.
int enter(int directory) {
    long done = syscall(SYS_fchdir, directory);
    if (is_refused(done) && node().restored) {
        const Switch to_user;
        done = syscall(SYS_fchdir, directory);
    }
    return static_cast<int>(done);
}

// The name of a Unix socket that has one in a file system.
const char *name_of(const sockaddr *address, socklen_t size, std::array<char, sizeof(sockaddr_un)> &name) {
    constexpr socklen_t kHead = offsetof(sockaddr_un, sun_path);
    if (address == nullptr || size <= kHead || size > sizeof(sockaddr_un) || address->sa_family != AF_UNIX)
        return nullptr;
    std::memcpy(name.data(), reinterpret_cast<const char *>(address) + kHead, size - kHead);
    return name[0] == '\0' ? nullptr : name.data();
}

// Before the node runs, its processes are criu's and root: that is not what the other end of their sockets
// may be told. The kernel keeps it from these calls on.
int listen_on(int socket, int backlog) {
    const PeerIds users;
    return static_cast<int>(syscall(SYS_listen, socket, backlog));
}
int make_pair(int domain, int type, int protocol, int *pair) {
    const PeerIds users;
    return static_cast<int>(syscall(SYS_socketpair, domain, type, protocol, pair));
}

// Who listens is told who has connected (SO_PEERCRED). What is connected here is of the node's own: a socket
// that its user has made, and it alone, whatever has its name meanwhile. criu's own, which it reaches through
// /proc, has no name any more.
int connect_to(int socket, const sockaddr *address, socklen_t size) {
    std::array<char, sizeof(sockaddr_un)> text{};
    const char *const name = name_of(address, size, text);
    if (!is_of_node(AT_FDCWD, name) || (*name != '/' && is_in_proc(AT_FDCWD)))
        return static_cast<int>(syscall(SYS_connect, socket, address, size));
    int there = -1;
    {
        const Switch to_user;
        there = static_cast<int>(syscall(SYS_openat, AT_FDCWD, name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0));
    }
    if (there < 0)
        return -1;
    struct stat about{};
    int done = -1;
    if (fstat(there, &about) == 0 && S_ISSOCK(about.st_mode) && about.st_uid == node().uid) {
        sockaddr_un reached{};
        reached.sun_family = AF_UNIX;
        std::snprintf(reached.sun_path, sizeof(reached.sun_path), "/proc/thread-self/fd/%d", there);
        const PeerIds users;
        done = static_cast<int>(syscall(SYS_connect, socket, &reached, sizeof(reached)));
    } else {
        errno = EACCES;
    }
    const int why = errno;
    close(there);
    errno = why;
    return done;
}

// By whatever name criu has for it: what its user may not read is only watched if it is the user's own.
int watch(int instance, const char *name, std::uint32_t events) {
    if (!node().restored)
        return static_cast<int>(syscall(SYS_inotify_add_watch, instance, name, events));
    long done = -1;
    {
        const Switch to_user;
        done = syscall(SYS_inotify_add_watch, instance, name, events);
    }
    struct stat about{};
    if (is_refused(done) && is_criu_s_own(name) && stat(name, &about) == 0 && about.st_uid == node().uid)
        done = syscall(SYS_inotify_add_watch, instance, name, events);
    return static_cast<int>(done);
}

// What a dump makes: another name for a file that has lost the one under which it was opened and has others.
bool is_link_of_dump(const char *name) {
    constexpr const char *kLinks = "link_remap.";
    const char *const last = std::strrchr(name, '/');
    return node().dumped && std::strncmp(last == nullptr ? name : last + 1, kLinks, std::strlen(kLinks)) == 0;
}

// With the user's rights alone: the directory is the user's. AT_EMPTY_PATH would need root's.
int link_in_dump(int file, int directory, const char *name) {
    std::array<char, 64> link{};
    std::snprintf(link.data(), link.size(), "/proc/thread-self/fd/%d", file);
    const Switch to_user(Rights::kUsers);
    return static_cast<int>(syscall(SYS_linkat, AT_FDCWD, link.data(), directory, name, AT_SYMLINK_FOLLOW));
}

// A timer of /proc/PID/timers that signals the first thread of a process ("notify: signal/tid.27"): CRIU 4.2
// looks for the thread's id in the node where it has not put it yet, and fails or writes whatever is there.
// With 0 it writes none; a restore puts it in its place (../host/timers.hpp).
[[gnu::format(scanf, 2, 0)]] int read_timer(const char *text, const char *format, va_list values) {
    va_list three;
    va_copy(three, values);
    const int read = std::vsscanf(text, format, values);
    static_cast<void>(va_arg(three, char *));
    static_cast<void>(va_arg(three, char *));
    auto *const thread = va_arg(three, pid_t *);
    va_end(three);
    const bool is_thread = read == 3 && std::strstr(text, "/tid.") != nullptr;
    if (is_thread && syscall(SYS_tgkill, *thread, *thread, 0) == 0) // no other is of the group with its id
        *thread = 0;
    return read;
}

bool is_of_timer(const char *format) {
    constexpr const char *kFormat = "notify: %6[a-z]/%3[a-z].%d";
    return node().dumped && std::strncmp(format, kFormat, std::strlen(kFormat)) == 0;
}

int unlink_at(int directory, const char *name, int flags) {
    if (!is_link_of_dump(name))
        return act(directory, name, SYS_unlinkat, directory, name, flags);
    const Switch to_user(Rights::kUsers);
    return static_cast<int>(syscall(SYS_unlinkat, directory, name, flags));
}

} // namespace
} // namespace singularity::as_user

using singularity::as_user::act;
using singularity::as_user::look;
using singularity::as_user::open_at;

// As the C library declares them.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): its own names are reserved
#pragma GCC visibility push(default)
extern "C" {

int open64(const char *name, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open_at(AT_FDCWD, name, flags, mode);
}
int openat64(int directory, const char *name, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open_at(directory, name, flags, mode);
}
int bind(int socket, const sockaddr *address, socklen_t size) noexcept {
    std::array<char, sizeof(sockaddr_un)> name{};
    return act(AT_FDCWD, singularity::as_user::name_of(address, size, name), SYS_bind, socket, address, size);
}
char *mkdtemp(char *name) noexcept {
    using Make = char *(char *);
    auto *const make = reinterpret_cast<Make *>(dlsym(RTLD_NEXT, "mkdtemp"));
    char *const made = make == nullptr ? nullptr : make(name);
    if (made != nullptr)
        singularity::as_user::remember_directory(made);
    return made;
}
int connect(int socket, const sockaddr *address, socklen_t size) {
    return singularity::as_user::connect_to(socket, address, size);
}
int listen(int socket, int backlog) noexcept { return singularity::as_user::listen_on(socket, backlog); }
int socketpair(int domain, int type, int protocol, int pair[2]) noexcept {
    return singularity::as_user::make_pair(domain, type, protocol, pair);
}
int inotify_add_watch(int instance, const char *name, std::uint32_t events) noexcept {
    return singularity::as_user::watch(instance, name, events);
}
int mkdirat(int directory, const char *name, mode_t mode) noexcept {
    return act(directory, name, SYS_mkdirat, directory, name, mode);
}
int mknod(const char *name, mode_t mode, dev_t device) noexcept {
    return act(AT_FDCWD, name, SYS_mknodat, AT_FDCWD, name, mode, device);
}
int symlink(const char *target, const char *name) noexcept {
    return act(AT_FDCWD, name, SYS_symlinkat, target, AT_FDCWD, name);
}
int linkat(int from_directory, const char *from, int directory, const char *name, int flags) noexcept {
    if ((flags & AT_EMPTY_PATH) != 0 && *from == '\0' && singularity::as_user::is_link_of_dump(name))
        return singularity::as_user::link_in_dump(from_directory, directory, name);
    return act(directory, name, SYS_linkat, from_directory, from, directory, name, flags);
}
int rename(const char *from, const char *name) noexcept {
    return act(AT_FDCWD, name, SYS_renameat2, AT_FDCWD, from, AT_FDCWD, name, 0);
}
int unlink(const char *name) noexcept { return act(AT_FDCWD, name, SYS_unlinkat, AT_FDCWD, name, 0); }
int unlinkat(int directory, const char *name, int flags) noexcept {
    return singularity::as_user::unlink_at(directory, name, flags);
}
int rmdir(const char *name) noexcept {
    return act(AT_FDCWD, name, SYS_unlinkat, AT_FDCWD, name, AT_REMOVEDIR);
}
int fchownat(int directory, const char *name, uid_t uid, gid_t gid, int flags) noexcept {
    return act(directory, name, SYS_fchownat, directory, name, uid, gid, flags);
}
int fchmodat(int directory, const char *name, mode_t mode, int flags) noexcept {
    if (flags != 0) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return act(directory, name, SYS_fchmodat, directory, name, mode);
}
int lutimes(const char *name, const timeval times[2]) noexcept {
    constexpr long kNanoseconds = 1000; // in a microsecond
    std::array<timespec, 2> exact{};
    for (std::size_t i = 0; i < exact.size(); ++i)
        exact[i] = {.tv_sec = times[i].tv_sec, .tv_nsec = times[i].tv_usec * kNanoseconds};
    return act(AT_FDCWD, name, SYS_utimensat, AT_FDCWD, name, exact.data(), AT_SYMLINK_NOFOLLOW);
}
int access(const char *name, int mode) noexcept {
    // In a restore its ids are all the same but for those that change here.
    const int whose = singularity::as_user::node().restored ? AT_EACCESS : 0;
    return look(AT_FDCWD, name, SYS_faccessat2, AT_FDCWD, name, mode, whose);
}
int fstatat64(int directory, const char *name, struct stat64 *about, int flags) noexcept {
    return look(directory, name, SYS_newfstatat, directory, name, about, flags);
}
int fchdir(int directory) noexcept { return singularity::as_user::enter(directory); }
int stat64(const char *name, struct stat64 *about) noexcept {
    return look(AT_FDCWD, name, SYS_newfstatat, AT_FDCWD, name, about, 0);
}
// Each of criu's new processes but the first asks first of all who it is outside, and then who it is inside.
ssize_t readlinkat(int directory, const char *name, char *target, std::size_t size) noexcept {
    if (singularity::as_user::node().restored && std::strcmp(name, "self") == 0)
        singularity::as_user::remember_proc(directory);
    return syscall(SYS_readlinkat, directory, name, target, size);
}
pid_t getpid() noexcept {
    const auto pid = static_cast<pid_t>(syscall(SYS_getpid));
    singularity::as_user::enter_cgroups(pid);
    return pid;
}
[[gnu::format(scanf, 2, 3)]] int __isoc23_sscanf(const char *text, const char *format, ...) noexcept {
    va_list values;
    va_start(values, format);
    const int read = singularity::as_user::is_of_timer(format)
                         ? singularity::as_user::read_timer(text, format, values)
                         : std::vsscanf(text, format, values);
    va_end(values);
    return read;
}
long ptrace(enum __ptrace_request request, ...) noexcept {
    va_list more;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wvarargs" // the C library's own type, which is no smaller than an int
    va_start(more, request);
#pragma GCC diagnostic pop
    const auto pid = va_arg(more, pid_t);
    auto *const address = va_arg(more, void *);
    auto *const data = va_arg(more, void *);
    va_end(more);
    return singularity::as_user::trace(static_cast<int>(request), pid, address, data);
}
int chdir(const char *name) noexcept { return act(AT_FDCWD, name, SYS_chdir, name); }

} // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
#pragma GCC visibility pop
