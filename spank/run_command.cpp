// SPDX-License-Identifier: GPL-2.0-or-later
#include "run_command.hpp"

#include "agent/client.hpp"
#include "job_command.hpp"
#include "relay.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <iostream>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

namespace singularity::spank {

namespace {

using agent::Client;

// What a terminal or an administrator sends to end a program: it is the program's to answer.
constexpr std::array kForwarded{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr std::chrono::seconds kRejoinPatience{30}; // for an agent that is being restarted
constexpr int kSignalBase = 128;                    // as shells report a death by signal

Expected<UniqueFd> copy_of(int stream) {
    UniqueFd fd(fcntl(stream, F_DUPFD_CLOEXEC, 3));
    if (!fd && errno == EBADF) // closed: as a shell's <&- or >&-
        return open_file("/dev/null", O_RDWR);
    if (!fd)
        return std::unexpected(errno_error("copy", "a standard stream"));
    return fd;
}

node::WindowSize window_size() {
    winsize size{};
    ioctl(STDIN_FILENO, TIOCGWINSZ, &size);
    return {.rows = size.ws_row, .columns = size.ws_col};
}

// The program's terminal gets the size of ours, if we have one.
void pass_window_size(const UniqueFd &terminal) {
    const auto window = window_size();
    const winsize size{.ws_row = window.rows, .ws_col = window.columns, .ws_xpixel = 0, .ws_ypixel = 0};
    if (terminal && window.rows != 0)
        ioctl(terminal.get(), TIOCSWINSZ, &size);
}

// Keys go to the program as they are; everything is as before at the end.
class RawTerminal {
  public:
    RawTerminal() {
        if (tcgetattr(STDIN_FILENO, &before_) != 0)
            return;
        termios raw = before_;
        cfmakeraw(&raw);
        changed_ = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
    }
    ~RawTerminal() {
        if (changed_)
            tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
    }
    RawTerminal(const RawTerminal &) = delete;
    RawTerminal &operator=(const RawTerminal &) = delete;
    RawTerminal(RawTerminal &&) = delete;
    RawTerminal &operator=(RawTerminal &&) = delete;

  private:
    termios before_{};
    bool changed_ = false;
};

// Pipes between our standard streams and the task's. Output and errors that go to one place here share one
// pipe: their order is kept.
struct Pipes {
    std::array<UniqueFd, 3> inner;
    std::vector<Pump> pumps;

    Expected<void> add(int stream) {
        std::array<int, 2> ends{};
        if (pipe2(ends.data(), O_CLOEXEC) != 0)
            return std::unexpected(errno_error("make", "a pipe"));
        UniqueFd reading(ends[0]);
        UniqueFd writing(ends[1]);
        auto own = copy_of(stream);
        if (!own)
            return propagate(own);
        const bool input = stream == STDIN_FILENO;
        inner.at(static_cast<std::size_t>(stream)) = std::move(input ? reading : writing);
        if (input)
            pumps.emplace_back(std::move(*own), std::move(writing));
        else
            pumps.emplace_back(std::move(reading), std::move(*own));
        return {};
    }

    static Expected<Pipes> make() {
        Pipes out;
        for (const int stream : {STDIN_FILENO, STDOUT_FILENO})
            if (auto added = out.add(stream); !added)
                return propagate(added);
        struct stat output{};
        struct stat errors{};
        if (fstat(STDOUT_FILENO, &output) == 0 && fstat(STDERR_FILENO, &errors) == 0 &&
            output.st_dev == errors.st_dev && output.st_ino == errors.st_ino) {
            out.inner[2] = UniqueFd(fcntl(out.inner[1].get(), F_DUPFD_CLOEXEC, 3));
            return out;
        }
        if (auto added = out.add(STDERR_FILENO); !added)
            return propagate(added);
        return out;
    }
};

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
                if (auto again = rejoin(); !again)
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

    // The agent has gone; nodes outlive it. Another will come.
    Expected<void> rejoin() {
        Expected<void> outcome;
        auto reached = wait_until(
            [&] {
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
        for (const bool input : {true, false}) {
            auto own = copy_of(input ? STDIN_FILENO : STDOUT_FILENO);
            UniqueFd other(fcntl(terminal.get(), F_DUPFD_CLOEXEC, 3));
            if (!own || !other)
                return own ? Expected<int>(std::unexpected(errno_error("copy", "a terminal")))
                           : propagate(own);
            if (input)
                pipes.pumps.emplace_back(std::move(*own), std::move(other));
            else
                pipes.pumps.emplace_back(std::move(other), std::move(*own));
        }
    }
    auto ended = session.supervise(signals, pipes.pumps, terminal);
    if (!ended)
        return propagate(ended);
    // Everything that could still write ends with it; what has been written is for us to deliver.
    if (!ended->node_ended)
        if (auto destroyed = session.destroy(); !destroyed)
            std::cerr << "singularityctl: " << destroyed.error().message() << '\n';
    pipes.pumps.front().close(); // input
    for (std::vector<pollfd> none;
         std::ranges::any_of(pipes.pumps, [](const auto &pump) { return !pump.done(); });)
        if (!pump_and_poll(pipes.pumps, none, -1))
            return std::unexpected(errno_error("deliver", "the program's output"));
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

Expected<UniqueFd> readable_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : kForwarded)
        sigaddset(&set, number);
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
    UniqueFd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd)
        return std::unexpected(errno_error("make", "a descriptor of signals"));
    return fd;
}

Expected<node::Program> describe_program(const std::vector<std::string> &command) {
    node::Program program;
    program.arguments = command;
    for (char **entry = environ; entry != nullptr && *entry != nullptr; ++entry)
        program.environment.emplace_back(*entry);
    std::error_code error;
    program.directory = std::filesystem::current_path(error);
    if (error)
        return failure("find", "the working directory", error.message(), error.value());
    for (std::uint32_t resource = 0; resource < RLIM_NLIMITS; ++resource) {
        rlimit limit{};
        if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0)
            program.limits.push_back({.resource = resource, .soft = limit.rlim_cur, .hard = limit.rlim_max});
    }
    program.mask = umask(0);
    umask(static_cast<mode_t>(program.mask));
    return program;
}

Expected<int> run_in_node(RunInNode options) {
    auto signals = readable_signals();
    if (!signals)
        return propagate(signals);
    auto program = describe_program(options.command);
    if (!program)
        return propagate(program);
    if (auto filled = fill_in_user(options.spec); !filled)
        return propagate(filled);
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
    std::vector<int> given;
    for (const auto &inner : pipes.inner)
        if (inner)
            given.push_back(inner.get());
    auto started =
        client->call<agent::Started>(agent::Start{.node = name, .program = std::move(*program)}, given);
    if (!started) {
        auto gone = client->call<agent::Done>(agent::Destroy{.node = name});
        return propagate(started); // the reason, whatever became of the node
    }
    if (options.detach) {
        std::cout << name << '\n';
        return EXIT_SUCCESS;
    }
    for (auto &inner : pipes.inner)
        inner.reset();

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
    std::vector<int> given;
    if (!options.detach) {
        auto made = Pipes::make();
        if (!made)
            return propagate(made);
        pipes = std::move(*made);
        for (const auto &inner : pipes.inner)
            given.push_back(inner.get());
    }
    auto imaged = client->follow<agent::Imaged, agent::Progress>(agent::Restore{.what = options.what,
                                                                                .proxies = options.proxies,
                                                                                .hosts = options.hosts,
                                                                                .detach = options.detach},
                                                                 options.on_news, given);
    if (!imaged)
        return propagate(imaged);
    const auto &report = imaged->reply.report;
    options.on_restored(report, imaged->reply.tied);
    if (!imaged->reply.tied)
        return EXIT_SUCCESS;
    if (imaged->reply.job)
        return accompany_job(std::move(*client),
                             {.socket = options.socket, .hosts = {}, .label = options.label}, imaged->reply);
    for (auto &inner : pipes.inner)
        inner.reset();
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
