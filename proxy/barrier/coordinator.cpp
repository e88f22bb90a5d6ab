// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/barrier/coordinator.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h> // join, since fmt 11

namespace singularity::barrier {

namespace {

// Lines of one message; a job may have thousands.
constexpr std::size_t kMostTold = 16;
// Enough for all ranks of a host to answer, and nothing that a checkpoint would feel.
constexpr std::chrono::milliseconds kFirstRound{100};

std::string text(const Key &key) { return fmt::format("{:016x}", key.words[0]); }

// What is compared: the collectives of a communicator, or what goes from one of its ranks to another.
struct Matter {
    Key communicator;
    bool collective = true;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    auto operator<=>(const Matter &) const = default;
};

Matter matter_of(const Line &line) {
    switch (line.kind) {
    case Kind::send:
        return {.communicator = line.communicator, .collective = false, .from = line.rank, .to = line.peer};
    case Kind::receive:
        return {.communicator = line.communicator, .collective = false, .from = line.peer, .to = line.rank};
    default:
        return {.communicator = line.communicator};
    }
}

struct Communicator {
    std::uint32_t size = 0;
    std::map<std::uint32_t, const Report *> members; // by rank: whose they are
};

using Communicators = std::map<Key, Communicator>;
using Counts = std::map<Line, std::uint64_t>;

Expected<Communicators> communicators_of(std::span<const Report> reports) {
    Communicators all;
    for (const auto &report : reports)
        for (const auto &member : report.members) {
            auto &communicator = all[member.communicator];
            if (communicator.members.empty())
                communicator.size = member.size;
            const auto refuse = [&](std::string why) {
                return failure("compare what was issued on", "communicator " + text(member.communicator),
                               std::move(why), EPROTO);
            };
            if (member.size != communicator.size || member.rank >= member.size)
                return refuse(fmt::format("pid {} is rank {} of {}, others have a size of {}", report.pid,
                                          member.rank, member.size, communicator.size));
            if (!communicator.members.emplace(member.rank, &report).second)
                return refuse(fmt::format("there are two members of rank {}", member.rank));
        }
    return all;
}

// The lines that share a matter, of members that are there.
std::vector<Line> lines_of(const Matter &matter, const Communicator &communicator) {
    std::vector<Line> lines;
    const auto add = [&](std::uint32_t rank, std::uint32_t peer, Kind kind) {
        if (communicator.members.contains(rank))
            lines.push_back({.communicator = matter.communicator, .rank = rank, .peer = peer, .kind = kind});
    };
    if (matter.collective) {
        for (const auto &[rank, report] : communicator.members)
            add(rank, 0, Kind::collective);
    } else {
        add(matter.from, matter.to, Kind::send);
        add(matter.to, matter.from, Kind::receive);
    }
    return lines;
}

std::string words(const Line &line) {
    switch (line.kind) {
    case Kind::send:
        return fmt::format("sends to rank {}", line.peer);
    case Kind::receive:
        return fmt::format("receives from rank {}", line.peer);
    default:
        return "collectives";
    }
}

std::string words(const Line &line, std::uint64_t issued, std::uint64_t target, const Report &report,
                  std::uint32_t size) {
    return fmt::format("pid {}, rank {} of {} in communicator {}, has issued {} of {} {}{}{}", report.pid,
                       line.rank, size, text(line.communicator), issued, target, words(line),
                       report.doing.empty() ? "" : ": ", report.doing);
}

} // namespace

Request Coordinator::first() const { return {.barrier = barrier_, .round = round_, .targets = {}}; }

Request Coordinator::release() const {
    return {.action = Request::Action::release, .barrier = barrier_, .round = round_, .targets = {}};
}

std::chrono::milliseconds Coordinator::patience(std::chrono::milliseconds longest) const {
    return round_ == 1 ? std::min(longest, kFirstRound) : longest;
}

std::string Coordinator::behind() const {
    const auto told = std::span(behind_).first(std::min(behind_.size(), kMostTold));
    const auto more = behind_.size() - told.size();
    return fmt::format("{}{}", fmt::join(told, "; "), more == 0 ? "" : fmt::format("; and {} more", more));
}

Expected<Coordinator::Decision> Coordinator::decide(std::span<const Report> reports) {
    auto communicators = communicators_of(reports);
    if (!communicators)
        return propagate(communicators);
    Counts counts;
    std::map<Matter, std::uint64_t> targets;
    std::map<Key, std::vector<Count>> now;
    bool settled = true;
    behind_.clear();
    for (const auto &report : reports) {
        if (report.barrier != barrier_ || report.round != round_)
            return failure("compare", fmt::format("what pid {} has issued", report.pid),
                           fmt::format("its answer is for round {}, not {}", report.round, round_), EPROTO);
        settled = settled && report.settled;
        now[report.process] = report.issued;
        for (const auto &[line, number] : report.issued) {
            const auto communicator = communicators->find(line.communicator);
            // Lines of a member that its process has not listed, or no longer, mean nothing.
            if (communicator == communicators->end() || line.peer >= communicator->second.size)
                continue;
            const auto member = communicator->second.members.find(line.rank);
            if (member == communicator->second.members.end() || member->second != &report)
                continue;
            counts[line] = number;
            auto &target = targets[matter_of(line)];
            target = std::max(target, number);
        }
    }
    ++round_;
    Decision decision;
    decision.otherwise = {.barrier = barrier_, .round = round_, .targets = {}};
    bool level = true;
    for (const auto &[matter, target] : targets) {
        const auto &communicator = communicators->at(matter.communicator);
        for (const auto &line : lines_of(matter, communicator)) {
            const auto issued = counts.contains(line) ? counts.at(line) : 0;
            if (issued == target)
                continue;
            level = false;
            const auto &report = *communicator.members.at(line.rank);
            auto &request = decision.requests[report.process];
            request.targets.push_back({.line = line, .number = target});
            behind_.push_back(words(line, issued, target, report, communicator.size));
        }
    }
    if (!settled)
        for (const auto &report : reports)
            if (!report.settled && !decision.requests.contains(report.process))
                behind_.push_back(fmt::format("pid {} does not come to its gate{}{}", report.pid,
                                              report.doing.empty() ? "" : ": ", report.doing));
    decision.complete = settled && level;
    // A communicator's lines that have gone with it are no progress that anybody waits for.
    const bool moved = now != last_;
    last_ = std::move(now);
    for (const auto &report : reports) {
        auto &request = decision.requests[report.process];
        request.barrier = barrier_;
        request.round = round_;
        request.step = !decision.complete && !moved && report.held && request.targets.empty();
    }
    return decision;
}

Total total_of(std::span<const Report> reports) {
    std::map<Line, std::uint64_t> lines; // processes report in any order
    Total out;
    for (const auto &report : reports)
        for (const auto &[line, number] : report.issued) {
            lines[line] += number;
            out.operations += number;
        }
    for (const auto &[line, number] : lines)
        for (const std::uint64_t word :
             {line.communicator.words[0], line.communicator.words[1], std::uint64_t{line.rank},
              std::uint64_t{line.peer}, static_cast<std::uint64_t>(line.kind)})
            out.lines =
                (out.lines ^ word) * 0x100000001b3; // FNV-1a's prime: no secret, no collisions by chance
    return out;
}

} // namespace singularity::barrier
