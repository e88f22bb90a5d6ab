// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs of three ranks, small enough to go through everything that can happen to them. Each is made from one
// global order of events, so that it runs to its end by itself.
#pragma once

#include "proxy/barrier/lines.hpp"

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace singularity::test {

inline constexpr std::uint32_t kRanks = 3;

inline barrier::Key key(std::uint64_t number) { return {.words = {number, 0}}; }
inline const barrier::Key kAll = key(1);  // of ranks 0, 1, 2
inline const barrier::Key kPair = key(2); // of ranks 0, 1

struct Step {
    enum class What : std::uint8_t {
        issue,   // a group
        sync,    // until all that this rank has issued is complete
        tell,    // a message that is not NCCL's, to `peer`
        be_told, // one from `peer`
    } what = What::issue;
    std::vector<barrier::Line> group;
    std::uint32_t peer = 0;
};
using Job = std::array<std::vector<Step>, kRanks>;

enum class Event : std::uint8_t { all, pair, send, send_on, exchange, message, message_back, end };

inline void add(Job &job, Event event, bool sync) {
    using barrier::Kind;
    std::set<std::uint32_t> issuers;
    const auto issue = [&](std::uint32_t rank, std::vector<barrier::Line> group) {
        job[rank].push_back({.group = std::move(group)});
        issuers.insert(rank);
    };
    const auto line = [](const barrier::Key &communicator, std::uint32_t rank, Kind kind,
                         std::uint32_t peer) {
        return barrier::Line{.communicator = communicator, .rank = rank, .peer = peer, .kind = kind};
    };
    const auto message = [&](std::uint32_t from, std::uint32_t to) {
        job[from].push_back({.what = Step::What::tell, .group = {}, .peer = to});
        job[to].push_back({.what = Step::What::be_told, .group = {}, .peer = from});
    };
    switch (event) {
    case Event::all:
        for (std::uint32_t rank = 0; rank < kRanks; ++rank)
            issue(rank, {line(kAll, rank, Kind::collective, 0)});
        break;
    case Event::pair:
        for (std::uint32_t rank = 0; rank < 2; ++rank)
            issue(rank, {line(kPair, rank, Kind::collective, 0)});
        break;
    case Event::send:
        issue(0, {line(kAll, 0, Kind::send, 1)});
        issue(1, {line(kAll, 1, Kind::receive, 0)});
        break;
    case Event::send_on:
        issue(1, {line(kAll, 1, Kind::send, 2)});
        issue(2, {line(kAll, 2, Kind::receive, 1)});
        break;
    case Event::exchange: // with a collective of another communicator in the same group
        issue(0, {line(kAll, 0, Kind::send, 1), line(kPair, 0, Kind::collective, 0),
                  line(kAll, 0, Kind::receive, 1)});
        issue(1, {line(kAll, 1, Kind::receive, 0), line(kPair, 1, Kind::collective, 0),
                  line(kAll, 1, Kind::send, 0)});
        break;
    case Event::message:
        message(0, 2);
        break;
    case Event::message_back:
        message(2, 0);
        break;
    case Event::end:
        break;
    }
    if (sync)
        for (const auto rank : issuers)
            job[rank].push_back({.what = Step::What::sync, .group = {}});
}

} // namespace singularity::test
