// SPDX-License-Identifier: GPL-2.0-or-later
#include "steps.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <csignal>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

constexpr std::string_view kDigits = "0123456789";

// What follows `before`, if it is nothing but digits up to a slash or the end.
std::string_view number_after(std::string_view path, std::string_view before) {
    const auto at = path.find(before);
    if (at == std::string_view::npos)
        return {};
    auto rest = path.substr(at + before.size());
    rest = rest.substr(0, rest.find('/'));
    return rest.find_first_not_of(kDigits) == std::string_view::npos ? rest : std::string_view();
}

// As cgroups(7) has it: "ID:CONTROLLERS:PATH".
std::string_view path_of(std::string_view line) {
    const auto second = line.find(':', line.find(':') + 1);
    return second == std::string_view::npos ? std::string_view() : line.substr(second + 1);
}

} // namespace

std::string step_of_cgroups(std::string_view text) {
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        const auto path = path_of(line);
        const auto job = number_after(path, "/job_");
        const auto step = number_after(path, "/step_");
        if (!job.empty() && !step.empty())
            return fmt::format("{}.{}", job, step);
    }
    return {};
}

std::string cgroups_of_step(std::string_view text) {
    std::string out;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("0::") && !number_after(line, "/step_").empty())
            line.resize(std::min(line.size(), line.find("/task_")));
        out += line + "\n";
    }
    return out;
}

Step::Step(std::string name, User user, std::string cgroups, JoinStep plan, const Deadline &patience)
    : name_(std::move(name)), user_(std::move(user)), cgroups_(std::move(cgroups)), plan_(std::move(plan)),
      patience_(patience) {
    plan_.program = {};
}

Step::Step(std::string name, std::string job, const Deadline &patience)
    : name_(std::move(name)), job_(std::move(job)), patience_(patience) {}

bool Step::complete() const { return tasks_.size() == plan_.ranks_here; }

bool Step::over() const {
    return (job_.empty() || finished_) &&
           std::ranges::none_of(tasks_, [](const auto &task) { return task.second.wrapper.has_value(); });
}

Expected<void> Step::join(const JoinStep &request, Brought brought, Wrapper wrapper) {
    const auto refuse = [&](std::string why, int code) {
        return failure("join the step", name_, std::move(why), code);
    };
    if (!job_.empty())
        return refuse(fmt::format("it runs already, as the job {}", job_), EEXIST);
    if (request.hosts != plan_.hosts || request.node != plan_.node || request.ranks != plan_.ranks ||
        request.ranks_here != plan_.ranks_here || request.devices != plan_.devices)
        return refuse("another of its tasks here says something else of its hosts, ranks or GPUs", EINVAL);
    if (complete())
        return refuse(fmt::format("all of its {} tasks here have come already", plan_.ranks_here), EEXIST);
    auto &task = tasks_[request.rank];
    if (task.wrapper)
        return refuse(fmt::format("there is a rank {} already", request.rank), EEXIST);
    task = {.wrapper = std::move(wrapper), .brought = std::move(brought), .place = {}, .status = {}};
    if (complete())
        patience_ = Deadline::after(2 * patience_->span()); // for the job
    return {};
}

Expected<void> Step::join_again(std::uint32_t rank, Wrapper wrapper) {
    const auto found = tasks_.find(rank);
    if (found == tasks_.end() || !found->second.place)
        return failure("join the step", name_, fmt::format("its rank {} does not run here", rank), ESRCH);
    found->second.wrapper = std::move(wrapper);
    tell(found->second);
    return {};
}

void Step::tell(Task &task) const {
    if (task.place && task.wrapper)
        task.wrapper->asker.tell(Joined{.node = task.place->node, .task = task.place->task});
}

// As long as others run, the last one here must seem to: when all have ended, Slurm kills what is left of the
// step on a host, its network with it, and what the others have still to read from there.
bool Step::may_be_told(const Task &task) const {
    const auto runs = [](const auto &one) { return !one.second.status; };
    return task.status && (*task.status != 0 || finished_ || std::ranges::any_of(tasks_, runs));
}

void Step::wait(std::uint32_t rank, const Asker &asker) {
    const auto found = tasks_.find(rank);
    if (found == tasks_.end() || !found->second.wrapper)
        return asker.refuse({"wait for", fmt::format("rank {}", rank), "it is not known here", ESRCH});
    if (may_be_told(found->second))
        return asker.tell(RankEnded{.status = *found->second.status, .trouble = trouble_});
    found->second.wrapper->waiter = asker;
}

std::optional<Step::Place> Step::place_of(std::uint32_t rank) const {
    const auto found = tasks_.find(rank);
    return found == tasks_.end() ? std::nullopt : found->second.place;
}

std::vector<std::uint32_t> Step::ranks() const {
    std::vector<std::uint32_t> out;
    for (const auto &[rank, task] : tasks_)
        out.push_back(rank);
    return out;
}

Expected<void> Step::become(const std::string &job, const User &user) {
    const auto refuse = [&](std::string why, int code) {
        return failure("make a job of the step", name_, std::move(why), code);
    };
    if (!job_.empty())
        return refuse(fmt::format("it is one already, {}", job_), EEXIST);
    const auto has = [this](std::uint32_t group) {
        return group == user_.gid || std::ranges::find(user_.groups, group) != user_.groups.end();
    };
    if (user.uid != user_.uid || user.gid != user_.gid || !std::ranges::all_of(user.groups, has))
        return refuse("its tasks here are of another user, or in fewer groups", EPERM);
    job_ = job;
    patience_.reset();
    return {};
}

Expected<Step::Brought> Step::take(std::uint32_t rank) {
    const auto found = tasks_.find(rank);
    if (found == tasks_.end() || !found->second.brought)
        return failure("start", fmt::format("rank {}", rank), "its task has left, or an agent was restarted",
                       ECHILD);
    return *std::exchange(found->second.brought, std::nullopt);
}

void Step::started(std::uint32_t rank, Place place) {
    auto &task = tasks_[rank];
    task.place = std::move(place);
    tell(task);
}

void Step::failed(std::uint32_t rank, const Error &why) {
    auto &task = tasks_[rank];
    task.status = SIGKILL;
    if (const auto wrapper = std::exchange(task.wrapper, std::nullopt))
        wrapper->asker.refuse(why);
}

void Step::ended(std::uint32_t rank, std::int32_t status) {
    tasks_[rank].status = status;
    for (auto &[number, task] : tasks_)
        if (task.wrapper && may_be_told(task))
            if (const auto waiter = std::exchange(task.wrapper->waiter, std::nullopt))
                waiter->tell(RankEnded{.status = *task.status, .trouble = {}});
}

void Step::finish(const std::string &trouble) {
    if (std::exchange(finished_, true))
        return;
    trouble_ = trouble;
    patience_.reset();
    for (auto &[number, task] : tasks_) {
        if (!task.place && task.wrapper)
            task.wrapper->asker.refuse(
                {"run", fmt::format("rank {} of step {}", number, name_), trouble, ECHILD});
        if (!task.status)
            task.status = SIGKILL;
        if (!task.wrapper)
            continue;
        if (const auto waiter = std::exchange(task.wrapper->waiter, std::nullopt))
            waiter->tell(RankEnded{.status = *task.status, .trouble = trouble_});
    }
}

void Step::refuse_all(const std::string &why) {
    for (const auto &[rank, task] : std::exchange(tasks_, {}))
        if (task.wrapper)
            task.wrapper->asker.refuse(
                {"run", fmt::format("rank {} of step {}", rank, name_), why, ETIMEDOUT});
}

void Step::look_at_wrappers(const std::function<void(const Place &)> &abandoned) {
    const bool late = patience_ && patience_->expired();
    if (late)
        patience_.reset();
    if (late && job_.empty())
        return refuse_all(
            complete()
                ? fmt::format("the agent of {}, its first host, has not made a job of it in time",
                              plan_.hosts.front())
                : fmt::format("only {} of its {} tasks here came in time", tasks_.size(), plan_.ranks_here));
    for (auto &[rank, task] : tasks_) {
        const bool left = task.wrapper && task.wrapper->left();
        if (left)
            task.wrapper.reset();
        // What is still to be started finds nobody who brings it.
        if (left)
            task.brought.reset();
        if ((left || (late && !task.wrapper)) && task.place && !task.status)
            abandoned(*task.place);
    }
    if (job_.empty())
        std::erase_if(tasks_, [](const auto &task) { return !task.second.wrapper; });
}

} // namespace singularity::agent
