// SPDX-License-Identifier: GPL-2.0-or-later
// The functions that stand in for those of a newer glibc, beside this machine's own where it has them.
#include "cmocka.hpp"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-identifier-naming):
// glibc's own names
extern "C" {
unsigned long __isoc23_strtoul(const char *text, char **end, int base);
int __isoc23_sscanf(const char *text, const char *format, ...);
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-identifier-naming)

namespace {

void numbers_are_read_as_ever(void ** /*state*/) {
    char *end = nullptr;
    const char *const text = "0x1fz";
    assert_int_equal(__isoc23_strtoul(text, &end, 16), 0x1f);
    assert_ptr_equal(end, text + 4);
    errno = 0;
    assert_int_equal(__isoc23_strtoul("99999999999999999999", nullptr, 10), UINT64_MAX);
    assert_int_equal(errno, ERANGE);
    unsigned one = 0;
    char word[5]{};
    assert_int_equal(__isoc23_sscanf("1f-2a r-xp", "%x-%*x %4s", &one, word), 2);
    assert_int_equal(one, 0x1f);
    assert_string_equal(word, "r-xp");
    assert_int_equal(__isoc23_sscanf("no", "%x:%x", &one, &one), 0);
}

void random_numbers_differ(void ** /*state*/) {
    std::set<std::uint32_t> seen;
    for (int count = 0; count < 16; ++count)
        seen.insert(arc4random());
    assert_true(seen.size() > 8);
}

// As this machine's glibc finds them.
void code_is_found_in_its_library(void ** /*state*/) {
    using Find = int (*)(void *, dl_find_object *);
    void *const library = dlopen("libc.so.6", RTLD_NOW);
    assert_non_null(library);
    const auto theirs = reinterpret_cast<Find>(dlsym(library, "_dl_find_object"));
    assert_non_null(theirs);
    assert_true(theirs != &_dl_find_object);
    int here = 0;
    const auto block = std::make_unique<int>(0);
    for (void *const code : {reinterpret_cast<void *>(&code_is_found_in_its_library),
                             dlsym(library, "printf"), dlsym(library, "qsort"), static_cast<void *>(&here),
                             static_cast<void *>(block.get()), static_cast<void *>(nullptr)}) {
        dl_find_object own{};
        dl_find_object wanted{};
        const int found = theirs(code, &wanted);
        assert_int_equal(_dl_find_object(code, &own), found);
        if (found != 0)
            continue;
        assert_ptr_equal(own.dlfo_eh_frame, wanted.dlfo_eh_frame);
        assert_true(own.dlfo_map_start <= code && code < own.dlfo_map_end);
    }
    dlclose(library);
}

// Linked with -static-libgcc, as the libraries are: the unwinder asks ours.
void exceptions_are_caught(void ** /*state*/) {
    bool caught = false;
    try {
        throw std::runtime_error("thrown");
    } catch (const std::exception &error) {
        caught = std::strcmp(error.what(), "thrown") == 0;
    }
    assert_true(caught);
}

// By way of pthread_create, pthread_once, pthread_cond_clockwait and what else there is in libpthread.so.0.
void threads_wait_and_are_woken(void ** /*state*/) {
    using namespace std::chrono_literals;
    std::mutex lock;
    std::condition_variable changed;
    std::once_flag once;
    int begun = 0;
    bool go = false;
    const auto work = [&] {
        std::call_once(once, [&] { ++begun; });
        std::unique_lock held(lock);
        assert_true(changed.wait_for(held, 60s, [&] { return go; }));
    };
    std::thread first(work);
    std::thread second(work);
    {
        std::unique_lock held(lock);
        const auto from = std::chrono::steady_clock::now();
        assert_true(changed.wait_for(held, 20ms) == std::cv_status::timeout);
        assert_false(changed.wait_for(held, 1100ms, [] { return false; })); // longer than it waits at once
        assert_true(std::chrono::steady_clock::now() - from >= 1120ms);
        assert_true(changed.wait_until(held, from) == std::cv_status::timeout);
        go = true;
    }
    changed.notify_all();
    first.join();
    second.join();
    assert_int_equal(begun, 1);
}

void files_are_looked_at(void ** /*state*/) {
    struct stat about{};
    assert_int_equal(lstat("/dev/null", &about), 0);
    assert_true(S_ISCHR(about.st_mode));
    assert_int_equal(fstat(0, &about), 0);
    assert_int_equal(lstat("/dev/null/nothing", &about), -1);
    assert_int_equal(errno, ENOTDIR);
    assert_int_equal(fstat(-1, &about), -1);
    assert_int_equal(errno, EBADF);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_as_ever),     cmocka_unit_test(random_numbers_differ),
        cmocka_unit_test(code_is_found_in_its_library), cmocka_unit_test(exceptions_are_caught),
        cmocka_unit_test(threads_wait_and_are_woken),   cmocka_unit_test(files_are_looked_at),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
