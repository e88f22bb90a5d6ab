// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/collectives/member.hpp"

#include "group.hpp"
#include "task.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

namespace singularity::collectives {

namespace {

using protocol::CommunicatorPhase;

// Nobody sleeps longer without looking again: a bell that another process has not rung costs that much.
constexpr std::chrono::milliseconds kLongestSleep{100};

} // namespace

Member::State Member::state() const {
    const std::scoped_lock lock(lock_);
    State state{.phase = group_ == nullptr ? CommunicatorPhase::joining : CommunicatorPhase::ready,
                .issued = issued_,
                .completed = completed_,
                .failure = {},
                .released = released_};
    auto failed = failure_;
    if (!failed && group_ != nullptr)
        failed = group_->failure();
    if (failed) {
        state.phase = CommunicatorPhase::failed;
        state.failure = *failed;
    }
    return state;
}

Member::State Member::wait(std::uint64_t completed, const Deadline &deadline) {
    {
        std::unique_lock lock(lock_);
        // A failure may come from the group, which does not know who waits here.
        const auto settled = [&] {
            return failure_ || aborted_ ||
                   (group_ != nullptr && (group_->failed() || completed_ >= completed));
        };
        while (!settled() && !deadline.expired())
            changed_.wait_for(lock, std::min<Deadline::Clock::duration>(deadline.remaining(), kLongestSleep));
    }
    return state();
}

bool Member::issue(std::vector<protocol::CollectiveOperation> operations) {
    const std::scoped_lock lock(lock_);
    if (released_ || leaving_ || aborted_)
        return false;
    ++issued_;
    queue_.push_back({.group = issued_, .operations = std::move(operations), .exchange = nullptr});
    return true;
}

void Member::begin(std::uint64_t group) {
    const std::scoped_lock lock(lock_);
    for (auto &work : queue_)
        if (work.group == group)
            work.begun = true;
    ring();
}

Expected<std::shared_ptr<Member::Exchange>> Member::exchange(std::uint64_t group,
                                                             std::span<const std::byte> mine) {
    const std::scoped_lock lock(lock_);
    if (auto known = exchanges_.extract(group); !known.empty())
        return std::move(known.mapped());
    if (group != issued_ + 1)
        return failure("exchange as", fmt::format("group {}", group),
                       fmt::format("group {} is the next", issued_ + 1), EPROTO);
    auto exchange = std::make_shared<Exchange>();
    exchange->all.resize(mine.size() * place_.size);
    exchange->mine.assign(mine.begin(), mine.end());
    ++issued_;
    exchanges_.emplace(group, exchange);
    if (!released_ && !leaving_ && !aborted_)
        queue_.push_back({.group = issued_, .operations = {}, .exchange = exchange, .begun = true});
    ring();
    return exchange;
}

Expected<void> Member::finish(const Exchange &exchange, const Deadline &deadline) {
    std::unique_lock lock(lock_);
    while (!exchange.done) {
        const auto failed = failure_ ? failure_ : group_ != nullptr ? group_->failure() : std::nullopt;
        if (failed)
            return failure("exchange with", "the other ranks", failed->text, ECONNABORTED);
        if (aborted_ || leaving_)
            return failure("exchange with", "the other ranks", "the communicator is left", ECONNABORTED);
        if (deadline.expired())
            return std::unexpected(timeout_error(deadline, "the other ranks' part of an exchange"));
        changed_.wait_for(lock, std::min<Deadline::Clock::duration>(deadline.remaining(), kLongestSleep));
    }
    return {};
}

void Member::leave() {
    const std::scoped_lock lock(lock_);
    leaving_ = true;
    ring();
}

void Member::abort(const std::string &why) {
    std::shared_ptr<Group> group;
    {
        const std::scoped_lock lock(lock_);
        if (aborted_ || over_)
            return;
        // One that has left with nothing to do any more is not missed by the others.
        if (!leaving_ || completed_ != issued_)
            group = group_;
    }
    // Before anybody can see that it has left.
    if (group != nullptr)
        group->fail({.remote = true, .text = fmt::format("rank {} {}", place_.rank, why)});
    {
        const std::scoped_lock lock(lock_);
        if (std::exchange(aborted_, true))
            return;
        ring();
    }
    // A thread that carries out something lets go when no copy is under way any more.
    bool running = false;
    {
        const std::scoped_lock lock(lock_);
        running = running_;
        over_ = over_ || !running;
    }
    if (!running)
        release(true);
}

void Member::suspend() {
    const std::scoped_lock lock(lock_);
    suspended_ = true;
    ring();
}

void Member::ready(std::shared_ptr<Group> group) {
    const std::scoped_lock lock(lock_);
    group_ = std::move(group);
    ring();
}

void Member::fail(Failure failure) {
    const std::scoped_lock lock(lock_);
    if (!failure_)
        failure_ = std::move(failure);
    ring();
}

bool Member::over() const {
    const std::scoped_lock lock(lock_);
    return over_;
}

// With the lock held.
void Member::ring() {
    changed_.notify_all();
    if (group_ != nullptr)
        group_->area(place_.rank).ring();
}

void Member::release(bool aborted) {
    std::uint64_t issued = 0;
    {
        const std::scoped_lock lock(lock_);
        if (std::exchange(released_, true))
            return;
        queue_.clear();
        issued = issued_;
    }
    if (events_.released)
        events_.released(issued, aborted);
}

// The next group that can be carried out. stop: the thread is not needed any more, or not now.
std::optional<Member::Work> Member::next(bool &stop) {
    std::unique_lock lock(lock_);
    for (;;) {
        const bool failed = failure_ || (group_ != nullptr && group_->failed());
        if (aborted_ || (leaving_ && (failed || queue_.empty()))) {
            over_ = stop = true;
            lock.unlock();
            release(true);
            return std::nullopt;
        }
        if (failed) {
            changed_.notify_all();
            if (!patience_)
                patience_ = Deadline::after(place_.patience);
            if (patience_->expired() && !released_) {
                lock.unlock();
                release(false);
                lock.lock();
                continue;
            }
        }
        if (!failed && group_ != nullptr && !queue_.empty() && queue_.front().begun) {
            auto work = std::move(queue_.front());
            queue_.pop_front();
            return work;
        }
        if (suspended_) {
            suspended_ = false;
            stop = true;
            return std::nullopt;
        }
        changed_.wait_for(lock, kLongestSleep);
    }
}

void Member::run(Mover &mover) {
    std::uint64_t rounds = 0;
    {
        const std::scoped_lock lock(lock_);
        rounds = rounds_;
        running_ = true;
    }
    for (bool stop = false; !stop;) {
        auto work = next(stop);
        if (!work)
            break;
        if (auto done = carry_out(*work, mover, rounds); !done) {
            group_->fail({.remote = done.error().code == ECONNRESET, .text = done.error().message()});
            // Copies that have begun use memory of members.
            if (auto mark = mover.mark())
                static_cast<void>(mover.wait(*mark));
            continue;
        } else if (*done) {
            complete(*work);
        }
    }
    std::shared_ptr<Group> left;
    {
        const std::scoped_lock lock(lock_);
        rounds_ = rounds;
        running_ = false;
        if (over_ && group_ != nullptr) {
            group_->publish(place_.rank, kLeft, 1);
            left = group_;
        }
        changed_.notify_all();
    }
    // Without the lock: memory is given back when the device is through with what it does, and that may be a
    // host function which begins a group here.
    if (left != nullptr)
        left->is_over();
}

void Member::complete(const Work &work) {
    {
        const std::scoped_lock lock(lock_);
        completed_ = work.group;
        if (work.exchange != nullptr)
            work.exchange->done = true;
        changed_.notify_all();
    }
    if (events_.completed)
        events_.completed(work.group);
}

// false: it was given up, since the communicator has failed or was aborted.
Expected<bool> Member::carry_out(Work &work, Mover &mover, std::uint64_t &rounds) {
    auto &group = *group_;
    HostMover host;
    Desk desk{.group = group,
              .mover = work.exchange == nullptr ? mover : host,
              .rank = place_.rank,
              .rounds = rounds,
              .on_device = work.exchange == nullptr && group.on_device()};
    if (desk.on_device && mover.on_device() == nullptr)
        return failure("carry out", "a collective", "its mover cannot work on the device that it has named",
                       ENOTSUP);
    std::vector<std::unique_ptr<Task>> tasks;
    if (work.exchange != nullptr) {
        auto &exchange = *work.exchange;
        tasks.push_back(make_task(desk, {.kind = std::to_underlying(protocol::CollectiveKind::all_gather),
                                         .type = 1,
                                         .count = exchange.mine.size(),
                                         .input = std::bit_cast<std::uint64_t>(exchange.mine.data()),
                                         .output = std::bit_cast<std::uint64_t>(exchange.all.data())}));
    } else {
        for (const auto &operation : work.operations)
            tasks.push_back(make_task(desk, operation));
    }
    rounds = desk.rounds;
    std::vector<bool> busy(std::size_t{2} * group.size() + 1);
    const auto advance = [&]() -> Expected<bool> {
        bool moved = false;
        std::ranges::fill(busy, false);
        for (auto &task : tasks) {
            if (busy[task->lane()])
                continue;
            auto one = task->advance();
            if (!one)
                return one;
            moved = moved || *one;
            busy[task->lane()] = !task->done();
        }
        std::erase_if(tasks, [](const auto &task) { return task->done(); });
        return moved;
    };
    const auto given_up = [&] {
        if (group.failed())
            return true;
        const std::scoped_lock lock(lock_);
        return aborted_;
    };
    auto &area = group.area(place_.rank);
    for (;;) {
        auto moved = advance();
        if (!moved)
            return moved;
        if (tasks.empty())
            return true;
        if (given_up()) {
            if (auto mark = desk.mover.mark())
                static_cast<void>(desk.mover.wait(*mark));
            return false;
        }
        if (*moved)
            continue;
        std::optional<std::uint64_t> mark;
        for (const auto &task : tasks)
            if (const auto one = task->waits_for())
                mark = std::min(mark.value_or(*one), *one);
        if (mark) {
            if (auto waited = desk.mover.wait(*mark); !waited)
                return propagate(waited);
            continue;
        }
        const auto seen = area.about_to_sleep();
        moved = advance();
        if (!moved || *moved || given_up()) {
            area.awake();
            if (!moved)
                return moved;
            if (tasks.empty())
                return true;
            continue;
        }
        area.sleep(seen, kLongestSleep);
    }
}

} // namespace singularity::collectives
