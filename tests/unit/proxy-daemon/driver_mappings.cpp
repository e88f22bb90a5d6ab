// SPDX-License-Identifier: GPL-2.0-or-later
// The driver's mappings lie where its own calls say, whatever else the process maps.
#include "driver_mappings.hpp"

#include "cmocka.hpp"

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <sys/mman.h>

using namespace singularity;
using namespace singularity::proxyd;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

template <class Function>
Function *in_library(const char *name) {
    static void *const library = dlopen(SINGULARITY_MAPPING_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    auto *const found = std::bit_cast<Function *>(dlsym(library, name));
    assert_non_null(found);
    return found;
}

std::uintptr_t map(std::size_t size, void *wish = nullptr) {
    void *const mapped = in_library<void *(void *, std::size_t)>("map_somewhere")(wish, size);
    assert_true(mapped != MAP_FAILED);
    return std::bit_cast<std::uintptr_t>(mapped);
}

void unmap(std::uintptr_t address, std::size_t size) {
    assert_int_equal(munmap(std::bit_cast<void *>(address), size), 0);
}

bool is_placed(std::uintptr_t address) { return address >= kMappingsBegin && address < kMappingsEnd; }

// What the process maps beside it: threads' stacks, malloc's arenas and large blocks.
void map_other_things() {
    std::vector<std::thread> threads;
    for (int index = 0; index < 8; ++index)
        threads.emplace_back([] {
            for (std::size_t size = 16; size < 64 * kMiB; size *= 3)
                std::free(std::malloc(size));
        });
    for (auto &thread : threads)
        thread.join();
    void *const own = mmap(nullptr, 16 * kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_false(is_placed(std::bit_cast<std::uintptr_t>(own)));
}

void they_depend_on_the_librarys_own_alone(void ** /*state*/) {
    const auto before = map(2 * kMiB);
    assert_false(is_placed(before)); // nobody has said whose
    assert_false(place_mappings_of(nullptr).has_value());
    assert_true(
        place_mappings_of(std::bit_cast<void *>(in_library<void *(void *, std::size_t)>("map_somewhere")))
            .has_value());

    const auto first = map(32 * kMiB);
    assert_true(is_placed(first));
    map_other_things();
    const auto small = map(4096);
    assert_true(is_placed(small));
    const auto second = map(32 * kMiB);
    assert_int_equal(second, first + 32 * kMiB);
    map_other_things();
    // Seventeen to thirty-two: the next slot of the same size.
    const auto third = map(17 * kMiB);
    assert_int_equal(third, second + 32 * kMiB);
    assert_int_equal(map(4096), small + 4096);
    const auto by_other_name =
        std::bit_cast<std::uintptr_t>(in_library<void *(std::size_t)>("map64_somewhere")(32 * kMiB));
    assert_int_equal(by_other_name, third + 32 * kMiB);

    // What was given back is the first to be had again.
    unmap(second, 32 * kMiB);
    unmap(first, 32 * kMiB);
    map_other_things();
    assert_int_equal(map(32 * kMiB), first);
    assert_int_equal(map(31 * kMiB), second);
}

std::uintptr_t map_for(std::uint64_t session, std::size_t size) {
    const MappingsOf its(session);
    return map(size);
}

// What a session maps depends on nobody else's, whoever else maps before it; also where a process has only
// that one.
void those_of_a_session_lie_apart(void ** /*state*/) {
    const auto first = map_for(7, 2 * kMiB);
    const auto second = map_for(7, 2 * kMiB);
    assert_true(is_placed(first));
    assert_int_equal(second, first + 2 * kMiB);
    unmap(first, 2 * kMiB);
    unmap(second, 2 * kMiB);
    std::vector<std::uintptr_t> others;
    for (std::uint64_t session = 1; session <= kPieces; ++session)
        if (session != 7)
            for (int count = 0; count < 3; ++count)
                others.push_back(map_for(session, 2 * kMiB));
    others.push_back(map(2 * kMiB)); // nobody's
    std::thread([&] { others.push_back(map(2 * kMiB)); }).join();
    assert_int_equal(map_for(7, 2 * kMiB), first);
    assert_int_equal(map_for(7, 2 * kMiB), second);
    // Numbers that have no piece of their own share one.
    assert_int_equal(map_for(7 + kPieces, 2 * kMiB), second + 2 * kMiB);
    for (const auto one : {first, second, second + 2 * kMiB})
        unmap(one, 2 * kMiB);
    for (const auto one : others)
        unmap(one, 2 * kMiB);
    // There are no slots of this size for each: it lies where nobody's would.
    const auto large = map(std::size_t{32} << 30);
    unmap(large, std::size_t{32} << 30);
    assert_int_equal(map_for(7, std::size_t{32} << 30), large);
    unmap(large, std::size_t{32} << 30);
}

void what_is_asked_for_by_address_lies_there(void ** /*state*/) {
    const auto first = map(8 * kMiB);
    unmap(first, 8 * kMiB);
    auto *const wish = std::bit_cast<void *>(first + 8 * kMiB);
    assert_int_equal(map(4096, wish), first + 8 * kMiB);
    assert_int_equal(map(8 * kMiB), first);
    // The slot behind it is taken.
    assert_int_equal(map(8 * kMiB), first + 16 * kMiB);
}

void what_does_not_fit_is_the_kernels(void ** /*state*/) {
    const auto large = map(std::size_t{1} << 40);
    assert_false(is_placed(large));
    unmap(large, std::size_t{1} << 40);
    void *const nothing = in_library<void *(void *, std::size_t)>("map_somewhere")(nullptr, 0);
    assert_true(nothing == MAP_FAILED);
    assert_int_equal(errno, EINVAL);
    std::vector<std::uintptr_t> all;
    for (int index = 0; index < 5000; ++index)
        all.push_back(map(std::size_t{2} << 20));
    assert_false(is_placed(all.back()));
    for (const auto one : all)
        unmap(one, std::size_t{2} << 20);
    assert_true(is_placed(map(2 * kMiB)));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(they_depend_on_the_librarys_own_alone),
        cmocka_unit_test(those_of_a_session_lie_apart),
        cmocka_unit_test(what_is_asked_for_by_address_lies_there),
        cmocka_unit_test(what_does_not_fit_is_the_kernels),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
