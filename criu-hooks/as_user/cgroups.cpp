// SPDX-License-Identifier: GPL-2.0-or-later
#include "cgroups.hpp"

#include "criu-hooks/host/as_user.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::as_user {
namespace {

const Placed *the_table = nullptr;
std::size_t the_size = 0;
pid_t the_process = 0; // the last one to be here, criu at first: a new one finds its parent's
pid_t the_criu = 0;
int the_proc = -1; // criu's /proc, by the number that it has in this process

// criu takes its end for a failed restore, and its words are with criu's complaints.
[[noreturn]] void give_up(pid_t pid) {
    std::array<char, 128> words{};
    const int size =
        std::snprintf(words.data(), words.size(), "Error (cgroups): process %d cannot enter its cgroup: %s\n",
                      pid, std::strerror(errno)); // NOLINT(concurrency-mt-unsafe): it has one thread
    syscall(SYS_write, STDERR_FILENO, words.data(), static_cast<std::size_t>(size));
    _exit(EXIT_FAILURE);
}

// Processes have lost criu's descriptors but for a few when they are made: it is criu's that is opened anew.
bool enter_cgroup(int cgroup_procs) {
    std::array<char, 64> name{};
    std::snprintf(name.data(), name.size(), "%d/fd/%d", the_criu, cgroup_procs);
    const auto file = static_cast<int>(syscall(SYS_openat, the_proc, name.data(), O_WRONLY | O_CLOEXEC, 0));
    if (file < 0)
        return false;
    const bool entered = write(file, "0", 1) == 1;
    const int why = errno;
    close(file);
    errno = why;
    return entered;
}

} // namespace

bool read_table(int file) {
    struct stat about{};
    if (fstat(file, &about) != 0 || about.st_size % static_cast<off_t>(sizeof(Placed)) != 0)
        return false;
    const auto size = static_cast<std::size_t>(about.st_size);
    if (size != 0) {
        void *const there = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
        if (there == MAP_FAILED)
            return false;
        the_table = static_cast<const Placed *>(there);
    }
    the_size = size / sizeof(Placed);
    the_criu = the_process = static_cast<pid_t>(syscall(SYS_getpid));
    return close(file) == 0;
}

void remember_proc(int proc) { the_proc = proc; }

// Where criu no longer looks who it is, nobody is moved: what it makes is where criu is.
void enter_cgroups(pid_t pid) {
    if (the_size == 0 || pid == the_process || the_proc < 0)
        return;
    the_process = pid;
    for (std::size_t at = 0; at < the_size; ++at)
        if (the_table[at].pid == pid && !enter_cgroup(the_table[at].cgroup_procs))
            give_up(pid);
}

} // namespace singularity::as_user
