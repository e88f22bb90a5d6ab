// SPDX-License-Identifier: GPL-2.0-or-later
// Runs Slurm's commands for the stand-ins in the rank's node (../commands), until the agent wants them to
// rest, because the rank is to be saved.
#pragma once

#include "agent_line.hpp"
#include "commands/runner.hpp"
#include "companion.hpp"
#include "steps_save.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace singularity::task {

class CommandSide : public Companion {
  public:
    // adapt: makes of an environment in the node one outside of it. steps: of a rank that is saved together
    // with the steps that it has begun; nothing where a save does not wait for any. until_srun: of a script
    // that is saved until it begins one; the first waits until the agent has heard that.
    explicit CommandSide(std::function<void(std::vector<std::string> &environment)> adapt,
                         std::optional<ScriptSteps> steps = {}, bool until_srun = false)
        : adapt_(std::move(adapt)), steps_(std::move(steps)),
          steps_are_(until_srun ? commands::StepsAre::unknown : commands::StepsAre::with_rank) {}

    void watch(std::vector<pollfd> &fds) const override;
    [[nodiscard]] std::optional<Deadline> next_deadline() const override;
    void work() override;
    void connected(std::shared_ptr<agent::Client> client) override;
    void runs() override;
    void told_to_end() override;

    // As of commands::Runner.
    void withhold();
    void deliver();
    [[nodiscard]] bool is_in_doubt() const { return runner_ && runner_->is_in_doubt(); }
    // It has begun a step, which is not saved with it.
    [[nodiscard]] bool is_apart() const { return steps_are_ == commands::StepsAre::apart; }
    // An srun, or the like, has not ended.
    [[nodiscard]] bool waits_for_steps() const;
    void end();

  private:
    void ask_for_door();
    void hear();
    void has_no_door(const Error &why);
    void open(agent::Answered<agent::Door> door);
    void begin_apart();
    void look_at_signals();
    void look_at_rest();
    // Its step is saved with this rank, if both end.
    [[nodiscard]] bool goes_on(const commands::Runner::Running &one) const {
        return steps_.has_value() && one.may_go_on;
    }
    [[nodiscard]] bool is_saved_together(const commands::Runner::Running &one) const;
    void look_at_together();
    [[nodiscard]] static std::string who_hangs_on(const commands::Runner &runner);
    [[nodiscard]] std::string why_not_saved_with(const commands::Runner::Running &one) const;
    [[nodiscard]] bool sends_steps_away(commands::Runner &runner);
    void rest(std::string trouble, bool only_for_now = false);

    std::function<void(std::vector<std::string> &environment)> adapt_;
    std::optional<ScriptSteps> steps_;
    commands::StepsAre steps_are_;
    bool wants_a_step_ = false; // and nobody knows yet what they are
    AgentLine line_;
    std::optional<commands::Runner> runner_; // once there is a door
    Asked apart_;
    std::optional<Deadline> apart_again_at_; // the agent is told
    Asked door_;
    Asked watching_;
    Asked resting_;
    Asked finding_;
    std::vector<std::uint32_t> sought_; // steps
    std::optional<StepsSave> together_;
    std::optional<Deadline> hang_up_until_; // the stand-ins that it has sent back must
    bool may_save_steps_ = false;           // in the save that has begun
    // Whether a step that goes on runs, for which a signal waits.
    Asked running_;
    std::uint32_t signalled_ = 0;           // step
    std::optional<Deadline> ask_again_at_;  // whether it does
    std::optional<Deadline> signal_until_;  // it must
    std::optional<Deadline> door_again_at_; // it is asked for
    std::optional<Deadline> rest_until_;    // commands may run when the rank is to be saved
    std::optional<Deadline> steps_until_;   // the steps must have been saved; nothing: they cannot be
    std::optional<Deadline> withheld_until_;
    bool runs_ = false;
    bool withheld_ = false;
    bool has_seen_an_end_ = false; // that was withheld until no save was expected any more
    bool complained_ = false;      // that there is no door
    bool complained_of_apart_ = false;
};

} // namespace singularity::task
