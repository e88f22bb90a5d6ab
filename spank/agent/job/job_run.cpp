// SPDX-License-Identifier: GPL-2.0-or-later
// A job that runs: its output, the ends of its ranks, and its own.
#include "agent/limits/metrics.hpp"
#include "agent/log.hpp"
#include "job.hpp"
#include "job_plan.hpp"
#include "member.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <sys/wait.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
namespace wire = peers::wire;
using std::chrono::milliseconds;

constexpr milliseconds kNewsPatience = 5s;    // for news
constexpr milliseconds kHeldPatience = 200ms; // while somebody has not read what there is
constexpr milliseconds kAgain = 500ms;        // after an agent could not be reached
constexpr milliseconds kDrainPatience = 3s;
constexpr int kDrainTimes = 64;
constexpr std::size_t kToldAtATime = 64;                  // lines
constexpr std::uint64_t kKept = std::uint64_t{4} << 20;   // of each rank's output, for `logs`
constexpr std::uint64_t kUnread = std::uint64_t{1} << 20; // before who is read from must wait

std::string words_of(std::int32_t status) {
    return WIFEXITED(status) ? fmt::format("exit status {}", WEXITSTATUS(status))
                             : fmt::format("signal {}", WTERMSIG(status));
}

} // namespace

void Job::follow_all() {
    if (!next_save_)
        save_again_later();
    check_later();
    for (auto &[host, about] : where_)
        about.lost = Deadline::after(setting_->patience);
    for (auto &[host, about] : where_)
        follow_host(host);
    look_at_ranks();
}

wire::Envelope Job::follow_request(const std::string &host, milliseconds patience) const {
    wire::Envelope out;
    auto &follow = *out.mutable_follow_job();
    follow.set_job(record_.name());
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
        const auto &one = ranks_[rank];
        if (one.status || host_of(rank) != host)
            continue;
        auto *const read = follow.add_read();
        read->set_rank(rank);
        read->set_offset(one.output.end());
        if (held_back_ &&
            one.output.end() - one.read > (one.output.kept().over() ? KeptOutput::kLeast : kUnread))
            follow.set_quiet(true);
    }
    follow.set_patience_ms(
        static_cast<std::uint32_t>((follow.quiet() ? std::min(patience, kHeldPatience) : patience).count()));
    return out;
}

void Job::follow_host(const std::string &host) {
    if (record_.state() != wire::JobRecord::RUNNING)
        return;
    hosts_->ask(host, follow_request(host, std::min(kNewsPatience, setting_->patience / 3)),
                setting_->patience, [self = shared_from_this(), host](Expected<wire::Envelope> reply) {
                    self->heard(host, std::move(reply));
                });
}

void Job::heard(const std::string &host, Expected<wire::Envelope> reply) {
    if (record_.state() != wire::JobRecord::RUNNING)
        return;
    auto &about = where_.at(host);
    if (!reply) {
        if (!about.lost->expired()) {
            about.again = Deadline::after(kAgain);
            return;
        }
        about.given_up = true;
        return lose(fmt::format("host {} has not been heard of for {}ms: {}", host,
                                about.lost->span().count(), reply.error().message()));
    }
    if (!reply->has_news_of_job()) {
        const auto outcome = outcome_of(reply);
        if (!outcome && outcome.error().code == ENODEV) {
            about.lost = Deadline::after(setting_->patience);
            return lose_device(host, fmt::format("host {}: {}", host, outcome.error().why));
        }
        return end(
            fmt::format("host {}: {}", host,
                        outcome ? std::string("its answer has another form") : outcome.error().message()));
    }
    about.lost = Deadline::after(setting_->patience);
    static_cast<void>(take(host, reply->news_of_job()));
    if (reply->news_of_job().told_to_end())
        told_to_end();
    look_at_ranks();
    look_at_watchers();
    follow_host(host);
}

bool Job::take(const std::string &host, const wire::NewsOfJob &news) {
    const auto is_theirs = [&](std::uint32_t rank) {
        return rank < ranks() && host_of(rank) == host && !ranks_[rank].status;
    };
    for (const auto &output : news.output()) {
        if (!is_theirs(output.rank()))
            continue;
        auto &rank = ranks_[output.rank()];
        // Told twice, after an answer was lost: only what is new.
        const auto known = rank.output.end();
        if (output.offset() > known || output.offset() + output.text().size() <= known)
            continue;
        if (auto kept = rank.output.append(std::string_view(output.text()).substr(known - output.offset()));
            !kept)
            kLog.error("{}: rank {}: {}", record_.name(), output.rank(), kept.error().message());
        trim(rank);
    }
    for (const auto &end : news.ends()) {
        if (!is_theirs(end.rank()))
            continue;
        ranks_[end.rank()].status = end.status();
        *record_.add_ends() = end;
        record_.set_status(std::max(record_.status(), exit_status(end.status())));
    }
    if (!news.ends().empty())
        static_cast<void>(write());
    return !news.output().empty();
}

void Job::trim(Rank &rank) {
    const auto end = rank.output.end();
    const bool over = rank.output.kept().over();
    if (over)
        rank.output.kept().tell(0);
    const auto keep = over ? KeptOutput::kLeast : kKept;
    auto until = end > keep ? end - keep : 0;
    if (held_back_)
        until = std::min(until, rank.read);
    if (auto released = rank.output.release(until); !released)
        kLog.error("{}: {}", record_.name(), released.error().message());
}

void Job::look_at_ranks() {
    if (record_.state() != wire::JobRecord::RUNNING)
        return;
    // Whether a step of Slurm's ends with the first that fails, is Slurm's to decide.
    for (const auto &one : record_.ends())
        if (one.status() != 0 && record_.step().empty())
            return end(fmt::format("rank {} on {} has ended with {}", one.rank(), host_of(one.rank()),
                                   words_of(one.status())));
    if (has_ended(record_))
        keep_end();
}

void Job::end(const std::string &trouble, bool saved) {
    if (record_.state() == wire::JobRecord::ENDED ||
        (record_.state() == wire::JobRecord::ENDING && hosts_left_ != 0))
        return;
    const bool is_restored = record_.state() < wire::JobRecord::ENDING && !record_.restore().empty();
    if (!trouble.empty() && is_restored && record_.of_script() && !lost_)
        return lose(trouble);
    const bool ran = record_.state() == wire::JobRecord::RUNNING;
    if (yield_ == Yield::saving && !is_saved_ && !trouble.empty()) // Slurm has not waited for it
        tell_what_is_lost(trouble);
    if (is_restored)
        counters().failed(Work::restore);
    if (const auto saving = std::exchange(saving_, nullptr)) {
        saving->drop();
        counters().failed(saved_as_);
    }
    next_save_.reset();
    next_check_.reset();
    is_cut_for_.reset();
    if (const auto leaving = std::exchange(leaving_, nullptr))
        leaving->drop();
    after_leaving_.clear();
    if (const auto on_cut = std::exchange(on_cut_, {}))
        on_cut(Cut{});
    slurm_request_.reset();
    look_again_.reset();
    keeper_.reset();
    ends_saved_ = ends_saved_ || saved;
    if (!trouble.empty() && record_.trouble().empty()) {
        kLog.info("{} ends: {}", record_.name(), trouble);
        if (!record_.step().empty())
            ++counters().steps_failed;
        record_.set_trouble(trouble);
        record_.set_status(std::max(record_.status(), EXIT_FAILURE));
    }
    static_cast<void>(enter(wire::JobRecord::ENDING));
    hosts_left_ = where_.size();
    for (auto &[host, about] : where_)
        about.again.reset();
    // Copies: the last of them may be told at once.
    const auto all = where_;
    for (const auto &[host, about] : all) {
        if (about.given_up)
            host_has_ended(); // its agent ends its part when it hears nothing
        else if (ran)
            drain(host, kDrainTimes);
        else
            end_host(host);
    }
}

// What its ranks have written until now is delivered, even if they are not to go on.
void Job::drain(const std::string &host, int times) {
    hosts_->ask(host, follow_request(host, 0ms), kDrainPatience,
                [self = shared_from_this(), host, times](const Expected<wire::Envelope> &reply) {
                    const bool more =
                        reply && reply->has_news_of_job() && self->take(host, reply->news_of_job());
                    self->look_at_watchers();
                    if (more && times > 1)
                        self->drain(host, times - 1);
                    else
                        self->end_host(host);
                });
}

void Job::end_host(const std::string &host) {
    wire::Envelope request;
    request.mutable_end_job()->set_job(record_.name());
    request.mutable_end_job()->set_trouble(record_.trouble());
    request.mutable_end_job()->set_saved(ends_saved_);
    request.mutable_end_job()->set_lost(lost_);
    if (!record_.step().empty())
        *request.mutable_end_job()->mutable_ends() = record_.ends();
    hosts_->ask(host, std::move(request), setting_->patience,
                [self = shared_from_this(), host](const Expected<wire::Envelope> &reply) {
                    if (const auto ended = outcome_of(reply); !ended && ended.error().code != ENOENT)
                        kLog.warning("{} on {}: {}; it ends there by itself", self->record_.name(), host,
                                     ended.error().message());
                    self->host_has_ended();
                });
}

void Job::host_has_ended() {
    if (--hosts_left_ != 0)
        return;
    note_places(false);
    static_cast<void>(enter(wire::JobRecord::ENDED));
    kLog.info("{} has ended with status {}", record_.name(), record_.status());
    answer_imager();
    // Of a step of Slurm's nobody asks here what became of it.
    destroy_ = destroy_ || !record_.step().empty();
    look_at_watchers();
}

JobNews Job::news(const FollowJob &request) const {
    JobNews out;
    std::vector<std::uint32_t> wanted;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank)
        if ((request.only < 0 || std::cmp_equal(request.only, rank)) &&
            ranks_[rank].output.end() > request.read[rank])
            wanted.push_back(rank);
    const auto share = kNewsLimit / std::max<std::size_t>(wanted.size(), 1);
    bool all = true;
    for (const auto rank : wanted) {
        const auto piece = ranks_[rank].output.read(request.read[rank], share);
        if (!piece) {
            kLog.error("{}: {}", record_.name(), piece.error().message());
            continue;
        }
        all = all && piece->offset + piece->text.size() == ranks_[rank].output.end();
        out.output.push_back(
            {.rank = rank, .offset = piece->offset, .text = {piece->text.begin(), piece->text.end()}});
    }
    out.ended = record_.state() == wire::JobRecord::ENDED && all;
    out.status = record_.status();
    out.trouble = record_.trouble();
    for (auto line = request.told; std::cmp_less(line, record_.told_size()) && out.told.size() < kToldAtATime;
         ++line)
        out.told.push_back(record_.told(static_cast<int>(line)));
    return out;
}

void Job::look_at_watchers() {
    std::vector<Watcher> left;
    for (auto &watcher : std::exchange(watchers_, {})) {
        auto found = news(watcher.request);
        if (found.output.empty() && found.told.empty() && !found.ended && !watcher.until.expired())
            left.push_back(std::move(watcher));
        else
            watcher.responder.tell(found);
    }
    watchers_.insert(watchers_.end(), std::make_move_iterator(left.begin()),
                     std::make_move_iterator(left.end()));
}

} // namespace singularity::agent
