// SPDX-License-Identifier: GPL-2.0-or-later
// Runs Slurm's commands for the stand-ins in the rank's node (../commands), until the agent wants them to
// rest, because the rank is to be saved.
#pragma once

#include "agent_line.hpp"
#include "commands/runner.hpp"
#include "companion.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace singularity::task {

class CommandSide : public Companion {
  public:
    // adapt: makes of an environment in the node one outside of it.
    explicit CommandSide(std::function<void(std::vector<std::string> &environment)> adapt)
        : adapt_(std::move(adapt)) {}

    void watch(std::vector<pollfd> &fds) const override;
    [[nodiscard]] std::optional<Deadline> next_deadline() const override;
    void work() override;
    void connected(std::shared_ptr<agent::Client> client) override;
    void runs() override;
    void told_to_end() override;

    // As of commands::Runner.
    void withhold();
    void deliver();
    void end();

  private:
    void ask_for_door();
    void hear();
    void has_no_door(const Error &why);
    void open(agent::Answered<agent::Door> door);
    void look_at_rest();

    std::function<void(std::vector<std::string> &environment)> adapt_;
    AgentLine line_;
    std::optional<commands::Runner> runner_; // once there is a door
    Asked door_;
    Asked watching_;
    Asked resting_;
    std::optional<Deadline> door_again_at_; // it is asked for
    std::optional<Deadline> rest_until_;    // commands may run when the rank is to be saved
    std::optional<Deadline> withheld_until_;
    bool runs_ = false;
    bool withheld_ = false;
    bool has_seen_an_end_ = false; // that was withheld until no save was expected any more
    bool complained_ = false;      // that there is no door
};

} // namespace singularity::task
