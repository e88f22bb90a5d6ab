// SPDX-License-Identifier: GPL-2.0-or-later
// Where the members of one process join their communicators, and meet those of other processes.
#pragma once

#include "common/error.hpp"
#include "proxy/collectives/engine_options.hpp"
#include "proxy/collectives/member.hpp"

#include <memory>

namespace singularity::collectives {

class Core;

class Engine {
  public:
    [[nodiscard]] static Expected<std::shared_ptr<Engine>> start(const EngineOptions &options);
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;
    Engine(Engine &&) = delete;
    Engine &operator=(Engine &&) = delete;
    ~Engine();

    // Returns at once; the member is ready when all have joined under its key. An error: it cannot be.
    [[nodiscard]] Expected<std::shared_ptr<Member>> join(const MemberPlace &place, MemberEvents events);
    // Of a member that its owner gives up: whoever has not come is not waited for.
    void forget(const Member &member);

  private:
    explicit Engine(std::unique_ptr<Core> core);
    std::unique_ptr<Core> core_;
};

} // namespace singularity::collectives
