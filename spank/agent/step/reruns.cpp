// SPDX-License-Identifier: GPL-2.0-or-later
#include "reruns.hpp"

#include "agent/log.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr auto kBetweenQuestions = 1s;
constexpr auto kRerunPatience = 600s; // for slurmctld, from which we may be cut off

} // namespace

void Reruns::add(Rerun rerun) {
    const auto job = job_of_step(rerun.key.step);
    if (!job) {
        kLog.error("{}", job.error().message());
        return;
    }
    const auto is_known = [&](const Lost &one) {
        return one.rerun.key.uid == rerun.key.uid && one.rerun.key.step == rerun.key.step &&
               one.rerun.restarts == rerun.restarts && one.rerun.hold == rerun.hold;
    };
    if (std::ranges::any_of(lost_, is_known))
        return;
    lost_.push_back({.rerun = std::move(rerun),
                     .job = *job,
                     .until = Deadline::after(kRerunPatience),
                     .ask = Deadline::after(0s),
                     .turn = {},
                     .request = {},
                     .requeues = false});
}

std::optional<std::string> Reruns::no_room(uid_t uid) const {
    const auto has = std::ranges::count_if(lost_, [&](const Lost &one) { return one.rerun.key.uid == uid; });
    return budgets().refusal(Budget::questions, uid, static_cast<std::uint64_t>(has));
}

void Reruns::watch(std::vector<pollfd> &fds) const {
    for (const auto &lost : lost_)
        if (lost.request)
            fds.push_back({.fd = lost.request->fd(), .events = POLLIN, .revents = 0});
}

std::optional<Deadline> Reruns::next_deadline() const {
    std::optional<Deadline> out;
    const auto consider = [&](const Deadline &other) {
        if (!out || other.when() < out->when())
            out = other;
    };
    for (const auto &lost : lost_) {
        if (lost.ask)
            consider(*lost.ask);
        if (lost.request)
            consider(lost.request->deadline());
    }
    return out;
}

std::vector<StepKey> Reruns::handle() {
    std::vector<StepKey> out;
    std::erase_if(lost_, [&](auto &lost) {
        const auto outcome = look_at(lost);
        if (outcome == Outcome::stays_lost)
            out.push_back(lost.rerun.key);
        return outcome != Outcome::open;
    });
    return out;
}

void Reruns::send(Lost &lost, Expected<SlurmRequest> request) {
    if (request) {
        lost.request = std::move(*request);
        return;
    }
    kLog.error("{}", request.error().message());
    lost.ask = Deadline::after(kBetweenQuestions);
}

Reruns::Outcome Reruns::look_at(Lost &lost) {
    if (lost.ask && lost.ask->expired() &&
        !lost.turn.has_come(Budget::questions, lost.rerun.key.uid,
                            fmt::format("job {}, to run again", lost.job)))
        lost.ask = Deadline::after(kBetweenQuestions);
    if (lost.ask && lost.ask->expired()) {
        lost.ask.reset();
        lost.requeues = false;
        send(lost, SlurmRequest::about(*libraries_, lost.owned()));
    }
    if (!lost.request)
        return Outcome::open;
    auto answer = lost.request->take();
    if (answer && !*answer)
        return Outcome::open;
    lost.request.reset();
    const auto about = answer ? parse_slurm_job(answer->value_or("")) : propagate(answer);
    if (answer && lost.requeues) {
        if (lost.rerun.hold.empty())
            kLog.info("job {} is run again", lost.job);
        else
            kLog.error("job {} is held: {}", lost.job, lost.rerun.hold);
        return Outcome::run_again;
    }
    if (about)
        return has_told(lost, *about);
    kLog.warning("job {} is not run again yet: {}", lost.job, about.error().message());
    lost.ask = Deadline::after(kBetweenQuestions);
    return lost.until.expired() ? Outcome::stays_lost : Outcome::open;
}

Reruns::Outcome Reruns::has_told(Lost &lost, const SlurmJob &about) {
    using Fate = SlurmJob::Fate;
    if (about.known && (about.restarts != lost.rerun.restarts || about.fate == Fate::requeued))
        return Outcome::run_again;
    if (about.fate == Fate::ended || about.fate == Fate::terminated || !about.batch || !about.may_requeue)
        return Outcome::stays_lost;
    lost.requeues = true;
    const auto &why = lost.rerun.hold;
    send(lost, why.empty() ? SlurmRequest::requeue(*libraries_, lost.owned())
                           : SlurmRequest::hold(*libraries_, lost.owned(), why));
    return Outcome::open;
}

} // namespace singularity::agent
