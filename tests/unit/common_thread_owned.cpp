// SPDX-License-Identifier: GPL-2.0-or-later
// What a thread has is there for the destructors of its thread_local variables, and is gone after them.
#include "cmocka.hpp"
#include "common/thread_owned.hpp"

#include <atomic>
#include <thread>
#include <vector>

namespace {

using singularity::ThreadOwned;

std::atomic<int> made{0};
std::atomic<int> ended{0};

struct Owned {
    Owned() { ++made; }
    Owned(const Owned &) = delete;
    Owned &operator=(const Owned &) = delete;
    Owned(Owned &&) = delete;
    Owned &operator=(Owned &&) = delete;
    ~Owned() { ++ended; }
    std::vector<int> numbers;
};

struct Late {
    std::vector<int> *seen = nullptr;
    int *ended_before = nullptr;
    ~Late() {
        if (seen == nullptr)
            return;
        *ended_before = ended;
        ThreadOwned<Owned>::mine().numbers.push_back(4);
        *seen = ThreadOwned<Owned>::mine().numbers;
    }
};

void test_each_thread_has_one_until_its_end(void ** /*state*/) {
    const int before = made;
    auto &mine = ThreadOwned<Owned>::mine();
    assert_ptr_equal(&mine, &ThreadOwned<Owned>::mine());
    assert_int_equal(made, before + 1);
    std::vector<int> seen;
    int ended_before = -1;
    std::thread([&] {
        // Made first, so destroyed last: after any thread_local that were made later.
        static thread_local Late late;
        late.seen = &seen;
        late.ended_before = &ended_before;
        ThreadOwned<Owned>::mine().numbers = {1, 2, 3};
        assert_ptr_not_equal(&mine, &ThreadOwned<Owned>::mine());
    }).join();
    assert_int_equal(ended_before, 0);
    assert_true(seen == (std::vector<int>{1, 2, 3, 4}));
    assert_int_equal(made, before + 2);
    assert_int_equal(ended, 1); // the other thread's; this one's lives as long as the process
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_each_thread_has_one_until_its_end),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
