// SPDX-License-Identifier: GPL-2.0-or-later
// Events that several sessions have: whose recording the others wait for, and who may open them.
#include "shared_events.hpp"

#include "cmocka.hpp"

#include <array>
#include <bit>
#include <optional>

using namespace singularity;
using proxyd::Session;
using proxyd::SharedEvents;

namespace {

constexpr SharedEvents::Key kKey{1, 2};

// Nothing looks into a session.
SharedEvents::Holder holder(unsigned session, std::uint64_t handle) {
    static std::array<std::uint64_t, 4> places{};
    return {.session = std::bit_cast<const Session *>(&places.at(session)),
            .handle = handle,
            .real = std::bit_cast<CUevent>(std::uint64_t{0x1000} * (session + 1) + handle)};
}

// Whose event the holder has to wait for; nullptr: its own.
CUevent waits_for(SharedEvents &events, const SharedEvents::Holder &who) {
    CUevent found = nullptr;
    const auto result = events.with_last(who, [&](CUevent event) {
        found = event;
        return CUDA_ERROR_NOT_READY;
    });
    assert_true(!result || *result == CUDA_ERROR_NOT_READY);
    return found;
}

void the_last_recording_counts(void ** /*state*/) {
    SharedEvents events;
    const auto maker = holder(0, 10);
    const auto other = holder(1, 20);
    assert_false(events.any());
    assert_true(events.share(kKey, 0, maker));
    assert_true(events.open(kKey, 0, other, false));
    assert_true(events.any());
    assert_ptr_equal(waits_for(events, other), maker.real); // it may have recorded before it shared
    assert_null(waits_for(events, maker));
    events.recorded(maker);
    assert_ptr_equal(waits_for(events, other), maker.real);
    assert_null(waits_for(events, maker));
    events.recorded(other);
    assert_ptr_equal(waits_for(events, maker), other.real);
    assert_null(waits_for(events, other));
    events.recorded(holder(2, 30)); // which has nothing to do with it
    assert_ptr_equal(waits_for(events, maker), other.real);
    events.leave(other);
    assert_null(waits_for(events, maker));
    events.leave(maker);
    assert_false(events.any());
}

void only_what_its_maker_has_is_opened(void ** /*state*/) {
    SharedEvents events;
    const auto maker = holder(0, 10);
    const auto other = holder(1, 20);
    assert_false(events.can_open(kKey, 0));
    assert_false(events.open(kKey, 0, other, false));
    assert_true(events.share(kKey, 0, maker));
    assert_false(events.share(kKey, 0, holder(2, 30))); // the key is taken
    assert_false(events.share({3, 4}, 0, maker));       // it has one
    assert_true(events.can_open(kKey, 0));
    assert_false(events.can_open(kKey, 1)); // another device
    assert_false(events.open(kKey, 1, other, false));
    assert_true(events.open(kKey, 0, other, false));
    assert_false(events.open(kKey, 0, other, false)); // a handle is one event
    events.recorded(maker);
    events.leave_all(*maker.session);
    assert_null(waits_for(events, other)); // what was recorded has ended with its context
    assert_false(events.can_open(kKey, 0));
    assert_false(events.open(kKey, 0, holder(2, 30), false));
    events.leave_all(*other.session);
    assert_false(events.any());
}

void an_image_may_begin_with_any_of_them(void ** /*state*/) {
    SharedEvents events;
    const auto maker = holder(0, 10);
    const auto other = holder(1, 20);
    assert_true(events.open(kKey, 0, other, true));
    assert_false(events.can_open(kKey, 0));
    assert_false(events.share(kKey, 1, maker)); // another device's
    assert_true(events.share(kKey, 0, maker));
    events.recorded(maker);
    assert_ptr_equal(waits_for(events, other), maker.real);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_last_recording_counts),
        cmocka_unit_test(only_what_its_maker_has_is_opened),
        cmocka_unit_test(an_image_may_begin_with_any_of_them),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
