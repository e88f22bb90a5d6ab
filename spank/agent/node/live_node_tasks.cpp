// SPDX-License-Identifier: GPL-2.0-or-later
// What is asked about a node's tasks.
#include "agent/limits/program_memory.hpp"
#include "agent/log.hpp"
#include "live_node.hpp"
#include "task_error.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

namespace singularity::agent {

namespace {

using node::Phase;
using node::Stdio;

constexpr std::size_t kWaiterLimit = 4096;

} // namespace

void LiveNode::signal(const Signal &request, const Responder &responder, bool alone) {
    const auto on = request.task == 0 ? record_.spec.name : task_name(record_.spec.name, request.task);
    if (request.number < 0 || request.number >= NSIG)
        return responder.refuse(
            {"send", fmt::format("signal {}", request.number), "there is no such signal", EINVAL});
    if (state_ == State::saving || state_ == State::joining) {
        if (held_signals_.size() >= kWaiterLimit)
            return responder.refuse({"send a signal to", on, "too many wait here already", ENOSPC});
        held_signals_.push_back({.request = request, .responder = responder, .alone = alone});
        return;
    }
    ask(
        node::InitSignal{.task = request.task, .number = request.number, .alone = alone},
        [responder, on](const node::Packet &packet) {
            if (const auto failed = node::decode<node::InitFailed>(packet.bytes))
                responder.refuse(task_error(*failed, on));
            else
                responder.tell(Done{});
        },
        [responder](const Error &error) { responder.refuse(error); });
}

void LiveNode::send_held_signals() {
    for (const auto &one : std::exchange(held_signals_, {}))
        signal(one.request, one.responder, one.alone);
}

void LiveNode::wait(const Wait &request, const Responder &responder) {
    if (waiters_.size() >= kWaiterLimit)
        return responder.refuse(
            {"wait for", task_name(record_.spec.name, request.task), "too many wait here already", ENOSPC});
    waiters_.push_back({.request = request, .responder = responder});
    if (state_ == State::running)
        answer_waiters(request.task);
}

void LiveNode::attach(std::uint32_t task, const Responder &responder) {
    const auto found = tasks_.find(task);
    if (found == tasks_.end() || found->second.stdio != Stdio::terminal)
        return responder.refuse(
            {"attach to", task_name(record_.spec.name, task), "it has no terminal", ENOTTY});
    ask(
        node::InitAttach{.task = task},
        [responder, name = record_.spec.name, task](const node::Packet &packet) {
            if (const auto failed = node::decode<node::InitFailed>(packet.bytes))
                responder.refuse(task_error(*failed, task_name(name, task)));
            else if (packet.descriptors.size() == 1)
                responder.tell(Lent{}, packet.descriptors.all());
            else
                responder.refuse(unexpected_reply(name));
        },
        [responder](const Error &error) { responder.refuse(error); });
}

void LiveNode::log(std::uint32_t task, const Responder &responder) const {
    if (!record_.spec.job.empty())
        return responder.refuse({"read the output of", task_name(record_.spec.name, task),
                                 fmt::format("it goes to its job, {}: ask for that", record_.spec.job),
                                 EINVAL});
    std::vector<UniqueFd> files;
    std::vector<int> numbers;
    const auto path = room_.log(task);
    for (const auto &file : {TaskLog::older(path), path}) {
        auto opened = open_file(file, O_RDONLY | O_NOFOLLOW);
        if (!opened)
            continue;
        numbers.push_back(opened->get());
        files.push_back(std::move(*opened));
    }
    if (files.empty())
        return responder.refuse({"read the output of", task_name(record_.spec.name, task),
                                 "there is none: only that of detached tasks is kept", ENOENT});
    responder.tell(Lent{}, numbers);
}

TaskLog *LiveNode::output(std::uint32_t task) {
    const auto found = tasks_.find(task);
    return found != tasks_.end() && found->second.log ? &*found->second.log : nullptr;
}

bool LiveNode::output_is_lost(std::uint32_t task) const {
    const auto found = tasks_.find(task);
    return state_ == State::running &&
           (found == tasks_.end() || found->second.log_lost || found->second.stdio != Stdio::kept);
}

void LiveNode::answer_waiters(std::uint32_t task) {
    const auto found = tasks_.find(task);
    if (found != tasks_.end() && found->second.phase != Phase::ended)
        return;
    bool forget = false;
    std::vector<Waiter> left;
    for (auto &waiter : std::exchange(waiters_, {})) {
        if (waiter.request.task != task) {
            left.push_back(std::move(waiter));
        } else if (found == tasks_.end()) {
            waiter.responder.refuse(
                {"wait for", task_name(record_.spec.name, task), "there is no such task", ENOENT});
        } else {
            forget = forget || waiter.request.forget;
            waiter.responder.tell(Ended{.status = found->second.status});
        }
    }
    waiters_ = std::move(left);
    if (!forget)
        return;
    tasks_.erase(found);
    remove_log(task);
    ask(
        node::InitAcknowledge{.task = task}, [](const node::Packet & /*done*/) {},
        [](const Error & /*the next connection shows it again*/) {});
}

} // namespace singularity::agent
