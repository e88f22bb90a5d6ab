// SPDX-License-Identifier: GPL-2.0-or-later
// Where ports of virtual nodes are reached, as text.
#include "cmocka.hpp"
#include "common/published_places.hpp"

#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace singularity;
using singularity::test::expect_equal;

const PublishedPlace kBoard{.step = "0", .port = 6006, .node = "n1", .host = "n4", .at = 20417};
const PublishedPlace kBook{
    .step = "batch", .port = 8888, .node = "gpu-01", .host = "gpu-01.cluster", .at = 1024};

void test_what_is_told_is_kept(void ** /*state*/) {
    const auto word = word_of_places(std::array{kBoard});
    expect_equal(word, "published=+0/6006/n1/n4:20417");
    assert_true(is_word_of_places(word));
    const auto kept = with_places("", 2, word);
    expect_equal(kept, "2:0/6006/n1/n4:20417");
    assert_true(places_in(kept, 2) == std::vector{kBoard});
    // Other steps are left alone, and the same step has what was told last.
    const auto both = with_places(kept, 2, word_of_places(std::array{kBook}));
    assert_true(places_in(both, 2) == (std::vector{kBoard, kBook}));
    auto moved = kBoard;
    moved.host = "n5";
    assert_true(places_in(with_places(both, 2, word_of_places(std::array{moved})), 2) ==
                (std::vector{kBook, moved}));
    // What one step has had is gone, if nobody has told something else since then.
    const auto gone = word_without_places(std::array{kBoard});
    assert_true(is_word_of_places(gone));
    expect_equal(with_places(kept, 2, gone), "");
    assert_true(places_in(with_places(both, 2, gone), 2) == std::vector{kBook});
    assert_true(places_in(with_places("2:0/6006/n1/n5:20417", 2, gone), 2) == std::vector{moved});
}

void test_an_earlier_run_has_left_nothing(void ** /*state*/) {
    assert_true(places_in("1:0/6006/n1/n4:20417", 2).empty());
    expect_equal(with_places("1:batch/6006/n1/n4:20417", 2, word_of_places(std::array{kBoard})),
                 "2:0/6006/n1/n4:20417");
}

void test_what_is_no_place(void ** /*state*/) {
    for (const char *const word : {"published", "published=", "published=0/6006/n1/n4:20417", "ranks=+1"})
        assert_false(is_word_of_places(word));
    for (const char *const kept :
         {"", ":", "x:0/6006/n1/n4:20417", "2:", "2:0/6006/n1/n4", "2:0/6006/n1/n4:0", "2:0/0/n1/n4:20417",
          "2:0/65536/n1/n4:20417", "2:0/6006//n4:20417", "2:0/6006/n1/:20417", "2:/6006/n1/n4:20417",
          "2:0/6006/n1/n4:20417/1", "2:0/6006/n 1/n4:20417"})
        assert_true(places_in(kept, 2).empty());
    assert_true(places_in("2:junk,0/6006/n1/n4:20417", 2) == std::vector{kBoard});
    // Nothing can get into the note that would be read as another of its words.
    auto hostile = kBoard;
    hostile.node = "n1 elastic=1-1000";
    expect_equal(with_places("", 2, word_of_places(std::array{hostile})), "");
}

void test_what_does_not_fit(void ** /*state*/) {
    std::vector<PublishedPlace> many(100, kBoard);
    for (std::uint32_t number = 0; number < many.size(); ++number)
        many[number].port = number + 1;
    const auto kept = with_places("", 0, word_of_places(many));
    assert_true(kept.size() <= kMostPlacesText && kept.size() > kMostPlacesText - 40);
    const auto found = places_in(kept, 0);
    assert_true(std::vector(many.begin(), many.begin() + static_cast<std::ptrdiff_t>(found.size())) == found);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_told_is_kept),
        cmocka_unit_test(test_an_earlier_run_has_left_nothing),
        cmocka_unit_test(test_what_is_no_place),
        cmocka_unit_test(test_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
