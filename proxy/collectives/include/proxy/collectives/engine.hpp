// SPDX-License-Identifier: GPL-2.0-or-later
// Where the members of one process join their communicators.
#pragma once

#include "common/error.hpp"
#include "proxy/collectives/member.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace singularity::collectives {

class Engine {
  public:
    Engine() = default;
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;
    Engine(Engine &&) = delete;
    Engine &operator=(Engine &&) = delete;
    ~Engine() = default;

    // Returns at once; the member is ready when all have joined under its key. An error: it cannot be.
    [[nodiscard]] Expected<std::shared_ptr<Member>> join(const MemberPlace &place, MemberEvents events);
    // Of a member that its owner gives up before the others have come.
    void forget(const Member &member);

  private:
    struct Forming {
        std::uint32_t size = 0;
        std::vector<std::shared_ptr<Member>> members; // by rank; nullptr: it has not come
        std::uint32_t come = 0;
    };
    [[nodiscard]] Expected<void> complete(const Forming &forming);

    std::mutex lock_;
    std::map<Key, Forming> forming_;
    std::uint64_t next_instance_ = 1;
};

} // namespace singularity::collectives
