// SPDX-License-Identifier: GPL-2.0-or-later
// Communicators are made: from unique ids, and from other communicators.
#include "group.hpp"
#include "lifecycle.hpp"
#include "membership.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace singularity::nccl {

namespace {

// A new communicator with its handle; the job that makes it work is still to be done.
CommunicatorPointer begin(Library &library, const Place &place, Settings settings, CommunicatorHandle *out) {
    auto made = std::make_shared<Communicator>(place, std::move(settings));
    library.communicators.add(made);
    if (out != nullptr)
        *out = made->handle();
    return made;
}

void forget(Library &library, const CommunicatorPointer &one, CommunicatorHandle *out) {
    one->cancelled = true;
    if (library.communicators.remove(one->handle()) && out != nullptr && *out == one->handle())
        *out = nullptr;
}

// run(communicator) makes it ready. Where that fails, a program that does not wait learns it from the
// communicator's state; one that waits gets none.
template <class Run>
Job making(Library &library, const CommunicatorPointer &lane, const CommunicatorPointer &made,
           CommunicatorHandle *out, const Run &run) {
    const bool blocking = made->settings.blocking;
    return {.lane = lane,
            .subject = made,
            .run =
                [&library, made, out, blocking, run] {
                    const auto result = run(*made);
                    if (result != Result::success && blocking) {
                        static_cast<void>(leave(library, *made, Leave::abort));
                        forget(library, made, out);
                    }
                    return result;
                },
            .drop = [&library, made, out] { forget(library, made, out); }};
}

Result begin_rank(Library &library, Group &group, CommunicatorHandle *out, int ranks, int rank,
                  std::span<const UniqueId> ids, const Config *config, const Place &place) {
    if (const auto bad = given(out, "CommInitRank", "newcomm"); bad != Result::success)
        return bad;
    *out = nullptr;
    if (ranks < 1 || rank < 0 || rank >= ranks || static_cast<std::uint32_t>(ranks) > protocol::kMostRanks)
        return refuse(Result::invalid_argument, "Invalid rank requested : {}/{}", rank, ranks);
    const auto key = key_of(ids);
    if (!key)
        return key.error();
    const auto settings = settings_of(config);
    if (!settings)
        return settings.error();
    const auto made = begin(library, place, *settings, out);
    made->key = *key;
    made->rank = static_cast<std::uint32_t>(rank);
    made->size = static_cast<std::uint32_t>(ranks);
    return group.add(
        making(library, made, made, out, [&library](Communicator &one) { return join(library, one); }));
}

// What every member gives to a split.
struct Side {
    std::int32_t color;
    std::int32_t order;
};

// The ranks of a colour, by their order and then by rank.
std::vector<std::uint32_t> members_of(std::span<const Side> sides, std::int32_t color) {
    std::vector<std::uint32_t> members;
    for (std::uint32_t rank = 0; rank < sides.size(); ++rank)
        if (sides[rank].color == color)
            members.push_back(rank);
    std::ranges::stable_sort(members, {}, [&](std::uint32_t rank) { return sides[rank].order; });
    return members;
}

// child: nullptr where this rank gets none.
Result arrange_split(Library &library, Communicator &parent, std::uint64_t number, const Side &mine,
                     Communicator *child) {
    const auto all = exchange(library, parent, number, std::as_bytes(std::span(&mine, 1)));
    if (!all)
        return all.error();
    if (child == nullptr)
        return Result::success;
    std::vector<Side> sides(parent.size);
    std::memcpy(sides.data(), all->data(), all->size());
    const auto members = members_of(sides, mine.color);
    const auto place = std::ranges::find(members, parent.rank);
    if (place == members.end())
        return refuse(Result::internal_error, "ncclCommSplit : the other members do not know this rank");
    child->key = key_of_split(parent.key, number, mine.color);
    child->size = static_cast<std::uint32_t>(members.size());
    child->rank = static_cast<std::uint32_t>(place - members.begin());
    return join(library, *child);
}

Outcome<Settings> settings_for(const Communicator &parent, const Config *config) {
    return config == nullptr ? inherited(parent.settings) : settings_of(config);
}

// Ascending, each once.
Outcome<std::vector<int>> excluded_ranks(const Communicator &parent, std::span<const int> list) {
    const std::set<int> ranks(list.begin(), list.end());
    if (ranks.size() != list.size() || *ranks.begin() < 0 ||
        static_cast<std::uint32_t>(*ranks.rbegin()) >= parent.size)
        return refused(Result::invalid_argument,
                       "ncclCommShrink : excludeRanksList has no ranks, or some twice");
    if (ranks.contains(static_cast<int>(parent.rank)))
        return refused(Result::invalid_argument,
                       "ncclCommShrink : rank {} is excluded, so it has no part in it", parent.rank);
    return std::vector<int>(ranks.begin(), ranks.end());
}

} // namespace

Result init_rank(Library &library, CommunicatorHandle *out, int ranks, int rank, int ids, const UniqueId *id,
                 const Config *config) {
    CommunicatorHandle made = nullptr;
    const auto result = in_group(library, [&](Group &group) {
        if (ids <= 0 || ids > ranks)
            return refuse(Result::invalid_argument, "improper usage of ncclCommInitRank: nId = {}, nranks={}",
                          ids, ranks);
        if (const auto bad = given(id, "CommInitRank", "commId"); bad != Result::success)
            return bad;
        const auto place = library.driver.current();
        if (!place)
            return refuse(Result::unhandled_cuda_error, place.error());
        const auto begun = begin_rank(library, group, out, ranks, rank,
                                      std::span(id, static_cast<std::size_t>(ids)), config, *place);
        if (begun == Result::success)
            made = *out;
        return begun;
    });
    if (const auto one = library.communicators.find(made);
        result == Result::success && one != nullptr && !one->settings.blocking) {
        auto now = Result::success;
        static_cast<void>(async_error(library, made, &now));
        return now;
    }
    return result;
}

Result init_all(Library &library, CommunicatorHandle *out, int devices, const int *list) {
    if (const auto bad = given(out, "CommInitAll", "comms"); bad != Result::success)
        return bad;
    if (devices < 0)
        return refuse(Result::invalid_argument, "Invalid device count requested : {}", devices);
    const auto available = library.driver.devices();
    if (!available)
        return refuse(Result::unhandled_cuda_error, available.error());
    std::vector<int> chosen;
    for (int at = 0; at < devices; ++at)
        chosen.push_back(list != nullptr ? list[at] : at);
    for (const int one : chosen)
        if (one < 0 || one >= *available)
            return refuse(Result::invalid_argument, "Invalid device {} (totalnDev={})", one, *available);
    if (std::set<int>(chosen.begin(), chosen.end()).size() != chosen.size())
        return refuse(Result::invalid_usage, "ncclCommInitAll : a device may be in the list only once");
    const auto id = new_unique_id();
    if (!id)
        return id.error();
    return in_group(library, [&](Group &group) {
        for (int rank = 0; rank < devices; ++rank) {
            const auto place = library.driver.primary(chosen[static_cast<std::size_t>(rank)]);
            if (!place)
                return refuse(Result::unhandled_cuda_error, place.error());
            if (const auto bad = begin_rank(library, group, out + rank, devices, rank, std::span(&*id, 1),
                                            nullptr, *place);
                bad != Result::success)
                return bad;
        }
        return Result::success;
    });
}

Result split(Library &library, CommunicatorHandle parent, int color, int order, CommunicatorHandle *out,
             const Config *config) {
    const auto one = known(library, parent, "ncclCommSplit");
    if (!one)
        return Group::mine().note_if_open(one.error());
    const auto &from = *one;
    const auto result = in_group(library, [&](Group &group) {
        if (const auto bad = given(out, "ncclCommSplit", "newcomm"); bad != Result::success)
            return bad;
        if (const auto bad = ready(library, *from); bad != Result::success)
            return bad;
        if (color < kNoColor)
            return refuse(Result::invalid_argument, "ncclCommSplit : invalid color {}", color);
        *out = nullptr;
        const auto settings = settings_for(*from, config);
        if (!settings)
            return settings.error();
        const Side mine{.color = color, .order = order};
        const auto number = ++from->splits;
        if (color == kNoColor)
            return group.add({.lane = from,
                              .subject = nullptr,
                              .run = [&library, from, number,
                                      mine] { return arrange_split(library, *from, number, mine, nullptr); },
                              .drop = [] {}});
        const auto child = begin(library, from->place, *settings, out);
        return group.add(
            making(library, from, child, out, [&library, from, number, mine](Communicator &made) {
                return arrange_split(library, *from, number, mine, &made);
            }));
    });
    return result;
}

Result shrink(Library &library, CommunicatorHandle parent, const int *excluded, int count,
              CommunicatorHandle *out, const Config *config, int flags) {
    constexpr const char *kName = "ncclCommShrink";
    const auto one = known(library, parent, kName);
    if (!one)
        return Group::mine().note_if_open(one.error());
    const auto &from = *one;
    return in_group(library, [&](Group &group) {
        if (const auto bad = given(out, kName, "newcomm"); bad != Result::success)
            return bad;
        if (const auto bad = given(excluded, kName, "excludeRanksList"); bad != Result::success)
            return bad;
        if (count <= 0)
            return refuse(Result::invalid_argument, "{} : excludeRanksCount is {}", kName, count);
        if ((flags & ~kShrinkAbort) != 0)
            return refuse(Result::invalid_argument, "{} : unknown flags {:#x}", kName, flags);
        const auto ranks = excluded_ranks(*from, std::span(excluded, static_cast<std::size_t>(count)));
        if (!ranks)
            return ranks.error();
        const auto settings = settings_for(*from, config);
        if (!settings)
            return settings.error();
        *out = nullptr;
        if ((flags & kShrinkAbort) != 0) {
            // What has failed is what the program gets away from.
            from->revoked = true;
            if (const auto bad = leave(library, *from, Leave::abort); bad != Result::success)
                return bad;
        } else if (const auto bad = ready(library, *from); bad != Result::success) {
            return bad;
        }
        const auto child = begin(library, from->place, *settings, out);
        child->key = key_of_shrink(from->key, ++from->shrinks[*ranks], *ranks);
        child->size = from->size - static_cast<std::uint32_t>(ranks->size());
        child->rank = from->rank - static_cast<std::uint32_t>(std::ranges::count_if(*ranks, [&](int rank) {
                          return rank < static_cast<int>(from->rank);
                      }));
        return group.add(making(library, from, child, out,
                                [&library](Communicator &made) { return join(library, made); }));
    });
}

Result grow_id(Library &library, CommunicatorHandle parent, UniqueId *out) {
    constexpr const char *kName = "ncclCommGetUniqueId";
    const auto communicator = known(library, parent, kName);
    if (!communicator)
        return communicator.error();
    auto &from = **communicator;
    if (const auto bad = ready(library, from); bad != Result::success)
        return bad;
    if (const auto bad = given(out, kName, "uniqueId"); bad != Result::success)
        return bad;
    *out = id_of(key_of_grow(from.key, from.grows + 1));
    return Result::success;
}

Result grow(Library &library, CommunicatorHandle parent, int ranks, const UniqueId *id, int rank,
            CommunicatorHandle *out, const Config *config) {
    constexpr const char *kName = "ncclCommGrow";
    // To those that join, it is a new communicator like any other.
    if (parent == nullptr)
        return init_rank(library, out, ranks, rank, 1, id, config);
    const auto one = known(library, parent, kName);
    if (!one)
        return Group::mine().note_if_open(one.error());
    const auto &from = *one;
    return in_group(library, [&](Group &group) {
        if (const auto bad = given(out, kName, "newcomm"); bad != Result::success)
            return bad;
        *out = nullptr;
        if (const auto bad = ready(library, *from); bad != Result::success)
            return bad;
        if (ranks <= static_cast<int>(from->size) || static_cast<std::uint32_t>(ranks) > protocol::kMostRanks)
            return refuse(Result::invalid_argument, "{} : {} ranks cannot grow to {}", kName, from->size,
                          ranks);
        if (rank != kKeepsRank)
            return refuse(Result::invalid_argument, "{} : existing ranks must pass rank=-1, got {}", kName,
                          rank);
        const auto key = key_of_grow(from->key, from->grows + 1);
        if (id != nullptr && key_of(std::span(id, 1)) != key)
            return refuse(Result::invalid_argument,
                          "{} : the unique id is not what ncclCommGetUniqueId has last given for this "
                          "communicator",
                          kName);
        const auto settings = settings_for(*from, config);
        if (!settings)
            return settings.error();
        ++from->grows;
        const auto child = begin(library, from->place, *settings, out);
        child->key = key;
        child->size = static_cast<std::uint32_t>(ranks);
        child->rank = from->rank;
        return group.add(making(library, from, child, out,
                                [&library](Communicator &made) { return join(library, made); }));
    });
}

} // namespace singularity::nccl
