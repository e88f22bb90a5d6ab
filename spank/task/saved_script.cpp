// SPDX-License-Identifier: GPL-2.0-or-later
#include "saved_script.hpp"

#include "agent/protocol/agent_messages.hpp"
#include "agent_line.hpp"
#include "command_environment.hpp"
#include "command_side.hpp"
#include "common/text.hpp"
#include "companion.hpp"
#include "environment.hpp"
#include "output.hpp"
#include "script.hpp"
#include "step_request.hpp"
#include "variables.hpp"
#include "wrapper.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace singularity::task {

namespace {

// What the agent must know of a script beside its rank, and its commands.
class ScriptSide : public Companion {
  public:
    ScriptSide(ScriptSteps steps, std::vector<std::string> own, std::uint32_t gpus, bool until_srun)
        : restarts_(steps.restarts),
          commands_(
              [restarts = restarts_, own = std::move(own), gpus](std::vector<std::string> &environment) {
                  adapt_environment(environment, own, restarts > 0, gpus);
              },
              std::move(steps), until_srun) {}

    void watch(std::vector<pollfd> &fds) const override { commands_.watch(fds); }
    [[nodiscard]] std::optional<Deadline> next_deadline() const override { return commands_.next_deadline(); }

    void work() override {
        commands_.work();
        if (commands_.is_in_doubt() && !told_to_end_ && !doubting_)
            doubting_ = line_.ask(agent::HoldScript{});
        hear();
        end_apart();
    }

    void connected(std::shared_ptr<agent::Client> client) override {
        line_.connect(client);
        stands_still_in_.reset();
        watching_.reset();
        if (runs_)
            watching_ = line_.ask(agent::WatchStandstill{});
        begun_ = line_.ask(agent::BeginScript{.restarts = restarts_});
        holding_.reset();
        doubting_.reset();
        killed_ = false;
        if (told_to_end_)
            hold();
        commands_.connected(std::move(client));
    }

    void runs() override {
        runs_ = true;
        watching_ = line_.ask(agent::WatchStandstill{});
        commands_.runs();
    }

    void has_come(const std::string &checkpoint) override {
        if (!checkpoint.empty())
            to_outputs(cut_output, {.checkpoint = checkpoint, .run = restarts_, .ends = false});
    }
    [[nodiscard]] bool wants_all_output() const override { return stands_still_in_.has_value(); }
    void has_all_output() override {
        if (const auto moment = std::exchange(stands_still_in_, std::nullopt))
            to_outputs(note_output, *moment);
        watching_ = line_.ask(agent::WatchStandstill{});
    }

    // Its steps end now, and the script must not see that: it is saved as it is, or ends as well.
    void told_to_end() override {
        if (std::exchange(told_to_end_, true))
            return;
        commands_.withhold();
        hold();
    }

    void end() { commands_.end(); }

    [[nodiscard]] bool runs_again() {
        hear();
        return runs_again_;
    }

  private:
    // One file or two. It is not the script's fault, and it runs on.
    void to_outputs(Expected<void> (*how)(int, const std::string &, const Moment &),
                    const Moment &moment) const {
        for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
            if (auto done = mark_ ? how(fd, *mark_, moment) : Expected<void>(); !done)
                std::cerr << "singularity-task: " << done.error().message() << '\n';
    }

    void hold() {
        if (!holding_ && !doubting_)
            holding_ = line_.ask(agent::HoldScript{});
        if (commands_.is_apart() && !stopped_) // as one that runs outside of a node
            stopped_ = line_.ask(agent::SignalRank{.number = SIGSTOP}).has_value();
    }

    // One that runs again from its first line has nothing more to do once its steps have been saved, and have
    // delivered all that they have written.
    void end_apart() {
        if (told_to_end_ && runs_again_ && commands_.is_apart() && !commands_.waits_for_steps() && !killed_)
            killed_ = line_.ask(agent::SignalRank{.number = SIGKILL}).has_value();
    }

    // An srun was refused a step: does the job run again? Slurm tells the script so only after that.
    void hear_of_doubt() {
        const auto fate = line_.take<agent::ScriptFate>(doubting_);
        if (fate && !*fate)
            return;
        if (!fate)
            std::cerr << "singularity-task: " << fate.error().message() << '\n';
        bool runs_again = false;
        if (fate)
            if (const auto &known = *fate)
                runs_again = known->reply.runs_again;
        if (told_to_end_)
            hold();
        else if (runs_again)
            commands_.withhold();
        else
            commands_.deliver();
    }

    void hear() {
        if (const auto stands = line_.take<agent::StandsStill>(watching_))
            if (const auto &known = *stands)
                stands_still_in_ = {
                    .checkpoint = known->reply.checkpoint, .run = restarts_, .ends = known->reply.ends};
        const auto stop = line_.take<agent::ScriptFate>(begun_);
        if (!stop)
            std::cerr << "singularity-task: " << stop.error().message() << '\n';
        else if (*stop) { // a step of it is saved, and Slurm has told only that one to end
            told_to_end();
            static_cast<void>(line_.ask(agent::SignalRank{.number = SIGTERM}));
        }
        if (doubting_)
            hear_of_doubt();
        const auto fate = line_.take<agent::ScriptFate>(holding_);
        if (!fate)
            std::cerr << "singularity-task: " << fate.error().message() << '\n';
        else if (const auto &known = *fate; !known)
            return;
        else
            runs_again_ = known->reply.runs_again;
        if (runs_again_)
            return;
        commands_.deliver();
        if (std::exchange(stopped_, false))
            static_cast<void>(line_.ask(agent::SignalRank{.number = SIGCONT}));
    }

    std::uint32_t restarts_;
    std::optional<std::string> mark_ = mark_of_outputs();
    CommandSide commands_;
    AgentLine line_;
    Asked begun_;
    Asked holding_;
    Asked doubting_;
    Asked watching_;
    std::optional<Moment> stands_still_in_; // its output is to be noted
    bool runs_ = false;
    bool told_to_end_ = false;
    bool runs_again_ = false;
    bool stopped_ = false;
    bool killed_ = false;
};

} // namespace

Expected<int> run_saved_script(const std::filesystem::path &socket, std::uint32_t gpus,
                               const std::vector<std::string> &command, bool until_srun) {
    std::vector<std::string> own;
    for (char **entry = environ; *entry != nullptr; ++entry)
        own.emplace_back(*entry);
    auto request = script_request(own);
    if (!request)
        return propagate(request);
    request->join.until_srun = until_srun;
    const auto restarts = request->join.restarts;
    if (auto seen = see_to_outputs(restarts); !seen)
        std::cerr << "singularity-task: " << seen.error().message() << '\n';
    for (const auto *const name : {kEveryVariable, kStoreVariable, kPublishVariable, kHostsVariable})
        unsetenv(name);
    setenv(kOfScriptVariable, kSavedScript, 1);
    ScriptSteps steps{.restarts = restarts, .store = request->join.store, .hosts = request->join.hosts};
    if (const auto hosts = value_of(own, kHostsVariable))
        for (const auto host : parts_of(*hosts))
            steps.hosts.emplace_back(host);
    std::ranges::sort(steps.hosts);
    const auto [twice, end] = std::ranges::unique(steps.hosts);
    steps.hosts.erase(twice, end);
    ScriptSide side(std::move(steps), std::move(own), gpus, until_srun);
    auto status = run_rank(socket, std::move(request->join), command, side);
    side.end();
    // As of any script that Slurm ends: one that forgets why must not call it well.
    if (status && side.runs_again())
        return SIGTERM;
    return status;
}

} // namespace singularity::task
