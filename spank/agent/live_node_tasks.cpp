// SPDX-License-Identifier: GPL-2.0-or-later
// What is asked about a node's tasks.
#include "common/text.hpp"
#include "live_node.hpp"
#include "log.hpp"
#include "program_memory.hpp"
#include "task_error.hpp"

#include <algorithm>
#include <csignal>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

namespace singularity::agent {

namespace {

using node::Phase;
using node::Stdio;

constexpr std::size_t kWaiterLimit = 4096;

// What a task may be given as a standard stream: what a checkpoint can cut. The key is CRIU's name of a pipe.
Expected<std::string> stream_key(int fd) {
    struct stat about{};
    if (fstat(fd, &about) != 0)
        return std::unexpected(errno_error("look at", "a standard stream"));
    if (S_ISFIFO(about.st_mode))
        return fmt::format("pipe:[{}]", about.st_ino);
    if (S_ISREG(about.st_mode) || (S_ISCHR(about.st_mode) && about.st_rdev == makedev(1, 3)))
        return std::string();
    return failure("give a task", "a standard stream",
                   "it is no pipe, regular file or /dev/null, and could not be checkpointed", EINVAL);
}

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

void LiveNode::start(node::Program program, node::Descriptors descriptors, const Asker &asker) {
    if (auto checked = check_program(program); !checked)
        return asker.refuse(checked.error());
    if (descriptors.size() != (program.stdio == Stdio::given ? 3U : 0U))
        return asker.refuse({"start", quote(program.arguments.front()),
                             fmt::format("{} descriptors came with the request", descriptors.size()),
                             EINVAL});
    do
        ++last_task_;
    while (last_task_ == 0 || tasks_.contains(last_task_));
    const auto id = last_task_;
    for (std::uint32_t stream = 0; stream < descriptors.size(); ++stream) {
        auto key = stream_key(descriptors.all()[stream]);
        if (!key) {
            std::erase_if(record_.given, [&](const auto &given) { return given.task == id; });
            return asker.refuse(key.error());
        }
        if (!key->empty())
            record_.given.push_back({.key = std::move(*key), .task = id, .stream = stream});
    }
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
            return asker.refuse(written.error());
        }
    add_environment(program, record_.spec.environment);
    tasks_[id].stdio = program.stdio;
    node::InitStart request{.task = id, .program = std::move(program)};
    ask(
        request,
        // Not the program, which may be large.
        [this, id, asker, give_back, stdio = request.program.stdio, directory = request.program.directory,
         name = request.program.arguments.front()](const node::Packet &packet) {
            const auto started = node::decode<node::InitStarted>(packet.bytes);
            const auto failed = node::decode<node::InitFailed>(packet.bytes);
            const auto found = tasks_.find(id);
            if (failed || !started || found == tasks_.end() ||
                packet.descriptors.size() != (stdio == Stdio::given ? 0U : 1U)) {
                give_back();
                return asker.refuse(
                    failed ? task_error(*failed, failed->step == node::Step::directory ? directory : name,
                                        record_.spec.image.directory)
                           : unexpected_reply(record_.spec.name));
            }
            found->second.pid = started->pid;
            found->second.phase = Phase::running;
            if (stdio == Stdio::kept)
                open_log(id, packet.descriptors.all()[0]);
            asker.tell(Started{.task = id, .pid = started->pid},
                       stdio == Stdio::terminal ? packet.descriptors.all() : std::span<const int>());
        },
        [asker, give_back](const Error &error) {
            give_back();
            asker.refuse(error);
        },
        descriptors.all());
}

void LiveNode::signal(const Signal &request, const Asker &asker, bool alone) {
    const auto on = request.task == 0 ? record_.spec.name : task_name(record_.spec.name, request.task);
    if (request.number < 0 || request.number >= NSIG)
        return asker.refuse(
            {"send", fmt::format("signal {}", request.number), "there is no such signal", EINVAL});
    if (state_ == State::saving || state_ == State::joining) {
        if (held_signals_.size() >= kWaiterLimit)
            return asker.refuse({"send a signal to", on, "too many wait here already", ENOSPC});
        held_signals_.push_back({.request = request, .asker = asker, .alone = alone});
        return;
    }
    ask(
        node::InitSignal{.task = request.task, .number = request.number, .alone = alone},
        [asker, on](const node::Packet &packet) {
            if (const auto failed = node::decode<node::InitFailed>(packet.bytes))
                asker.refuse(task_error(*failed, on));
            else
                asker.tell(Done{});
        },
        [asker](const Error &error) { asker.refuse(error); });
}

void LiveNode::send_held_signals() {
    for (const auto &one : std::exchange(held_signals_, {}))
        signal(one.request, one.asker, one.alone);
}

void LiveNode::wait(const Wait &request, const Asker &asker) {
    if (waiters_.size() >= kWaiterLimit)
        return asker.refuse(
            {"wait for", task_name(record_.spec.name, request.task), "too many wait here already", ENOSPC});
    waiters_.push_back({.request = request, .asker = asker});
    if (state_ == State::running)
        answer_waiters(request.task);
}

void LiveNode::attach(std::uint32_t task, const Asker &asker) {
    const auto found = tasks_.find(task);
    if (found == tasks_.end() || found->second.stdio != Stdio::terminal)
        return asker.refuse({"attach to", task_name(record_.spec.name, task), "it has no terminal", ENOTTY});
    ask(
        node::InitAttach{.task = task},
        [asker, name = record_.spec.name, task](const node::Packet &packet) {
            if (const auto failed = node::decode<node::InitFailed>(packet.bytes))
                asker.refuse(task_error(*failed, task_name(name, task)));
            else if (packet.descriptors.size() == 1)
                asker.tell(Lent{}, packet.descriptors.all());
            else
                asker.refuse(unexpected_reply(name));
        },
        [asker](const Error &error) { asker.refuse(error); });
}

void LiveNode::log(std::uint32_t task, const Asker &asker) const {
    if (!record_.spec.job.empty())
        return asker.refuse({"read the output of", task_name(record_.spec.name, task),
                             fmt::format("it goes to its job, {}: ask for that", record_.spec.job), EINVAL});
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
        return asker.refuse({"read the output of", task_name(record_.spec.name, task),
                             "there is none: only that of detached tasks is kept", ENOENT});
    asker.tell(Lent{}, numbers);
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
            waiter.asker.refuse(
                {"wait for", task_name(record_.spec.name, task), "there is no such task", ENOENT});
        } else {
            forget = forget || waiter.request.forget;
            waiter.asker.tell(Ended{.status = found->second.status});
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
