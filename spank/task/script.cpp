// SPDX-License-Identifier: GPL-2.0-or-later
#include "script.hpp"

#include "agent/protocol/client.hpp"
#include "common/deadline.hpp"
#include "common/exec.hpp"
#include "common/identity.hpp"
#include "output.hpp"
#include "processes.hpp"
#include "signals.hpp"
#include "streams/program.hpp"
#include "variables.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::task {

namespace {

using namespace std::chrono_literals;
using agent::Client;

constexpr std::chrono::milliseconds kLookAgain = 100ms;
constexpr std::chrono::milliseconds kReachAgain = 5s;
constexpr auto kHoldPatience = 20s; // for an agent that is being restarted; less than KillWait mostly is

// They bring the output of steps; and end by themselves when these have.
bool is_srun(const Descendant &one) { return one.program == "srun"; }

class Script {
  public:
    Script(std::filesystem::path socket, pid_t pid, UniqueFd signals, std::uint32_t restarts)
        : socket_(std::move(socket)), pid_(pid), signals_(std::move(signals)), restarts_(restarts) {}

    Expected<int> supervise() {
        for (;;) {
            if (!client_ && reach_at_.expired())
                reach();
            std::array<pollfd, 2> watched{
                {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                 {.fd = client_ ? client_->fd() : -1, .events = POLLIN, .revents = 0}}};
            if (poll(watched.data(), watched.size(), patience()) < 0 && errno != EINTR)
                return std::unexpected(errno_error("wait for", "the batch script"));
            take_signals();
            hear();
            if (auto status = reap())
                return *status;
            if (!runs_again_ || has_sruns())
                continue;
            // Slurm would tell them to end, once they are children of its own, and they would run on to do
            // so.
            if (auto killed = kill_all(); !killed)
                return propagate(killed);
            return SIGTERM; // as of any script that Slurm ends: one that forgets why must not call it well
        }
    }

  private:
    [[nodiscard]] int patience() const {
        if (runs_again_ || held_)
            return static_cast<int>(kLookAgain.count());
        return client_ ? -1 : reach_at_.poll_timeout();
    }

    // Agents may come and go; one that comes knows nothing of what the one before was told.
    void reach() {
        reach_at_ = Deadline::after(held_ ? kLookAgain : kReachAgain);
        auto client = Client::connect(socket_);
        auto begun = client ? client->send(agent::BeginScript{.restarts = restarts_}) : propagate(client);
        if (!begun)
            return;
        client_ = std::move(*client);
        begun_ = *begun;
        if (held_)
            ask();
    }

    void ask() {
        asked_.reset();
        if (!client_)
            return;
        if (auto asked = client_->send(agent::HoldScript{}))
            asked_ = *asked;
        else
            client_.reset();
    }

    void take_signals() {
        signalfd_siginfo info{};
        while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
            const int number = static_cast<int>(info.ssi_signo);
            if (!is_for_program(info))
                continue;
            if (held_) // whatever it is, the script hears of it if it runs on
                pending_.push_back(number);
            else if (number == SIGTERM)
                hold();
            else
                pass_on(number);
        }
    }

    void pass_on(int number) const { static_cast<void>(kill(pid_, number)); }

    // It stands still before anybody is asked: its steps may be saved and end at any time.
    void hold() {
        auto stopped = stop_all([](const Descendant &one) { return !is_srun(one); });
        held_ = Deadline::after(kHoldPatience);
        if (!stopped) {
            let_go(stopped.error().message());
            return;
        }
        stopped_ = std::move(*stopped);
        ask();
    }

    void let_go(const std::string &trouble) {
        if (!trouble.empty())
            std::cerr << "singularity-task: the batch script is told to end: " << trouble << '\n'
                      << std::flush;
        held_.reset();
        asked_.reset();
        pass_on(SIGTERM);
        for (const int number : std::exchange(pending_, {}))
            pass_on(number);
        for (const pid_t pid : std::exchange(stopped_, {}))
            static_cast<void>(kill(pid, SIGCONT));
    }

    void hear() {
        if (client_ && !held_) {
            // That it has hung up is seen here as well.
            auto stop = client_->take<agent::ScriptFate>(begun_);
            if (!stop)
                lost(stop.error());
            else if (*stop)
                hold();
        }
        if (client_ && asked_ && !runs_again_) {
            auto fate = client_->take<agent::ScriptFate>(*asked_);
            if (!fate) {
                lost(fate.error());
            } else if (const auto &there = *fate) {
                held_ = Deadline::after(kHoldPatience);
                runs_again_ = there->reply.runs_again;
                if (!runs_again_)
                    let_go({});
            }
        }
        // One that is there may have to wait for the decision of others.
        if (held_ && !runs_again_ && !client_ && held_->expired())
            let_go(timeout_error(*held_, "a node agent").message());
    }

    void lost(const Error &why) {
        client_.reset();
        if (why.code != EPIPE && held_)
            let_go(why.message());
        else if (held_)
            held_ = Deadline::after(kHoldPatience);
    }

    // All children: those whose parents have ended are ours.
    [[nodiscard]] std::optional<int> reap() const {
        std::optional<int> out;
        int status = 0;
        for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG))
            if (pid == pid_)
                out = status;
        return out;
    }

    static bool has_sruns() {
        const auto all = descendants();
        return !all ||
               std::ranges::any_of(*all, [](const auto &one) { return is_srun(one) && one.state != 'Z'; });
    }

    std::filesystem::path socket_;
    pid_t pid_;
    UniqueFd signals_;
    std::uint32_t restarts_;
    std::optional<Client> client_;
    Deadline reach_at_ = Deadline::after({});
    std::uint32_t begun_ = 0;
    std::optional<std::uint32_t> asked_;
    std::optional<Deadline> held_; // until then some agent must be there
    bool runs_again_ = false;
    std::vector<pid_t> stopped_;
    std::vector<int> pending_; // that have come since it is held
};

constexpr const char *kOpenMode = "SLURM_OPEN_MODE"; // of srun's output files (srun(1))

// In the first run: what the output files have by then is of another job. Whether they were begun anew.
Expected<bool> begin_outputs(std::uint32_t restarts) {
    const auto mark = mark_of_outputs();
    bool begun = false;
    if (restarts != 0 || !mark)
        return begun;
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
        auto anew = begin_output(fd, *mark);
        if (!anew)
            return anew;
        begun = begun || *anew;
    }
    return begun;
}

} // namespace

std::optional<std::string> mark_of_outputs() {
    const char *const identity = std::getenv(kIdentityVariable);
    const char *const job = std::getenv("SLURM_JOB_ID"); // tasks of an array have one identity
    if (identity == nullptr || job == nullptr)
        return std::nullopt;
    return fmt::format("{} {}", identity, job);
}

// Of a job that has said nothing, which the job_submit plugin lets append. The files that the script's sruns
// write (-o) begin anew with the script's own, and go on with it.
Expected<void> see_to_outputs(std::uint32_t restarts) {
    const char *const wanted = std::getenv(kOutputVariable);
    const bool is_new = wanted != nullptr && std::string_view(wanted) == kNewOutput;
    unsetenv(kOutputVariable);
    if (!is_new)
        return {};
    setenv(kOpenMode, "a", 1); // Slurm 22.05 does not
    auto begun = begin_outputs(restarts);
    if (!begun)
        return propagate(begun);
    if (*begun)
        unsetenv(kOpenMode);
    return {};
}

Expected<int> run_script(const std::filesystem::path &socket, const std::vector<std::string> &command) {
    sigset_t before;
    sigprocmask(SIG_BLOCK, nullptr, &before);
    std::uint32_t restarts = 0;
    if (const char *const text = std::getenv("SLURM_RESTART_COUNT"); text != nullptr) {
        const std::string_view digits(text);
        std::from_chars(digits.data(), digits.data() + digits.size(), restarts);
    }
    if (auto seen = see_to_outputs(restarts); !seen)
        std::cerr << "singularity-task: " << seen.error().message() << '\n';
    auto signals = spank::readable_signals(forwarded_signals());
    if (!signals)
        return propagate(signals);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        return std::unexpected(errno_error("look after", "the batch script"));
    const pid_t pid = fork();
    if (pid < 0)
        return std::unexpected(errno_error("start", command[0]));
    if (pid == 0) {
        setenv(kOfScriptVariable, kScriptAgain, 1);
        static_cast<void>(std::signal(SIGPIPE, SIG_DFL));
        sigprocmask(SIG_SETMASK, &before, nullptr);
        auto words = command;
        const auto arguments = exec_list(words);
        execvp(arguments[0], arguments.data());
        const int code = errno;
        std::cerr << "singularity-task: " << errno_error("run", command[0], code).message() << '\n';
        _exit(code);
    }
    return Script(socket, pid, std::move(*signals), restarts).supervise();
}

} // namespace singularity::task
