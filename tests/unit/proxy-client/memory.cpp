// SPDX-License-Identifier: GPL-2.0-or-later
// Ranges, the slab allocator and windows.
#include "cmocka.hpp"
#include "ranges.hpp"
#include "slab_allocator.hpp"
#include "window.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include <sys/mman.h>

using namespace singularity;
using namespace singularity::client;

namespace {

constexpr std::uint64_t kUnit = SlabAllocator::kUnit;

// Slabs of nothing: only what is mapped is remembered.
class Source : public SlabSource {
  public:
    std::expected<std::uint64_t, int> map(std::uint64_t size, std::uint64_t alignment) override {
        if (limit_ < size)
            return std::unexpected(2);
        const auto address = free_.allocate(size, alignment);
        if (!address)
            return std::unexpected(2);
        limit_ -= size;
        mapped_[*address] = size;
        ++maps;
        return *address;
    }
    void unmap(Range slab) override {
        const auto found = mapped_.find(slab.address);
        if (found == mapped_.end() || found->second != slab.size)
            test::fail("a slab was given back that was not handed out");
        mapped_.erase(found);
        free_.release(slab);
        limit_ += slab.size;
    }
    [[nodiscard]] bool holds(std::uint64_t address, std::uint64_t size) const {
        const auto after = mapped_.upper_bound(address);
        if (after == mapped_.begin())
            return false;
        const auto &[begin, length] = *std::prev(after);
        return Range{.address = begin, .size = length}.contains(address, size);
    }
    [[nodiscard]] std::size_t slabs() const { return mapped_.size(); }
    void set_limit(std::uint64_t bytes) { limit_ = bytes; }

    int maps = 0;

  private:
    RangeAllocator free_{Range{.address = std::uint64_t{1} << 44, .size = std::uint64_t{1} << 40}};
    std::map<std::uint64_t, std::uint64_t> mapped_;
    std::uint64_t limit_ = ~std::uint64_t{0};
};

void ranges_are_cut_and_joined(void ** /*state*/) {
    RangeAllocator ranges(Range{.address = 1000, .size = 1000});
    assert_int_equal(*ranges.allocate(100, 256), 1024);
    assert_int_equal(ranges.free_bytes(), 900);
    assert_true(ranges.allocate_at({.address = 1900, .size = 100}));
    assert_false(ranges.allocate_at({.address = 1850, .size = 100}));
    assert_false(ranges.allocate_at({.address = 1990, .size = 20}));
    assert_false(ranges.allocate(900, 1).has_value());
    ranges.release({.address = 1900, .size = 100});
    ranges.release({.address = 1024, .size = 100});
    assert_int_equal(*ranges.allocate(1000, 8), 1000);
    assert_false(ranges.allocate(1, 1).has_value());
}

void ranges_stay_right_under_any_order(void ** /*state*/) {
    std::mt19937_64 random(7);
    constexpr std::uint64_t kSize = 1 << 16;
    RangeAllocator ranges(Range{.address = kSize, .size = kSize});
    std::vector<Range> held;
    std::uint64_t used = 0;
    for (int step = 0; step < 20000; ++step) {
        if (random() % 2 == 0) {
            const auto size = random() % 700 + 1;
            const auto alignment = std::uint64_t{1} << random() % 8;
            const auto address = ranges.allocate(size, alignment);
            if (!address)
                continue;
            assert_int_equal(*address % alignment, 0);
            const Range range{.address = *address, .size = size};
            assert_true(range.address >= kSize && range.end() <= 2 * kSize);
            for (const auto &other : held)
                assert_true(range.end() <= other.address || other.end() <= range.address);
            held.push_back(range);
            used += size;
        } else if (!held.empty()) {
            const auto at = random() % held.size();
            ranges.release(held[at]);
            used -= held[at].size;
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
        }
        assert_int_equal(ranges.free_bytes(), kSize - used);
    }
    for (const auto &range : held)
        ranges.release(range);
    assert_int_equal(*ranges.allocate(kSize, 1), kSize);
}

void things_are_found_by_their_addresses(void ** /*state*/) {
    RangeMap<int> map;
    map.add({.address = 100, .size = 10}, 1);
    map.add({.address = 200, .size = 10}, 2);
    assert_null(map.find(99));
    assert_int_equal(map.find(100)->thing, 1);
    assert_int_equal(map.find(109)->thing, 1);
    assert_null(map.find(110));
    assert_int_equal(map.find_exact(200)->thing, 2);
    assert_null(map.find_exact(201));
    assert_true(map.overlaps({.address = 105, .size = 1}));
    assert_true(map.overlaps({.address = 0, .size = 101}));
    assert_false(map.overlaps({.address = 110, .size = 90}));
    map.remove(100);
    assert_null(map.find(100));
}

void small_allocations_share_a_slab(void ** /*state*/) {
    Source source;
    SlabAllocator memory(source);
    const auto first = memory.allocate(1);
    const auto second = memory.allocate(1000);
    assert_true(first && second);
    assert_int_equal(source.slabs(), 1);
    assert_int_equal(*first % SlabAllocator::kAlignment, 0);
    assert_int_equal(*second - *first, SlabAllocator::kAlignment);
    assert_int_equal(memory.find(*second + 999)->address, *second);
    assert_false(memory.find(*second + 1000).has_value()); // its room is larger, it is not
    assert_int_equal(*memory.release(*second), 1000);
    assert_false(memory.release(*second).has_value());
    assert_false(memory.find(*second).has_value());
}

void large_allocations_have_their_own(void ** /*state*/) {
    Source source;
    SlabAllocator memory(source);
    const auto large = memory.allocate(3 * kUnit + 1);
    assert_true(large.has_value());
    assert_int_equal(*large % kUnit, 0);
    assert_int_equal(source.slabs(), 1);
    assert_int_equal(memory.free_bytes(), 0);
    assert_int_equal(memory.used_bytes(), 4 * kUnit);
    const auto other = memory.allocate(3 * kUnit + 1);
    assert_true(other && *other != *large);
}

void a_loop_of_allocation_asks_once(void ** /*state*/) {
    Source source;
    SlabAllocator memory(source);
    for (int round = 0; round < 100; ++round) {
        const auto large = memory.allocate(5 * kUnit);
        const auto small = memory.allocate(5000);
        assert_true(large && small);
        assert_true(memory.release(*large) && memory.release(*small));
    }
    assert_int_equal(source.maps, 2);
    assert_int_equal(source.slabs(), 2);
    memory.trim();
    assert_int_equal(source.slabs(), 0);
}

void empty_slabs_go_but_for_one(void ** /*state*/) {
    Source source;
    SlabAllocator memory(source);
    std::vector<std::uint64_t> held;
    for (int count = 0; count < 8; ++count)
        held.push_back(*memory.allocate(2 * kUnit));
    assert_int_equal(source.slabs(), 8);
    for (const auto address : held)
        assert_true(memory.release(address).has_value());
    assert_int_equal(source.slabs(), 1);
}

void what_is_kept_is_given_up_for_what_is_needed(void ** /*state*/) {
    Source source;
    source.set_limit(8 * kUnit);
    SlabAllocator memory(source);
    const auto first = memory.allocate(6 * kUnit);
    assert_true(first && memory.release(*first));
    assert_int_equal(source.slabs(), 1);
    assert_true(memory.allocate(8 * kUnit).has_value());
    const auto none = memory.allocate(1);
    assert_false(none.has_value());
    assert_int_equal(none.error(), 2);
    assert_false(memory.allocate(~std::uint64_t{0}).has_value());
}

void allocations_never_overlap(void ** /*state*/) {
    std::mt19937_64 random(11);
    Source source;
    SlabAllocator memory(source);
    std::vector<Range> held;
    for (int step = 0; step < 5000; ++step) {
        if (random() % 5 < 3) {
            const auto size = random() % 8 == 0 ? random() % (8 * kUnit) + 1 : random() % 100000 + 1;
            const auto address = memory.allocate(size);
            assert_true(address.has_value());
            assert_true(source.holds(*address, size));
            const Range range{.address = *address, .size = size};
            for (const auto &other : held)
                assert_true(range.end() <= other.address || other.end() <= range.address);
            held.push_back(range);
        } else if (!held.empty()) {
            const auto at = random() % held.size();
            assert_int_equal(*memory.release(held[at].address), held[at].size);
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
        }
    }
    for (const auto &range : held) {
        assert_int_equal(memory.find(range.address + range.size / 2)->address, range.address);
        assert_true(memory.release(range.address).has_value());
    }
    assert_int_equal(memory.used_bytes(), 0);
    memory.trim();
    assert_int_equal(source.slabs(), 0);
}

void a_window_is_cut_into_slices(void ** /*state*/) {
    const Range whole{.address = 0x2000'0000'0000, .size = std::uint64_t{2} << 40};
    for (std::size_t devices = 1; devices <= 8; ++devices) {
        const auto plan = plan_window(whole, devices);
        assert_int_equal(plan.slice_of(whole.address), 0);
        std::uint64_t end = plan.host().end();
        for (std::size_t device = 0; device < devices; ++device) {
            const auto slice = plan.device(device);
            assert_int_equal(slice.address, end);
            assert_int_equal(plan.slice_of(slice.address), device + 1);
            assert_int_equal(plan.slice_of(slice.end() - 1), device + 1);
            end = slice.end();
        }
        assert_true(end <= whole.end());
        assert_true(plan.slice >= std::uint64_t{200} << 30);
    }
}

void a_window_keeps_others_out(void ** /*state*/) {
    // Where ThreadSanitizer lets it be.
    const Range whole{.address = 0x5500'0000'0000, .size = std::uint64_t{1} << 38};
    const auto reserved = reserve_window(whole);
    if (!reserved)
        test::fail(reserved.error().message());
    const auto again = reserve_window({.address = whole.address + (1 << 20), .size = 1 << 20});
    assert_false(again.has_value());
    assert_int_equal(again.error().code, EEXIST);
    void *const elsewhere =
        mmap(std::bit_cast<void *>(whole.address), 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(elsewhere != MAP_FAILED);
    assert_false(whole.contains(std::bit_cast<std::uint64_t>(elsewhere)));
    munmap(elsewhere, 4096);
    release_window(whole);
    assert_true(reserve_window(whole).has_value());
    release_window(whole);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_cut_and_joined),
        cmocka_unit_test(ranges_stay_right_under_any_order),
        cmocka_unit_test(things_are_found_by_their_addresses),
        cmocka_unit_test(small_allocations_share_a_slab),
        cmocka_unit_test(large_allocations_have_their_own),
        cmocka_unit_test(a_loop_of_allocation_asks_once),
        cmocka_unit_test(empty_slabs_go_but_for_one),
        cmocka_unit_test(what_is_kept_is_given_up_for_what_is_needed),
        cmocka_unit_test(allocations_never_overlap),
        cmocka_unit_test(a_window_is_cut_into_slices),
        cmocka_unit_test(a_window_keeps_others_out),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
