// SPDX-License-Identifier: GPL-2.0-or-later
#include "init.hpp"

#include "processors.hpp"

#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::init {

using node::InitMessage;
using node::Phase;
using node::Stdio;
using node::Step;

namespace {

void on_child(int /*number*/) {}

} // namespace

void Init::serve() {
    // SIGCHLD interrupts ppoll and nothing else.
    struct sigaction action{};
    action.sa_handler = on_child;
    sigset_t children;
    sigset_t waiting;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    if (sigaction(SIGCHLD, &action, nullptr) != 0 || sigprocmask(SIG_BLOCK, &children, &waiting) != 0)
        return;
    sigdelset(&waiting, SIGCHLD);
    for (;;) {
        reap();
        std::vector<pollfd> watched{{.fd = listener_.get(), .events = POLLIN, .revents = 0},
                                    {.fd = agent_.get(), .events = POLLIN, .revents = 0}};
        for (const auto &[id, task] : tasks_)
            if (task.progress)
                watched.push_back({.fd = task.progress.get(), .events = POLLIN, .revents = 0});
        if (ppoll(watched.data(), watched.size(), nullptr, &waiting) < 0) {
            if (errno != EINTR)
                return;
            continue;
        }
        for (auto task = tasks_.begin(); task != tasks_.end();) {
            const auto next = std::next(task);
            if (task->second.progress)
                look_at_progress(task);
            task = next;
        }
        if (watched[1].revents != 0)
            read_requests();
        if (watched[0].revents != 0)
            accept_agent();
    }
}

void Init::accept_agent() {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd)
        return;
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != 0)
        return;
    node::widen(fd.get());
    agent_ = std::move(fd);
    node::InitHello hello;
    for (auto &[id, task] : tasks_) {
        task.token = 0; // whoever asked is gone
        hello.tasks.push_back(
            {.task = id, .pid = task.pid, .phase = task.phase, .stdio = task.stdio, .status = task.status});
    }
    send(hello);
}

void Init::read_requests() {
    node::Packet packet;
    while (agent_) {
        const auto received = node::receive_packet(agent_.get(), packet, {.revocable = true});
        if (received == node::Received::nothing)
            return;
        const auto header = received == node::Received::packet ? node::header_of(packet.bytes) : std::nullopt;
        if (!header) {
            agent_ = Fd();
            return;
        }
        const auto serve_one = [&]<class Body>(void (Init::*handler)(const Body &, std::uint32_t)) {
            if (const auto body = node::decode<Body>(packet.bytes))
                (this->*handler)(*body, header->token);
            else
                agent_ = Fd();
        };
        switch (static_cast<InitMessage>(header->type)) {
        case InitMessage::start: {
            const bool large = packet.bytes.size() > node::kDatagramLimit;
            start(packet, header->token);
            if (large) { // what init keeps is in every image of the node
                packet = {};
                malloc_trim(0);
            }
            break;
        }
        case InitMessage::signal:
            serve_one(&Init::signal);
            break;
        case InitMessage::attach:
            serve_one(&Init::attach);
            break;
        case InitMessage::acknowledge:
            serve_one(&Init::acknowledge);
            break;
        case InitMessage::bind:
            serve_one(&Init::bind);
            break;
        default:
            agent_ = Fd();
        }
    }
}

void Init::start(node::Packet &packet, std::uint32_t token) {
    const auto request = node::decode<node::InitStart>(packet.bytes);
    const bool given = request && request->program.stdio == Stdio::given;
    if (!request || request->task == 0 || request->program.arguments.empty() ||
        !known(request->program.stdio) || packet.descriptors.size() != (given ? 3U : 0U)) {
        agent_ = Fd();
        return;
    }
    if (tasks_.size() >= node::kTaskLimit) {
        refuse({Step::remember, ENOSPC}, token);
        return;
    }
    if (tasks_.contains(request->task)) {
        refuse({Step::remember, EEXIST}, token);
        return;
    }
    Streams streams;
    for (std::size_t stream = 0; given && stream < streams.inner.size(); ++stream)
        streams.inner.at(stream) = Fd(packet.descriptors.take(stream));
    if (const auto failure = make_streams(request->program, streams); failure.code != 0) {
        refuse(failure, token);
        return;
    }
    Spawned spawned;
    if (const auto failure = spawn(request->program, streams, in_image_, spawned); failure.code != 0) {
        refuse(failure, token);
        return;
    }
    Task task;
    task.pid = spawned.pid;
    task.stdio = request->program.stdio;
    task.token = token;
    task.progress = std::move(spawned.progress);
    task.outer = std::move(streams.outer);
    task.binding = {.task = request->program.cpus, .all = own_processors()};
    tasks_.emplace(request->task, std::move(task));
}

void Init::look_at_progress(Tasks::iterator at) {
    Task &task = at->second;
    Failure failure;
    const ssize_t got = read(task.progress.get(), &failure, sizeof(failure));
    if (got < 0)
        return; // EAGAIN: it has not got that far
    task.progress = Fd();
    const auto token = std::exchange(task.token, 0);
    if (got == 0) {
        task.phase = Phase::running;
        if (token != 0)
            send_started(task, token);
        return;
    }
    tasks_.erase(at);
    if (token != 0)
        refuse(failure, token);
}

void Init::reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (auto at = tasks_.begin(); at != tasks_.end(); ++at) {
            if (at->second.pid != pid || at->second.phase == Phase::ended)
                continue;
            const auto id = at->first;
            if (at->second.progress)
                look_at_progress(at);
            // It may never have become the program.
            const auto found = tasks_.find(id);
            if (found != tasks_.end()) {
                found->second.phase = Phase::ended;
                found->second.status = status;
                send(node::InitEnded{.task = id, .status = status});
            }
            break;
        }
    }
}

void Init::signal(const node::InitSignal &request, std::uint32_t token) {
    pid_t target = -1; // everybody but init itself
    if (request.task != 0) {
        const auto found = tasks_.find(request.task);
        if (found == tasks_.end() || found->second.phase != Phase::running) {
            refuse({Step::find, found == tasks_.end() ? ENOENT : ESRCH}, token);
            return;
        }
        target = request.alone ? found->second.pid : -found->second.pid;
    }
    // ESRCH: nobody is left, which is all that a signal to everybody could want.
    if (kill(target, request.number) != 0 && (request.task != 0 || errno != ESRCH)) {
        refuse({Step::signal, errno}, token);
        return;
    }
    send(node::InitDone{}, token);
}

void Init::attach(const node::InitAttach &request, std::uint32_t token) {
    const auto found = tasks_.find(request.task);
    if (found == tasks_.end() || !found->second.outer) {
        refuse({Step::find, ENOENT}, token);
        return;
    }
    const int outer = found->second.outer.get();
    send(node::InitLent{}, token, std::span(&outer, 1));
}

void Init::bind(const node::InitBind &request, std::uint32_t token) {
    const auto found = tasks_.find(request.task);
    if (found == tasks_.end() || found->second.phase != Phase::running) {
        refuse({Step::find, found == tasks_.end() ? ENOENT : ESRCH}, token);
        return;
    }
    // EINVAL, as for a new task: the node's cgroup has none of these processors.
    Binding &binding = found->second.binding;
    const int code = bind_task(found->second.pid, binding, request.cpus);
    if (code != 0 && code != EINVAL) {
        refuse({Step::processors, code}, token);
        return;
    }
    binding = {.task = code == 0 ? request.cpus : own_processors(), .all = own_processors()};
    send(node::InitDone{}, token);
}

void Init::acknowledge(const node::InitAcknowledge &request, std::uint32_t token) {
    const auto found = tasks_.find(request.task);
    if (found == tasks_.end() || found->second.phase != Phase::ended) {
        refuse({Step::find, found == tasks_.end() ? ENOENT : EBUSY}, token);
        return;
    }
    tasks_.erase(found);
    send(node::InitDone{}, token);
}

void Init::send_started(const Task &task, std::uint32_t token) {
    const int outer = task.outer.get();
    send(node::InitStarted{.pid = task.pid}, token, std::span(&outer, task.outer ? 1 : 0));
}

void Init::refuse(const Failure &failure, std::uint32_t token) {
    send(node::InitFailed{.step = failure.step, .code = failure.code}, token);
}

template <class Body>
void Init::send(const Body &body, std::uint32_t token, std::span<const int> descriptors) {
    // An agent that does not read loses the connection and hears all that it has missed from the next one.
    if (agent_ && node::send_packet(agent_.get(), node::encode(body, token), descriptors) != 0)
        agent_ = Fd();
}

} // namespace singularity::init
