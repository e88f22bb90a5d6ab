// SPDX-License-Identifier: GPL-2.0-or-later
// The steps of a script that is saved and runs on: they are saved, stand still, and end when all of them do;
// their stand-ins are sent back, and are in the script's image, as they wait to go on from there. Then the
// sruns are begun again. What cannot be saved keeps all of them running.
#pragma once

#include "agent/protocol/agent_messages.hpp"
#include "agent_line.hpp"
#include "commands/runner.hpp"
#include "common/deadline.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace singularity::task {

// Of the job of a script.
struct ScriptSteps {
    std::uint32_t restarts = 0; // in this run
    std::string store;
    std::vector<std::string> hosts;
};

class StepsSave {
  public:
    struct Patience {
        std::chrono::milliseconds all{std::chrono::seconds(300)};   // for all to be saved and to end
        std::chrono::milliseconds run{std::chrono::seconds(20)};    // for all to run
        std::chrono::milliseconds let_go{std::chrono::seconds(60)}; // for all to hear that they run on
        std::chrono::milliseconds again{300};
        std::chrono::milliseconds find_again{1000};
    };
    // Of all sruns that the runner has now. All of these outlive it.
    StepsSave(AgentLine &line, commands::Runner &runner, const ScriptSteps &steps, const Patience &patience);
    StepsSave(AgentLine &line, commands::Runner &runner, const ScriptSteps &steps)
        : StepsSave(line, runner, steps, Patience()) {}

    void work();
    // The agent was another: what has not been answered is not.
    void reconnected();
    [[nodiscard]] std::optional<Deadline> next_deadline() const;
    // Why not all of them are saved. Empty: nothing stands in the way yet.
    [[nodiscard]] const std::string &trouble() const { return trouble_; }
    // There is none whose end would have another meaning than it has for anybody.
    [[nodiscard]] bool resolved() const {
        return phase_ == Phase::resolving && of_.empty() && let_go_.empty();
    }

  private:
    enum class Phase : std::uint8_t { looking, saving, ending, resolving };
    // What is known of one.
    struct About {
        bool runs = false;
        std::string checkpoint;  // it stands still, or has ended because of it
        bool may_end_so = false; // it was asked to
    };
    using Running = commands::Runner::Running;
    [[nodiscard]] std::optional<Running> look(std::uint32_t number) const;
    [[nodiscard]] bool is_over(std::uint32_t number) const;
    // An answer about steps has come, of which each is told.
    [[nodiscard]] bool
    take(Asked &asked, const std::function<void(std::uint32_t, About &, const agent::SavedStep &)> &each);
    void ask(Asked &asked, agent::StepsVerb verb);
    void look_for();
    [[nodiscard]] static std::string why_not(const Running &one, bool here);
    void save();
    void end();
    void resolve();
    void take_found();
    void ask_about_unclear();
    void look_at_unclear();
    void lose();
    void settle(std::uint32_t number);
    void give_up(std::string why);
    void let_go();
    [[nodiscard]] std::string late() const;
    [[nodiscard]] std::string input_that_is_gone() const;
    void look_again(std::chrono::milliseconds pause);

    AgentLine *line_;
    commands::Runner *runner_;
    const ScriptSteps *steps_;
    std::map<std::uint32_t, About> of_; // by number
    Phase phase_ = Phase::looking;
    std::string trouble_;
    Patience patience_;
    Deadline until_;
    Deadline run_until_;                   // all must be known
    std::vector<std::uint32_t> let_go_;    // those that are to run on, until that was heard
    std::optional<Deadline> let_go_until_; // it must have been
    std::optional<Deadline> again_;
    std::vector<std::uint32_t> asked_about_;
    Asked looking_;
    Asked saving_;
    Asked ending_;
    Asked finding_;
    Asked letting_go_;
};

} // namespace singularity::task
