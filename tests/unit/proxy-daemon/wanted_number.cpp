// SPDX-License-Identifier: GPL-2.0-or-later
// Objects of an image get the numbers that the program has for them, from drivers that hand out numbers in
// several ways, or there is an error; nothing that was made on the way is left.
#include "wanted_number.hpp"

#include "cmocka.hpp"

#include <functional>
#include <set>

namespace {

using namespace singularity::proxyd;

// next: the number that the driver gives, of those that there are.
struct Numbers {
    std::set<std::uint64_t> there;
    std::function<std::uint64_t(const std::set<std::uint64_t> &)> next;
    std::size_t most = SIZE_MAX; // calls that succeed
    std::size_t made = 0;

    CUresult make(std::uint64_t &object) {
        return make_numbered(
            "texture", object,
            [&](std::uint64_t &number) {
                if (made == most)
                    return CUDA_ERROR_OUT_OF_MEMORY;
                ++made;
                number = next(there);
                there.insert(number);
                return CUDA_SUCCESS;
            },
            [&](std::uint64_t number) {
                there.erase(number);
                return CUDA_SUCCESS;
            });
    }
};

std::uint64_t smallest_free(const std::set<std::uint64_t> &there) {
    std::uint64_t number = 1;
    while (there.contains(number))
        ++number;
    return number;
}

void any_number_will_do(void ** /*state*/) {
    Numbers numbers{.there = {}, .next = smallest_free};
    std::uint64_t object = 0;
    assert_int_equal(numbers.make(object), CUDA_SUCCESS);
    assert_int_equal(object, 1);
    assert_int_equal(numbers.made, 1);
}

void the_wanted_one_comes(void ** /*state*/) {
    // In the order in which a program made them that has ended those in between.
    Numbers numbers{.there = {}, .next = smallest_free};
    for (const std::uint64_t wanted : {3U, 900U, 1U, 2U}) {
        const WantedNumber want(wanted);
        std::uint64_t object = 0;
        assert_int_equal(numbers.make(object), CUDA_SUCCESS);
        assert_int_equal(object, wanted);
    }
    assert_true((numbers.there == std::set<std::uint64_t>{1, 2, 3, 900}));
    assert_int_equal(wanted_number, 0);
}

void a_driver_that_does_not_give_it(void ** /*state*/) {
    std::uint64_t last = 100;
    Numbers numbers{.there = {}, .next = [&](const auto &) { return ++last; }};
    const WantedNumber want(50);
    std::uint64_t object = 0;
    assert_int_equal(numbers.make(object), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(numbers.made, kMostNumbersTried);
    assert_true(numbers.there.empty());
}

void a_driver_that_fails_on_the_way(void ** /*state*/) {
    Numbers numbers{.there = {}, .next = smallest_free, .most = 4};
    const WantedNumber want(10);
    std::uint64_t object = 0;
    assert_int_equal(numbers.make(object), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(numbers.there.empty());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(any_number_will_do), cmocka_unit_test(the_wanted_one_comes),
                                cmocka_unit_test(a_driver_that_does_not_give_it),
                                cmocka_unit_test(a_driver_that_fails_on_the_way)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
