// SPDX-License-Identifier: GPL-2.0-or-later
#include "residency.hpp"

#include "log.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

// Nobody rings a bell when the device has finished what it was given.
constexpr std::chrono::microseconds kLookForRoom{200};
// Nobody rings one either when a neighbour ends that is to be served before.
constexpr std::chrono::milliseconds kLookForTurn{2};
constexpr std::chrono::seconds kComplain{5};
// Turns last some times as long as it takes to change them, and who is idle for a moment keeps its own.
constexpr int kTurnsOverMoves = 4;
constexpr std::chrono::milliseconds kLongestIdle{500};
// Of a device that several share, for contexts, code and what collectives stage.
constexpr std::uint64_t kReserveShare = 32;
constexpr std::uint64_t kLargestReserve = std::uint64_t{2} << 30;

} // namespace

Residency::~Residency() {
    {
        const std::scoped_lock lock(lock_);
        stopping_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) {
        thread_.join();
    } else if (thread_.joinable()) {
        *gone_ = true; // it has let the last session go
        thread_.detach();
    }
    neighbours_.reset(); // whose thread calls this
}

void Residency::use_neighbours(std::unique_ptr<Neighbours> neighbours) {
    neighbours_ = std::move(neighbours);
    thread_ = std::thread([this] { run(); });
    neighbours_->watch([this] { rung(); });
}

void Residency::rung() {
    const std::scoped_lock lock(lock_);
    rung_ = true;
    changed_.notify_all();
}

void Residency::join(const std::shared_ptr<Tenant> &tenant, Gate &gate) {
    const std::scoped_lock lock(lock_);
    Seat seat;
    seat.tenant = tenant;
    seat.gate = &gate;
    seat.look = std::make_shared<Look>();
    seats_.emplace(&gate, std::move(seat));
    if (neighbours_ != nullptr && neighbours_->crowded())
        become_crowded();
}

// With the lock held.
void Residency::become_crowded() {
    if (!crowded_.exchange(true))
        kLog.info("the sessions' memory does not fit on the device any more: they take turns");
    if (neighbours_ != nullptr)
        neighbours_->set_crowded(true);
}

void Residency::leave(const Gate &gate) {
    const std::scoped_lock lock(lock_);
    seats_.erase(&gate);
    // Not before: what one that is left waits for may still be moved, and its memory need not be here.
    if (seats_.empty()) {
        crowded_ = false;
        if (neighbours_ != nullptr)
            neighbours_->set_crowded(false);
    }
    changed_.notify_all();
    served_.notify_all();
}

void Residency::look() {
    const std::scoped_lock lock(lock_);
    changed_.notify_all();
    served_.notify_all();
}

std::uint64_t Residency::room_for_one() {
    const std::scoped_lock lock(lock_);
    const bool shared = seats_.size() > 1 || (neighbours_ != nullptr && neighbours_->any());
    const auto reserve = shared ? std::min(rules_.device_bytes / kReserveShare, kLargestReserve) : 0;
    return rules_.device_bytes - reserve;
}

bool Residency::take(std::uint64_t bytes, bool back) {
    const auto room = back ? rules_.device_bytes : room_for_one();
    auto taken = taken_.load();
    do {
        if (bytes > room || taken > room - bytes)
            return false;
    } while (!taken_.compare_exchange_weak(taken, taken + bytes));
    if (neighbours_ == nullptr || neighbours_->take(bytes, room))
        return true;
    taken_.fetch_sub(bytes);
    return false;
}

void Residency::give_back(std::uint64_t bytes) {
    taken_.fetch_sub(bytes);
    if (neighbours_ != nullptr)
        neighbours_->give_back(bytes);
}

Residency::Counts Residency::counts() {
    const std::scoped_lock lock(lock_);
    return counts_;
}

CUresult Residency::ask(Gate &gate, Attempt attempt) {
    auto request = std::make_shared<Request>();
    request->gate = &gate;
    request->attempt = std::move(attempt);
    std::unique_lock lock(lock_);
    const auto seat = seats_.find(&gate);
    if (seat == seats_.end() || gate.ended_.load())
        return CUDA_ERROR_NOT_READY;
    become_crowded();
    if (!thread_.joinable())
        thread_ = std::thread([this] { run(); });
    ++seat->second.requests;
    requests_.push_back(request);
    changed_.notify_all();
    served_.wait(lock, [&] { return request->done || gate.ended_.load(); });
    if (const auto still = seats_.find(&gate); still != seats_.end())
        --still->second.requests;
    // Another session may have a gate at the same address later.
    request->dropped = !request->done;
    return request->done ? request->result : CUDA_ERROR_NOT_READY;
}

void Residency::run() {
    const auto gone = gone_;
    while (!*gone) {
        std::shared_ptr<Request> request;
        Kept kept; // until it is asked whether this is gone
        {
            std::unique_lock lock(lock_);
            changed_.wait(lock, [this] { return stopping_ || rung_ || !requests_.empty(); });
            if (stopping_)
                return;
            rung_ = false;
            if (!requests_.empty())
                request = requests_.front();
        }
        if (request == nullptr) {
            attend(kept);
            continue;
        }
        auto asks = tenant_of(*request);
        if (asks != nullptr)
            serve(*request, *asks);
        {
            const std::scoped_lock lock(lock_);
            requests_.pop_front();
            request->done = !request->dropped;
            served_.notify_all();
        }
        asks.reset(); // it may be the last that keeps the session, and the session this
    }
}

std::shared_ptr<Tenant> Residency::tenant_of(const Request &request) {
    const std::scoped_lock lock(lock_);
    const auto seat = seats_.find(request.gate);
    return stopping_ || request.dropped || seat == seats_.end() ? nullptr : seat->second.tenant.lock();
}

void Residency::met(Request &request, Clock::time_point begin, Clock::duration moving, bool on_host) {
    const std::scoped_lock lock(lock_);
    const auto seat = request.dropped ? seats_.end() : seats_.find(request.gate);
    if (seat == seats_.end())
        return;
    request.gate->entered_.fetch_add(1);
    request.gate->state_.store(Gate::State::open);
    *seat->second.look = {};
    last_ = moving;
    if (neighbours_ != nullptr)
        neighbours_->set_moving(moving);
    ++counts_.turns;
    counts_.on_host += on_host ? 1 : 0;
    kLog.debug("a turn begins after {} ms; {} MiB have been moved out so far{}",
               std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count(),
               counts_.moved >> 20, on_host ? "; it works in memory of the host" : "");
}

void Residency::serve(Request &request, const Tenant &asks) {
    if (neighbours_ == nullptr)
        return serve_first(request, asks);
    neighbours_->queue();
    request.result = CUDA_SUCCESS;
    auto first = neighbours_->first_ticket();
    auto since = Clock::now();
    while (request.result == CUDA_SUCCESS && !neighbours_->is_first()) {
        {
            Kept kept; // not this: somebody keeps who asks
            attend(kept);
        }
        if (tenant_of(request) == nullptr || asks.ending())
            request.result = CUDA_ERROR_NOT_READY;
        if (const auto now_first = neighbours_->first_ticket(); now_first != first) {
            first = now_first;
            since = Clock::now();
        }
        // It would have memory of the host by now. Others will not answer us, either, but that ends as well.
        if (Clock::now() - since >= 2 * rules_.longest) {
            kLog.warning("a device proxy of the job that was to have room before {} stands still: it is not "
                         "waited for any longer",
                         asks.who());
            break;
        }
        wait_for_change(kLookForTurn);
    }
    if (request.result == CUDA_SUCCESS)
        serve_first(request, asks);
    neighbours_->leave_queue();
}

void Residency::wait_for_change(Clock::duration longest) {
    std::unique_lock lock(lock_);
    if (!rung_)
        changed_.wait_for(lock, longest);
    rung_ = false;
}

std::uint64_t Residency::send_out(Tenant &leaving) {
    const auto bytes = leaving.on_device();
    if (leaving.send_out() == CUDA_ERROR_OUT_OF_MEMORY && !std::exchange(told_no_memory_, true))
        kLog.warning("{}: there is no memory of the host that its memory could be moved to", leaving.who());
    const auto moved = bytes - std::min(bytes, leaving.on_device());
    const std::scoped_lock lock(lock_);
    counts_.moved += moved;
    return moved;
}

void Residency::attend(Kept &kept) {
    if (neighbours_ == nullptr)
        return;
    if (!crowded() && neighbours_->crowded()) {
        const std::scoped_lock lock(lock_);
        if (!seats_.empty())
            become_crowded();
    }
    while (const auto question = neighbours_->question())
        neighbours_->answer(*question, give(kept));
}

// A piece, for the neighbour that is served.
Neighbours::Answer Residency::give(Kept &kept) {
    using enum Neighbours::Answer;
    std::shared_ptr<Tenant> any;
    {
        const std::scoped_lock lock(lock_);
        for (const auto &[gate, seat] : seats_)
            if (auto tenant = seat.tenant.lock(); tenant != nullptr) {
                if (any == nullptr && !tenant->ending())
                    any = tenant;
                kept.push_back(std::move(tenant));
            }
    }
    if (any != nullptr && any->release_left())
        return gave;
    auto others = candidates(nullptr);
    for (const auto &one : others)
        kept.push_back(one.tenant);
    bool some_stuck = false;
    for (auto &one : others) {
        if (one.tenant->ending())
            continue; // gives everything back by itself
        if (!can_leave(one)) {
            some_stuck = some_stuck || one.tenant->waits_on_device();
            continue;
        }
        const auto moved = send_out(*one.tenant);
        static_cast<void>(one.tenant->release_left());
        if (moved != 0)
            return gave;
    }
    return some_stuck ? stuck : others.empty() ? nothing : later;
}

void Residency::serve_first(Request &request, const Tenant &asks) {
    const auto begin = Clock::now();
    auto said = begin;
    std::shared_ptr<Tenant> leaving;
    std::optional<Neighbours::Sweep> sweep;
    if (neighbours_ != nullptr)
        sweep.emplace(*neighbours_);
    Clock::duration moving{};
    for (bool on_host = false;;) {
        if (tenant_of(request) == nullptr || asks.ending()) {
            request.result = CUDA_ERROR_NOT_READY;
            return;
        }
        const auto tried = Clock::now();
        request.result = request.attempt(on_host);
        moving += Clock::now() - tried;
        if (request.result == CUDA_SUCCESS)
            return met(request, begin, moving, on_host);
        const bool refused_host = std::exchange(on_host, false);
        if (request.result != CUDA_ERROR_OUT_OF_MEMORY && !refused_host)
            return;
        if (leaving != nullptr && !leaving->ending() && leaving->on_device() != 0) {
            const auto from = Clock::now();
            const auto moved = send_out(*leaving);
            moving += Clock::now() - from;
            if (moved != 0)
                continue;
        }
        leaving = nullptr;
        auto others = candidates(request.gate);
        bool none = others.empty();
        bool stuck = false;
        for (auto &one : others) {
            if (one.tenant->ending())
                continue; // gives everything back by itself
            if (can_leave(one)) {
                leaving = one.tenant;
                break;
            }
            stuck = stuck || one.tenant->waits_on_device();
        }
        if (leaving != nullptr)
            continue;
        if (sweep) {
            const bool gave = sweep->step() == Neighbours::Sweep::Step::gave;
            moving += sweep->took();
            if (gave)
                continue;
            none = none && sweep->nobody();
            stuck = stuck || sweep->stuck();
        }
        if (none && refused_host) {
            request.result = CUDA_ERROR_OUT_OF_MEMORY;
            return;
        }
        const auto waited = Clock::now() - begin;
        on_host =
            none || (!refused_host && ((stuck && waited >= rules_.patience) || waited >= rules_.longest));
        if (on_host)
            continue;
        if (Clock::now() - said >= kComplain) {
            said = Clock::now();
            complain(asks, request.gate, std::chrono::duration_cast<std::chrono::seconds>(waited));
        }
        others.clear();
        wait_for_change(kLookForRoom);
    }
}

// How long it took to change turns, here or where neighbours did it last.
Residency::Clock::duration Residency::last() const {
    return neighbours_ == nullptr ? last_ : std::max(last_, neighbours_->moving());
}

Residency::Clock::duration Residency::idle() const {
    return std::clamp<Clock::duration>(last() / 2, rules_.idle,
                                       std::max<Clock::duration>(rules_.idle, kLongestIdle));
}

Residency::Clock::duration Residency::quantum() const {
    return std::max<Clock::duration>(rules_.quantum, last() * kTurnsOverMoves);
}

// Only while nobody is inside is a session asked: what it has may be going otherwise.
bool Residency::can_leave(Candidate &one) {
    auto &gate = *one.gate;
    auto &look = *one.look;
    const auto now = Clock::now();
    gate.state_.store(Gate::State::looked_at);
    const auto entered = gate.entered_.load();
    const bool quiet = gate.empty() && one.tenant->quiet();
    if (!quiet || (!one.waits && entered != look.entered)) {
        look.entered = entered;
        look.seen = now;
    }
    if (!look.leaves && now - look.turn >= quantum()) {
        look.leaves = true;
        look.over = now;
    }
    // What its work waits for may be its own next call.
    if (look.leaves && !quiet && now - look.over >= quantum()) {
        look.leaves = false;
        look.turn = now;
    }
    const bool leaves = quiet && (look.away || one.waits || look.leaves || now - look.seen >= idle());
    look.away = look.away || leaves;
    gate.state_.store(look.away || look.leaves ? Gate::State::shut : Gate::State::open);
    return leaves;
}

std::vector<Residency::Candidate> Residency::candidates(const Gate *but) {
    const std::scoped_lock lock(lock_);
    std::vector<Candidate> out;
    for (auto &[gate, seat] : seats_) {
        auto tenant = gate == but ? nullptr : seat.tenant.lock();
        if (tenant == nullptr || tenant->on_device() == 0)
            continue;
        std::size_t place = requests_.size();
        for (std::size_t index = 0; index < requests_.size(); ++index)
            if (requests_[index]->gate == gate)
                place = index;
        out.push_back({.tenant = std::move(tenant),
                       .gate = seat.gate,
                       .look = seat.look,
                       .place = place,
                       .waits = seat.requests != 0 || gate->waits_.load()});
    }
    // Who has not asked for memory leaves first, then who was the last to ask.
    std::ranges::stable_sort(out, [](const Candidate &left, const Candidate &right) {
        return left.place != right.place ? left.place > right.place : left.look->turn < right.look->turn;
    });
    return out;
}

void Residency::complain(const Tenant &tenant, const Gate *gate, std::chrono::seconds waited) {
    std::string why;
    for (const auto &one : candidates(gate))
        why += fmt::format("; {} has {} MiB there and {}", one.tenant->who(), one.tenant->on_device() >> 20,
                           !one.gate->empty()              ? "a call under way"
                           : one.tenant->waits_on_device() ? "work that waits for a collective"
                                                           : "work under way");
    if (const auto bytes = neighbours_ == nullptr ? 0 : neighbours_->taken(); bytes != 0)
        why += fmt::format("; other device proxies of the job have {} MiB there", bytes >> 20);
    kLog.info("{} has waited {} s for room on the device{}", tenant.who(), waited.count(), why);
}

} // namespace singularity::proxyd
