// SPDX-License-Identifier: GPL-2.0-or-later
// How a task begins. Init makes it, and what init makes begins in init's cgroups: where a task has cgroups of
// its own, init is moved there first, so that nothing of the task is ever anywhere else. That is why these
// begin one after the other.
#include "agent/limits/program_memory.hpp"
#include "agent/log.hpp"
#include "common/proc.hpp"
#include "common/text.hpp"
#include "live_node.hpp"
#include "node/cgroups.hpp"
#include "task_error.hpp"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sys/resource.h>

namespace singularity::agent {

namespace {

using node::Phase;
using node::Stdio;

Expected<void> check_program(const node::Program &program) {
    const auto refuse = [&](std::string why) {
        return failure("start", program.arguments.empty() ? "a task" : quote(program.arguments.front()),
                       std::move(why), EINVAL);
    };
    if (program.arguments.empty() || program.arguments.front().empty())
        return refuse("no program was named");
    if (auto checked = check_size(program); !checked)
        return checked;
    if (!program.directory.starts_with('/'))
        return refuse(fmt::format("the working directory {} is no absolute path", quote(program.directory)));
    if (!node::known(program.stdio))
        return refuse(fmt::format("{} is no kind of standard streams", static_cast<int>(program.stdio)));
    if (program.mask > 0777)
        return refuse(fmt::format("{:o} is no umask", program.mask));
    for (const auto &limit : program.limits)
        if (limit.resource >= RLIM_NLIMITS || limit.soft > limit.hard)
            return refuse(
                fmt::format("resource limit {} of {} to {} is none", limit.resource, limit.soft, limit.hard));
    return {};
}

std::string_view variable_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

// What is set for the node is set for each of its tasks, whatever the task says.
void add_environment(node::Program &program, const std::vector<std::string> &nodes) {
    std::erase_if(program.environment, [&](const std::string &entry) {
        return std::ranges::any_of(
            nodes, [&](const auto &other) { return variable_of(other) == variable_of(entry); });
    });
    program.environment.insert(program.environment.end(), nodes.begin(), nodes.end());
}

} // namespace

void LiveNode::start(node::Program program, Streams descriptors, const Responder &responder,
                     std::string cgroups) {
    if (cgroups.empty())
        return start_here(std::move(program), std::move(descriptors), responder);
    starts_.push_back({.program = std::move(program),
                       .descriptors = std::move(descriptors),
                       .responder = responder,
                       .cgroups = std::move(cgroups)});
    start_next();
}

void LiveNode::start_next() {
    if (std::exchange(looking_at_starts_, true))
        return;
    while (!starting_ && !starts_.empty()) {
        auto next = std::move(starts_.front());
        starts_.pop_front();
        if (auto moved = move_init(next.cgroups); !moved) {
            next.responder.refuse(moved.error());
            continue;
        }
        starting_ = true;
        start_here(std::move(next.program), std::move(next.descriptors),
                   {.token = next.responder.token,
                    .answer = [this, responder = next.responder](const std::string &packet,
                                                                 std::span<const int> descriptors) {
                        starting_ = false;
                        responder.answer(packet, descriptors);
                        start_next();
                    }});
    }
    if (!starting_ && !home_.empty()) {
        if (auto moved = move_init(home_); !moved && lives())
            kLog.warning("{}: {}: its init stays in the cgroups of a task", record_.spec.name,
                         moved.error().message());
        home_.clear();
    }
    looking_at_starts_ = false;
}

Expected<void> LiveNode::move_init(const std::string &cgroups) {
    const auto pid = record_.init.pid;
    if (home_.empty()) {
        auto home = proc::read(fmt::format("/proc/{}/cgroup", pid));
        if (!home)
            return propagate(home);
        home_ = std::move(*home);
    }
    if (!lives()) // or its number might be another's
        return failure("start a task in", record_.spec.name, "it has ended", ECHILD);
    return node::move_to_cgroups(pid, cgroups);
}

void LiveNode::start_here(node::Program program, Streams descriptors, const Responder &responder) {
    if (auto checked = check_program(program); !checked)
        return responder.refuse(checked.error());
    if (descriptors.size() != (program.stdio == Stdio::given ? 3U : 0U))
        return responder.refuse({"start", quote(program.arguments.front()),
                                 fmt::format("{} descriptors came with the request", descriptors.size()),
                                 EINVAL});
    if (auto why = no_room_for(Budget::tasks, record_.spec.uid))
        return responder.refuse({"start", quote(program.arguments.front()), *std::move(why), EDQUOT});
    do
        ++last_task_;
    while (last_task_ == 0 || tasks_.contains(last_task_));
    const auto id = last_task_;
    if (!descriptors.trouble().empty())
        return responder.refuse({"give a task", "a standard stream", descriptors.trouble(), EINVAL});
    for (std::uint32_t stream = 0; stream < descriptors.size(); ++stream)
        if (const auto &key = descriptors.keys()[stream]; !key.empty())
            record_.given.push_back({.key = key, .task = id, .stream = stream});
    // Before anything has the descriptors.
    const auto give_back = [this, id] {
        tasks_.erase(id);
        if (std::erase_if(record_.given, [&](const auto &given) { return given.task == id; }) != 0)
            if (auto written = room_.write(record_); !written)
                kLog.error("{}", written.error().message());
    };
    if (descriptors.size() != 0)
        if (auto written = room_.write(record_); !written) {
            give_back();
            return responder.refuse(written.error());
        }
    add_environment(program, record_.spec.environment);
    auto &task = tasks_[id];
    task.stdio = program.stdio;
    task.share = Share(Budget::tasks, record_.spec.uid);
    node::InitStart request{.task = id, .program = std::move(program)};
    ask(
        request,
        // Not the program, which may be large.
        [this, id, responder, give_back, stdio = request.program.stdio, directory = request.program.directory,
         name = request.program.arguments.front()](const node::Packet &packet) {
            const auto started = node::decode<node::InitStarted>(packet.bytes);
            const auto failed = node::decode<node::InitFailed>(packet.bytes);
            const auto found = tasks_.find(id);
            if (failed || !started || found == tasks_.end() ||
                packet.descriptors.size() != (stdio == Stdio::given ? 0U : 1U)) {
                give_back();
                return responder.refuse(
                    failed ? task_error(*failed, failed->step == node::Step::directory ? directory : name,
                                        record_.spec.image.directory)
                           : unexpected_reply(record_.spec.name));
            }
            found->second.pid = started->pid;
            found->second.phase = Phase::running;
            if (stdio == Stdio::kept)
                open_log(id, packet.descriptors.all()[0]);
            responder.tell(Started{.task = id, .pid = started->pid},
                           stdio == Stdio::terminal ? packet.descriptors.all() : std::span<const int>());
        },
        [responder, give_back](const Error &error) {
            give_back();
            responder.refuse(error);
        },
        &descriptors);
}

} // namespace singularity::agent
