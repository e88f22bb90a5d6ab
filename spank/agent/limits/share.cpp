// SPDX-License-Identifier: GPL-2.0-or-later
#include "share.hpp"

#include "agent/log.hpp"
#include "node/process.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <vector>

namespace singularity::agent {

namespace {

using OfUsers = std::map<uid_t, std::uint64_t>;

OfUsers &shares_of(Budget what) {
    static std::array<OfUsers, kBudgets> all;
    return all.at(static_cast<std::size_t>(what));
}

struct Process {
    Share share;
    UniqueFd pidfd;
};

std::vector<Process> &held_processes() {
    static_cast<void>(shares_of(Budget{})); // what was made before is there until this has gone
    static std::vector<Process> all;
    return all;
}

} // namespace

Share::Share(Budget what, uid_t uid, std::uint64_t count) : what_(what), uid_(uid), count_(count) {
    if (count != 0)
        shares_of(what)[uid] += count;
}

Share::~Share() {
    if (count_ == 0)
        return;
    auto &all = shares_of(what_);
    const auto found = all.find(uid_);
    found->second -= count_;
    if (found->second == 0)
        all.erase(found);
}

std::uint64_t Share::of(Budget what, uid_t uid) {
    const auto &all = shares_of(what);
    const auto found = all.find(uid);
    return found == all.end() ? 0 : found->second;
}

Held held(Budget what) {
    Held out;
    for (const auto &[uid, count] : shares_of(what)) {
        out.by_all += count;
        out.by_one = std::max(out.by_one, count);
    }
    return out;
}

std::optional<std::string> no_room_for(Budget what, uid_t uid, std::uint64_t more) {
    // A process that has ended may not have been noticed yet.
    if (const auto limit = budgets().limit(what, uid); Share::of(what, uid) >= limit)
        forget_ended_processes();
    return budgets().refusal(what, uid, Share::of(what, uid), more);
}

bool Turn::has_come(Budget what, uid_t uid, std::string_view whose) {
    if (waits_) {
        waits_ = Share::of(what, uid) >= budgets().limit(what, uid);
        return !waits_;
    }
    const auto why = no_room_for(what, uid);
    if (why)
        kLog.warning("{} waits: {}", whose, *why);
    waits_ = why.has_value();
    return !waits_;
}

void hold_until_ended(Share share, UniqueFd pidfd) {
    held_processes().push_back({.share = std::move(share), .pidfd = std::move(pidfd)});
}

void forget_ended_processes() {
    std::erase_if(held_processes(), [](const auto &one) { return node::has_ended(one.pidfd); });
}

} // namespace singularity::agent
