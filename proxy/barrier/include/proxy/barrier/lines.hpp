// SPDX-License-Identifier: GPL-2.0-or-later
// What is counted, and what processes and the coordinator tell each other about it.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace singularity::barrier {

// Random numbers: of a communicator, the same for all its members; of a process.
struct Key {
    std::array<std::uint64_t, 2> words{};
    auto operator<=>(const Key &) const = default;
};

// One of a process's places in a communicator; threads of one process may have several.
struct Member {
    Key communicator;
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
    auto operator<=>(const Member &) const = default;
};

enum class Kind : std::uint32_t { // NOLINT(performance-enum-size): as on the wire
    collective,                   // peer is 0
    send,                         // to peer
    receive,                      // from peer
    end
};

// What one member has issued of one kind. Sending to oneself is not counted: both sides are in one group.
struct Line {
    Key communicator;
    std::uint32_t rank = 0;
    std::uint32_t peer = 0;
    Kind kind = Kind::collective;
    auto operator<=>(const Line &) const = default;
};

struct Count {
    Line line;
    std::uint64_t number = 0; // of operations, since the member joined
    auto operator<=>(const Count &) const = default;
};

struct Request {
    enum class Action : std::uint32_t { hold, release, end }; // NOLINT(performance-enum-size): as on the wire
    Action action = Action::hold;
    std::uint64_t barrier = 0; // which one: random
    std::uint64_t round = 0;   // counts from 1
    bool step = false;         // whoever stands at the gate may pass one group
    std::vector<Count> targets;
    auto operator<=>(const Request &) const = default;
};

struct Report {
    Key process;
    std::uint64_t barrier = 0;
    std::uint64_t round = 0;
    bool settled = false; // nothing that is said here changes before the next request
    bool held = false;    // a thread stands at the gate
    std::int32_t pid = 0; // as the process itself sees it
    std::vector<Member> members;
    std::vector<Count> issued; // lines that are not listed: nothing
    std::string doing;         // for people
    auto operator<=>(const Report &) const = default;
};

} // namespace singularity::barrier
