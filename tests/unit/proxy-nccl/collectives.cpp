// SPDX-License-Identifier: GPL-2.0-or-later
// From a collective's arguments to what is sent for it.
#include "buffers.hpp"
#include "collective.hpp"
#include "fixture.hpp"

#include <array>
#include <limits>

using namespace singularity;
using namespace singularity::test;

namespace {

// A call of rank 0 that is right in everything.
Call right(Kind kind, CommunicatorHandle communicator) {
    return {.kind = kind,
            .input = memory_of(0),
            .output = memory_of(0, 0x10000),
            .count = 10,
            .type = DataType::float32,
            .communicator = communicator,
            .stream = stream_of(3)};
}

void operations_travel_as_they_were_given(void ** /*state*/) {
    World world;
    const auto two = world.all(2);
    auto call = right(Kind::all_reduce, two[0]);
    call.reduction = Reduction::max;
    World::expect(perform(world.library, call), Result::success);
    const auto issued = world.driver.issued();
    assert_int_equal(issued.size(), 1);
    assert_int_equal(issued[0].group, 1);
    assert_int_equal(issued[0].stream, 4);
    assert_int_equal(issued[0].operations.size(), 1);
    const auto &operation = issued[0].operations[0];
    assert_int_equal(operation.kind, std::to_underlying(Kind::all_reduce));
    assert_int_equal(operation.type, 7);
    assert_int_equal(operation.reduction, 2);
    assert_int_equal(operation.count, 10);
    assert_true(operation.input == FakeDriver::kMemory + FakeDriver::kWire);
    assert_true(operation.output == FakeDriver::kMemory + FakeDriver::kWire + 0x10000);
}

// Which buffers are looked at, and how long they have to be.
void buffers_are_checked_where_they_are_used(void ** /*state*/) {
    World world;
    const auto two = world.all(2);
    const auto nowhere = std::bit_cast<void *>(std::uintptr_t{0x1000});
    const auto last =
        memory_of(0, FakeDriver::kBytes - 10 * sizeof(float)); // has room for ten, not for twenty
    struct Case {
        Kind kind;
        bool input;
        bool output;
        int peer;
        bool long_input;
        bool long_output;
    };
    for (const auto &[kind, input, output, peer, long_input, long_output] :
         std::initializer_list<Case>{{Kind::broadcast, true, true, 0, false, false},
                                     {Kind::broadcast, false, true, 1, false, false},
                                     {Kind::reduce, true, true, 0, false, false},
                                     {Kind::reduce, true, false, 1, false, false},
                                     {Kind::all_reduce, true, true, 0, false, false},
                                     {Kind::all_gather, true, true, 0, false, true},
                                     {Kind::reduce_scatter, true, true, 0, true, false},
                                     {Kind::all_to_all, true, true, 0, true, true},
                                     {Kind::gather, true, true, 0, false, true},
                                     {Kind::gather, true, false, 1, false, false},
                                     {Kind::scatter, true, true, 0, true, false},
                                     {Kind::scatter, false, true, 1, false, false},
                                     {Kind::send, true, false, 1, false, false},
                                     {Kind::receive, false, true, 1, false, false}}) {
        auto call = right(kind, two[0]);
        call.peer = peer;
        World::expect(perform(world.library, call), Result::success);
        call.input = nowhere;
        World::expect(perform(world.library, call), input ? Result::invalid_argument : Result::success);
        call = right(kind, two[0]);
        call.peer = peer;
        call.output = nowhere;
        World::expect(perform(world.library, call), output ? Result::invalid_argument : Result::success);
        call.output = memory_of(1);
        World::expect(perform(world.library, call), output ? Result::invalid_argument : Result::success);
        call = right(kind, two[0]);
        call.peer = peer;
        call.input = last;
        World::expect(perform(world.library, call), long_input ? Result::invalid_argument : Result::success);
        call = right(kind, two[0]);
        call.peer = peer;
        call.output = last;
        World::expect(perform(world.library, call), long_output ? Result::invalid_argument : Result::success);
    }
}

void wrong_arguments_are_refused_as_nccl_does(void ** /*state*/) {
    World world;
    const auto two = world.all(2);
    const auto expect_wrong = [&](auto change, Result result, std::string_view words) {
        auto call = right(Kind::all_reduce, two[0]);
        change(call);
        World::expect(perform(world.library, call), result, words);
    };
    expect_wrong([](Call &call) { call.peer = 2; }, Result::invalid_argument,
                 "AllReduce : invalid root 2 (root should be in the 0..2 range)");
    expect_wrong([](Call &call) { call.peer = -1; }, Result::invalid_argument, "invalid root -1");
    expect_wrong([](Call &call) { call.type = static_cast<DataType>(12); }, Result::invalid_argument,
                 "AllReduce : invalid type 12");
    expect_wrong([](Call &call) { call.type = static_cast<DataType>(-1); }, Result::invalid_argument,
                 "invalid type -1");
    expect_wrong([](Call &call) { call.reduction = static_cast<Reduction>(-1); }, Result::invalid_argument,
                 "AllReduce : invalid reduction operation -1");
    expect_wrong([](Call &call) { call.reduction = Reduction::first_own; }, Result::invalid_argument,
                 "unknown to this communicator");
    expect_wrong([](Call &call) { call.reduction = Reduction::last; }, Result::invalid_argument,
                 "unknown to this communicator");
    expect_wrong([](Call &call) { call.count = std::numeric_limits<std::size_t>::max() / 2; },
                 Result::invalid_argument, "more than there can be");
    expect_wrong([](Call &call) { call.communicator = nullptr; }, Result::invalid_argument,
                 "AllReduce : comm argument is NULL");
    expect_wrong(
        [](Call &call) { call.communicator = std::bit_cast<CommunicatorHandle>(std::uintptr_t{64}); },
        Result::invalid_argument, "corrupted comm object");
    expect_wrong([](Call &call) { call.stream = stream_of(FakeDriver::kUnknownStream); },
                 Result::unhandled_cuda_error, "stream");
    assert_true(world.driver.issued().empty());
}

void empty_collectives_are_nothing_and_empty_sends_are_something(void ** /*state*/) {
    World world;
    const auto two = world.all(2);
    auto call = right(Kind::all_reduce, two[0]);
    call.count = 0;
    call.input = nullptr;
    World::expect(perform(world.library, call), Result::success);
    assert_true(world.driver.issued().empty());
    call.kind = Kind::send;
    call.peer = 1;
    World::expect(perform(world.library, call), Result::success);
    assert_int_equal(world.driver.issued().size(), 1);
    assert_int_equal(world.driver.issued()[0].operations[0].input, 0);
}

void premultiplied_sums_carry_their_scalars(void ** /*state*/) {
    World world;
    const auto two = world.all(2);
    const float factor = 0.5F;
    Reduction half{};
    Reduction there{};
    World::expect(
        create_premultiplied_sum(world.library, &half, &factor, DataType::float32, Residence::host, two[0]),
        Result::success);
    World::expect(create_premultiplied_sum(world.library, &there, memory_of(0, 64), DataType::float32,
                                           Residence::device, two[0]),
                  Result::success);
    assert_true(half >= Reduction::first_own && there >= Reduction::first_own && half != there);
    auto call = right(Kind::all_reduce, two[0]);
    call.reduction = half;
    World::expect(perform(world.library, call), Result::success);
    call.reduction = there;
    World::expect(perform(world.library, call), Result::success);
    const auto issued = world.driver.issued();
    assert_int_equal(issued[0].operations[0].reduction, protocol::kPremultipliedSum);
    assert_int_equal(issued[0].operations[0].scalar, std::bit_cast<std::uint32_t>(factor));
    assert_int_equal(issued[0].operations[0].scalar_address, 0);
    assert_true(issued[1].operations[0].scalar_address == FakeDriver::kMemory + FakeDriver::kWire + 64);
    call.type = DataType::float64;
    World::expect(perform(world.library, call), Result::invalid_argument, "does not match type");
    // Another communicator does not know it; this one no longer once it is destroyed.
    call = right(Kind::all_reduce, two[1]);
    call.input = memory_of(1);
    call.output = memory_of(1);
    call.reduction = half;
    World::expect(perform(world.library, call), Result::invalid_argument, "unknown");
    World::expect(destroy_reduction(world.library, half, two[0]), Result::success);
    World::expect(destroy_reduction(world.library, half, two[0]), Result::invalid_argument, "unknown");
    World::expect(destroy_reduction(world.library, Reduction::avg, two[0]), Result::invalid_argument,
                  "builtin");
    World::expect(destroy_reduction(world.library, static_cast<Reduction>(-5), two[0]),
                  Result::invalid_argument, "garbage");
    Reduction again{};
    World::expect(
        create_premultiplied_sum(world.library, &again, &factor, DataType::float32, Residence::host, two[0]),
        Result::success);
    assert_true(again == half);
    World::expect(create_premultiplied_sum(world.library, &again, &factor, DataType::float32,
                                           static_cast<Residence>(2), two[0]),
                  Result::invalid_argument, "residence");
    World::expect(create_premultiplied_sum(world.library, &again, &factor, DataType::float32,
                                           Residence::device, two[0]),
                  Result::invalid_argument, "scalar");
}

void registrations_are_counted(void ** /*state*/) {
    World world;
    const auto one = world.one();
    void *first = nullptr;
    void *same = nullptr;
    void *other = nullptr;
    World::expect(enroll(world.library, one, memory_of(0), 100, &first), Result::success);
    World::expect(enroll(world.library, one, memory_of(0), 100, &same), Result::success);
    World::expect(enroll(world.library, one, memory_of(0), 200, &other), Result::success);
    assert_ptr_equal(first, same);
    assert_ptr_not_equal(first, other);
    World::expect(withdraw(world.library, one, first), Result::success);
    World::expect(withdraw(world.library, one, first), Result::success);
    World::expect(withdraw(world.library, one, first), Result::invalid_usage, "Could not find handle");
    World::expect(withdraw(world.library, one, nullptr), Result::success);
    World::expect(enroll(world.library, one, memory_of(1), 100, &other), Result::invalid_argument);
    WindowHandle window = std::bit_cast<WindowHandle>(std::uintptr_t{16});
    World::expect(open_window(world.library, one, memory_of(0), 4096, &window, 1), Result::success);
    assert_null(window);
    World::expect(open_window(world.library, one, nullptr, 4096, &window, 0), Result::invalid_argument);
    World::expect(close_window(world.library, one, window), Result::success);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(operations_travel_as_they_were_given),
        cmocka_unit_test(buffers_are_checked_where_they_are_used),
        cmocka_unit_test(wrong_arguments_are_refused_as_nccl_does),
        cmocka_unit_test(empty_collectives_are_nothing_and_empty_sends_are_something),
        cmocka_unit_test(premultiplied_sums_carry_their_scalars),
        cmocka_unit_test(registrations_are_counted),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
