// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/collectives/operation.hpp"

#include "proxy/collectives/reduce.hpp"

#include <array>
#include <utility>

namespace singularity::collectives {

namespace {

using protocol::CollectiveKind;

// Elements of a buffer, as a multiple of the operation's count.
enum class Length : std::uint8_t {
    none,
    one,
    each,      // one for each rank
    root_one,  // the root's
    root_each, // the root's, one for each rank
};

struct Lengths {
    Length input;
    Length output;
    bool reduces;
    bool has_peer;
};

// In the order of CollectiveKind.
constexpr std::array<Lengths, 10> kLengths{{
    {Length::root_one, Length::one, false, true},  // broadcast
    {Length::one, Length::root_one, true, true},   // reduce
    {Length::one, Length::one, true, false},       // all_reduce
    {Length::one, Length::each, false, false},     // all_gather
    {Length::each, Length::one, true, false},      // reduce_scatter
    {Length::each, Length::each, false, false},    // all_to_all
    {Length::one, Length::root_each, false, true}, // gather
    {Length::root_each, Length::one, false, true}, // scatter
    {Length::one, Length::none, false, true},      // send
    {Length::none, Length::one, false, true},      // receive
}};
static_assert(kLengths.size() == std::to_underlying(CollectiveKind::end));

// More than any device has, and far from where a multiple is no number any more.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;

} // namespace

const char *wrong(const protocol::CollectiveOperation &operation, std::uint32_t /*rank*/,
                  std::uint32_t size) {
    if (operation.kind >= kLengths.size())
        return "there is no such operation";
    if (operation.type >= protocol::kDataTypes)
        return "there is no such data type";
    const auto &lengths = kLengths[operation.kind];
    if (lengths.reduces && operation.reduction >= protocol::kReductions)
        return "there is no such reduction";
    if (lengths.has_peer && operation.peer >= size)
        return "there is no such rank";
    if (operation.count > kMostBytes / size / element_size(operation.type))
        return "no memory is that large";
    return nullptr;
}

Extent extent(const protocol::CollectiveOperation &operation, std::uint32_t rank, std::uint32_t size) {
    const auto bytes = operation.count * element_size(operation.type);
    const auto of = [&](Length length) -> std::uint64_t {
        switch (length) {
        case Length::none:
            return 0;
        case Length::one:
            return bytes;
        case Length::each:
            return bytes * size;
        case Length::root_one:
            return operation.peer == rank ? bytes : 0;
        case Length::root_each:
            return operation.peer == rank ? bytes * size : 0;
        }
        return 0;
    };
    const auto &lengths = kLengths[operation.kind];
    return {.input = of(lengths.input), .output = of(lengths.output)};
}

} // namespace singularity::collectives
