// SPDX-License-Identifier: GPL-2.0-or-later
#include "saved_script.hpp"

#include "agent/client.hpp"
#include "command_environment.hpp"
#include "commands/runner.hpp"
#include "common/deadline.hpp"
#include "companion.hpp"
#include "script.hpp"
#include "step_request.hpp"
#include "variables.hpp"
#include "wrapper.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace singularity::task {

namespace {

using namespace std::chrono_literals;
using agent::Client;

constexpr auto kReachAgentAgain = 1s;
constexpr auto kDoorAgain = 1s;
constexpr auto kCommandPatience = 20s; // for a command that runs when the script is to be saved

// What the agent must know of the script beside its rank, and its commands. The connection to the agent may
// break at any time; one that comes knows nothing of what the one before was told.
class ScriptSide : public Companion {
  public:
    ScriptSide(std::filesystem::path socket, std::uint32_t restarts, std::vector<std::string> own,
               std::uint32_t gpus)
        : socket_(std::move(socket)), restarts_(restarts), own_(std::move(own)), gpus_(gpus) {}

    void watch(std::vector<pollfd> &fds) const override {
        if (client_)
            fds.push_back({.fd = client_->fd(), .events = POLLIN, .revents = 0});
        if (runner_)
            runner_->watch(fds);
    }

    [[nodiscard]] std::optional<Deadline> next_deadline() const override {
        std::optional<Deadline> out = client_ ? std::optional<Deadline>() : reach_at_;
        const auto consider = [&](const std::optional<Deadline> &one) {
            if (one && (!out || one->when() < out->when()))
                out = one;
        };
        consider(rest_until_);
        consider(door_again_at_);
        if (runner_)
            consider(runner_->next_deadline());
        return out;
    }

    void work() override {
        if (!client_ && reach_at_.expired())
            reach();
        if (door_again_at_ && door_again_at_->expired())
            ask_for_door();
        if (runner_)
            runner_->work();
        hear();
        look_at_rest();
    }

    void runs() override {
        runs_ = true;
        ask_for_door();
    }

    // Its steps end now, and the script must not see that: it is saved as it is, or ends as well.
    void told_to_end() override {
        if (std::exchange(told_to_end_, true))
            return;
        if (runner_)
            runner_->withhold();
        hold();
    }

    void end() {
        if (runner_)
            runner_->end();
    }

    [[nodiscard]] bool runs_again() {
        hear();
        return runs_again_;
    }

  private:
    // None of what was asked for on a connection that is lost is answered; saves that had begun are over.
    void reach() {
        reach_at_ = Deadline::after(kReachAgentAgain);
        auto client = Client::connect(socket_);
        auto begun = client ? client->send(agent::BeginScript{.restarts = restarts_}) : propagate(client);
        if (!begun)
            return;
        client_ = std::move(*client);
        begun_ = *begun;
        if (told_to_end_)
            hold();
        ask_for_door();
    }

    template <class Request>
    std::optional<std::uint32_t> ask(const Request &request) {
        if (!client_)
            return std::nullopt;
        if (auto asked = client_->send(request))
            return *asked;
        lost();
        return std::nullopt;
    }

    template <class Reply>
    std::optional<agent::Answered<Reply>> take(std::optional<std::uint32_t> &asked) {
        if (!client_ || !asked)
            return std::nullopt;
        auto answer = client_->take<Reply>(*asked);
        if (!answer && answer.error().code == EPIPE)
            lost();
        if (!answer) {
            asked.reset();
            if (client_)
                complain(answer.error().message());
            // What becomes of the job is not known, and the script is not to wait for it.
            if (client_ && &asked == &holding_ && runner_)
                runner_->deliver();
            return std::nullopt;
        }
        if (*answer)
            asked.reset();
        return std::move(*answer);
    }

    void lost() {
        client_.reset();
        for (auto *const asked : {&begun_, &holding_, &door_, &watching_, &resting_})
            asked->reset();
        rest_until_.reset();
        door_again_at_.reset();
    }

    // A refusal may come each time that something is asked for.
    void complain(std::string why) {
        if (why == last_refusal_)
            return;
        std::cerr << "singularity-task: " << why << '\n';
        last_refusal_ = std::move(why);
    }

    void hold() {
        if (!holding_)
            holding_ = ask(agent::HoldScript{});
    }

    void ask_for_door() {
        door_again_at_.reset();
        if (runs_ && client_ && !door_)
            door_ = ask(agent::OpenDoor{});
    }

    [[nodiscard]] std::uint64_t received() const { return client_ ? client_->received() : 0; }

    void hear() {
        std::uint64_t before = 0;
        do {
            before = received();
            hear_all();
        } while (received() != before);
    }

    void hear_all() {
        if (const auto stop = take<agent::ScriptFate>(begun_)) // it is saved, and to be stopped
            hold();
        if (const auto fate = take<agent::ScriptFate>(holding_)) {
            runs_again_ = fate->reply.runs_again;
            if (!runs_again_ && runner_)
                runner_->deliver();
        }
        const bool waits_for_door = door_.has_value();
        if (auto door = take<agent::Door>(door_); door && door->descriptors.size() == 1)
            open(std::move(*door));
        else if (waits_for_door && !door_ &&
                 client_) // an agent that has just begun does not know the node yet
            door_again_at_ = Deadline::after(kDoorAgain);
        if (take<agent::SaveBegins>(watching_) && runner_) {
            runner_->pause();
            rest_until_ = Deadline::after(kCommandPatience);
        }
        if (take<agent::Done>(resting_)) // that save is over
            ask_for_door();
    }

    void open(agent::Answered<agent::Door> door) {
        if (!runner_) {
            commands::Setting setting;
            setting.commands.assign(door.reply.commands.begin(), door.reply.commands.end());
            setting.adapt = [this](std::vector<std::string> &environment) {
                adapt_environment(environment, own_, restarts_ > 0, gpus_);
            };
            runner_.emplace(std::move(setting));
            if (told_to_end_ && !runs_again_)
                runner_->withhold();
        }
        runner_->open(std::move(door.descriptors[0]));
        watching_ = ask(agent::WatchSaves{});
    }

    // A step is not waited for: it may take days.
    void look_at_rest() {
        if (!rest_until_ || !runner_)
            return;
        std::string trouble;
        for (const auto &one : runner_->running()) {
            const auto name = std::filesystem::path(one.path).filename().native();
            const bool is_step =
                std::ranges::find(commands::kStepCommands, name) != commands::kStepCommands.end();
            if (is_step || rest_until_->expired())
                trouble = fmt::format("it waits for {} (process {}), which runs outside of its virtual node: "
                                      "such a script is saved only while none of Slurm's commands runs in it",
                                      name.empty() ? "a command" : name, one.stand_in);
        }
        if (trouble.empty() && !runner_->at_rest()) {
            if (!rest_until_->expired())
                return;
            trouble = timeout_error(*rest_until_, "one of Slurm's commands to hang up").message();
        }
        rest_until_.reset();
        resting_ = ask(agent::CommandsRest{.trouble = std::move(trouble)});
    }

    std::filesystem::path socket_;
    std::uint32_t restarts_;
    std::vector<std::string> own_;
    std::uint32_t gpus_;
    std::optional<Client> client_;
    Deadline reach_at_ = Deadline::after({});
    std::optional<commands::Runner> runner_; // once there is a door
    // What has been asked.
    std::optional<std::uint32_t> begun_;
    std::optional<std::uint32_t> holding_;
    std::optional<std::uint32_t> door_;
    std::optional<std::uint32_t> watching_;
    std::optional<std::uint32_t> resting_;
    std::optional<Deadline> rest_until_;    // commands may run when the script is to be saved
    std::optional<Deadline> door_again_at_; // it is asked for
    std::string last_refusal_;
    bool runs_ = false;
    bool told_to_end_ = false;
    bool runs_again_ = false;
};

} // namespace

Expected<int> run_saved_script(const std::filesystem::path &socket, std::uint32_t gpus,
                               const std::vector<std::string> &command) {
    std::vector<std::string> own;
    for (char **entry = environ; *entry != nullptr; ++entry)
        own.emplace_back(*entry);
    auto request = script_request(own);
    if (!request)
        return propagate(request);
    const auto restarts = request->join.restarts;
    if (auto seen = see_to_outputs(restarts); !seen)
        std::cerr << "singularity-task: " << seen.error().message() << '\n';
    for (const auto *const name : {kEveryVariable, kStoreVariable})
        unsetenv(name);
    setenv(kOfScriptVariable, kSavedScript, 1);
    ScriptSide side(socket, restarts, std::move(own), gpus);
    auto status = run_rank(socket, std::move(request->join), command, &side);
    side.end();
    // As of any script that Slurm ends: one that forgets why must not call it well.
    if (status && side.runs_again())
        return SIGTERM;
    return status;
}

} // namespace singularity::task
