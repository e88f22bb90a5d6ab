// SPDX-License-Identifier: GPL-2.0-or-later
#include "run_command.hpp"

#include "agent/protocol/client.hpp"
#include "job_command.hpp"
#include "node/account.hpp"
#include "streams/program.hpp"
#include "streams/streams.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <iostream>
#include <optional>

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::spank {

namespace {

using agent::Client;

constexpr std::chrono::seconds kRejoinPatience{30}; // for an agent that is being restarted
constexpr int kSignalBase = 128;                    // as shells report a death by signal

// A task that runs, and the connection to the agent that knows of it.
class Session {
  public:
    Session(Client client, std::filesystem::path socket, std::string node, std::uint32_t task)
        : client_(std::move(client)), socket_(std::move(socket)), node_(std::move(node)), task_(task) {}

    // Its wait status.
    Expected<agent::Ended> supervise(const UniqueFd &signals, std::vector<Pump> &pumps,
                                     const UniqueFd &terminal) {
        if (auto waiting = wait(); !waiting)
            return propagate(waiting);
        for (;;) {
            std::vector<pollfd> others{{.fd = client_.fd(), .events = POLLIN, .revents = 0},
                                       {.fd = signals.get(), .events = POLLIN, .revents = 0}};
            if (!pump_and_poll(pumps, others, -1))
                return std::unexpected(errno_error("wait for", "the program"));
            forward(signals, terminal);
            auto ended = client_.take<agent::Ended>(waited_);
            if (ended && *ended)
                return (*ended)->reply;
            if (!ended && ended.error().code != EPIPE)
                return propagate(ended);
            if (!ended)
                if (auto again = rejoin(pumps); !again)
                    return propagate(again);
        }
    }

    [[nodiscard]] const std::string &node() const { return node_; }

    Expected<void> destroy() {
        auto done = client_.call<agent::Done>(agent::Destroy{.node = node_});
        if (!done && done.error().code != ENOENT) // gone with its init
            return propagate(done);
        return {};
    }

  private:
    Expected<void> wait() {
        auto token = client_.send(agent::Wait{.node = node_, .task = task_});
        if (!token)
            return propagate(token);
        waited_ = *token;
        return {};
    }

    // The agent has gone; nodes outlive it. Another will come. What the program writes is passed on.
    Expected<void> rejoin(std::vector<Pump> &pumps) {
        Expected<void> outcome;
        std::vector<pollfd> none;
        auto reached = wait_until(
            [&] {
                static_cast<void>(pump_and_poll(pumps, none, 0));
                auto client = Client::connect(socket_);
                if (!client)
                    return false;
                client_ = std::move(*client);
                auto tied = client_.call<agent::Done>(agent::Tie{.node = node_});
                // One that is just being killed may still take connections.
                if (!tied && tied.error().code == EPIPE)
                    return false;
                outcome = tied ? wait() : propagate(tied);
                return true;
            },
            Deadline::after(kRejoinPatience), "another node agent");
        return reached ? outcome : reached;
    }

    void forward(const UniqueFd &signals, const UniqueFd &terminal) {
        signalfd_siginfo info{};
        while (read(signals.get(), &info, sizeof(info)) == sizeof(info)) {
            if (info.ssi_signo == SIGWINCH) {
                pass_window_size(terminal);
                continue;
            }
            // A task that has ended meanwhile wants no signal: the answer is of no interest.
            static_cast<void>(client_.send(agent::Signal{
                .node = node_, .task = task_, .number = static_cast<std::int32_t>(info.ssi_signo)}));
        }
    }

    Client client_;
    std::filesystem::path socket_;
    std::string node_;
    std::uint32_t task_;
    std::uint32_t waited_ = 0;
};

// Until the program's end, which is that of its node; terminal: the other end of the program's, if it has
// one.
Expected<int> accompany(Session session, const UniqueFd &signals, Pipes pipes, UniqueFd terminal) {
    std::optional<RawTerminal> raw;
    if (terminal) {
        raw.emplace();
        if (auto added = pipes.add_terminal(terminal); !added)
            return propagate(added);
    }
    auto ended = session.supervise(signals, pipes.pumps, terminal);
    if (!ended) {
        if (auto delivered = pipes.deliver_what_there_is(); !delivered)
            std::cerr << "singularityctl: " << delivered.error().message() << '\n';
        return propagate(ended);
    }
    // Everything that could still write ends with it; what has been written is for us to deliver.
    if (!ended->node_ended)
        if (auto destroyed = session.destroy(); !destroyed)
            std::cerr << "singularityctl: " << destroyed.error().message() << '\n';
    if (auto delivered = pipes.deliver(); !delivered)
        return propagate(delivered);
    raw.reset();
    if (ended->node_ended)
        std::cerr << "singularityctl: the virtual node " << session.node() << " was ended from outside\n";
    return WIFEXITED(ended->status) ? WEXITSTATUS(ended->status) : kSignalBase + WTERMSIG(ended->status);
}

Expected<void> fill_in_user(node::Spec &spec) {
    spec.uid = geteuid();
    spec.gid = getegid();
    const int count = getgroups(0, nullptr);
    std::vector<gid_t> groups(count > 0 ? static_cast<std::size_t>(count) : 0);
    if (count < 0 || getgroups(count, groups.data()) < 0)
        return std::unexpected(errno_error("ask for", "the supplementary groups"));
    spec.groups.assign(groups.begin(), groups.end());
    return {};
}

} // namespace

Expected<int> run_in_node(RunInNode options) {
    auto signals = readable_signals();
    if (!signals)
        return propagate(signals);
    auto program = describe_program(options.command);
    if (!program)
        return propagate(program);
    if (!options.directory.empty())
        program->directory = options.directory;
    if (auto filled = fill_in_user(options.spec); !filled)
        return propagate(filled);
    if (options.spec.image.any())
        node::add_account(options.spec.image);
    options.spec.tied = !options.detach;
    auto client = Client::connect(options.socket);
    if (!client)
        return propagate(client);

    const bool terminal =
        !options.detach && (options.terminal || (isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1));
    Pipes pipes;
    if (!options.detach && !terminal) {
        auto made = Pipes::make();
        if (!made)
            return propagate(made);
        pipes = std::move(*made);
    }
    if (terminal)
        program->window = window_size();
    program->stdio = options.detach ? node::Stdio::kept
                     : terminal     ? node::Stdio::terminal
                                    : node::Stdio::given;
    auto created = client->call<agent::Created>(agent::Create{.spec = options.spec});
    if (!created)
        return propagate(created);
    const auto name = created->reply.name;
    auto started = client->call<agent::Started>(agent::Start{.node = name, .program = std::move(*program)},
                                                pipes.given());
    if (!started) {
        auto gone = client->call<agent::Done>(agent::Destroy{.node = name});
        return propagate(started); // the reason, whatever became of the node
    }
    if (options.detach) {
        std::cout << name << '\n';
        return EXIT_SUCCESS;
    }
    pipes.have_been_given();

    if (terminal && started->descriptors.size() != 1)
        return failure("attach to", name, "the agent has sent no terminal", EPROTO);
    return accompany(Session(std::move(*client), options.socket, name, started->reply.task), *signals,
                     std::move(pipes), terminal ? std::move(started->descriptors[0]) : UniqueFd());
}

Expected<int> restore_in_node(const RestoreInNode &options) {
    auto client = Client::connect(options.socket);
    if (!client)
        return propagate(client);
    Pipes pipes;
    if (!options.detach) {
        auto made = Pipes::make();
        if (!made)
            return propagate(made);
        pipes = std::move(*made);
    }
    auto imaged = client->follow<agent::Imaged, agent::Progress>(agent::Restore{.what = options.what,
                                                                                .proxies = options.proxies,
                                                                                .hosts = options.hosts,
                                                                                .detach = options.detach},
                                                                 options.on_news, pipes.given());
    if (!imaged)
        return propagate(imaged);
    const auto &report = imaged->reply.report;
    options.on_restored(report, imaged->reply.tied);
    if (!imaged->reply.tied)
        return EXIT_SUCCESS;
    if (imaged->reply.job)
        return accompany_job(std::move(*client),
                             {.socket = options.socket, .hosts = {}, .label = options.label, .publish = {}},
                             imaged->reply);
    pipes.have_been_given();
    const auto task = imaged->reply.task;
    // Either it had a terminal, or it has the pipes.
    UniqueFd terminal;
    if (auto lent = client->call<agent::Lent>(agent::Attach{.node = report.node, .task = task});
        lent && lent->descriptors.size() == 1)
        terminal = std::move(lent->descriptors[0]);
    auto signals = readable_signals();
    if (!signals)
        return propagate(signals);
    if (terminal)
        pipes = {};
    pass_window_size(terminal);
    return accompany(Session(std::move(*client), options.socket, report.node, task), *signals,
                     std::move(pipes), std::move(terminal));
}

} // namespace singularity::spank
