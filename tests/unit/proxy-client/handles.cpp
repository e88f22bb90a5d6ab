// SPDX-License-Identifier: GPL-2.0-or-later
// The table of objects behind handles.
#include "handles.hpp"

#include "cmocka.hpp"

#include <thread>
#include <vector>

using namespace singularity;
using namespace singularity::client;

namespace {

constexpr unsigned kKind = 7;

std::unique_ptr<Object> object(std::uint64_t owner = 0) {
    auto made = std::make_unique<Object>();
    made->owner = owner;
    return made;
}

void a_handle_says_its_kind(void ** /*state*/) {
    const auto handle = handle_value(kKind, 12345);
    assert_int_equal(kind_of(handle), kKind);
    assert_int_equal(index_of(handle), 12345);
    assert_int_equal(kind_of(handle + 1), 0);
    assert_int_equal(kind_of(0), 0);
    assert_int_equal(kind_of(0x7fff'0000'0000), 0);
    assert_int_equal(kind_of(handle_value(19, ~0U)), 19);
    assert_int_equal(index_of(handle_value(19, ~0U)), ~0U);
}

void only_what_was_added_is_found(void ** /*state*/) {
    HandleTable table(kKind);
    const auto first = table.reserve();
    const auto second = table.reserve();
    assert_true(first != second);
    assert_null(table.find(first));
    table.add(first, object(1));
    assert_int_equal(table.find(first)->owner, 1);
    assert_int_equal(table.find(first)->handle, first);
    assert_null(table.find(second));
    assert_null(table.find(handle_value(kKind + 1, index_of(first))));
    assert_null(table.find(handle_value(kKind, 1U << 30)));
    assert_non_null(table.remove(first).get());
    assert_null(table.find(first));
    assert_null(table.remove(first).get());
}

void numbers_are_not_used_again(void ** /*state*/) {
    HandleTable table(kKind);
    std::uint64_t before = 0;
    for (int round = 0; round < 100000; ++round) {
        const auto handle = table.reserve();
        assert_true(handle > before);
        before = handle;
        table.add(handle, object());
        assert_non_null(table.find(handle));
        assert_non_null(table.remove(handle).get());
        assert_null(table.find(handle));
    }
}

void what_the_daemon_names_is_taken_in(void ** /*state*/) {
    HandleTable table(kKind);
    const auto named = handle_value(kKind, kChosenByDaemon | 5);
    assert_null(table.find(named));
    auto *const adopted = table.adopt(named, [] { return object(9); });
    assert_int_equal(adopted->owner, 9);
    assert_ptr_equal(table.adopt(named, [] { return object(10); }), adopted);
    assert_null(table.adopt(handle_value(kKind, 77), [] { return object(); }));
    assert_null(table.adopt(handle_value(kKind + 1, kChosenByDaemon), [] { return object(); }));
    assert_non_null(table.remove(named).get());
}

void those_of_an_owner_go_together(void ** /*state*/) {
    HandleTable table(kKind);
    std::vector<std::uint64_t> handles;
    for (std::uint64_t count = 0; count < 5000; ++count) {
        handles.push_back(table.reserve());
        table.add(handles.back(), object(count % 3));
    }
    const auto removed = table.remove_if([](const Object &each) { return each.owner == 1; });
    for (std::size_t count = 0; count < handles.size(); ++count)
        assert_true((table.find(handles[count]) == nullptr) == (count % 3 == 1));
    assert_int_equal(removed.size(), 1667);
}

void threads_find_what_others_add(void ** /*state*/) {
    HandleTable table(kKind);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < 4; ++thread)
        threads.emplace_back([&, thread] {
            std::vector<std::uint64_t> mine;
            for (int round = 0; round < 20000; ++round) {
                const auto handle = table.reserve();
                table.add(handle, object(thread));
                mine.push_back(handle);
                const auto *found = table.find(mine[mine.size() / 2]);
                if (found == nullptr || found->owner != thread)
                    ++wrong;
                if (mine.size() > 100) {
                    if (table.remove(mine.front()) == nullptr)
                        ++wrong;
                    mine.erase(mine.begin());
                }
            }
        });
    for (auto &thread : threads)
        thread.join();
    assert_int_equal(wrong.load(), 0);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_handle_says_its_kind),        cmocka_unit_test(only_what_was_added_is_found),
        cmocka_unit_test(numbers_are_not_used_again),    cmocka_unit_test(what_the_daemon_names_is_taken_in),
        cmocka_unit_test(those_of_an_owner_go_together), cmocka_unit_test(threads_find_what_others_add),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
