// SPDX-License-Identifier: GPL-2.0-or-later
#include "steps.hpp"

#include "common/exec.hpp"
#include "common/text.hpp"
#include "gpu_view.hpp"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

constexpr std::size_t kLinesLimit = 16; // lines; the agent's log has them all

} // namespace

Step::Step(std::string name, User user, std::string cgroups, JoinStep plan, const Deadline &patience)
    : name_(std::move(name)), user_(std::move(user)), cgroups_(std::move(cgroups)), plan_(std::move(plan)),
      patience_(patience), doors_(name_) {
    plan_.program = {};
}

Step::Step(std::string name, std::string job, const Deadline &patience)
    : name_(std::move(name)), adopted_(true), job_(std::move(job)), patience_(patience), doors_(name_) {}

bool Step::complete() const { return tasks_.size() == plan_.ranks_here; }

bool Step::has_wrappers() const {
    return std::ranges::any_of(tasks_, [](const auto &task) { return task.second.wrapper.has_value(); });
}

std::string why_held(std::string_view what) {
    return fmt::format(
        "the job is held, because it {}; what was saved is kept: 'scontrol release' lets it try again", what);
}

// What has become of their ranks is known here alone.
bool Step::awaits_wrappers() const {
    return adopted_ && patience_ && !patience_->expired() &&
           std::ranges::any_of(tasks_, [](const auto &task) { return !task.second.has_come; });
}

bool Step::over() const { return (job_.empty() || finished_) && !has_wrappers() && !awaits_wrappers(); }

Expected<void> Step::join(const JoinStep &request, Brought brought, Wrapper wrapper) {
    const auto refuse = [&](std::string why, int code) {
        return failure("join the step", name_, std::move(why), code);
    };
    if (!job_.empty())
        return refuse(fmt::format("it runs already, as the job {}", job_), EEXIST);
    if (request.hosts != plan_.hosts || request.places != plan_.places || request.node != plan_.node ||
        request.ranks != plan_.ranks || request.ranks_here != plan_.ranks_here ||
        request.devices != plan_.devices || request.store != plan_.store ||
        request.identity != plan_.identity || request.number != plan_.number ||
        request.checkpoint != plan_.checkpoint || request.image.directory != plan_.image.directory ||
        request.image.mounts != plan_.image.mounts || request.image.root != plan_.image.root ||
        request.publish != plan_.publish)
        return refuse("another of its tasks here says something else of its hosts, ranks, GPUs, image, "
                      "published ports, "
                      "store or job",
                      EINVAL);
    if (complete())
        return refuse(fmt::format("all of its {} tasks here have come already", plan_.ranks_here), EEXIST);
    auto &task = tasks_[request.rank];
    if (task.wrapper)
        return refuse(fmt::format("there is a rank {} already", request.rank), EEXIST);
    auto memory = ProgramMemory::take(user_.uid, memory_of(brought.program) + memory_of(request.image));
    if (!memory) {
        tasks_.erase(request.rank);
        return propagate(memory);
    }
    brought.memory = std::move(*memory);
    task = {.wrapper = std::move(wrapper), .brought = std::move(brought), .ranks = {request.rank}};
    if (complete())
        patience_ = Deadline::after(2 * patience_->span()); // for the job
    return {};
}

Expected<void> Step::join_again(std::uint32_t task, Wrapper wrapper) {
    const auto found = tasks_.find(task);
    const bool runs = found != tasks_.end() && places_of(task).size() == found->second.ranks.size();
    // An earlier agent has written down which tasks stand for ranks; the others stand for none.
    if (!runs && (!adopted_ || found != tasks_.end()))
        return failure("join the step", name_, fmt::format("its task {} does not run here", task), ESRCH);
    auto &one = tasks_[task];
    one.wrapper = std::move(wrapper);
    one.has_come = true;
    tell(one);
    return {};
}

const std::string &Step::cgroups_of(std::uint32_t task) const {
    const auto found = tasks_.find(task);
    return found == tasks_.end() || !found->second.wrapper ? cgroups_ : found->second.wrapper->cgroups;
}

Step::Task *Step::task_of(std::uint32_t rank) {
    const auto found = std::ranges::find_if(tasks_, [rank](const auto &task) {
        return std::ranges::find(task.second.ranks, rank) != task.second.ranks.end();
    });
    return found == tasks_.end() ? nullptr : &found->second;
}

void Step::tell(Task &task) const {
    std::optional<Place> first;
    for (const auto rank : task.ranks) {
        const auto found = ranks_.find(rank);
        if (found == ranks_.end() || !found->second.place)
            return;
        if (!first)
            first = found->second.place;
    }
    if (!task.wrapper || task.wrapper->told)
        return;
    task.wrapper->told = true;
    const bool is_first = &task == &tasks_.begin()->second;
    task.wrapper->responder.tell(Joined{.node = first ? first->node : std::string(),
                                        .task = first ? first->task : 0,
                                        .note = is_first ? note_ : std::string(),
                                        .checkpoint = goes_on_from_});
}

std::optional<std::int32_t> Step::status_of(const Task &task) const {
    std::int32_t out = 0;
    for (const auto rank : task.ranks) {
        const auto found = ranks_.find(rank);
        if (found == ranks_.end() || !found->second.status)
            return std::nullopt;
        if (out == 0)
            out = *found->second.status;
    }
    return out;
}

// As long as others run, the last one here must seem to: when all have ended, Slurm kills what is left of the
// step on a host, its network with it, and what the others have still to read from there.
bool Step::may_be_told(const Task &task) const {
    const auto status = status_of(task);
    const auto runs = [this](const auto &one) { return !status_of(one.second); };
    return status &&
           (*status != 0 || finished_ || (!task.ranks.empty() && std::ranges::any_of(tasks_, runs)));
}

void Step::tell_waiters() {
    if (lost_)
        return;
    for (auto &[number, task] : tasks_)
        if (task.wrapper && may_be_told(task))
            if (const auto waiter = std::exchange(task.wrapper->waiter, std::nullopt))
                waiter->tell(RankEnded{.status = *status_of(task), .trouble = trouble_, .news = {}});
}

void Step::say(std::string line) {
    if (news_.size() < kLinesLimit)
        news_.push_back(std::move(line));
    tell_news();
}

void Step::tell_news() {
    const auto first =
        std::ranges::find_if(tasks_, [](const auto &task) { return task.second.wrapper.has_value(); });
    if (news_.empty() || first == tasks_.end())
        return;
    if (const auto waiter = std::exchange(first->second.wrapper->waiter, std::nullopt))
        waiter->tell(RankEnded{.status = 0, .trouble = {}, .news = std::exchange(news_, {})});
}

void Step::wait(std::uint32_t task, const Responder &responder) {
    const auto found = tasks_.find(task);
    if (found == tasks_.end() || !found->second.wrapper)
        return responder.refuse({"wait for", fmt::format("task {}", task), "it is not known here", ESRCH});
    found->second.wrapper->waiter = responder;
    tell_news();
    tell_waiters();
}

std::vector<Step::Place> Step::places_of(std::uint32_t task) const {
    std::vector<Place> out;
    if (const auto found = tasks_.find(task); found != tasks_.end())
        for (const auto rank : found->second.ranks)
            if (const auto about = ranks_.find(rank); about != ranks_.end() && about->second.place)
                out.push_back(*about->second.place);
    return out;
}

std::optional<std::map<std::uint32_t, std::string>> Step::nodes_of(std::uint32_t task) const {
    std::map<std::uint32_t, std::string> out;
    const auto found = tasks_.find(task);
    if (found == tasks_.end())
        return std::nullopt;
    for (const auto rank : found->second.ranks) {
        const auto about = ranks_.find(rank);
        if (about != ranks_.end() && about->second.status)
            continue;
        if (about == ranks_.end() || !about->second.place)
            return std::nullopt;
        out.emplace(rank, about->second.place->node);
    }
    return out;
}

std::vector<std::uint32_t> Step::tasks() const {
    std::vector<std::uint32_t> out;
    for (const auto &[number, task] : tasks_)
        out.push_back(number);
    return out;
}

std::vector<std::string> Step::arguments() const {
    const auto first = tasks_.begin();
    return first == tasks_.end() || !first->second.brought ? std::vector<std::string>()
                                                           : first->second.brought->program.arguments;
}

std::string Step::variable(std::string_view name) const {
    constexpr std::size_t kLongest = 64;
    const auto first = tasks_.begin();
    if (first == tasks_.end() || !first->second.brought)
        return {};
    const auto value = value_of(first->second.brought->program.environment, name);
    const auto is_plain = [](char c) {
        return c == '-' || c == ':' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');
    };
    return value && value->size() <= kLongest && std::ranges::all_of(*value, is_plain) ? std::string(*value)
                                                                                       : std::string();
}

std::string Step::elastic() const { return variable("SINGULARITY_ELASTIC"); }
std::string Step::gpus() const { return variable(spank::kGpuViewVariable); }

std::map<std::uint32_t, std::uint32_t> pair_ranks(const std::vector<std::uint32_t> &ranks,
                                                  const std::vector<std::uint32_t> &tasks) {
    std::map<std::uint32_t, std::uint32_t> out;
    const auto has = [](const auto &list, std::uint32_t number) {
        return std::ranges::find(list, number) != list.end();
    };
    std::vector<std::uint32_t> left;
    std::ranges::copy_if(tasks, std::back_inserter(left), [&](auto task) { return !has(ranks, task); });
    for (std::size_t at = 0; const auto rank : ranks) {
        if (has(tasks, rank))
            out[rank] = rank;
        else if (at < left.size())
            out[rank] = left[at++];
        else
            out[rank] = tasks[at++ % tasks.size()];
    }
    return out;
}

void Step::bind(const std::map<std::uint32_t, std::uint32_t> &task_of_rank) {
    for (auto &[number, task] : tasks_)
        task.ranks.clear();
    for (const auto &[rank, task] : task_of_rank)
        tasks_[task].ranks.push_back(rank);
}

Expected<GivenTask> Step::give_again(std::uint32_t task) const {
    const auto found = tasks_.find(task);
    if (found == tasks_.end() || !found->second.brought)
        return failure("give streams to", fmt::format("task {}", task), "it has left", ECHILD);
    GivenTask out{.streams = {}, .cpus = found->second.brought->program.cpus, .cgroups = cgroups_of(task)};
    auto copy = found->second.brought->descriptors.copy();
    if (!copy)
        return propagate(copy);
    out.streams = std::move(*copy);
    return out;
}

// What was brought is with the ranks.
void Step::start_idle() {
    for (auto &[number, task] : tasks_) {
        task.brought.reset();
        if (task.ranks.empty())
            tell(task);
    }
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

Expected<Step::Brought> Step::take(std::uint32_t task) {
    const auto found = tasks_.find(task);
    if (found == tasks_.end() || !found->second.brought)
        return failure("start", fmt::format("task {}", task), "it has left, or an agent was restarted",
                       ECHILD);
    return *std::exchange(found->second.brought, std::nullopt);
}

void Step::started(std::uint32_t rank, Place place) {
    ranks_[rank].place = std::move(place);
    if (Task *const task = task_of(rank); task != nullptr)
        tell(*task);
}

void Step::failed(std::uint32_t rank, const Error &why) {
    ranks_[rank].status = SIGKILL;
    if (Task *const task = task_of(rank); task != nullptr)
        if (const auto wrapper = std::exchange(task->wrapper, std::nullopt))
            wrapper->responder.refuse(why);
}

void Step::ended(std::uint32_t rank, std::int32_t status) {
    ranks_[rank].status = status;
    tell_waiters();
}

void Step::told_to_end(std::uint32_t task) {
    if (!finished_)
        told_to_end_.insert(task);
}

std::vector<Step::Place> Step::take_told_to_end() {
    std::vector<Place> out;
    for (const auto task : std::exchange(told_to_end_, {}))
        std::ranges::copy(places_of(task), std::back_inserter(out));
    return out;
}

void Step::finish(const std::string &trouble, const StepFinish &how) {
    if (std::exchange(finished_, true))
        return;
    trouble_ = trouble;
    if (!adopted_)
        patience_.reset();
    told_to_end_.clear();
    lost_ = how.lost;
    if (!lost_)
        tell_all(how);
}

void Step::let_go() {
    if (std::exchange(lost_, false))
        tell_all({});
}

void Step::tell_all(const StepFinish &how) {
    for (auto &[number, task] : tasks_) {
        for (const auto rank : task.ranks) {
            const auto known = how.ends.find(rank);
            auto &status = ranks_[rank].status;
            if (!status)
                status = known != how.ends.end() ? known->second : how.saved ? 0 : SIGKILL;
        }
        if (!task.wrapper || task.wrapper->told)
            continue;
        task.wrapper->told = true;
        if (how.ends.empty())
            task.wrapper->responder.refuse(
                {"run", fmt::format("task {} of step {}", number, name_), trouble_, ECHILD});
        else
            task.wrapper->responder.tell(Joined{.node = {}, .task = 0, .note = {}, .checkpoint = {}});
    }
    tell_waiters();
}

void Step::refuse_all(const std::string &why) {
    for (const auto &[number, task] : std::exchange(tasks_, {}))
        if (task.wrapper)
            task.wrapper->responder.refuse(
                {"run", fmt::format("task {} of step {}", number, name_), why, ETIMEDOUT});
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
    for (auto &[number, task] : tasks_) {
        const bool left = task.wrapper && task.wrapper->left();
        if (left)
            task.wrapper.reset();
        // What is still to be started finds nobody who brings it.
        if (left)
            task.brought.reset();
        if (left || (late && !task.wrapper))
            for (const auto rank : task.ranks)
                if (const auto &about = ranks_[rank]; about.place && !about.status) {
                    abandoned_.insert(rank);
                    abandoned(*about.place);
                }
    }
    if (job_.empty())
        std::erase_if(tasks_, [](const auto &task) { return !task.second.wrapper; });
    tell_news();
}

} // namespace singularity::agent
