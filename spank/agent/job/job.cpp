// SPDX-License-Identifier: GPL-2.0-or-later
#include "job.hpp"

#include "agent/log.hpp"
#include "common/text.hpp"
#include "job_files.hpp"
#include "job_plan.hpp"
#include "member.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
namespace wire = peers::wire;

constexpr std::size_t kWatcherLimit = 64;
constexpr auto kWatchPatience = 20s; // then who watches asks again
constexpr std::size_t kShownHosts = 64;

} // namespace

std::string_view to_string(wire::JobRecord::State state) {
    switch (state) {
    case wire::JobRecord::REACHING:
        return "reaching";
    case wire::JobRecord::PREPARING:
        return "preparing";
    case wire::JobRecord::CONNECTING:
        return "connecting";
    case wire::JobRecord::STARTING:
        return "starting";
    case wire::JobRecord::RUNNING:
        return "running";
    case wire::JobRecord::ENDING:
        return "ending";
    default:
        return "ended";
    }
}

Expected<std::shared_ptr<Job>> Job::make(HostAsker &hosts, const Setting &setting, wire::JobRecord record) {
    std::shared_ptr<Job> out(new Job(hosts, setting, std::move(record)));
    auto opened = out->open_outputs();
    if (opened)
        opened = write_record(out->directory(), out->record_);
    return opened ? Expected<std::shared_ptr<Job>>(out) : propagate(opened);
}

Expected<std::shared_ptr<Job>> Job::adopt(HostAsker &hosts, const Setting &setting, const std::string &name) {
    wire::JobRecord record;
    if (auto read = read_record(setting.jobs / name, record); !read)
        return propagate(read);
    if (record.name() != name)
        return failure("find", quote(name), "its record is another's", EBADMSG);
    std::shared_ptr<Job> out(new Job(hosts, setting, std::move(record)));
    if (auto opened = out->open_outputs(); !opened)
        return propagate(opened);
    for (const auto &end : out->record_.ends())
        out->ranks_[end.rank()].status = end.status();
    return out;
}

std::uint32_t Job::ranks() const { return record_.ranks(); }

Expected<void> Job::open_outputs() {
    if (auto checked = check_record(record_); !checked)
        return checked;
    node_of_rank_.assign(ranks(), 0);
    // Of a step of Slurm's they are not known before its hosts have told.
    if (rank_count(record_.nodes()) != 0)
        if (auto placed = place_ranks(); !placed)
            return placed;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
        auto spool = Spool::open(rank_file(directory(), rank), record_.user().uid());
        if (!spool)
            return propagate(spool);
        const auto begin = spool->begin();
        ranks_.push_back({.output = std::move(*spool), .read = begin, .status = {}});
    }
    for (const auto &node : record_.nodes())
        where_[node.host()];
    for (const auto &host : record_.hosts())
        where_[host];
    held_back_ = record_.tied();
    for (auto &rank : ranks_) // a checkpoint may have brought more than is allowed here
        trim(rank);
    return {};
}

Expected<void> Job::place_ranks() {
    auto placed = nodes_of_ranks(record_.nodes(), record_.name());
    if (!placed)
        return propagate(placed);
    if (placed->size() != ranks())
        return failure("place the ranks of", record_.name(),
                       fmt::format("its hosts have {}, and it has {}", placed->size(), ranks()), EINVAL);
    node_of_rank_ = std::move(*placed);
    return {};
}

void Job::begin() {
    switch (record_.state()) {
    case wire::JobRecord::REACHING:
        return reach();
    case wire::JobRecord::RUNNING:
        settle();
        return follow_all();
    case wire::JobRecord::ENDED:
        return;
    default:
        const auto trouble = fmt::format("the agent of {} was restarted while the job was {}",
                                         hosts_->own_host(), to_string(record_.state()));
        return record_.state() == wire::JobRecord::ENDING ? end(trouble) : lose(trouble);
    }
}

bool Job::write() {
    auto written = write_record(directory(), record_);
    if (!written)
        kLog.error("{}", written.error().message());
    return written.has_value();
}

bool Job::enter(State state) {
    if (record_.state() >= wire::JobRecord::ENDING && state < wire::JobRecord::ENDING)
        return false;
    record_.set_state(state);
    if (write() || state >= wire::JobRecord::ENDING)
        return true;
    end("its record could not be written");
    return false;
}

const std::string &Job::host_of(std::uint32_t rank) const {
    return record_.nodes(node_of_rank_[rank]).host();
}

JobLine Job::line() const {
    JobLine out{.job = record_.name(),
                .uid = record_.user().uid(),
                .state = std::string(to_string(record_.state())),
                .hosts = {},
                .ranks = ranks(),
                .ended = static_cast<std::uint32_t>(record_.ends().size()),
                .made = record_.made(),
                .status = record_.status(),
                .trouble = record_.trouble(),
                .told = {}};
    for (const auto &node : record_.nodes())
        if (out.hosts.size() < kShownHosts)
            out.hosts.push_back(node.host());
    for (const auto &line : record_.told())
        if (out.told.size() < kShownHosts)
            out.told.push_back(line);
    return out;
}

void Job::follow(FollowJob request, bool holds_back, const Responder &responder) {
    if (watchers_.size() >= kWatcherLimit)
        return responder.refuse({"follow", record_.name(), "too many do already", ENOSPC});
    if (request.only >= 0 && std::cmp_greater_equal(request.only, ranks()))
        return responder.refuse({"follow", record_.name(),
                                 fmt::format("there is no rank {}: it has {}", request.only, ranks()),
                                 ENOENT});
    request.read.resize(ranks());
    if (holds_back)
        for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
            ranks_[rank].read = std::clamp(request.read[rank], ranks_[rank].read, ranks_[rank].output.end());
            trim(ranks_[rank]);
        }
    const auto span = request.wait ? kWatchPatience : 0s;
    watchers_.push_back(
        {.request = std::move(request), .responder = responder, .until = Deadline::after(span)});
    look_at_watchers();
}

void Job::ask_each(const wire::Envelope &request, std::string_view doing, const Responder &responder) {
    if (record_.state() != wire::JobRecord::RUNNING)
        return responder.refuse({std::string(doing), record_.name(),
                                 fmt::format("it is {}", to_string(record_.state())), EAGAIN});
    auto all = when_all(where_.size(), [responder](const Expected<void> &outcome) {
        if (outcome)
            responder.tell(Done{});
        else
            responder.refuse(outcome.error());
    });
    for (const auto &[host, about] : where_)
        hosts_->ask(host, request, setting_->patience,
                    [all](Expected<wire::Envelope> reply) { all(outcome_of(reply)); });
}

void Job::signal(std::int32_t number, const Responder &responder) {
    wire::Envelope request;
    request.mutable_signal_job()->set_job(record_.name());
    request.mutable_signal_job()->set_number(number);
    ask_each(request, "send a signal to", responder);
}

void Job::cut(bool open, const Responder &responder) {
    wire::Envelope request;
    request.mutable_cut_job()->set_job(record_.name());
    request.mutable_cut_job()->set_open(open);
    ask_each(request, open ? "open the network of" : "cut the network of", responder);
}

void Job::destroy(std::optional<Responder> responder) {
    if (responder)
        destroyers_.push_back(std::move(*responder));
    destroy_ = true;
    if (record_.state() < wire::JobRecord::ENDING)
        end("it was destroyed");
    handle();
}

void Job::watch(std::vector<pollfd> &fds) const {
    if (saving_)
        saving_->watch(fds);
    if (slurm_request_)
        fds.push_back({.fd = slurm_request_->fd(), .events = POLLIN, .revents = 0});
    std::vector<int> of_keeper;
    if (keeper_)
        keeper_->watch(of_keeper);
    for (const int fd : of_keeper)
        fds.push_back({.fd = fd, .events = POLLIN, .revents = 0});
}

std::optional<Deadline> Job::next_deadline() const {
    std::optional<Deadline> out;
    const auto consider = [&](const std::optional<Deadline> &other) {
        if (other && (!out || other->when() < out->when()))
            out = other;
    };
    for (const auto &[host, about] : where_)
        consider(about.again);
    for (const auto &watcher : watchers_)
        consider(watcher.until);
    consider(next_save_);
    consider(next_check_);
    consider(keep_);
    consider(look_again_);
    consider(is_cut_for_);
    consider(leaving_ ? leaving_->next_deadline() : std::nullopt);
    if (slurm_request_)
        consider(slurm_request_->deadline());
    if (saving_)
        consider(saving_->next_deadline());
    return out;
}

void Job::handle() {
    for (auto &[host, about] : where_)
        if (about.again && about.again->expired()) {
            about.again.reset();
            follow_host(host);
        }
    if (keep_ && keep_->expired())
        keep_members();
    if (next_save_ && next_save_->expired())
        save_periodically();
    if (next_check_ && next_check_->expired())
        check();
    if (const auto saving = saving_) // which it may end
        saving->handle();
    handle_cut();
    handle_slurm();
    handle_keeper();
    look_at_watchers();
    if (!destroy_ || gone_ || record_.state() != wire::JobRecord::ENDED)
        return;
    gone_ = true;
    const auto removed = remove_job_directory(directory());
    if (!removed)
        kLog.error("{}", removed.error().message());
    for (const auto &watcher : std::exchange(watchers_, {}))
        watcher.responder.refuse({"follow", record_.name(), "it was destroyed", ECHILD});
    for (const auto &destroyer : std::exchange(destroyers_, {})) {
        if (removed)
            destroyer.tell(Done{});
        else
            destroyer.refuse(removed.error());
    }
}

} // namespace singularity::agent
