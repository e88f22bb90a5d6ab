// SPDX-License-Identifier: GPL-2.0-or-later
// What other processes say of communicators that the rendezvous has not told of here yet: it tells one
// process after the other, and the first of them may have spoken, failed and gone before the last one is
// told.
#pragma once

#include "common/unique_fd.hpp"
#include "frames.hpp"
#include "group.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace singularity::collectives {

// Used with the engine's lock held. Others say as much as they like, so there is a most of everything.
class Early {
  public:
    static constexpr std::size_t kMost = 4096;

    void here(const ProcessId &from, Instance instance);
    void area(const ProcessId &from, Instance instance, std::uint32_t rank, UniqueFd memory);
    // The communicator has failed there.
    void failed(const ProcessId &from, Instance instance, std::string text);
    // Its connection is: what it has spoken of has lost a member. It does not speak of that again, with
    // another connection either, since it has noticed, too.
    void lost(const ProcessId &from, const std::string &why);

    struct Said {
        bool here = false;
        std::map<std::uint32_t, UniqueFd> areas; // by rank
        std::optional<std::string> failed;
        std::optional<std::string> lost;
    };
    // And forgets it.
    [[nodiscard]] Said take(const ProcessId &from, Instance instance);

  private:
    struct End {
        ProcessId from{};
        Instance instance = 0;
        bool lost = false;
        std::string text;
    };
    void end(End end);

    std::set<std::pair<ProcessId, Instance>> here_;
    std::map<std::tuple<ProcessId, Instance, std::uint32_t>, UniqueFd> areas_;
    std::deque<End> ends_; // the oldest goes first: its communicator may never come
};

} // namespace singularity::collectives
