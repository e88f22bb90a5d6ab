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
    if (!thread_.joinable())
        return;
    if (thread_.get_id() == std::this_thread::get_id()) // which let the last session go
        thread_.detach();
    else
        thread_.join();
}

void Residency::join(const std::shared_ptr<Tenant> &tenant, Gate &gate) {
    const std::scoped_lock lock(lock_);
    Seat seat;
    seat.tenant = tenant;
    seat.gate = &gate;
    seat.turn = seat.seen = Clock::now();
    seats_.emplace(&gate, std::move(seat));
}

void Residency::leave(const Gate &gate) {
    const std::scoped_lock lock(lock_);
    seats_.erase(&gate);
    if (seats_.size() <= 1 && requests_.empty())
        crowded_ = false;
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
    const auto reserve =
        seats_.size() > 1 ? std::min(rules_.device_bytes / kReserveShare, kLargestReserve) : 0;
    return rules_.device_bytes - reserve;
}

bool Residency::take(std::uint64_t bytes, bool back) {
    const auto room = back ? rules_.device_bytes : room_for_one();
    auto taken = taken_.load();
    do {
        if (bytes > room || taken > room - bytes)
            return false;
    } while (!taken_.compare_exchange_weak(taken, taken + bytes));
    return true;
}

void Residency::give_back(std::uint64_t bytes) { taken_.fetch_sub(bytes); }

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
    if (!crowded_.exchange(true))
        kLog.info("the sessions' memory does not fit on the device any more: they take turns");
    if (!thread_.joinable())
        thread_ = std::thread([this] { run(); });
    ++seat->second.requests;
    requests_.push_back(request);
    changed_.notify_all();
    served_.wait(lock, [&] { return request->done || gate.ended_.load(); });
    if (const auto still = seats_.find(&gate); still != seats_.end())
        --still->second.requests;
    return request->done ? request->result : CUDA_ERROR_NOT_READY;
}

void Residency::run() {
    std::unique_lock lock(lock_);
    for (;;) {
        changed_.wait(lock, [this] { return stopping_ || !requests_.empty(); });
        if (stopping_)
            return;
        const auto request = requests_.front();
        lock.unlock();
        serve(*request);
        lock.lock();
        requests_.pop_front();
        request->done = true;
        served_.notify_all();
    }
}

std::shared_ptr<Tenant> Residency::tenant_of(const Gate *gate) {
    const std::scoped_lock lock(lock_);
    const auto seat = seats_.find(gate);
    return stopping_ || seat == seats_.end() ? nullptr : seat->second.tenant.lock();
}

void Residency::serve(Request &request) {
    const auto begin = Clock::now();
    auto said = begin;
    std::shared_ptr<Tenant> leaving;
    Clock::duration moving{};
    for (bool on_host = false;;) {
        const auto tenant = tenant_of(request.gate);
        if (tenant == nullptr || tenant->ending()) {
            request.result = CUDA_ERROR_NOT_READY;
            return;
        }
        const auto tried = Clock::now();
        request.result = request.attempt(on_host);
        moving += Clock::now() - tried;
        if (request.result != CUDA_ERROR_OUT_OF_MEMORY) {
            const std::scoped_lock lock(lock_);
            const auto seat = seats_.find(request.gate);
            if (request.result != CUDA_SUCCESS || seat == seats_.end())
                return;
            request.gate->entered_.fetch_add(1);
            request.gate->open_.store(true);
            seat->second.turn = seat->second.seen = Clock::now();
            seat->second.leaves = false;
            last_ = moving;
            ++counts_.turns;
            counts_.on_host += on_host ? 1 : 0;
            kLog.debug("{} has its turn after {} ms; {} MiB have been moved out so far{}", tenant->who(),
                       std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count(),
                       counts_.moved >> 20, on_host ? "; it works in memory of the host" : "");
            return;
        }
        if (on_host) // not even there
            return;
        if (leaving != nullptr && (leaving->ending() || leaving->on_device() == 0))
            leaving = nullptr;
        bool others = false;
        bool stuck = false;
        if (leaving == nullptr)
            leaving = who_leaves(request.gate, others, stuck);
        if (leaving != nullptr) {
            const auto bytes = leaving->on_device();
            const auto from = Clock::now();
            static_cast<void>(leaving->send_out());
            moving += Clock::now() - from;
            const std::scoped_lock lock(lock_);
            const auto moved = bytes - std::min(bytes, leaving->on_device());
            counts_.moved += moved;
            if (moved != 0)
                continue;
            leaving = nullptr; // it ends
        }
        const auto now = Clock::now();
        on_host = !others || (stuck && now - begin >= rules_.patience);
        if (on_host)
            continue;
        if (now - said >= kComplain) {
            said = now;
            complain(*tenant, request.gate, std::chrono::duration_cast<std::chrono::seconds>(now - begin));
        }
        std::unique_lock lock(lock_);
        changed_.wait_for(lock, kLookForRoom);
    }
}

Residency::Clock::duration Residency::idle() const {
    return std::clamp<Clock::duration>(last_ / 2, rules_.idle, std::max(rules_.idle, kLongestIdle));
}

Residency::Clock::duration Residency::quantum() const {
    return std::max<Clock::duration>(rules_.quantum, last_ * kTurnsOverMoves);
}

bool Residency::can_leave(const std::shared_ptr<Tenant> &tenant, Seat &seat, Clock::time_point now) {
    auto &gate = *seat.gate;
    const bool waits = seat.requests != 0 || gate.waits_.load();
    if (!waits && !seat.leaves) {
        const auto entered = gate.entered_.load();
        if (entered != seat.entered || !gate.empty() || !tenant->quiet()) {
            seat.entered = entered;
            seat.seen = now;
            seat.leaves = now - seat.turn >= quantum();
        }
        if (!seat.leaves && now - seat.seen < idle())
            return false;
    }
    const bool was_open = gate.open_.exchange(false);
    if (gate.empty() && tenant->quiet())
        return true;
    // A turn that is over stays over.
    if (!seat.leaves && was_open)
        gate.open_.store(true);
    return false;
}

void Residency::complain(const Tenant &tenant, const Gate *gate, std::chrono::seconds waited) {
    const std::scoped_lock lock(lock_);
    std::string why;
    for (const auto &[other, seat] : seats_)
        if (const auto one = other == gate ? nullptr : seat.tenant.lock();
            one != nullptr && one->on_device() != 0)
            why += fmt::format("; {} has {} MiB there and {}", one->who(), one->on_device() >> 20,
                               !other->empty()          ? "a call under way"
                               : one->waits_on_device() ? "work that waits for a collective"
                               : !one->quiet()          ? "work under way"
                                                        : "nothing to do");
    kLog.info("{} has waited {} s for room on the device{}", tenant.who(), waited.count(), why);
}

std::shared_ptr<Tenant> Residency::who_leaves(const Gate *but, bool &others, bool &stuck) {
    struct Candidate {
        std::shared_ptr<Tenant> tenant;
        Seat *seat;
    };
    const std::scoped_lock lock(lock_);
    const auto now = Clock::now();
    std::vector<Candidate> candidates;
    for (auto &[gate, seat] : seats_)
        if (auto tenant = gate == but ? nullptr : seat.tenant.lock(); tenant != nullptr) {
            others = others || tenant->on_device() != 0;
            if (tenant->on_device() != 0 && !tenant->ending())
                candidates.push_back({.tenant = std::move(tenant), .seat = &seat});
        }
    // Who has not asked for memory leaves first, then who was the last to ask: they need theirs last.
    const auto place = [this](const Candidate &one) {
        std::size_t at = requests_.size();
        for (std::size_t index = 0; index < requests_.size(); ++index)
            if (requests_[index]->gate == one.seat->gate)
                at = index;
        return at;
    };
    std::ranges::stable_sort(candidates, [&](const Candidate &left, const Candidate &right) {
        const auto left_at = place(left);
        const auto right_at = place(right);
        if (left_at != right_at)
            return left_at > right_at;
        return left.seat->turn < right.seat->turn;
    });
    for (const auto &[tenant, seat] : candidates) {
        if (can_leave(tenant, *seat, now))
            return tenant;
        stuck = stuck || tenant->waits_on_device();
    }
    return nullptr;
}

} // namespace singularity::proxyd
