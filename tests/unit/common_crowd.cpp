// SPDX-License-Identifier: GPL-2.0-or-later
// Who loses a place when all are taken.
#include "cmocka.hpp"
#include "common/crowd.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace {

using singularity::oldest_of_most;

std::size_t next_to_go(const std::vector<std::string> &addresses) {
    return oldest_of_most(std::span<const std::string>(addresses));
}

void test_the_oldest_of_the_address_with_most_goes(void ** /*state*/) {
    assert_int_equal(next_to_go({"a"}), 0);
    assert_int_equal(next_to_go({"a", "b", "b"}), 1);
    assert_int_equal(next_to_go({"b", "a", "c", "a", "b", "a"}), 1);
    assert_int_equal(next_to_go({"a", "b", "b", "a"}), 0); // as many: the older
}

// Whoever takes all places, and takes them again and again, never pushes out another's.
void test_a_crowd_pushes_out_its_own(void ** /*state*/) {
    std::vector<std::string> places{"honest"};
    for (int come = 0; come < 1000; ++come) {
        if (places.size() == 8)
            places.erase(places.begin() + static_cast<std::ptrdiff_t>(next_to_go(places)));
        places.push_back(come % 2 == 0 ? "x" : "y");
    }
    assert_true(places.front() == "honest");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_the_oldest_of_the_address_with_most_goes),
        cmocka_unit_test(test_a_crowd_pushes_out_its_own),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
