// SPDX-License-Identifier: GPL-2.0-or-later
// Registered memory: pages that change their owner under a program that goes on writing to them.
#include "page_swap.hpp"

#include "cmocka.hpp"
#include "common/unique_fd.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace {

using namespace singularity;
using client::Range;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 64;
constexpr std::size_t kSize = kPages * kPage;

std::uint64_t number(const void *address) { return std::bit_cast<std::uint64_t>(address); }

// The program's memory, and a file with a second mapping.
struct Memory {
    Memory() : file(memfd_create("pages", MFD_CLOEXEC)) {
        assert_true(static_cast<bool>(file));
        assert_int_equal(ftruncate(file.get(), kSize), 0);
        own = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        alias = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
        assert_true(own != MAP_FAILED && alias != MAP_FAILED);
    }
    ~Memory() {
        munmap(own, kSize);
        munmap(alias, kSize);
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    Memory(Memory &&) = delete;
    Memory &operator=(Memory &&) = delete;

    [[nodiscard]] Range pages() const { return {.address = number(own), .size = kSize}; }

    UniqueFd file;
    void *own = nullptr;
    void *alias = nullptr;
};

void pages_keep_their_content_and_are_shared(void ** /*state*/) {
    const Memory memory;
    auto *const own = static_cast<std::uint8_t *>(memory.own);
    auto *const alias = static_cast<std::uint8_t *>(memory.alias);
    for (std::size_t at = 0; at < kSize; ++at)
        own[at] = static_cast<std::uint8_t>(at * 7 + at / kPage);
    assert_true(client::share_pages(memory.pages(), number(memory.alias), memory.file.get()));
    assert_memory_equal(own, alias, kSize);
    own[5] = 1;
    alias[kPage * 9] = 2;
    assert_memory_equal(own, alias, kSize);
    assert_true(client::unshare_pages(memory.pages(), number(memory.alias)));
    assert_memory_equal(own, alias, kSize);
    own[5] = 3;
    assert_int_equal(alias[5], 1);
}

// Each thread counts in places of its own on every page; what it has counted must be there at the end.
// What it is about is a race: others write while the pages are copied, and the kernel stops them.
#ifdef __SANITIZE_THREAD__
constexpr bool kRacesAreSeen = true;
#else
constexpr bool kRacesAreSeen = false;
#endif

void writes_of_other_threads_are_not_lost(void ** /*state*/) {
    if (kRacesAreSeen)
        test::skip("ThreadSanitizer does not know of userfaultfd(2)");
    if (!client::holds_writes_back())
        test::skip("userfaultfd(2) is not permitted, or the kernel is older than 6.4");
    constexpr std::size_t kThreads = 2;
    constexpr int kRounds = 200;
    const Memory memory;
    std::atomic<bool> stop = false;
    std::array<std::vector<std::uint64_t>, kThreads> counted;
    const auto place = [&](std::size_t page, std::size_t thread) -> std::atomic<std::uint64_t> & {
        auto *const at = static_cast<std::byte *>(memory.own) + page * kPage + thread * sizeof(std::uint64_t);
        return *std::launder(static_cast<std::atomic<std::uint64_t> *>(static_cast<void *>(at)));
    };
    for (std::size_t page = 0; page < kPages; ++page)
        for (std::size_t thread = 0; thread < kThreads; ++thread)
            new (&place(page, thread)) std::atomic<std::uint64_t>(0);
    {
        std::vector<std::jthread> threads;
        for (std::size_t thread = 0; thread < kThreads; ++thread)
            threads.emplace_back([&, thread] {
                auto &mine = counted.at(thread);
                mine.resize(kPages);
                for (std::size_t page = 0; !stop; page = (page + 1) % kPages) {
                    place(page, thread).fetch_add(1, std::memory_order_relaxed);
                    ++mine[page];
                }
            });
        for (int round = 0; round < kRounds; ++round) {
            assert_true(client::share_pages(memory.pages(), number(memory.alias), memory.file.get()));
            assert_true(client::unshare_pages(memory.pages(), number(memory.alias)));
        }
        stop = true;
    }
    for (std::size_t thread = 0; thread < kThreads; ++thread)
        for (std::size_t page = 0; page < kPages; ++page)
            assert_int_equal(place(page, thread).load(), counted.at(thread).at(page));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(pages_keep_their_content_and_are_shared),
        cmocka_unit_test(writes_of_other_threads_are_not_lost),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
