// SPDX-License-Identifier: GPL-2.0-or-later
// Every collective, type and reduction, in place and not, on 1 to 8 ranks: equal to the reference to the bit,
// wherever the ranks are.
#include "cmocka.hpp"
#include "common/log.hpp"
#include "proxy/collectives/operation.hpp"
#include "proxy/collectives/shape.hpp"
#include "ranks.hpp"
#include "reference.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace {

using namespace singularity::test;
namespace protocol = singularity::protocol;
namespace collectives = singularity::collectives;
using protocol::CollectiveKind;
using protocol::CollectiveOperation;

constexpr std::uint32_t kMostRanks = 8;

bool reduces(CollectiveKind kind) {
    return kind == CollectiveKind::reduce || kind == CollectiveKind::all_reduce ||
           kind == CollectiveKind::reduce_scatter;
}
bool has_root(CollectiveKind kind) {
    return kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce ||
           kind == CollectiveKind::gather || kind == CollectiveKind::scatter;
}

// Where in one buffer of a rank its input and its output begin when they share memory, as NCCL has it.
struct Overlap {
    std::size_t input = 0;
    std::size_t output = 0;
};
Overlap in_place(CollectiveKind kind, std::uint32_t rank, std::uint32_t root, std::size_t bytes) {
    switch (kind) {
    case CollectiveKind::all_gather:
        return {.input = rank * bytes, .output = 0};
    case CollectiveKind::gather:
        return {.input = rank == root ? rank * bytes : 0, .output = 0};
    case CollectiveKind::reduce_scatter:
        return {.input = 0, .output = rank * bytes};
    case CollectiveKind::scatter:
        return {.input = 0, .output = rank == root ? rank * bytes : 0};
    default:
        return {};
    }
}

void check(Ranks &ranks, std::mt19937_64 &random, CollectiveOperation operation, bool share) {
    const auto size = ranks.size();
    const auto bytes = operation.count * size_of(operation.type);
    std::vector<Buffer> inputs;
    std::vector<Buffer> scalars;
    std::vector<Buffer> memory; // what a program has
    std::vector<std::vector<CollectiveOperation>> groups;
    for (std::uint32_t rank = 0; rank < size; ++rank) {
        auto extent = collectives::extent(operation, rank, size);
        inputs.push_back(values(random, operation.type, extent.input / size_of(operation.type)));
        scalars.push_back(values(random, operation.type, 1));
        memory.emplace_back((bytes * size * 2) + 128, std::byte{0xA5});
        auto mine = operation;
        const auto overlap =
            share ? in_place(static_cast<CollectiveKind>(operation.kind), rank, operation.peer, bytes)
                  : Overlap{};
        const auto output_at = share ? overlap.output : bytes * size + 64;
        std::ranges::copy(inputs[rank], memory[rank].begin() + static_cast<std::ptrdiff_t>(overlap.input));
        mine.input = std::bit_cast<std::uint64_t>(memory[rank].data() + overlap.input);
        mine.output = std::bit_cast<std::uint64_t>(memory[rank].data() + output_at);
        if (rank % 2 == 0)
            std::memcpy(&mine.scalar, scalars[rank].data(), scalars[rank].size());
        else
            mine.scalar_address = std::bit_cast<std::uint64_t>(scalars[rank].data());
        groups.push_back({mine});
    }
    ranks.carry_out(groups);
    const auto expected = reference(operation, inputs, scalars);
    for (std::uint32_t rank = 0; rank < size; ++rank) {
        const auto *got = std::bit_cast<const std::byte *>(groups[rank][0].output);
        if (!expected[rank].empty() && std::memcmp(expected[rank].data(), got, expected[rank].size()) != 0) {
            const auto at = static_cast<std::size_t>(
                std::mismatch(expected[rank].begin(), expected[rank].end(), got).first -
                expected[rank].begin());
            fail(fmt::format("{}{}: rank {} of {} differs at element {}", name_of(operation),
                             share ? " in place" : "", rank, size, at / size_of(operation.type)));
        }
        // Nothing behind it is touched.
        if (!share && got[expected[rank].size()] != std::byte{0xA5} &&
            got + expected[rank].size() < memory[rank].data() + memory[rank].size())
            fail(fmt::format("{}: rank {} of {} has more", name_of(operation), rank, size));
    }
}

template <class Function>
void for_each_operation(std::uint32_t size, Function function) {
    for (std::uint32_t kind = 0; kind < std::to_underlying(CollectiveKind::send); ++kind)
        for (std::uint32_t type = 0; type < protocol::kDataTypes; ++type)
            for (std::uint32_t reduction = 0;
                 reduction < (reduces(static_cast<CollectiveKind>(kind)) ? protocol::kReductions : 1);
                 ++reduction)
                function(CollectiveOperation{
                    .kind = kind,
                    .type = type,
                    .reduction = reduction,
                    .peer = has_root(static_cast<CollectiveKind>(kind)) ? (kind + type) % size : 0});
}

void all_of(Placement placement) {
    const Job job;
    std::mt19937_64 random(7);
    for (std::uint32_t size = 1; size <= kMostRanks; ++size) {
        if (is_short() && size != 1 && size != 2 && size != 5)
            continue;
        Ranks ranks(job, size, placement);
        for_each_operation(size, [&](CollectiveOperation operation) {
            for (const bool share : {false, true}) {
                operation.count = 1 + random() % 700;
                check(ranks, random, operation, share);
            }
        });
    }
}

void ranks_of_one_process(void **) { all_of(Placement::one_process); }
void ranks_of_one_device(void **) { all_of(Placement::one_device); }
void ranks_of_one_host(void **) { all_of(Placement::one_host); }
void ranks_of_many_hosts(void **) { all_of(Placement::hosts); }
void ranks_of_two_hosts(void **) { all_of(Placement::mixed); }
void ranks_of_linked_devices(void **) { all_of(Placement::linked); }

// Several rounds, and ends that are not whole ones.
void large_ones(void **) {
    const Job job;
    std::mt19937_64 random(8);
    for (const auto placement : kPlacements) {
        Ranks ranks(job, 3, placement);
        for (std::uint32_t kind = 0; kind < std::to_underlying(CollectiveKind::send); ++kind)
            for (const std::uint32_t type : {1U, 7U}) {
                // One of the types each, the other one where the next ranks are.
                if (is_short() && (kind + std::to_underlying(placement)) % 2 != type / 7)
                    continue;
                CollectiveOperation operation{
                    .kind = kind, .type = type, .peer = has_root(CollectiveKind{kind}) ? 1U : 0U};
                operation.count =
                    (6 * collectives::kRoundBytes + 12345) / size_of(type) / (kind % 2 == 0 ? 1 : 3);
                check(ranks, random, operation, kind % 3 == 0);
            }
        // And nothing at all.
        check(ranks, random, {.kind = std::to_underlying(CollectiveKind::all_reduce), .type = 7, .count = 0},
              false);
    }
}

// In a group each sends to all and receives from all, itself included, with collectives between.
void groups_of_sends(void **) {
    const Job job;
    std::mt19937_64 random(9);
    for (const auto placement : kPlacements) {
        constexpr std::uint32_t kSize = 4;
        constexpr std::uint32_t kType = 2;
        Ranks ranks(job, kSize, placement);
        for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{700'000}}) {
            const auto bytes = count * size_of(kType);
            std::vector<Buffer> inputs;
            std::vector<Buffer> outputs(kSize, Buffer(bytes * kSize));
            std::vector<Buffer> sums(kSize, Buffer(bytes));
            std::vector<std::vector<CollectiveOperation>> groups(kSize);
            for (std::uint32_t rank = 0; rank < kSize; ++rank)
                inputs.push_back(values(random, kType, count * kSize));
            for (std::uint32_t rank = 0; rank < kSize; ++rank) {
                for (std::uint32_t step = 0; step < kSize; ++step) {
                    const auto to = (rank + step) % kSize;
                    groups[rank].push_back(
                        {.kind = std::to_underlying(CollectiveKind::send),
                         .type = kType,
                         .peer = to,
                         .count = count,
                         .input = std::bit_cast<std::uint64_t>(inputs[rank].data() + to * bytes)});
                    // Another order than the one in which it is sent.
                    const auto from = (rank + 2 * step + (step >= 2 ? 1 : 0)) % kSize;
                    groups[rank].push_back(
                        {.kind = std::to_underlying(CollectiveKind::receive),
                         .type = kType,
                         .peer = from,
                         .count = count,
                         .output = std::bit_cast<std::uint64_t>(outputs[rank].data() + from * bytes)});
                }
                groups[rank].insert(groups[rank].begin() + rank,
                                    {.kind = std::to_underlying(CollectiveKind::all_reduce),
                                     .type = kType,
                                     .count = count,
                                     .input = std::bit_cast<std::uint64_t>(inputs[rank].data()),
                                     .output = std::bit_cast<std::uint64_t>(sums[rank].data())});
            }
            ranks.carry_out(groups);
            const auto sum = reference(
                {.kind = std::to_underlying(CollectiveKind::all_reduce), .type = kType, .count = count},
                inputs, {});
            for (std::uint32_t rank = 0; rank < kSize; ++rank) {
                assert_true(sums[rank] == sum[0]);
                for (std::uint32_t from = 0; from < kSize; ++from)
                    assert_memory_equal(outputs[rank].data() + from * bytes,
                                        inputs[from].data() + rank * bytes, bytes);
            }
        }
    }
}

// Groups are issued far ahead of what is carried out, on several communicators of the same processes.
void communicators_go_beside_each_other(void **) {
    const Job job;
    for (const auto placement : kPlacements) {
        constexpr std::uint32_t kSize = 4;
        constexpr int kGroups = 50;
        Ranks first(job, kSize, placement);
        Ranks second(job, kSize, placement);
        std::vector<std::vector<std::int32_t>> numbers(2 * kSize);
        for (std::uint32_t rank = 0; rank < kSize; ++rank)
            for (int which = 0; which < 2; ++which) {
                auto &mine = numbers[rank * 2 + static_cast<std::uint32_t>(which)];
                mine.assign(100, static_cast<std::int32_t>(rank) + which);
                auto &ranks = which == 0 ? first : second;
                for (int group = 0; group < kGroups; ++group)
                    ranks.issue(rank, {{.kind = std::to_underlying(CollectiveKind::all_reduce),
                                        .type = 2,
                                        .reduction = 2, // the largest
                                        .count = mine.size(),
                                        .input = std::bit_cast<std::uint64_t>(mine.data()),
                                        .output = std::bit_cast<std::uint64_t>(mine.data())}});
            }
        for (std::uint32_t rank = 0; rank < kSize; ++rank)
            for (int which = 0; which < 2; ++which) {
                auto &ranks = which == 0 ? first : second;
                assert_int_equal(ranks.member(rank).wait(kGroups, soon()).completed, kGroups);
                assert_true(numbers[rank * 2 + static_cast<std::uint32_t>(which)] ==
                            std::vector<std::int32_t>(100, 3 + which));
            }
    }
}

} // namespace

int main() {
    singularity::log::set_level(singularity::log::Level::kError); // refusals are what is tested
    const CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_one_process),
        cmocka_unit_test(ranks_of_one_device),
        cmocka_unit_test(ranks_of_one_host),
        cmocka_unit_test(ranks_of_many_hosts),
        cmocka_unit_test(ranks_of_two_hosts),
        cmocka_unit_test(ranks_of_linked_devices),
        cmocka_unit_test(large_ones),
        cmocka_unit_test(groups_of_sends),
        cmocka_unit_test(communicators_go_beside_each_other),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
