// SPDX-License-Identifier: GPL-2.0-or-later
// Where ranks stage what they give to each other: on the device if they all share one that has memory for it,
// otherwise all of them in memory of the host; and when that memory goes.
#include "cmocka.hpp"
#include "common/log.hpp"
#include "ranks.hpp"

#include <bit>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace singularity::test;
namespace collectives = singularity::collectives;
namespace protocol = singularity::protocol;
using protocol::CollectiveKind;

constexpr std::uint32_t kSize = 4;
constexpr std::size_t kCount = 400'000; // several rounds
constexpr std::uint32_t kWord = 2;      // int32

std::uint64_t address_of(const std::vector<std::int32_t> &numbers) {
    return std::bit_cast<std::uint64_t>(numbers.data());
}

// A sum of all, and what each sends to the next one, with results that are known.
void work(Ranks &ranks) {
    std::vector<std::vector<std::int32_t>> sums;
    std::vector<std::vector<std::int32_t>> sent;
    std::vector<std::vector<std::int32_t>> got(kSize, std::vector<std::int32_t>(kCount));
    std::vector<std::vector<protocol::CollectiveOperation>> groups;
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
        sums.emplace_back(kCount);
        std::iota(sums.back().begin(), sums.back().end(), static_cast<std::int32_t>(rank));
        sent.push_back(sums.back());
        const auto next = (rank + 1) % kSize;
        const auto last = (rank + kSize - 1) % kSize;
        groups.push_back({{.kind = std::to_underlying(CollectiveKind::all_reduce),
                           .type = kWord,
                           .count = kCount,
                           .input = address_of(sums.back()),
                           .output = address_of(sums.back())},
                          {.kind = std::to_underlying(CollectiveKind::send),
                           .type = kWord,
                           .peer = next,
                           .count = kCount,
                           .input = address_of(sent.back())},
                          {.kind = std::to_underlying(CollectiveKind::receive),
                           .type = kWord,
                           .peer = last,
                           .count = kCount,
                           .output = address_of(got[rank])}});
    }
    ranks.carry_out(groups);
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
        assert_true(got[rank] == sent[(rank + kSize - 1) % kSize]);
        for (std::size_t index = 0; index < kCount; ++index)
            if (sums[rank][index] != static_cast<std::int32_t>(kSize * index + 6))
                fail(fmt::format("rank {}: {} at {}", rank, sums[rank][index], index));
    }
}

void what_ranks_of_one_device_stage_stays_there(void **) {
    const Job job;
    Ranks ranks(job, kSize, Placement::one_device);
    auto &device = *ranks.device();
    assert_int_equal(device.asked, 0); // nobody needs it yet
    work(ranks);
    assert_int_equal(device.memories, 2); // for rounds, and for what is sent
    assert_true(device.reductions > 4);
    assert_true(device.copies > 8);
    const int reductions = device.reductions;
    work(ranks);
    assert_int_equal(device.asked, 2);
    assert_int_equal(device.reductions, 2 * reductions);
    // Who goes last takes it along, though the members are still there.
    ranks.member(0).leave();
    ranks.member(1).leave();
    assert_int_equal(device.memories, 2);
    ranks.leave();
    assert_int_equal(device.memories, 0);
}

void without_memory_all_go_through_the_host(void **) {
    const Job job;
    const auto device = std::make_shared<FakeDevice>(false);
    Ranks ranks(job, {device, device, device, device});
    work(ranks);
    work(ranks);
    assert_int_equal(device->asked, 2); // once for each part, whoever asks
    assert_int_equal(device->reductions, 0);
    assert_int_equal(device->copies, 0);
}

void ranks_of_several_devices_go_through_the_host(void **) {
    const Job job;
    const auto one = std::make_shared<FakeDevice>();
    const auto other = std::make_shared<FakeDevice>();
    for (const auto &odd : {other, std::shared_ptr<FakeDevice>()}) {
        Ranks ranks(job, {one, one, odd, one});
        work(ranks);
        assert_int_equal(one->asked, 0);
        assert_int_equal(other->asked, 0);
        assert_int_equal(one->copies + other->copies, 0);
    }
}

// Also between two groups that are carried out on the device.
void exchanges_are_the_hosts(void **) {
    const Job job;
    Ranks ranks(job, kSize, Placement::one_device);
    work(ranks);
    ranks.exchange(2);
    work(ranks);
}

// A member whose mover is none of the device that it has named: a broken promise, not a wrong result.
void a_mover_must_do_what_its_member_has_said(void **) {
    auto engine = collectives::Engine::start({});
    assert_true(engine.has_value());
    const auto device = std::make_shared<FakeDevice>();
    auto member =
        (*engine)->join({.key = {5, 5}, .rank = 0, .size = 1, .completed = 0, .device = device}, {});
    assert_true(member.has_value());
    std::thread thread([&] {
        collectives::HostMover mover;
        (*member)->run(mover);
    });
    std::vector<std::int32_t> numbers(10);
    assert_true((*member)->issue({{.kind = std::to_underlying(CollectiveKind::all_reduce),
                                   .type = kWord,
                                   .count = numbers.size(),
                                   .input = address_of(numbers),
                                   .output = address_of(numbers)}}));
    (*member)->begin(1);
    const auto state = (*member)->wait(1, soon());
    assert_int_equal(std::to_underlying(state.phase),
                     std::to_underlying(protocol::CommunicatorPhase::failed));
    expect_contains(state.failure.text, "cannot work on the device");
    (*member)->leave();
    thread.join();
}

} // namespace

int main() {
    singularity::log::set_level(singularity::log::Level::kError); // refusals are what is tested
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_ranks_of_one_device_stage_stays_there),
        cmocka_unit_test(without_memory_all_go_through_the_host),
        cmocka_unit_test(ranks_of_several_devices_go_through_the_host),
        cmocka_unit_test(exchanges_are_the_hosts),
        cmocka_unit_test(a_mover_must_do_what_its_member_has_said),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
