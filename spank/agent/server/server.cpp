// SPDX-License-Identifier: GPL-2.0-or-later
#include "server.hpp"

#include "agent/limits/budget.hpp"
#include "agent/log.hpp"
#include "common/unix_socket.hpp"
#include "local/notice.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr auto kLockPatience = 10s;        // the agent before may be ending
constexpr auto kAcceptPause = 100ms;       // when descriptors have run out
constexpr std::size_t kClientLimit = 4096; // each with four descriptors at most, while its task is started
constexpr int kBacklog = 128;
constexpr int kPacketsAtOnce = 16;
constexpr std::size_t kBytesAtOnce =
    node::kDatagramLimit * kPacketsAtOnce; // others want to be served as well

Expected<void> make_directory(const std::filesystem::path &path, mode_t mode) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error)
        return failure("make the directory", path.native(), error.message(), error.value());
    if (chmod(path.c_str(), mode) != 0)
        return std::unexpected(errno_error("set the mode of", path.native()));
    return {};
}

} // namespace

Expected<std::unique_ptr<Server>> Server::open(ServerOptions options) {
    std::unique_ptr<Server> server(new Server(std::move(options)));
    server->started_ = std::time(nullptr);
    if (!server->options_.agents.metrics.empty())
        server->next_metrics_ = Deadline::after(0s);
    if (auto prepared = server->prepare(); !prepared)
        return propagate(prepared);
    if (auto looked = server->look_for_earlier(); !looked)
        return propagate(looked);
    server->adopt_waiting();
    return server;
}

Server::~Server() {
    if (listener_)
        unlink(options_.socket.c_str());
}

Expected<void> Server::prepare() {
    if (const auto init = options_.places.libraries.init(); access(init.c_str(), X_OK) != 0)
        return std::unexpected(errno_error(
            "run", fmt::format("{} (is the package installed? SINGULARITY_LIBDIR names another place)",
                               init.native())));
    // /run/singularity is where nodes see their own; the host needs it as a place to mount on.
    for (const auto &[path, mode] : {std::pair<std::filesystem::path, mode_t>("/run/singularity", 0755),
                                     {options_.socket.parent_path(), 0755},
                                     {options_.places.state, 0711},
                                     {options_.places.staging, 0700}})
        if (auto made = make_directory(path, mode); !made)
            return made;
    if (auto left =
            local::leave_notice(options_.socket.parent_path() / local::kNotice,
                                {.base = options_.local.base,
                                 .paths = {options_.local.paths.begin(), options_.local.paths.end()}});
        !left)
        return left;
    std::error_code error;
    options_.places.state = std::filesystem::canonical(options_.places.state, error);
    if (error)
        return failure("find", options_.places.state.native(), error.message(), error.value());
    auto lock = open_file(options_.places.state, O_RDONLY | O_DIRECTORY);
    if (!lock)
        return propagate(lock);
    lock_ = std::move(*lock);
    if (auto locked = wait_until(
            [&] { return flock(lock_.get(), LOCK_EX | LOCK_NB) == 0; }, Deadline::after(kLockPatience),
            fmt::format("another node agent that uses {}", options_.places.state.native()));
        !locked)
        return locked;

    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGTERM, SIGINT, SIGCHLD})
        sigaddset(&set, number);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_ = UniqueFd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_)
        return std::unexpected(errno_error("make", "a descriptor of signals"));
    // Inits become our children when the process that has made them ends: somebody must reap them.
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        return std::unexpected(errno_error("become", "the one who reaps"));
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    // Everybody may ask; what he may have is decided by who he is. An old socket is nobody else's: the state
    // directory is locked.
    auto listener = listen_unix(options_.socket, 0666, kBacklog);
    if (!listener)
        return propagate(listener);
    listener_ = std::move(*listener);
    return open_jobs();
}

int Server::poll_timeout() const {
    std::optional<Deadline> first = accept_again_;
    const auto consider = [&](const std::optional<Deadline> &deadline) {
        if (deadline && (!first || deadline->when() < first->when()))
            first = deadline;
    };
    for (const auto &[name, held] : nodes_) {
        if (held.woken)
            return 0;
        consider(held.tie_patience);
        consider(held.node->next_deadline());
    }
    consider(next_metrics_);
    consider(next_stops_);
    consider(adopt_again_.at());
    consider(jobs_->next_deadline());
    consider(slurm_watch_.next_deadline());
    for (const auto &[name, tie] : job_ties_)
        consider(tie.patience);
    for (const auto &[key, step] : steps_) {
        consider(step->patience());
        consider(step->doors().until());
        consider(step->standstill().until());
    }
    consider(reruns_.next_deadline());
    consider(local_trees_.next_deadline());
    for (const auto &script : scripts_) {
        consider(script.ask_again);
        consider(script.left);
        if (script.subprocess)
            consider(script.subprocess->deadline());
    }
    return first ? first->poll_timeout() : -1;
}

Expected<void> Server::serve() {
    kLog.info("serving on {}", options_.socket.native());
    for (;;) {
        std::vector<int> fds{signals_.get(), accept_again_ ? -1 : listener_.get()};
        for (const auto &client : clients_)
            fds.push_back(client->socket.get());
        const std::size_t first_finding = fds.size();
        const std::size_t looked_at = findings_.size(); // requests add more
        for (const auto &finding : findings_)
            finding->worker.watch(fds);
        std::vector<std::pair<Held *, std::size_t>> ends; // of each node's descriptors
        for (auto &[name, held] : nodes_) {
            held.node->watch(fds);
            ends.emplace_back(&held, fds.size());
        }
        std::vector<pollfd> watched;
        watched.reserve(fds.size());
        for (const int fd : fds)
            watched.push_back({.fd = fd, .events = POLLIN, .revents = 0});
        jobs_->watch(watched);
        slurm_watch_.watch(watched);
        for (const auto &script : scripts_)
            if (script.subprocess)
                watched.push_back({.fd = script.subprocess->fd(), .events = POLLIN, .revents = 0});
        reruns_.watch(watched);
        local_trees_.watch(watched);
        std::vector<int> of_workers;
        for (const auto &[worker, waiter] : forgetting_)
            worker.watch(of_workers);
        for (const int fd : of_workers)
            watched.push_back({.fd = fd, .events = POLLIN, .revents = 0});
        if (poll(watched.data(), watched.size(), poll_timeout()) < 0 && errno != EINTR)
            return std::unexpected(errno_error("wait for", "requests"));

        auto going_on = take_signals();
        if (!going_on || !*going_on)
            return going_on ? Expected<void>() : propagate(going_on);
        std::size_t at = first_finding + looked_at;
        for (auto &[held, end] : ends)
            for (; at < end; ++at)
                held->woken = held->woken || watched[at].revents != 0;
        // Copies: requests change the lists.
        const auto clients = clients_;
        for (std::size_t i = 0; i < clients.size(); ++i)
            if (watched[2 + i].revents != 0)
                read_client(clients[i]);
        for (std::size_t i = 0; i < looked_at; ++i)
            if (watched[first_finding + i].revents != 0)
                read_finding(*findings_[i]);
        for (auto &[name, held] : nodes_) {
            const auto deadline = held.node->next_deadline();
            if (std::exchange(held.woken, false) || (deadline && deadline->expired()))
                held.node->handle();
        }
        if (adopt_again_.at() && adopt_again_.at()->expired())
            adopt_waiting();
        if (watched[1].revents != 0 || (accept_again_ && accept_again_->expired()))
            accept_clients();
        jobs_->handle();
        end_ties();
        end_job_ties();
        look_at_steps();
        look_at_scripts();
        look_at_stops();
        look_at_slurm();
        for (const auto &key : reruns_.handle())
            if (const auto found = steps_.find(key); found != steps_.end())
                found->second->let_go();
        collect();
        local_trees_.handle([this](const std::string &tree) { return is_used(tree); });
        write_metrics();
    }
}

Expected<bool> Server::take_signals() const {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        kLog.info("ending on signal {}; {} virtual nodes live on", info.ssi_signo, nodes_.size());
        return false;
    }
    // Makers of nodes and inits: nobody asks for their status.
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    return true;
}

// Nobody takes more than half of what is free, so that something is left for whoever comes.
std::optional<std::string> Server::one_connection_more(uid_t uid, std::size_t has) const {
    const std::size_t free = kClientLimit - std::min(clients_.size(), kClientLimit);
    if (uid != 0 && has >= free)
        return fmt::format(
            "uid {} has {} connections to the agent already, and only {} are left for all users", uid, has,
            free);
    return budgets().refusal(Budget::connections, uid, has);
}

void Server::accept_clients() {
    accept_again_.reset();
    for (;;) {
        UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
                kLog.error("{}", errno_error("accept", "a connection").message());
                accept_again_ = Deadline::after(kAcceptPause);
            }
            return;
        }
        auto credentials = PeerCredentials::of(socket.get());
        if (!credentials)
            continue; // gone already
        const auto of_same = std::ranges::count_if(
            clients_, [&](const auto &other) { return other->credentials.uid() == credentials->uid(); });
        if (auto why = one_connection_more(credentials->uid(), static_cast<std::size_t>(of_same))) {
            kLog.warning("a connection is refused: {}", *why);
            hang_up(std::move(socket), credentials->uid());
            continue;
        }
        node::widen(socket.get());
        clients_.push_back(std::make_shared<Client>(std::move(socket), std::move(*credentials)));
    }
}

void Server::read_client(const std::shared_ptr<Client> &client) {
    node::Packet packet;
    std::size_t bytes = 0;
    for (int count = 0; count < kPacketsAtOnce && bytes < kBytesAtOnce && !client->gone; ++count) {
        const auto received =
            receive_apart(client->socket.get(), client->credentials.uid(), packet, client->brought);
        const bool over_budget = received == node::Received::failed && errno == EDQUOT;
        if (received == node::Received::nothing)
            return;
        bytes += packet.bytes.size();
        const bool good = received == node::Received::packet && handle(client, packet);
        client->brought = {}; // what it has not asked for
        if (good)
            continue;
        // What it asked for lies in the socket still, and goes with that.
        if (const auto header = node::header_of(packet.bytes); over_budget && header && header->token != 0)
            responder_for(client, header->token)
                .refuse({"receive", "descriptors that came with a request", packet.refusal, EDQUOT});
        if (received != node::Received::hung_up)
            kLog.warning("uid {} sent what is no request{}{}: the connection is closed",
                         client->credentials.uid(), packet.refusal.empty() ? "" : ": ", packet.refusal);
        client->gone = true;
    }
}

void Server::end_ties() {
    for (auto &[name, held] : nodes_) {
        const auto owner = held.tied_to.lock();
        const bool left = owner ? owner->gone : held.tie_patience && held.tie_patience->expired();
        if (!left)
            continue;
        kLog.info("{}: the process that it was tied to has left", name);
        held.tied_to.reset();
        held.tie_patience.reset();
        held.node->destroy(std::nullopt);
    }
}

void Server::collect() {
    forget_ended_processes();
    std::erase_if(clients_, [](const auto &client) {
        if (client->gone)
            hang_up(std::move(client->socket), client->credentials.uid());
        return client->gone;
    });
    // Whose client has left counts as his until its process has ended.
    std::erase_if(findings_, [this](const auto &finding) {
        const bool left = finding->client && finding->client->gone;
        if (left)
            finding->worker.hang_up();
        if (left && !finding->over && finding->worker.ended())
            give_up(*finding, {"restore", finding->request.what, "who wanted it has left", ECANCELED});
        return finding->over;
    });
    std::erase_if(nodes_,
                  [](const auto &entry) { return entry.second.node->state() == LiveNode::State::gone; });
    begin_forgetting();
}

} // namespace singularity::agent
