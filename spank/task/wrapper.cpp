// SPDX-License-Identifier: GPL-2.0-or-later
#include "wrapper.hpp"

#include "agent/protocol/client.hpp"
#include "commands/command_messages.hpp"
#include "common/deadline.hpp"
#include "program_path.hpp"
#include "signals.hpp"
#include "streams/program.hpp"
#include "streams/streams.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <ranges>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace singularity::task {

namespace {

using agent::Client;

constexpr std::chrono::seconds kAgentPatience{30}; // for one that is being restarted
// Nodes and their device proxies are made on all hosts: longer than any of the agents' own deadlines.
constexpr std::chrono::seconds kStartPatience{300};
constexpr std::chrono::seconds kTogetherPatience{2}; // between the first rank that runs and the last

Expected<Client> reach(const std::filesystem::path &socket) {
    auto client = Client::connect(socket);
    if (!client) // whatever the reason, it is not the program that is missing
        client.error().code = EHOSTUNREACH;
    return client;
}

// Of a step whose input is another rank's, Slurm gives a task this.
bool has_no_input() {
    struct stat about{};
    return fstat(STDIN_FILENO, &about) == 0 && S_ISCHR(about.st_mode) &&
           about.st_rdev == makedev(1, 3); // of /dev/null (null(4))
}

class Rank {
  public:
    Rank(std::filesystem::path socket, Client client, agent::JoinStep request, UniqueFd signals,
         Companion &beside)
        : socket_(std::move(socket)), request_(std::move(request)), signals_(std::move(signals)),
          beside_(beside) {
        connect(std::move(client));
        beside_.connected(client_);
    }

    // Whether it is on a terminal of its own, of which the other end comes back.
    Expected<UniqueFd> start(const std::vector<int> &streams) {
        const bool terminal = request_.program.stdio == node::Stdio::terminal;
        auto joined = join(streams);
        // One that dies just then has told nobody of the rank; or it has, and the next one says so.
        if (!joined && joined.error().code == EPIPE)
            joined = join_next(streams);
        if (!joined)
            return propagate(joined);
        request_.program = {};
        beside_.has_come(joined->checkpoint);
        if (!joined->note.empty())
            std::cerr << "singularity-task: " << joined->note << '\n';
        if (!terminal || joined->node.empty())
            return UniqueFd();
        auto lent = client_->call<agent::Lent>(agent::Attach{.node = joined->node, .task = joined->task});
        if (!lent || lent->descriptors.size() != 1)
            return lent ? failure("attach to", joined->node, "the agent has sent no terminal", EPROTO)
                        : propagate(lent);
        return std::move(lent->descriptors[0]);
    }

    Expected<agent::RankEnded> supervise(std::vector<spank::Pump> &pumps, const UniqueFd &terminal) {
        auto waited = client_->send(agent::WaitRank{});
        for (;;) {
            if (!waited) {
                if (waited.error().code != EPIPE)
                    return propagate(waited);
                waited = rejoin(pumps);
                continue;
            }
            std::vector<pollfd> others{{.fd = client_->fd(), .events = POLLIN, .revents = 0},
                                       {.fd = signals_.get(), .events = POLLIN, .revents = 0}};
            beside_.watch(others);
            if (!spank::pump_and_poll(pumps, others, patience()))
                return std::unexpected(errno_error("wait for", "the rank"));
            forward(terminal);
            heard_ = client_->received();
            beside_.work();
            if (beside_.wants_all_output()) {
                for (auto &pump : pumps | std::views::drop(1)) // input
                    pump.pass_on_what_there_is();
                beside_.has_all_output();
            }
            auto ended = client_->take<agent::RankEnded>(*waited);
            if (!ended) {
                waited = propagate(ended);
                continue;
            }
            auto &there = *ended;
            if (there && there->reply.news.empty())
                return std::move(there->reply);
            if (there) {
                for (const auto &line : there->reply.news)
                    std::cerr << "singularity-task: " << line << (terminal ? "\r\n" : "\n"); // it is raw
                waited = client_->send(agent::WaitRank{});
            }
        }
    }

    // Before Slurm hears of its end: what its script asks for then is here.
    void tell_read(std::uint64_t bytes) {
        if (auto told = client_->call<agent::Done>(agent::InputRead{.bytes = bytes}); !told)
            std::cerr << "singularity-task: how much was read of its input is not known now: "
                      << told.error().message() << '\n';
    }

    // The signal that has ended it before the rank ran; 0: none has.
    [[nodiscard]] int ended_by() const { return ended_by_; }

  private:
    Expected<agent::Joined> join(const std::vector<int> &streams) {
        auto asked = client_->send(request_, streams);
        return asked ? await_joined(*asked) : propagate(asked);
    }

    Expected<agent::Joined> join_next(const std::vector<int> &streams) {
        Expected<agent::Joined> outcome = failure("reach", "the node agent", "it has hung up", EPIPE);
        auto reached = wait_until(
            [&] {
                auto client = reach(socket_);
                if (!client)
                    return false;
                connect(std::move(*client));
                beside_.connected(client_);
                outcome = join(streams);
                return outcome || outcome.error().code != EPIPE;
            },
            Deadline::after(kAgentPatience), "another node agent");
        return reached || outcome.error().code != EPIPE ? outcome : propagate(reached);
    }

    // A signal that comes before the rank runs ends the wrapper as it would have ended the program.
    Expected<agent::Joined> await_joined(std::uint32_t asked) {
        auto deadline = Deadline::after(told_to_end_ ? kTogetherPatience : kStartPatience);
        for (;;) {
            heard_ = client_->received();
            auto joined = client_->take<agent::Joined>(asked);
            if (!joined)
                return propagate(joined);
            if (const auto &there = *joined) {
                for (const int number : std::exchange(early_, {}))
                    send(number);
                if (told_to_end_)
                    send(SIGTERM);
                return there->reply;
            }
            if (deadline.expired() && told_to_end_)
                return end_by(SIGTERM);
            if (deadline.expired())
                return std::unexpected(timeout_error(deadline, "the agent to start the rank"));
            std::vector<pollfd> watched{{.fd = client_->fd(), .events = POLLIN, .revents = 0},
                                        {.fd = signals_.get(), .events = POLLIN, .revents = 0}};
            beside_.watch(watched);
            if (poll(watched.data(), watched.size(), patience(deadline)) < 0 && errno != EINTR)
                return std::unexpected(errno_error("wait for", "the rank"));
            beside_.work();
            signalfd_siginfo info{};
            if (read(signals_.get(), &info, sizeof(info)) != sizeof(info) || !is_for_program(info))
                continue;
            if (info.ssi_signo == SIGTERM && !told_to_end_) {
                // Others may run already, and what they have done is saved only with all of them.
                hear_of_end();
                deadline = Deadline::after(kTogetherPatience);
            } else if (ends_program(static_cast<int>(info.ssi_signo))) {
                return end_by(static_cast<int>(info.ssi_signo));
            } else {
                early_.push_back(static_cast<int>(info.ssi_signo));
            }
        }
    }

    std::unexpected<Error> end_by(int signal) {
        ended_by_ = signal;
        return failure("start", "the rank", fmt::format("signal {} came before it ran", signal), EINTR);
    }

    // The agent has gone; virtual nodes outlive it. Another will come. What the rank writes until then is
    // passed on, for nobody else has it: this may be all that becomes of it.
    Expected<std::uint32_t> rejoin(std::vector<spank::Pump> &pumps) {
        Expected<std::uint32_t> outcome = failure("reach", "the node agent", "it has hung up", EPIPE);
        std::vector<pollfd> none;
        auto reached = wait_until(
            [&] {
                static_cast<void>(spank::pump_and_poll(pumps, none, 0));
                auto client = reach(socket_);
                if (!client)
                    return false;
                connect(std::move(*client));
                auto joined = join_again(pumps);
                if (!joined && joined.error().code == EPIPE)
                    return false;
                // What the one before was told is lost.
                if (joined && told_to_end_)
                    send(SIGTERM);
                if (joined)
                    beside_.connected(client_);
                outcome = joined ? client_->send(agent::WaitRank{}) : propagate(joined);
                return true;
            },
            Deadline::after(kAgentPatience), "another node agent");
        return reached ? outcome : propagate(reached);
    }

    Expected<agent::Joined> join_again(std::vector<spank::Pump> &pumps) {
        request_.again = true;
        auto asked = client_->send(request_);
        if (!asked)
            return propagate(asked);
        for (const auto deadline = Deadline::after(agent::kCallPatience);;) {
            auto joined = client_->take<agent::Joined>(*asked);
            if (!joined)
                return propagate(joined);
            if (const auto &there = *joined)
                return there->reply;
            if (deadline.expired())
                return std::unexpected(timeout_error(deadline, "the agent to know the rank again"));
            std::vector<pollfd> others{{.fd = client_->fd(), .events = POLLIN, .revents = 0}};
            if (!spank::pump_and_poll(pumps, others, deadline.poll_timeout()))
                return std::unexpected(errno_error("wait for", "the node agent"));
        }
    }

    void forward(const UniqueFd &terminal) {
        signalfd_siginfo info{};
        while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
            if (info.ssi_signo == SIGTERM)
                hear_of_end();
            if (is_for_program(info))
                send(static_cast<int>(info.ssi_signo));
            else if (info.ssi_signo == SIGWINCH)
                spank::pass_window_size(terminal);
        }
    }

    void hear_of_end() {
        told_to_end_ = true;
        beside_.told_to_end();
    }

    void connect(Client client) { client_ = std::make_shared<Client>(std::move(client)); }

    // For poll(2). A rank that runs is waited for without end. What has been read and was for the other of
    // the two, the rank and what is beside it, is not heard of by poll any more.
    [[nodiscard]] int patience(std::optional<Deadline> until = std::nullopt) const {
        if (client_->received() != heard_)
            return 0;
        const auto other = beside_.next_deadline();
        if (other && (!until || other->when() < until->when()))
            until = other;
        return until ? until->poll_timeout() : -1;
    }

    // A rank that has ended meanwhile wants no signal: the answer is of no interest.
    void send(int number) { static_cast<void>(client_->send(agent::SignalRank{.number = number})); }

    std::filesystem::path socket_;
    std::shared_ptr<Client> client_;
    agent::JoinStep request_;
    UniqueFd signals_;
    Companion &beside_;
    std::uint64_t heard_ = 0; // packets of the agent's, by both
    bool told_to_end_ = false;
    std::vector<int> early_; // signals that came before the rank ran
    int ended_by_ = 0;       // signal, and so the status that wait(2) has of it
};

} // namespace

Expected<int> run_rank(const std::filesystem::path &socket, agent::JoinStep request,
                       const std::vector<std::string> &command, Companion &beside, std::uint64_t had) {
    auto program = spank::describe_program(command);
    if (!program)
        return propagate(program);
    const char *const path = std::getenv("PATH");
    // In an image the program is looked up there, by init.
    if (!request.image.any())
        program->arguments[0] = program_path(command[0], path == nullptr ? "" : path, program->directory);
    if (!request.program.directory.empty())
        program->directory = std::move(request.program.directory);
    auto signals = spank::readable_signals(forwarded_signals());
    if (!signals)
        return propagate(signals);
    const bool terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    spank::Pipes pipes;
    if (!terminal) {
        auto made = spank::Pipes::make();
        if (!made)
            return propagate(made);
        pipes = std::move(*made);
        pipes.pumps.front().count(had);
    } else {
        program->window = spank::window_size();
    }
    program->stdio = terminal ? node::Stdio::terminal : node::Stdio::given;
    request.program = std::move(*program);
    const bool goes_on = request.number != 0;
    auto client = reach(socket);
    if (!client)
        return propagate(client);
    Rank rank(socket, std::move(*client), std::move(request), std::move(*signals), beside);
    auto other = rank.start(pipes.given());
    // It may have run for a moment, as when others of its job could not be restored. That is undone, and what
    // it has written will come again.
    if (!other)
        return rank.ended_by() != 0 ? Expected<int>(rank.ended_by()) : propagate(other);
    pipes.have_been_given();
    beside.runs();
    std::optional<spank::RawTerminal> raw;
    if (*other) {
        raw.emplace();
        if (auto added = pipes.add_terminal(*other); !added)
            return propagate(added);
    }
    auto ended = rank.supervise(pipes.pumps, *other);
    const auto read = terminal ? std::nullopt : pipes.pumps.front().taken();
    if (ended && goes_on && read)
        rank.tell_read(has_no_input() ? commands::kReadsNone : *read);
    // Of what the rank has left behind some may still hold the streams: what there is by now is delivered,
    // also where nobody knows what has become of the rank.
    auto delivered = pipes.deliver_what_there_is();
    raw.reset();
    if (!ended)
        return propagate(ended);
    if (!delivered)
        return propagate(delivered);
    if (!ended->trouble.empty())
        std::cerr << "singularity-task: the rank was ended: " << ended->trouble << '\n';
    return ended->status;
}

} // namespace singularity::task
