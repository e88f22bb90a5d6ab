// SPDX-License-Identifier: GPL-2.0-or-later
// What a node does with its worker: it is saved, restored, and put right after a worker that died.
#include "agent/log.hpp"
#include "live_node.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>

#include <fcntl.h>
#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr unsigned kMostRecoveries = 3;
constexpr auto kUntilTurn = 5s; // a checkpoint that nobody has asked for waits for others

Error error_of(const Failed &failed) { return {failed.doing, failed.on, failed.why, failed.code}; }

} // namespace

Workplace LiveNode::workplace() const {
    return {.state = surroundings_->state, .staging = surroundings_->staging / record_.spec.name};
}

void LiveNode::checkpoint(bool go_on, const Responder &responder) {
    if (auto room = Worker::room_for_one_more(record_.spec.uid, "save", record_.spec.name); !room)
        return responder.refuse(room.error());
    if (auto begun = begin_saving(go_on, false); begun)
        imager_ = responder;
    else
        responder.refuse(begun.error());
}

Expected<void> LiveNode::begin_saving(bool go_on, bool periodic, const PartPlan *part) {
    const auto refuse = [&](std::string why, int code) {
        return failure("save", record_.spec.name, std::move(why), code);
    };
    if (worker_)
        return refuse("it is being saved already", EBUSY);
    if (removal_)
        return refuse("what the last attempt has left is still being removed; try again later", EAGAIN);
    if (state_ != State::running)
        return refuse(fmt::format("it is {}; try again later", line().state), EAGAIN);
    if (!record_.spec.sockets.empty())
        return refuse("it was given sockets of this machine, whose other ends cannot be saved", EOPNOTSUPP);
    WorkSave job{.place = workplace(),
                 .record = record_,
                 .go_on = go_on,
                 .periodic = periodic,
                 .superseded = periodic ? record_.periodic : std::string(),
                 .part_of = {},
                 .ranks = {},
                 .tasks = {},
                 .numbers = {},
                 .store = {}};
    for (const auto &[id, task] : tasks_)
        if (task.phase == node::Phase::running) {
            job.tasks.push_back(task.pid);
            job.numbers.push_back(id);
        }
    if (part != nullptr) {
        job.go_on = part->go_on;
        job.part_of = part->checkpoint;
        job.ranks = part->ranks;
        job.store = part->store;
    }
    // Whether it can be saved is known for certain now.
    end_check(failure("check", record_.spec.name, "it is being saved", ECANCELED));
    auto worker = Worker::start(surroundings_->libraries, record_.spec.uid, job);
    if (!worker)
        return propagate(worker);
    worker_ = std::make_unique<Worker>(std::move(*worker));
    go_on_ = go_on;
    periodic_ = periodic;
    if (part == nullptr)
        counted_ = periodic ? Work::periodic : Work::asked;
    // CRIU must find a listening socket and no connection.
    state_ = State::saving;
    drop_connection({"use", record_.spec.name, "it is being saved; try again later", EAGAIN});
    return {};
}

// Between the end of one and the begin of the next.
void LiveNode::save_again_later() {
    if (record_.spec.every != 0)
        next_save_ = Deadline::after(std::chrono::seconds(record_.spec.every));
}

void LiveNode::save_periodically() {
    next_save_.reset();
    const bool alive =
        std::ranges::any_of(tasks_, [](const auto &task) { return task.second.phase != node::Phase::ended; });
    if (alive && !worker_ && !save_turn_.has_come(Budget::workers, record_.spec.uid, record_.spec.name)) {
        next_save_ = Deadline::after(kUntilTurn);
        return;
    }
    if (alive && !worker_)
        if (auto begun = begin_saving(true, true); !begun)
            kLog.warning("{}", begun.error().message());
    if (!worker_)
        save_again_later();
}

// An error: nobody lets it go on, and it must be ended.
Expected<void> LiveNode::recover() {
    if (++recoveries_ > kMostRecoveries)
        return failure("go on with", record_.spec.name,
                       fmt::format("{} processes that were to let it go on have died one after the other, so "
                                   "it is ended",
                                   kMostRecoveries),
                       ECHILD);
    auto worker = Worker::start(surroundings_->libraries, record_.spec.uid,
                                WorkRecover{.place = workplace(), .record = record_});
    if (!worker)
        return failure("go on with", record_.spec.name,
                       fmt::format("the process that saved it has died, and none can be started that lets it "
                                   "go on, so it is ended: {}",
                                   worker.error().message()),
                       worker.error().code);
    kLog.warning("{}: a worker has died; what it had begun is undone", record_.spec.name);
    worker_ = std::make_unique<Worker>(std::move(*worker));
    go_on_ = true;
    periodic_ = false;
    state_ = State::saving;
    return {};
}

Expected<LiveNode> LiveNode::restore(RestorePlan plan, const Paths &paths, Responder responder) {
    plan.record.init = {};
    plan.record.proxies.clear();
    plan.record.made = std::time(nullptr);
    LiveNode out(std::move(plan.room), std::move(plan.record), paths);
    out.worker_ = std::make_unique<Worker>(std::move(plan.worker));
    out.given_ = std::move(plan.given);
    out.on_held_ = std::move(plan.on_held);
    out.network_ = std::move(plan.network);
    if (plan.share.count != 0) {
        if (auto started = out.start_proxies(plan.cgroups, plan.share, std::move(plan.rendezvous)); !started)
            return propagate(started);
    } else {
        if (auto written = out.room_.write(out.record_); !written)
            return propagate(written);
        if (auto begun = out.begin_restoring(); !begun)
            return propagate(begun);
    }
    out.imager_ = std::move(responder);
    out.go_on_ = true;
    if (out.record_.spec.job.empty())
        out.counted_ = Work::restore;
    return out;
}

Expected<void> LiveNode::begin_restoring() {
    const auto stream_of = [this](const node::GivenDescriptor &given) {
        auto found = given_.find(given.task);
        if (found == given_.end())
            found = given_.find(0);
        return found != given_.end() && given.stream < found->second.streams.size()
                   ? Stream{.of = &found->second.streams, .number = given.stream}
                   : Stream{};
    };
    std::map<std::string, Stream> by_key; // output and errors may go into one pipe
    for (const auto &given : record_.given) {
        const auto stream = stream_of(given);
        if (stream.of == nullptr || !stream.of->trouble().empty())
            return failure("restore", record_.spec.name,
                           "its program had its standard streams from outside: new ones are needed", EINVAL);
        by_key.emplace(given.key, stream);
    }
    WorkGiven message;
    std::vector<Stream> streams;
    for (const auto &[key, stream] : by_key) {
        message.keys.push_back(key);
        streams.push_back(stream);
        if (streams.size() != node::kTrustedDescriptorLimit && key != by_key.rbegin()->first)
            continue;
        if (auto told = worker_->give(message, streams); !told)
            return told;
        message.keys.clear();
        streams.clear();
    }
    if (const auto network = std::exchange(network_, nullptr))
        if (auto told = worker_->tell(WorkNetwork{}, std::array{network->get()}); !told)
            return told;
    WorkGo go{.place = workplace(), .record = record_, .tasks = {}};
    for (const auto &[task, given] : given_)
        if (!given.cgroups.empty())
            go.tasks.push_back({.task = task, .cgroups = given.cgroups});
    if (auto told = worker_->tell(go); !told)
        return told;
    // From now on they are these.
    for (auto &given : record_.given) {
        const auto stream = stream_of(given);
        const auto &key = stream.of->keys()[stream.number];
        if (key.empty())
            return failure("restore", record_.spec.name, "a standard stream that came with it is no pipe",
                           EINVAL);
        given.key = key;
    }
    for (auto &[task, given] : std::exchange(given_, {}))
        if (!given.cpus.empty())
            cpus_.emplace(task, std::move(given.cpus));
    state_ = State::restoring;
    return {};
}

Expected<void> LiveNode::go_on() {
    if (state_ != State::restoring || on_held_ || !worker_)
        return failure("go on with", record_.spec.name,
                       fmt::format("it is {}, and not held after a restore", to_string(state_)), EAGAIN);
    return worker_->tell(WorkStep{.step = PartStep::resume});
}

void LiveNode::read_worker() {
    node::Packet packet;
    while (worker_ && !worker_->hung_up()) {
        const auto received = worker_->receive(packet);
        if (received == node::Received::nothing)
            return;
        if (received == node::Received::packet && take_news(packet))
            continue;
        if (worker_)
            worker_died();
    }
    if (state_ == State::ending && worker_ && worker_->ended()) {
        worker_.reset();
        if (!pidfd_)
            finish();
    }
}

// Whatever it was at, nobody hears of it from itself.
void LiveNode::worker_died() {
    ++counters().workers_died;
    count_failure();
    worker_.reset();
    part_.reset();
    const auto died = [&](std::string_view consequence) {
        return Error{"go on with", record_.spec.name,
                     fmt::format("the process that saves or restores it has died{}", consequence), ECHILD};
    };
    if (state_ != State::saving) {
        if (pidfd_)
            clear_staging(); // of no use to a node that runs
        else
            end_strays(room_);
        return work_failed(died(pidfd_ ? "; it runs on" : ", and what it did is undone"), !pidfd_);
    }
    if (record_.in_doubt) { // it goes on when its coordinator says so
        kLog.warning("{}", died(", and it stands still").message());
        return answer_step(std::unexpected(died(", and it stands still")));
    }
    answer_step(std::unexpected(died(", and what it did is undone")));
    if (auto recovering = recover(); !recovering)
        return work_failed(recovering.error(), true);
    undone_ = died(", and what it did is undone");
}

// What a worker that has died was restoring, or has restored and told nobody of: nobody else would.
void LiveNode::end_strays(const node::Room &room) {
    if (auto ended = node::end_strays(room.run(), node::kRunInNode); !ended && ended.error().code != ENOENT)
        kLog.error("{}", ended.error().message());
}

bool LiveNode::take_news(node::Packet &packet) {
    if (const auto progress = node::decode<Progress>(packet.bytes)) {
        if (std::exchange(phase_, progress->phase) != progress->phase)
            kLog.debug("{}: {}", record_.spec.name, phase_);
        if (imager_)
            imager_->tell(*progress);
        return true;
    }
    if (take_step(packet))
        return true;
    if (node::decode<WorkRunning>(packet.bytes) && state_ == State::saving) {
        state_ = State::joining;
        retry_ = Deadline::after(0s);
        return true;
    }
    if (node::decode<WorkHeld>(packet.bytes) && state_ == State::restoring && on_held_ &&
        packet.descriptors.size() == 2) {
        UniqueFd network(packet.descriptors.take(0));
        UniqueFd init(packet.descriptors.take(1));
        std::exchange(on_held_, {})({.network = std::move(network), .init = std::move(init)});
        return true;
    }
    if (const auto born = node::decode<WorkBorn>(packet.bytes);
        born && state_ == State::restoring && packet.descriptors.size() == 1) {
        if (auto taken = take_born(born->pid, UniqueFd(packet.descriptors.take(0))); !taken)
            work_failed(taken.error(), true);
        return true;
    }
    if (const auto finished = node::decode<WorkFinished>(packet.bytes)) {
        work_finished(finished->report);
        return true;
    }
    if (const auto failed = node::decode<WorkFailed>(packet.bytes)) {
        work_failed(error_of(failed->error), failed->lost);
        return true;
    }
    return false;
}

Expected<void> LiveNode::take_born(std::int32_t pid, UniqueFd pidfd) {
    pidfd_ = std::move(pidfd);
    auto identity = node::identity_of(pid);
    if (!identity)
        return propagate(identity);
    record_.init = *identity;
    if (auto written = room_.write(record_); !written)
        return written;
    if (auto told = worker_->tell(WorkKeep{}); !told)
        return told;
    state_ = State::joining;
    retry_ = Deadline::after(0s);
    return {};
}

void LiveNode::work_finished(const ImageReport &report) {
    recoveries_ = 0;
    part_.reset();
    if (const auto work = std::exchange(counted_, std::nullopt))
        counters().succeeded(*work, report);
    if (const auto undone = std::exchange(undone_, std::nullopt))
        if (const auto imager = std::exchange(imager_, std::nullopt))
            imager->refuse(*undone);
    if (imager_)
        report_ = report;
    if (!report.checkpoint.empty())
        record_.checkpoint = report.checkpoint;
    if (periodic_)
        record_.periodic = report.checkpoint;
    save_again_later();
    if (!go_on_) {
        end(); // it is in the store; the worker waits for that
        return;
    }
    worker_.reset();
    if (auto written = room_.write(record_); !written)
        kLog.error("{}", written.error().message());
    if (state_ == State::saving) {
        state_ = State::joining;
        retry_ = Deadline::after(0s);
    }
    answer_imager();
    answer_step(std::string());
}

void LiveNode::work_failed(const Error &error, bool lost) {
    count_failure();
    worker_.reset();
    undone_.reset();
    part_.reset();
    if (auto written = set_in_doubt(false); !written) // the worker has undone it
        kLog.error("{}", written.error().message());
    save_again_later();
    kLog.error("{}: {}", record_.spec.name, error.message());
    if (auto imager = std::exchange(imager_, std::nullopt))
        imager->refuse(error);
    answer_step(std::unexpected(error));
    if (lost) {
        if (trouble_.empty())
            trouble_ = error.message();
        end();
        return;
    }
    if (state_ == State::saving) {
        state_ = State::joining;
        retry_ = Deadline::after(0s);
    }
}

// A node that has ended is told when nothing is left of it, one that runs when its tasks are known.
void LiveNode::answer_imager() {
    if (!imager_ || !report_ || (go_on_ ? state_ != State::running : state_ != State::gone))
        return;
    Imaged answer;
    answer.report = *report_;
    answer.tied = record_.spec.tied;
    for (const auto &[id, task] : tasks_)
        if (task.phase != node::Phase::ended && answer.task == 0)
            answer.task = id;
    if (answer.task == 0 && !tasks_.empty())
        answer.task = tasks_.begin()->first;
    imager_->tell(answer);
    imager_.reset();
    report_.reset();
}

void LiveNode::count_failure() {
    if (const auto work = std::exchange(counted_, std::nullopt))
        counters().failed(*work);
}

void LiveNode::clear_staging() {
    auto started = Removal::start({surroundings_->staging / record_.spec.name}, record_.spec.uid);
    if (started)
        removal_ = std::move(*started);
    else // the next one, or the next agent's, finds it as well
        kLog.error("{}: {}", record_.spec.name, started.error().message());
}

} // namespace singularity::agent
