// SPDX-License-Identifier: GPL-2.0-or-later
// Devices that are linked: what goes from one to the other does not go through memory of hosts; either all
// members of a communicator are linked, or none is; and what happens when one of them goes.
#include "cmocka.hpp"
#include "common/log.hpp"
#include "ranks.hpp"

#include <algorithm>
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
using protocol::CollectiveOperation;
using protocol::CommunicatorPhase;

constexpr std::uint32_t kSize = 4;
constexpr std::size_t kCount = 3'000'001; // several pieces, and a rest
constexpr std::uint32_t kWord = 2;        // int32
using Links = std::vector<std::shared_ptr<TestLink>>;

std::uint64_t address_of(const std::vector<std::int32_t> &numbers) {
    return std::bit_cast<std::uint64_t>(numbers.data());
}

CollectiveOperation sum_of(const std::vector<std::int32_t> &numbers) {
    return {.kind = std::to_underlying(CollectiveKind::all_reduce),
            .type = kWord,
            .count = numbers.size(),
            .input = address_of(numbers),
            .output = address_of(numbers)};
}
CollectiveOperation send_to(std::uint32_t peer, const std::vector<std::int32_t> &numbers) {
    return {.kind = std::to_underlying(CollectiveKind::send),
            .type = kWord,
            .peer = peer,
            .count = numbers.size(),
            .input = address_of(numbers)};
}
CollectiveOperation receive_from(std::uint32_t peer, const std::vector<std::int32_t> &numbers) {
    return {.kind = std::to_underlying(CollectiveKind::receive),
            .type = kWord,
            .peer = peer,
            .count = numbers.size(),
            .output = address_of(numbers)};
}

// Two sums of all, and what each sends to the next one, in one group.
void work(Ranks &ranks, std::size_t count) {
    const auto size = ranks.size();
    std::vector<std::vector<std::int32_t>> sums;
    std::vector<std::vector<std::int32_t>> few;
    std::vector<std::vector<std::int32_t>> sent;
    std::vector<std::vector<std::int32_t>> got(size, std::vector<std::int32_t>(count));
    std::vector<std::vector<CollectiveOperation>> groups;
    for (std::uint32_t rank = 0; rank < size; ++rank) {
        sums.emplace_back(count);
        std::iota(sums.back().begin(), sums.back().end(), static_cast<std::int32_t>(rank));
        few.emplace_back(3, static_cast<std::int32_t>(rank));
        sent.push_back(sums.back());
    }
    for (std::uint32_t rank = 0; rank < size; ++rank)
        groups.push_back({send_to((rank + 1) % size, sent[rank]), sum_of(sums[rank]),
                          receive_from((rank + size - 1) % size, got[rank]), sum_of(few[rank])});
    ranks.carry_out(groups);
    const auto of_ranks = static_cast<std::int32_t>(size * (size - 1) / 2);
    for (std::uint32_t rank = 0; rank < size; ++rank) {
        assert_true(got[rank] == sent[(rank + size - 1) % size]);
        assert_true(few[rank] == std::vector<std::int32_t>(3, of_ranks));
        for (std::size_t index = 0; index < count; ++index)
            if (sums[rank][index] != static_cast<std::int32_t>((size * index)) + of_ranks)
                fail(fmt::format("rank {}: {} at {}", rank, sums[rank][index], index));
    }
}

Links links_of(std::uint32_t size) {
    Links links;
    for (std::uint32_t rank = 0; rank < size; ++rank)
        links.push_back(std::make_shared<TestLink>(rank));
    return links;
}

bool all(const Links &links, auto condition) { return std::ranges::all_of(links, condition); }

void data_goes_from_device_to_device(void **) {
    const Job job;
    const auto links = links_of(kSize);
    Ranks ranks(job, links);
    work(ranks, kCount);
    constexpr auto kBytes = kCount * sizeof(std::int32_t);
    // What each sends to the next one, its parts of all segments, and its own segment to all.
    for (const auto &link : links) {
        assert_true(link->sent > kBytes + (kBytes * 3 / 2) - 1000);
        assert_true(link->sent < kBytes + (kBytes * 3 / 2) + 1000);
    }
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
        assert_int_equal(ranks.device(rank).asked, 1);
        assert_true(ranks.device(rank).reductions > 0);
    }
    work(ranks, 10);
    work(ranks, 0);
    ranks.leave();
    for (std::uint32_t rank = 0; rank < kSize; ++rank)
        assert_int_equal(ranks.device(rank).memories, 0);
    assert_true(all(links, [](const auto &link) { return link->aborts == 0; }));
}

// One has no link, two have the same device, one does not meet the others: all go through the hosts.
void either_all_are_linked_or_none(void **) {
    const Job job;
    for (const auto &odd :
         {std::make_shared<TestLink>(2, TestLink::Can::nothing), std::make_shared<TestLink>(0),
          std::make_shared<TestLink>(2, TestLink::Can::not_meet)}) {
        auto links = links_of(kSize);
        links[2] = odd;
        Ranks ranks(job, links);
        work(ranks, kCount / 10);
        assert_true(all(links, [](const auto &link) { return link->sent == 0; }));
        ranks.leave();
        for (std::uint32_t rank = 0; rank < kSize; ++rank)
            assert_int_equal(ranks.device(rank).memories, 0);
    }
}

// Also between two groups that go through links.
void exchanges_are_the_hosts(void **) {
    const Job job;
    Ranks ranks(job, links_of(kSize));
    work(ranks, 100);
    ranks.exchange(2);
    work(ranks, 100);
}

// As around a checkpoint: they are linked as before.
void threads_come_and_go(void **) {
    const Job job;
    const auto links = links_of(kSize);
    Ranks ranks(job, links);
    work(ranks, 100);
    const std::uint64_t sent = links[0]->sent;
    ranks.begin_again();
    work(ranks, 100);
    assert_int_equal(links[0]->sent, 2 * sent);
    assert_int_equal(ranks.device(0).asked, 1);
}

void expect_failed(Ranks &ranks, std::uint32_t rank, std::uint64_t group, const char *why) {
    const auto state = ranks.member(rank).wait(group, soon());
    assert_int_equal(std::to_underlying(state.phase), std::to_underlying(CommunicatorPhase::failed));
    expect_contains(state.failure.text, why);
}

// Nothing is begun that could wait for ever.
void ranks_must_mean_the_same(void **) {
    const Job job;
    const auto links = links_of(2);
    Ranks ranks(job, links);
    std::vector<std::int32_t> numbers(100);
    const std::vector<std::int32_t> fewer(99);
    ranks.issue(0, {sum_of(numbers)});
    const auto group = ranks.issue(1, {sum_of(fewer)});
    for (std::uint32_t rank = 0; rank < 2; ++rank)
        expect_failed(ranks, rank, group, "do not agree on it");
    assert_true(all(links, [](const auto &link) { return link->sent == 0; }));
}

// What it sends to one that dies, or has left, or what is to come from it, is given up.
void one_goes_while_something_is_under_way(void **) {
    const Job job;
    for (const bool dies : {true, false}) {
        const auto links = links_of(2);
        Ranks ranks(job, links);
        std::vector<std::int32_t> numbers(100);
        const auto group = ranks.issue(0, {receive_from(1, numbers)});
        while (ranks.member(0).state().issued != group)
            std::this_thread::yield();
        if (dies)
            ranks.lose_engine(1);
        else
            ranks.member(1).leave();
        expect_failed(ranks, 0, group,
                      dies ? "rank 1 is killed by the test" : "rank 1 has left the communicator");
        ranks.leave();
        assert_true(links[0]->aborts > 0);
    }
}

} // namespace

int main() {
    singularity::log::set_level(singularity::log::Level::kError); // refusals are what is tested
    const CMUnitTest tests[] = {
        cmocka_unit_test(data_goes_from_device_to_device),
        cmocka_unit_test(either_all_are_linked_or_none),
        cmocka_unit_test(exchanges_are_the_hosts),
        cmocka_unit_test(threads_come_and_go),
        cmocka_unit_test(ranks_must_mean_the_same),
        cmocka_unit_test(one_goes_while_something_is_under_way),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
