// SPDX-License-Identifier: GPL-2.0-or-later
// Turns at a device that is too small, with sessions that are only counted: whoever is inside its gate has
// all its memory, and everybody gets a turn.
#include "residency.hpp"

#include "backlog.hpp"
#include "call_order.hpp"
#include "cmocka.hpp"
#include "counted_tenant.hpp"
#include "driver_api/messages.hpp"
#include "parked_streams.hpp"
#include "proxy/protocol/ids.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace singularity;
using namespace singularity::proxyd;

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kDevice = 100;

Residency::Rules rules() { return {.device_bytes = kDevice, .quantum = 50ms, .idle = 1ms, .patience = 20ms}; }

void who_is_idle_leaves(void ** /*state*/) {
    const auto residency = std::make_shared<Residency>(rules());
    const auto first = Counted::make(residency, 60);
    const auto second = Counted::make(residency, 60);
    assert_int_equal(first->begin(), CUDA_SUCCESS);
    first->gate.leave();
    assert_int_equal(second->begin(), CUDA_SUCCESS);
    assert_int_equal(second->on_device(), 60);
    // Only as much as was needed.
    assert_int_equal(first->on_device(), 40);
    assert_false(first->gate.enter());
    second->gate.leave();
    assert_int_equal(first->enter(), CUDA_SUCCESS);
    assert_true(first->complete());
    first->gate.leave();
    assert_int_equal(residency->counts().turns, 3);
    assert_int_equal(residency->counts().moved, 20 + 20);
}

void what_fits_stays(void ** /*state*/) {
    const auto residency = std::make_shared<Residency>(rules());
    const auto first = Counted::make(residency, 40);
    const auto second = Counted::make(residency, 40);
    for (const auto &one : {first, second}) {
        assert_int_equal(one->begin(), CUDA_SUCCESS);
        one->gate.leave();
    }
    for (int index = 0; index < 100; ++index)
        for (const auto &one : {first, second}) {
            assert_true(one->gate.enter());
            one->gate.leave();
        }
    assert_int_equal(residency->counts().moved, 0);
}

void nobody_leaves_in_a_call_or_with_work_on_the_device(void ** /*state*/) {
    auto long_turns = rules();
    long_turns.quantum = 1h;
    const auto residency = std::make_shared<Residency>(long_turns);
    const auto first = Counted::make(residency, 60);
    const auto second = Counted::make(residency, 60);
    assert_int_equal(first->begin(), CUDA_SUCCESS);
    first->works = true;
    std::atomic<bool> met = false;
    std::thread asks([&] {
        assert_int_equal(second->begin(), CUDA_SUCCESS);
        met = true;
        second->gate.leave();
    });
    std::this_thread::sleep_for(30ms);
    assert_false(met);
    first->gate.leave();
    std::this_thread::sleep_for(30ms);
    assert_false(met);
    assert_true(first->complete());
    first->works = false;
    residency->look();
    assert_true(in_time([&] { return met.load(); }));
    asks.join();
}

// One that never waits and is never idle: its calls wait at the gate, and its work ends.
void a_turn_ends(void ** /*state*/) {
    const auto residency = std::make_shared<Residency>(rules());
    const auto busy = Counted::make(residency, 60);
    const auto other = Counted::make(residency, 60);
    assert_int_equal(busy->begin(), CUDA_SUCCESS);
    busy->gate.leave();
    std::atomic<bool> stop = false;
    std::atomic<unsigned> turns = 0;
    std::thread calls([&] {
        while (!stop) {
            if (busy->enter() != CUDA_SUCCESS)
                return;
            busy->works = true;
            busy->gate.leave();
            std::this_thread::sleep_for(100us);
            busy->works = false;
        }
    });
    for (; turns < 3; ++turns) {
        assert_int_equal(turns == 0 ? other->begin() : other->enter(), CUDA_SUCCESS);
        other->gate.leave();
        assert_true(in_time([&] { return busy->complete(); }));
    }
    stop = true;
    calls.join();
}

void memory_of_the_host_has_to_do(void ** /*state*/) {
    const auto residency = std::make_shared<Residency>(rules());
    const auto waits = Counted::make(residency, 60);
    const auto needed = Counted::make(residency, 60);
    assert_int_equal(waits->begin(), CUDA_SUCCESS);
    waits->gate.leave();
    // Its work waits for a collective that needs the other one.
    waits->works = true;
    waits->stuck = true;
    assert_int_equal(needed->begin(), CUDA_SUCCESS);
    assert_int_equal(needed->lent(), 20);
    assert_int_equal(waits->on_device(), 60);
    assert_int_equal(residency->counts().on_host, 1);
    needed->gate.leave();
}

void more_than_there_is_is_refused(void ** /*state*/) {
    const auto residency = std::make_shared<Residency>(rules());
    const auto alone = Counted::make(residency, 10);
    assert_int_equal(residency->ask(alone->gate, [](bool) { return CUDA_ERROR_OUT_OF_MEMORY; }),
                     CUDA_ERROR_OUT_OF_MEMORY);
}

void who_ends_waits_no_longer(void ** /*state*/) {
    const auto residency = std::make_shared<Residency>(rules());
    const auto stays = Counted::make(residency, 60);
    const auto ends = Counted::make(residency, 60);
    assert_int_equal(stays->begin(), CUDA_SUCCESS); // and never leaves its gate
    std::atomic<int> result = CUDA_SUCCESS;
    std::thread asks([&] { result = ends->begin(); });
    std::this_thread::sleep_for(5ms);
    ends->ends = true;
    ends->gate.end();
    residency->look();
    asks.join();
    assert_int_equal(result, CUDA_ERROR_NOT_READY);
    assert_true(stays->complete());
    // And the next request is served.
    const auto next = Counted::make(residency, 30);
    ends->leave();
    stays->gate.leave();
    assert_int_equal(next->begin(), CUDA_SUCCESS);
    next->gate.leave();
}

// Every way that turns can interleave, as far as threads find them.
void whoever_is_inside_has_everything(void ** /*state*/) {
    const auto residency = std::make_shared<Residency>(rules());
    std::vector<std::shared_ptr<Counted>> all;
    for (const std::uint64_t wants : {90, 60, 50, 30, 20})
        all.push_back(Counted::make(residency, wants));
    std::atomic<unsigned> wrong = 0;
    std::vector<std::thread> threads;
    for (const auto &one : all)
        for (int thread = 0; thread < 2; ++thread)
            threads.emplace_back([&wrong, one] { use(one, 60, wrong); });
    for (auto &thread : threads)
        thread.join();
    assert_int_equal(wrong, 0);
    for (const auto &one : all)
        assert_int_equal(one->violations, 0);
    assert_true(residency->counts().moved != 0);
}

// --- streams that wait for collectives

constexpr std::uint64_t kFirst = 11, kSecond = 12; // streams
constexpr std::uint64_t kMine = 21, kOther = 22;   // communicators, and their names in the backlog
constexpr std::uint64_t kEvent = 31;

void calls_know_what_they_come_after(void ** /*state*/) {
    Backlog backlog;
    ParkedStreams parked;
    assert_int_equal(parked.count(backlog), 0);
    backlog.issued(kMine, 1);
    parked.add({.stream = kFirst, .communicator = kMine, .member = kMine, .group = 1, .alone = true});
    assert_int_equal(parked.count(backlog), 1);
    assert_true(parked.has(kFirst) && !parked.has(kSecond) && parked.all_alone());
    // An event of it holds up every other stream, until it is recorded elsewhere.
    parked.record(kEvent, kFirst);
    assert_true(parked.comes_after(kEvent, kSecond));
    assert_false(parked.comes_after(kEvent, kFirst));
    parked.record(kEvent, kSecond);
    assert_false(parked.comes_after(kEvent, kFirst));
    parked.record(kEvent, kFirst);
    // The same communicator's next group is behind it anyway; another one's would not be.
    assert_true(parked.waits_only_for(kFirst, kMine));
    assert_false(parked.waits_only_for(kFirst, kOther));
    assert_true(parked.waits_only_for(kSecond, kOther));
    // Two events of two streams: each knows its own.
    backlog.issued(kOther, 1);
    parked.add({.stream = kSecond, .communicator = kOther, .member = kOther, .group = 1, .alone = true});
    assert_true(parked.comes_after(kEvent, kSecond));
    backlog.completed(kMine, 1);
    assert_int_equal(parked.count(backlog), 1);
    assert_false(parked.comes_after(kEvent, kSecond));
    backlog.completed(kOther, 1);
    assert_int_equal(parked.count(backlog), 0);
}

void a_blocking_stream_holds_up_all(void ** /*state*/) {
    Backlog backlog;
    ParkedStreams parked;
    backlog.issued(kMine, 1);
    parked.add({.stream = kFirst, .communicator = kMine, .member = kMine, .group = 1, .alone = false});
    assert_int_equal(parked.count(backlog), 1);
    assert_false(parked.all_alone());
    assert_false(parked.waits_only_for(kSecond, kOther));
    assert_true(parked.waits_only_for(kSecond, kMine));
    parked.forget_alone();
    assert_int_equal(parked.count(backlog), 1);
}

template <class Request>
CallOrder order_of_request(const Request &request) {
    std::array<std::byte, 256> storage{};
    const auto size = driver_api::encode(request, storage);
    assert_true(size.has_value());
    return order_of(std::to_underlying(request.api), std::span(storage).first(*size));
}

void calls_say_what_they_come_after(void ** /*state*/) {
    driver_api::StreamWaitEventRequest waits;
    waits.hStream = kFirst;
    waits.hEvent = kEvent;
    const auto event = order_of_request(waits);
    assert_true(event.kind == CallOrder::Kind::event && event.stream == kFirst && event.event == kEvent);
    driver_api::EventRecordRequest records;
    records.hStream = kSecond;
    records.hEvent = kEvent;
    const auto mark = order_of_request(records);
    assert_true(mark.kind == CallOrder::Kind::marks && mark.stream == kSecond && mark.event == kEvent);
    driver_api::GraphLaunchRequest launches;
    launches.hStream = kFirst;
    const auto work = order_of_request(launches);
    assert_true(work.kind == CallOrder::Kind::its_stream && work.stream == kFirst);
    driver_api::StreamSynchronizeRequest synchronizes;
    synchronizes.hStream = kFirst;
    assert_true(order_of_request(synchronizes).kind == CallOrder::Kind::streams);
    // What is not known, is broken or ends a stream comes after all that streams wait for.
    driver_api::StreamDestroyV2Request destroys;
    destroys.hStream = kFirst;
    assert_true(order_of_request(destroys).kind == CallOrder::Kind::everything);
    assert_true(order_of(std::to_underlying(driver_api::ApiId::kStreamWaitEvent), {}).kind ==
                CallOrder::Kind::everything);
    assert_true(order_of(std::to_underlying(protocol::Id::launch_kernel), {}).kind ==
                CallOrder::Kind::everything);
    assert_true(order_of(0xffffffff, {}).kind == CallOrder::Kind::everything);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(who_is_idle_leaves),
        cmocka_unit_test(what_fits_stays),
        cmocka_unit_test(nobody_leaves_in_a_call_or_with_work_on_the_device),
        cmocka_unit_test(a_turn_ends),
        cmocka_unit_test(memory_of_the_host_has_to_do),
        cmocka_unit_test(more_than_there_is_is_refused),
        cmocka_unit_test(who_ends_waits_no_longer),
        cmocka_unit_test(whoever_is_inside_has_everything),
        cmocka_unit_test(calls_know_what_they_come_after),
        cmocka_unit_test(a_blocking_stream_holds_up_all),
        cmocka_unit_test(calls_say_what_they_come_after),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
