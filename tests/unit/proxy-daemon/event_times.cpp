// SPDX-License-Identifier: GPL-2.0-or-later
// Times between events across restores, on a driver that has a clock of the test's and tells times as floats.
#include "event_times.hpp"

#include "cmocka.hpp"

#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

using namespace singularity;
using namespace singularity::proxyd;

namespace {

using Event = EventTimes::Event;

constexpr std::uint64_t kContext = 5;
constexpr double kHour = 3'600'000;

// Of the driver: what each event was recorded at, in milliseconds.
double now = 0;
std::uint64_t next_real = 1;
std::map<std::uint64_t, std::optional<double>> recorded;
std::uint64_t current = 0;

std::uint64_t number(CUevent event) { return std::bit_cast<std::uint64_t>(event); }

CUresult create(CUevent *event, unsigned /*flags*/) {
    recorded[next_real] = std::nullopt;
    *event = std::bit_cast<CUevent>(next_real++);
    return CUDA_SUCCESS;
}
CUresult destroy(CUevent event) {
    return recorded.erase(number(event)) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult record(CUevent event, CUstream /*stream*/) {
    assert_int_equal(current, kContext);
    now += 0.001; // something happens between any two
    recorded.at(number(event)) = now;
    return CUDA_SUCCESS;
}
CUresult synchronize(CUevent /*event*/) { return CUDA_SUCCESS; }
CUresult elapsed(float *out, CUevent start, CUevent end) {
    const auto first = recorded.at(number(start));
    const auto last = recorded.at(number(end));
    if (!first || !last)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = static_cast<float>(*last - *first);
    return CUDA_SUCCESS;
}

driver_api::Backend make_driver() {
    driver_api::Backend driver{};
    driver.cuEventCreate = &create;
    driver.cuEventDestroy_v2 = &destroy;
    driver.cuEventRecord = &record;
    driver.cuEventSynchronize = &synchronize;
    driver.cuEventElapsedTime = &elapsed;
    return driver;
}
const driver_api::Backend kDriver = make_driver();

void make_current(std::uint64_t context) { current = context; }

// A program's events, and the part of the daemon that has their times.
struct Program {
    EventTimes times;
    std::vector<Event> events;

    // Handles do not change when the program moves.
    void make(std::uint64_t handle) {
        CUevent event = nullptr;
        assert_int_equal(create(&event, 0), CUDA_SUCCESS);
        events.push_back({.handle = handle, .real = number(event), .context = kContext});
    }
    [[nodiscard]] Event named(std::uint64_t handle) const {
        for (const auto &event : events)
            if (event.handle == handle)
                return event;
        assert_true(false);
        return {};
    }
    void record_at(std::uint64_t handle, double time) {
        now = time;
        current = kContext;
        assert_int_equal(record(std::bit_cast<CUevent>(named(handle).real), nullptr), CUDA_SUCCESS);
    }
    float between(std::uint64_t start, std::uint64_t end) {
        float said = 0;
        assert_int_equal(elapsed(&said, std::bit_cast<CUevent>(named(start).real),
                                 std::bit_cast<CUevent>(named(end).real)),
                         CUDA_SUCCESS);
        return times.any() ? times.answer(kDriver, named(start), named(end), said) : said;
    }
    std::vector<EventTimes::SavedTime> save(double at) {
        now = at;
        assert_int_equal(times.stop(kDriver, events, make_current), CUDA_SUCCESS);
        now += kHour; // to write memory's content takes its time
        return times.saved(kDriver, events, make_current);
    }
    void restore(const std::vector<EventTimes::SavedTime> &saved, double at) {
        for (const auto &one : saved)
            assert_true(times.expect(one));
        now = at;
        const auto real = [this](std::uint64_t handle) { return std::optional(named(handle).real); };
        assert_int_equal(times.begin(kDriver, real, make_current), CUDA_SUCCESS);
    }
};

bool near(float value, double expected) {
    return static_cast<double>(value) > expected - 0.5 && static_cast<double>(value) < expected + 0.5;
}

void times_survive_restores(void **) {
    Program first;
    for (std::uint64_t handle = 1; handle <= 4; ++handle)
        first.make(handle);
    first.record_at(1, 0);
    first.record_at(2, 0.125);
    first.record_at(3, kHour + 0.3);
    const auto one_two = first.between(1, 2);
    const auto one_three = first.between(1, 3);
    const auto two_three = first.between(2, 3);
    assert_false(first.times.any());
    auto saved = first.save(kHour + 1000);
    assert_int_equal(saved.size(), 3); // the fourth was never recorded
    const auto left = recorded.size();
    // Every restore is in another driver, whose clock is another, and the job stands still in between.
    for (int round = 0; round < 3; ++round) {
        Program next;
        for (std::uint64_t handle = 1; handle <= 4; ++handle)
            next.make(handle);
        const double begin = 100 * kHour * (round + 1);
        next.restore(saved, begin);
        assert_true(next.times.any());
        assert_true(next.between(1, 2) == one_two && next.between(1, 3) == one_three &&
                    next.between(2, 3) == two_three && next.between(3, 1) == -one_three &&
                    next.between(2, 2) == 0);
        // To one from after it: a second before the save, a second in each round before, half of one here.
        next.record_at(4, begin + 500);
        assert_true(near(next.between(3, 4), 1000 - 0.3 + 1000 * round + 500));
        assert_true(next.between(4, 3) == -next.between(3, 4));
        assert_true(near(next.between(1, 4), kHour + 1000 + 1000 * round + 500));
        saved = next.save(begin + 1000);
        assert_int_equal(saved.size(), 4);
        next.times.forget(kDriver, kContext);
        assert_false(next.times.any());
        saved.pop_back(); // the youngest: not recorded, as far as the next round knows
    }
    assert_int_equal(recorded.size(),
                     left + 12); // what the saves and restores made for themselves is gone
}

// By whatever: a call, a graph, a capture.
void what_is_recorded_again_has_the_drivers_time(void **) {
    Program first;
    first.make(1);
    first.make(2);
    first.record_at(1, 10);
    first.record_at(2, 20);
    const auto saved = first.save(30);
    Program next;
    next.make(1);
    next.make(2);
    next.restore(saved, 1000);
    next.record_at(2, 1100);
    assert_true(near(next.between(1, 2), 20 + 100));
    next.record_at(1, 1200);
    assert_true(next.between(2, 1) == static_cast<float>(1200.001 - 1100.001));
    assert_false(next.times.any());
    // Two within the driver's resolution of the base: never negative.
    Program last;
    last.make(1);
    last.make(2);
    last.restore({saved.front()}, 1000);
    recorded.at(last.named(2).real) = 999.9;
    assert_true(last.between(1, 2) >= static_cast<float>(saved.front().before));
}

// Farther apart than answers are kept: as exact as a float of the distance, not one of the age.
void times_of_many(void **) {
    constexpr std::uint64_t kMany = 3 * EventTimes::kNeighbours;
    Program first;
    for (std::uint64_t handle = 1; handle <= kMany; ++handle) {
        first.make(handle);
        first.record_at(handle, static_cast<double>(handle) * 0.37);
    }
    const auto saved = first.save(24 * kHour);
    Program next;
    for (std::uint64_t handle = 1; handle <= kMany; ++handle)
        next.make(handle);
    next.restore(saved, 0);
    for (std::uint64_t handle = 1; handle + EventTimes::kNeighbours <= kMany; ++handle)
        assert_true(next.between(handle, handle + EventTimes::kNeighbours) ==
                    first.between(handle, handle + EventTimes::kNeighbours));
    const auto difference = next.between(1, kMany) - first.between(1, kMany);
    assert_true(difference < 0.001F && difference > -0.001F);
}

void an_event_comes_once(void **) {
    EventTimes times;
    assert_true(times.expect({.event = 1, .context = kContext, .before = 1, .later = {}}));
    assert_false(times.expect({.event = 1, .context = kContext, .before = 2, .later = {}}));
    // Its context has gone with it before the program goes on.
    const auto gone = [](std::uint64_t) -> std::optional<std::uint64_t> { return std::nullopt; };
    assert_int_equal(times.begin(kDriver, gone, make_current), CUDA_SUCCESS);
    assert_false(times.any());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(times_survive_restores),
        cmocka_unit_test(what_is_recorded_again_has_the_drivers_time),
        cmocka_unit_test(times_of_many),
        cmocka_unit_test(an_event_comes_once),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
