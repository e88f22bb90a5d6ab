// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/collectives/engine.hpp"

#include "core.hpp"

#include <utility>

namespace singularity::collectives {

Engine::Engine(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Engine::~Engine() = default;

Expected<std::shared_ptr<Engine>> Engine::start(const EngineOptions &options) {
    auto core = std::make_unique<Core>(options);
    if (auto started = core->start(); !started)
        return propagate(started);
    return std::shared_ptr<Engine>(new Engine(std::move(core)));
}

Expected<std::shared_ptr<Member>> Engine::join(const MemberPlace &place, MemberEvents events) {
    return core_->join(place, std::move(events));
}

void Engine::forget(const Member &member) { core_->forget(member); }

} // namespace singularity::collectives
