// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_watch.hpp"

#include "agent/log.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h> // join, since fmt 11

namespace singularity::agent {

Expected<SlurmView> parse_slurm_view(std::string_view text, const std::set<std::uint32_t> &asked) {
    SlurmView out;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        const auto equals = std::min(line.find('='), line.size());
        const auto key = line.substr(0, equals);
        const auto value = line.substr(std::min(equals + 1, line.size()));
        std::uint32_t job = 0;
        const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), job);
        const bool is_asked =
            error == std::errc() && end == value.data() + value.size() && asked.contains(job);
        if (key == "leave" && !value.empty())
            out.leave = value;
        else if (key == "move" && is_asked)
            out.move.push_back(job);
        else if (key == "save" && is_asked)
            out.save.push_back(job);
        else
            return failure("understand", "singularity-slurm", fmt::format("it says '{}'", line), EPROTO);
    }
    return out;
}

void SlurmWatch::tell(const OwnedJob &job, std::string command, std::vector<std::string> words) {
    if (auto why = no_room_for(Budget::notes, job.uid))
        kLog.error("slurmctld is not told '{}' of job {}: {}: {}", command, job.id, fmt::join(words, " "),
                   *why);
    else
        waiting_[job.uid].push_back({.job = job,
                                     .command = std::move(command),
                                     .words = std::move(words),
                                     .share = Share(Budget::notes, job.uid)});
}

bool SlurmWatch::is_answered(std::uint32_t job) const {
    for (const auto &[uid, notes] : waiting_)
        for (const auto &note : notes)
            if (note.job.id == job && note.command == kAnswerComment)
                return true;
    return false;
}

std::vector<std::string> SlurmWatch::next_note() {
    auto next = waiting_.upper_bound(last_);
    if (next == waiting_.end())
        next = waiting_.begin();
    last_ = next->first;
    auto &note = next->second.front();
    auto words = note.job.command(std::move(note.command));
    std::ranges::move(note.words, std::back_inserter(words));
    next->second.pop_front();
    if (next->second.empty())
        waiting_.erase(next);
    return words;
}

void SlurmWatch::watch(std::vector<pollfd> &fds) const {
    if (request_)
        fds.push_back({.fd = request_->fd(), .events = POLLIN, .revents = 0});
}

std::optional<Deadline> SlurmWatch::next_deadline() const { return request_ ? request_->deadline() : next_; }

void SlurmWatch::handle(const std::function<Here()> &here, const std::function<void(std::uint32_t)> &save) {
    take(save);
    if (request_)
        return;
    if (!waiting_.empty()) {
        auto request = SlurmRequest::send(*libraries_, next_note());
        if (request)
            request_ = std::move(*request);
        else
            kLog.error("{}", request.error().message());
        return;
    }
    if (every_.count() == 0 || (next_ && !next_->expired()))
        return;
    const bool is_time = next_.has_value();
    next_.reset();
    auto about = here();
    if (about.jobs.empty())
        return;
    next_ = Deadline::after(every_);
    if (!is_time) // they have just come
        return;
    std::vector<std::string> words{"look", about.node};
    for (const auto job : about.coordinated)
        words.push_back(std::to_string(job));
    auto request = SlurmRequest::send(*libraries_, std::move(words));
    if (!request) {
        kLog.error("{}", request.error().message());
        return;
    }
    request_ = std::move(*request);
    asked_ = std::move(about);
}

void SlurmWatch::take(const std::function<void(std::uint32_t)> &save) {
    if (!request_)
        return;
    auto answer = request_->take();
    if (answer && !*answer)
        return;
    request_.reset();
    const auto asked = std::exchange(asked_, std::nullopt);
    if (!asked) {
        if (!answer)
            kLog.warning("{}", answer.error().message());
        return;
    }
    auto view = answer ? parse_slurm_view(**answer, asked->coordinated) : propagate(answer);
    if (!view) {
        if (!std::exchange(failed_, true))
            kLog.error("whether {} is to be left is not known: {}", asked->node, view.error().message());
        return;
    }
    failed_ = false;
    std::set<std::uint32_t> moved;
    for (const auto job : view->move)
        if (moved.insert(job).second)
            move(*asked, job, "its comment asks for it");
    if (!view->leave.empty())
        for (const auto job : asked->jobs)
            if (moved.insert(job).second)
                move(*asked, job, fmt::format("{} is drained ({})", asked->node, view->leave));
    for (const auto job : view->save)
        if (!moved.contains(job) && !is_answered(job))
            save(job);
}

// What is said in the comment is seen to when it begins again.
void SlurmWatch::move(const Here &of, std::uint32_t job, std::string_view why) {
    const auto owner = of.owners.find(job);
    if (owner == of.owners.end()) {
        kLog.error("job {} is not requeued, though {}: whose it is is not known here", job, why);
        return;
    }
    kLog.info("job {} is requeued, to go on elsewhere: {}", job, why);
    tell({.id = job, .uid = owner->second}, "requeue", {});
}

} // namespace singularity::agent
