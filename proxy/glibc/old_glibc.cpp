// SPDX-License-Identifier: GPL-2.0-or-later
// What libraries that are loaded into programs need of glibc beyond 2.34, which is that of the machine on
// which they are built: programs bring an older one, in containers. Each is defined here, hidden, in terms of
// what has always been there.
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-identifier-naming):
// glibc's own names
#include <bit>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SINGULARITY_HIDDEN [[gnu::visibility("hidden"), gnu::used]]

// 2.34, when they came from libpthread.so.0 and libdl.so.2 to libc.so.6, and 2.32: the functions as they have
// been since 2.2.5, wherever they are. These libraries are named when ours is linked.
#define SINGULARITY_AS_OF(version, name)                                                                     \
    __asm__(".symver old_" #name ", " #name "@GLIBC_" version "\n"                                           \
            ".pushsection .text\n.globl " #name "\n.hidden " #name "\n.type " #name ", @function\n" #name    \
            ":\n\tendbr64\n\tjmp *old_" #name "@GOTPCREL(%rip)\n.size " #name ", . - " #name                 \
            "\n.popsection")
SINGULARITY_AS_OF("2.2.5", dlerror);
SINGULARITY_AS_OF("2.2.5", dlopen);
SINGULARITY_AS_OF("2.2.5", dlsym);
SINGULARITY_AS_OF("2.2.5", pthread_create);
SINGULARITY_AS_OF("2.2.5", pthread_detach);
SINGULARITY_AS_OF("2.2.5", pthread_getspecific);
SINGULARITY_AS_OF("2.2.5", pthread_join);
SINGULARITY_AS_OF("2.2.5", pthread_key_create);
SINGULARITY_AS_OF("2.2.5", pthread_key_delete);
SINGULARITY_AS_OF("2.2.5", pthread_once);
SINGULARITY_AS_OF("2.2.5", pthread_rwlock_rdlock);
SINGULARITY_AS_OF("2.2.5", pthread_rwlock_unlock);
SINGULARITY_AS_OF("2.2.5", pthread_rwlock_wrlock);
SINGULARITY_AS_OF("2.12", pthread_setname_np);
SINGULARITY_AS_OF("2.2.5", pthread_setspecific);
SINGULARITY_AS_OF("2.2.5", pthread_sigmask);

extern "C" {

// 2.38: names that <stdlib.h> and <stdio.h> give to functions that read binary numbers as well.
unsigned long old_strtoul(const char *text, char **end, int base) __asm__("strtoul");
int old_vsscanf(const char *text, const char *format, va_list arguments) __asm__("vsscanf");

SINGULARITY_HIDDEN unsigned long __isoc23_strtoul(const char *text, char **end, int base) {
    return old_strtoul(text, end, base);
}

// NOLINTNEXTLINE(cert-dcl50-cpp): as glibc declares it
SINGULARITY_HIDDEN int __isoc23_sscanf(const char *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int count = old_vsscanf(text, format, arguments);
    va_end(arguments);
    return count;
}

// 2.33: as the kernel has them.
SINGULARITY_HIDDEN int fstat(int fd, struct stat *buf) noexcept {
    return static_cast<int>(syscall(SYS_fstat, fd, buf));
}
SINGULARITY_HIDDEN int lstat(const char *file, struct stat *buf) noexcept {
    return static_cast<int>(syscall(SYS_lstat, file, buf));
}

// 2.32, for libstdc++: whoever does not know takes it that there are several threads.
[[gnu::visibility("hidden")]] extern char __libc_single_threaded;
char __libc_single_threaded = 0;

// 2.30, for std::condition_variable: by the clock that conditions have, which somebody may set meanwhile. The
// time left is looked at again after a second.
SINGULARITY_HIDDEN int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                              clockid_t clock_id, const timespec *abstime) {
    constexpr long kNanoseconds = 1'000'000'000;
    const auto now = [](clockid_t clock) {
        timespec out{};
        clock_gettime(clock, &out);
        return out;
    };
    const auto at = now(clock_id);
    const auto left = ((abstime->tv_sec - at.tv_sec) * kNanoseconds) + (abstime->tv_nsec - at.tv_nsec);
    if (left <= 0)
        return ETIMEDOUT;
    auto until = now(CLOCK_REALTIME);
    const auto sum = until.tv_nsec + (left < kNanoseconds ? left : kNanoseconds);
    until.tv_sec += sum / kNanoseconds;
    until.tv_nsec = sum % kNanoseconds;
    const int result = pthread_cond_timedwait(cond, mutex, &until);
    return result == ETIMEDOUT && left > kNanoseconds ? 0
                                                      : result; // as if woken for nothing: callers look again
}

// 2.36: of libstdc++, for std::random_device. Never fails, as glibc's.
SINGULARITY_HIDDEN std::uint32_t arc4random() {
    std::uint32_t out = 0;
    while (getrandom(&out, sizeof(out), 0) != static_cast<ssize_t>(sizeof(out)))
        ; // so few bytes come whole, unless a signal comes first
    return out;
}

// 2.35: of libgcc, for exceptions. Slower than glibc's.
SINGULARITY_HIDDEN int _dl_find_object(void *__address, dl_find_object *__result) {
    struct Search {
        std::uintptr_t code;
        dl_find_object *result;
    } search{std::bit_cast<std::uintptr_t>(__address), __result};
    const auto look = [](dl_phdr_info *object, std::size_t /*size*/, void *data) {
        const auto &wanted = *static_cast<Search *>(data);
        std::uintptr_t begin = UINTPTR_MAX;
        std::uintptr_t end = 0;
        std::uintptr_t frames = 0;
        bool is_here = false;
        for (std::size_t at = 0; at < object->dlpi_phnum; ++at) {
            const auto &part = object->dlpi_phdr[at];
            const auto from = object->dlpi_addr + part.p_vaddr;
            if (part.p_type == PT_GNU_EH_FRAME)
                frames = from;
            if (part.p_type != PT_LOAD)
                continue;
            begin = from < begin ? from : begin;
            end = from + part.p_memsz > end ? from + part.p_memsz : end;
            is_here = is_here || (wanted.code >= from && wanted.code - from < part.p_memsz);
        }
        if (!is_here)
            return 0;
        *wanted.result = {};
        wanted.result->dlfo_map_start = std::bit_cast<void *>(begin);
        wanted.result->dlfo_map_end = std::bit_cast<void *>(end);
        wanted.result->dlfo_eh_frame = std::bit_cast<void *>(frames);
        return 1;
    };
    return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}

} // extern "C"
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-identifier-naming)
