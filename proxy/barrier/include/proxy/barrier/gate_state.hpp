// SPDX-License-Identifier: GPL-2.0-or-later
// What one process counts, and whether it may go on. Without threads: see gate.hpp.
#pragma once

#include "proxy/barrier/lines.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>

namespace singularity::barrier {

// Invariant: behind_ is the number of lines whose target is ahead of what was issued. While the gate is
// closed a group passes only if behind_ is not 0 or a step is left.
class GateState {
  public:
    void join(const Member &member) { members_.insert(member); }
    // Nothing of it is counted any more, now or later.
    void leave(const Member &member);

    [[nodiscard]] bool may_pass() const { return !closed_ || behind_ > 0 || step_; }
    // A group that may pass: one line for each of its operations. Lines of no member are not counted.
    void pass(std::span<const Line> group);

    // held: a thread stands at the gate. A round that is known already changes nothing.
    void apply(const Request &request, bool held);
    // Whoever asks goes away: everything as before the first request.
    void open();

    [[nodiscard]] bool closed() const { return closed_; }
    [[nodiscard]] std::uint64_t barrier() const { return barrier_; }
    [[nodiscard]] std::uint64_t round() const { return round_; }
    // passing: threads that have been let through and have not issued their group yet.
    [[nodiscard]] bool settled(std::size_t passing) const {
        return closed_ && behind_ == 0 && !step_ && passing == 0;
    }
    // Ends the round: a step that nobody has taken is void. process, pid and doing are the caller's.
    [[nodiscard]] Report report(bool held, std::size_t passing);

    auto operator<=>(const GateState &) const = default;

  private:
    struct Counter {
        std::uint64_t issued = 0;
        std::uint64_t target = 0;
        auto operator<=>(const Counter &) const = default;
    };

    [[nodiscard]] bool is_member(const Line &line) const;

    std::set<Member> members_;
    std::map<Line, Counter> lines_;
    std::size_t behind_ = 0;
    bool closed_ = false;
    bool step_ = false;
    std::uint64_t barrier_ = 0;
    std::uint64_t round_ = 0;
};

} // namespace singularity::barrier
