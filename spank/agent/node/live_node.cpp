// SPDX-License-Identifier: GPL-2.0-or-later
#include "live_node.hpp"

#include "adoption.hpp"
#include "agent/limits/metrics.hpp"
#include "agent/log.hpp"
#include "common/text.hpp"
#include "node/image_server.hpp"
#include "task_error.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
using node::Phase;

constexpr auto kMakePatience = 60s; // a loaded machine that makes many nodes at once
constexpr auto kEndPatience = 20s;  // for the kernel to end a PID namespace

} // namespace

std::string_view to_string(LiveNode::State state) {
    switch (state) {
    case LiveNode::State::preparing:
        return "preparing";
    case LiveNode::State::restoring:
        return "restoring";
    case LiveNode::State::saving:
        return "saving";
    case LiveNode::State::making:
        return "making";
    case LiveNode::State::joining:
        return "joining";
    case LiveNode::State::running:
        return "running";
    case LiveNode::State::ending:
        return "ending";
    case LiveNode::State::gone:
        break;
    }
    return "gone";
}

void Responder::refuse(const Error &error) const {
    tell(Failed{.doing = error.doing, .on = error.on, .why = error.why, .code = error.code});
}

Expected<LiveNode> LiveNode::make(node::MakePlan plan, ProxyShare share, std::optional<Rendezvous> rendezvous,
                                  const Paths &paths, Responder responder) {
    node::Record record;
    record.spec = plan.spec;
    record.made = std::time(nullptr);
    LiveNode out(plan.room, std::move(record), paths);
    const auto devices = plan.spec.devices;
    out.plan_ = std::move(plan);
    if (share.count == 0)
        share.count = devices;
    auto begun = devices != 0 ? out.start_proxies(out.plan_->cgroups, share, std::move(rendezvous))
                              : out.begin_making();
    if (!begun)
        return propagate(begun);
    out.maker_ = std::move(responder);
    out.patience_ = Deadline::after(kMakePatience);
    return out;
}

Expected<void> LiveNode::start_proxies(const std::string &cgroups, ProxyShare share,
                                       std::optional<Rendezvous> rendezvous) {
    auto proxies = Proxies::start({.libraries = surroundings_->libraries,
                                   .spec = record_.spec,
                                   .room = room_,
                                   .cgroups = cgroups,
                                   .share = share,
                                   .turn = surroundings_->gpu_turn,
                                   .rendezvous = std::move(rendezvous)});
    if (!proxies)
        return propagate(proxies);
    if (auto linked = room_.link_devices(record_.spec.devices, share.count); !linked)
        return linked;
    // Before any of them runs: the next agent must find them.
    record_.proxies = proxies->identities();
    if (auto written = room_.write(record_); !written)
        return written;
    if (auto allowed = proxies->allow(); !allowed)
        return allowed;
    proxies_ = std::move(*proxies);
    state_ = State::preparing;
    return {};
}

Expected<void> LiveNode::begin_making() {
    auto making = node::Making::begin(*plan_);
    if (!making)
        return propagate(making);
    plan_.reset();
    making_ = std::move(*making);
    state_ = State::making;
    return {};
}

Expected<LiveNode> LiveNode::adopt(node::Room room, const Paths &paths) {
    auto record = room.read();
    if (!record)
        return propagate(record);
    auto proxies = Proxies::adopt(room, *record);
    if (!proxies)
        return propagate(proxies);
    auto pidfd = record->init.pid != 0
                     ? node::hold(record->init)
                     : Expected<UniqueFd>(failure("find", record->spec.name, "it was never made", ESRCH));
    if (!pidfd && pidfd.error().code == ESRCH) // of a restore whose worker died with the agent
        if (auto ended = node::end_strays(room.run(), node::kRunInNode);
            !ended && verdict_of(ended.error()) != Verdict::gone)
            return propagate(ended);
    if (!pidfd && (pidfd.error().code != ESRCH || proxies->ended()))
        return propagate(pidfd);
    LiveNode out(std::move(room), std::move(*record), paths);
    if (!out.record_.proxies.empty())
        out.proxies_ = std::move(*proxies);
    if (!pidfd) { // its proxies are still to end
        out.finish();
        return out;
    }
    out.pidfd_ = std::move(*pidfd);
    out.state_ = State::joining;
    if (out.record_.in_doubt) {
        out.state_ = State::saving; // its worker leaves it so
        return out;
    }
    // A worker was at it, or still is.
    if (access(out.room_.mark().c_str(), F_OK) == 0) {
        auto recovering = out.recover();
        if (!recovering && verdict_of(recovering.error()) == Verdict::waits)
            return propagate(recovering);
        if (!recovering)
            out.work_failed(recovering.error(), true);
        return out;
    }
    out.retry_ = Deadline::after(0s);
    return out;
}

NodeLine LiveNode::line() const {
    NodeLine out{.record = record_, .state = std::string(to_string(state_)), .tasks = {}};
    out.record.spec.environment.clear(); // a list must fit into a packet
    for (const auto &[id, task] : tasks_)
        out.tasks.push_back(
            {.task = id, .pid = task.pid, .running = task.phase != Phase::ended, .status = task.status});
    return out;
}

void LiveNode::watch(std::vector<int> &fds) const {
    if (making_)
        fds.push_back(making_->fd());
    if (proxies_)
        proxies_->watch(fds);
    if (worker_)
        worker_->watch(fds);
    if (checking_)
        checking_->worker.watch(fds);
    if (removal_)
        removal_->watch(fds);
    for (const UniqueFd *fd : {&pidfd_, &init_})
        if (*fd)
            fds.push_back(fd->get());
    for (const auto &[id, task] : tasks_)
        if (state_ != State::saving && task.log && task.log->fd() >= 0)
            fds.push_back(task.log->fd());
}

std::optional<Deadline> LiveNode::next_deadline() const {
    std::optional<Deadline> out;
    const auto consider = [&](const Deadline &deadline) {
        if (!out || deadline.when() < out->when())
            out = deadline;
    };
    const auto proxies = proxies_ ? proxies_->next_deadline() : std::nullopt;
    for (const auto &one : {patience_, retry_, proxies, next_save_})
        if (one)
            consider(*one);
    for (const auto &[token, pending] : pending_)
        consider(pending.deadline);
    if (checking_ && checking_->on_check)
        consider(checking_->until);
    return out;
}

void LiveNode::handle() {
    if (proxies_)
        step_proxies();
    if (worker_)
        read_worker();
    if (checking_)
        read_checker();
    if (removal_ && removal_->ended()) {
        removal_.reset();
        if (state_ == State::ending && !pidfd_)
            finish();
    }
    if (making_)
        step_making();
    if (state_ != State::gone && pidfd_ && node::has_ended(pidfd_)) {
        if (state_ != State::ending)
            kLog.warning("{}: its init has ended, and everything in it", record_.spec.name);
        pidfd_.reset();
        return finish();
    }
    if (init_)
        read_init();
    // What is in the pipes while a node is saved goes into its image.
    for (auto &[id, task] : tasks_)
        if (task.log && state_ != State::saving)
            if (auto drained = task.log->drain(); !drained) {
                kLog.error("{}: {}; the rest of its output is lost", task_name(record_.spec.name, id),
                           drained.error().message());
                task.log.reset();
                task.log_lost = true;
            }
    if (state_ != State::gone)
        look_at_deadlines();
}

void LiveNode::step_proxies() {
    proxies_->look_at_deadline();
    proxies_->take_output();
    for (const auto number : proxies_->newly_ended())
        if (state_ != State::ending) {
            ++counters().devices_lost;
            kLog.error(
                "{}: the proxy of device {} has ended; what uses the device fails from now on; its log "
                "ends with {}",
                record_.spec.name, number, quote(proxies_->last_words(number)));
            lost_device_ = fmt::format("the proxy of device {} of {} has ended", number, record_.spec.name);
            if (trouble_.empty())
                trouble_ = lost_device_;
        }
    if (state_ == State::preparing) {
        auto serve = proxies_->step();
        if (!serve)
            return fail_making(serve.error());
        if (*serve)
            if (auto begun = worker_ ? begin_restoring() : begin_making(); !begun)
                return fail_making(begun.error());
    }
    if (state_ == State::ending && !pidfd_ && proxies_->ended())
        finish();
}

void LiveNode::fail_making(const Error &error) {
    if (auto maker = std::exchange(maker_, std::nullopt))
        maker->refuse(error);
    if (auto imager = std::exchange(imager_, std::nullopt))
        imager->refuse(error);
    end();
}

void LiveNode::step_making() {
    auto step = making_->step();
    const auto fail = [&](const Error &error) { fail_making(error); };
    if (auto born = making_->born()) {
        pidfd_ = std::move(born->pidfd);
        auto identity = node::identity_of(born->pid);
        if (!identity)
            return fail(identity.error());
        record_.init = *identity;
        if (auto written = room_.write(record_); !written)
            return fail(written.error());
        if (auto allowed = making_->allow(); !allowed)
            return fail(allowed.error());
    }
    if (!step)
        return fail(step.error());
    if (!*step)
        return;
    making_.reset();
    if (!pidfd_)
        return fail({"make", record_.spec.name, "the process that makes it has died", ECHILD});
    state_ = State::joining;
    connect_to_init();
}

void LiveNode::look_at_deadlines() {
    if (next_save_ && next_save_->expired())
        save_periodically();
    if (retry_ && retry_->expired())
        connect_to_init();
    look_at_pending();
    if (!patience_ || !patience_->expired())
        return;
    const auto error =
        timeout_error(*patience_, fmt::format("{}, which is {}", record_.spec.name, to_string(state_)));
    patience_.reset();
    kLog.error("{}", error.message());
    if (auto maker = std::exchange(maker_, std::nullopt)) {
        maker->refuse(error);
        return end();
    }
    for (const auto &destroyer : std::exchange(destroyers_, {}))
        destroyer.refuse(error);
    if (state_ == State::ending && worker_)
        worker_->kill();
    if (state_ == State::joining)
        drop_connection(error);
}

void LiveNode::end() {
    making_.reset(); // a process that is not allowed yet ends by that
    end_check(failure("check", record_.spec.name, "it is ended", ECANCELED));
    if (worker_)
        worker_->hang_up();
    if (proxies_)
        proxies_->end();
    // Before what could be waiting for it is killed.
    if (record_.spec.image.any() && (worker_ || lives()))
        if (auto ended = node::end_serving(room_); !ended)
            kLog.error("{}", ended.error().message());
    if (!pidfd_)
        return finish();
    if (auto killed = node::kill_process(pidfd_, record_.spec.name); !killed)
        kLog.error("{}", killed.error().message());
    if (state_ != State::ending)
        patience_ = Deadline::after(kEndPatience);
    state_ = State::ending;
    retry_.reset();
}

void LiveNode::finish() {
    // Theirs are the files as well.
    const bool used = (proxies_ && !proxies_->ended()) || (worker_ && !worker_->ended());
    if (!used && !removal_ && !std::exchange(last_removal_, true))
        clear_staging();
    if (used || removal_) {
        if (state_ != State::ending)
            patience_ = Deadline::after(kEndPatience);
        state_ = State::ending;
        retry_.reset();
        if (worker_)
            worker_->hang_up();
        if (proxies_)
            proxies_->end();
        return;
    }
    count_failure();
    worker_.reset();
    state_ = State::gone;
    next_save_.reset();
    patience_.reset();
    retry_.reset();
    making_.reset();
    const Error ended{"use", record_.spec.name, "it has ended", ECHILD};
    end_check(std::unexpected(ended));
    drop_connection(ended);
    for (const auto &one : std::exchange(held_signals_, {}))
        one.responder.refuse(ended);
    tasks_.clear();
    pidfd_.reset();
    const auto removed = room_.remove();
    if (!removed)
        kLog.error("{}", removed.error().message());
    if (auto maker = std::exchange(maker_, std::nullopt))
        maker->refuse(ended);
    answer_imager();
    if (auto imager = std::exchange(imager_, std::nullopt))
        imager->refuse(ended);
    answer_step(std::unexpected(ended));
    for (const auto &waiter : std::exchange(waiters_, {}))
        waiter.responder.tell(Ended{.status = SIGKILL, .node_ended = true});
    for (const auto &destroyer : std::exchange(destroyers_, {})) {
        if (removed)
            destroyer.tell(Done{});
        else
            destroyer.refuse(removed.error());
    }
}

Expected<LiveNode::Ends> LiveNode::ends() const {
    if (state_ != State::running)
        return failure("connect", record_.spec.name, fmt::format("it is {}", to_string(state_)), EAGAIN);
    auto network = open_file(fmt::format("/proc/{}/ns/net", record_.init.pid), O_RDONLY);
    if (!network)
        return propagate(network);
    UniqueFd init(fcntl(pidfd_.get(), F_DUPFD_CLOEXEC, 3));
    // After it was opened: what lives has kept its number.
    if (!init || node::has_ended(init))
        return failure("connect", record_.spec.name, "it has ended", ESRCH);
    return Ends{.network = std::move(*network), .init = std::move(init)};
}

void LiveNode::destroy(std::optional<Responder> responder) {
    if (responder)
        destroyers_.push_back(std::move(*responder));
    if (state_ == State::gone)
        return;
    end();
    if (!patience_) // it has been ending for longer than anybody waits
        patience_ = Deadline::after(kEndPatience);
}

} // namespace singularity::agent
