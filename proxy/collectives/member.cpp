// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/collectives/member.hpp"

#include "group.hpp"
#include "log.hpp"
#include "proxy/collectives/device.hpp"
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
// While something is under way of which nobody rings a bell.
constexpr std::chrono::microseconds kShortSleep{50};
constexpr std::chrono::milliseconds kBetweenLooks{1};
constexpr std::chrono::seconds kMemberToMeet{60};

} // namespace

Member::State Member::state() const {
    const std::scoped_lock lock(lock_);
    State state{.phase = group_ == nullptr || !met_ ? CommunicatorPhase::joining : CommunicatorPhase::ready,
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

bool Member::linked() const {
    const std::scoped_lock lock(lock_);
    return linked_ != nullptr;
}

Member::State Member::wait(std::uint64_t completed, const Deadline &deadline) {
    {
        std::unique_lock lock(lock_);
        // A failure may come from the group, which does not know who waits here.
        const auto settled = [&] {
            return failure_ || aborted_ ||
                   (group_ != nullptr && (group_->failed() || (met_ && completed_ >= completed)));
        };
        while (!settled() && !deadline.expired())
            changed_.wait_for(lock, std::min<Deadline::Clock::duration>(deadline.remaining(), kLongestSleep));
    }
    return state();
}

bool Member::issue(std::vector<protocol::CollectiveOperation> operations) {
    const std::scoped_lock lock(lock_);
    if (leaving_)
        return false;
    ++issued_; // also what is not carried out any more: those that follow count on
    if (released_ || aborted_)
        return false;
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
    met_ = !group_->may_link();
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
        const bool to_meet = !failed && group_ != nullptr && !met_;
        if (to_meet && !aborted_) // also if it is to leave then: the others count on it
            return Work{.group = 0, .operations = {}, .exchange = nullptr, .begun = true, .meets = true};
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
        auto done = work->meets ? meet(mover, rounds) : carry_out(*work, mover, rounds);
        if (!done) {
            group_->fail({.remote = done.error().code == ECONNRESET, .text = done.error().message()});
            settle(mover);
        } else if (*done && !work->meets) {
            complete(*work);
        }
    }
    std::shared_ptr<Group> left;
    std::shared_ptr<const DeviceMemory> linked;
    bool in_order = false;
    {
        const std::scoped_lock lock(lock_);
        in_order = !aborted_ && group_ != nullptr && !group_->failed();
        rounds_ = rounds;
        running_ = false;
        if (over_)
            linked = std::exchange(linked_, nullptr);
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
    if (Link *const link = linked != nullptr ? mover.link() : nullptr; link != nullptr && in_order)
        link->leave();
    else if (link != nullptr)
        link->abort();
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

bool Member::given_up() const {
    if (group_->failed())
        return true;
    const std::scoped_lock lock(lock_);
    return aborted_;
}

// Copies that have begun use memory of members, and what goes through links may wait for one that is gone.
void Member::settle(Mover &mover) const {
    if (linked_ != nullptr && mover.link() != nullptr)
        mover.link()->abort();
    if (auto mark = mover.mark())
        static_cast<void>(mover.wait(*mark));
}

// Through the areas.
Expected<bool> Member::share(std::span<const std::byte> mine, std::span<std::byte> all, Mover &mover,
                             std::uint64_t &rounds) {
    const auto exchange = std::make_shared<Exchange>();
    exchange->mine.assign(mine.begin(), mine.end());
    exchange->all.resize(all.size());
    Work work{.group = 0, .operations = {}, .exchange = exchange, .begun = true};
    auto done = carry_out(work, mover, rounds);
    if (done && *done)
        std::ranges::copy(exchange->all, all.begin());
    return done;
}

Expected<void> Member::make_link(Link &link, std::span<const LinkOffer> offers) const {
    if (auto begun = link.meet(offers, place_.rank); !begun)
        return begun;
    Expected<bool> met = false;
    const auto settled = [&] {
        met = link.met();
        return !met || *met || given_up();
    };
    if (auto waited =
            wait_until(settled, Deadline::after(kMemberToMeet), "the other ranks' devices", kBetweenLooks);
        !waited)
        return waited;
    if (met && !*met)
        return failure("link", "its device to the others'", "the communicator has failed or was left",
                       ECANCELED);
    return met ? Expected<void>() : propagate(met);
}

// Either all of them are linked, or none is.
Expected<bool> Member::meet(Mover &mover, std::uint64_t &rounds) {
    const bool can = place_.device != nullptr && mover.on_device() != nullptr;
    Link *const link = can ? mover.link() : nullptr;
    const auto mine = link != nullptr ? link->offer(place_.rank) : LinkOffer{};
    std::vector<LinkOffer> offers(place_.size);
    auto shared =
        share(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(offers)), mover, rounds);
    if (!shared || !*shared)
        return shared;
    std::shared_ptr<const DeviceMemory> memory;
    if (!std::ranges::contains(offers, LinkOffer{}) && link->fits(offers)) {
        auto staged = place_.device->stage(linked_memory());
        const auto made = staged ? make_link(*link, offers) : propagate(staged);
        if (made)
            memory = std::move(*staged);
        else
            kLog.warning("a communicator of {} ranks: rank {} is not linked to the others, so all go through "
                         "memory of the host: {}",
                         place_.size, place_.rank, made.error().message());
        const auto has = std::byte(memory != nullptr ? 1 : 0);
        std::vector<std::byte> all(place_.size);
        shared = share(std::span(&has, 1), all, mover, rounds);
        if (!shared || !*shared || std::ranges::contains(all, std::byte{0})) {
            link->abort();
            memory = nullptr;
        }
        if (!shared || !*shared)
            return shared;
    }
    if (memory != nullptr)
        kLog.info("a communicator of {} ranks: rank {} is linked to the others from device to device",
                  place_.size, place_.rank);
    const std::scoped_lock lock(lock_);
    linked_ = std::move(memory);
    met_ = true;
    changed_.notify_all();
    return true;
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
    Link *const link = work.exchange == nullptr && linked_ != nullptr ? mover.link() : nullptr;
    if (link != nullptr)
        desk.linked = {.link = link, .memory = linked_->address(), .given_up = [this] { return given_up(); }};
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
    } else if (link != nullptr) {
        tasks = make_linked(desk, work.operations);
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
    auto &area = group.area(place_.rank);
    for (;;) {
        auto moved = advance();
        if (!moved)
            return moved;
        if (tasks.empty())
            return true;
        if (given_up()) {
            settle(desk.mover);
            return false;
        }
        if (link != nullptr)
            if (auto good = link->look(); !good)
                return propagate(good);
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
        const bool looks =
            std::ranges::any_of(tasks, [](const auto &task) { return task->looks_at_mover(); });
        area.sleep(seen, looks ? std::chrono::nanoseconds(kShortSleep) : kLongestSleep);
    }
}

} // namespace singularity::collectives
