// SPDX-License-Identifier: GPL-2.0-or-later
#include "link.hpp"

#include "device.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace singularity::test {

namespace {

struct Offer {
    std::uint32_t there = 1;
    std::uint32_t device = 0;
    std::uint64_t number = 0; // of the link
};

Offer of(const collectives::LinkOffer &bytes) {
    Offer offer;
    std::memcpy(&offer, bytes.data(), sizeof(offer));
    return offer;
}

} // namespace

// What is on its way between the members of a communicator.
class TestLink::Hub {
  public:
    // The first member's number.
    static std::shared_ptr<Hub> of(std::uint64_t number) {
        static std::mutex lock;
        static std::map<std::uint64_t, std::weak_ptr<Hub>> all;
        const std::scoped_lock locked(lock);
        auto hub = all[number].lock();
        if (hub == nullptr)
            all[number] = hub = std::make_shared<Hub>();
        return hub;
    }
    void come(std::uint32_t rank) {
        const std::scoped_lock lock(lock_);
        members_.insert(rank);
    }
    [[nodiscard]] std::size_t members() {
        const std::scoped_lock lock(lock_);
        return members_.size();
    }
    void put(std::uint32_t from, std::uint32_t to, std::vector<std::byte> bytes) {
        const std::scoped_lock lock(lock_);
        ways_[{from, to}].push_back(std::move(bytes));
    }
    // false: it is not there yet.
    bool take(std::uint32_t from, std::uint32_t to, std::byte *where, std::size_t size) {
        const std::scoped_lock lock(lock_);
        auto &way = ways_[{from, to}];
        if (way.empty() || way.front().size() != size)
            return false;
        std::ranges::copy(way.front(), where);
        way.pop_front();
        return true;
    }

  private:
    std::mutex lock_;
    std::set<std::uint32_t> members_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<std::vector<std::byte>>> ways_;
};

collectives::LinkOffer TestLink::offer(std::uint32_t /*rank*/) {
    static std::atomic<std::uint64_t> next = 1;
    collectives::LinkOffer bytes{};
    const Offer offer{.there = 1, .device = device_, .number = next++};
    if (can_ != Can::nothing)
        std::memcpy(bytes.data(), &offer, sizeof(offer));
    return bytes;
}

bool TestLink::fits(std::span<const collectives::LinkOffer> offers) const {
    std::set<std::uint32_t> devices;
    for (const auto &offer : offers)
        devices.insert(of(offer).device);
    return devices.size() == offers.size();
}

Expected<void> TestLink::meet(std::span<const collectives::LinkOffer> offers, std::uint32_t rank) {
    if (can_ == Can::not_meet)
        return failure("meet", "the others", "the test has it so", ECONNREFUSED);
    rank_ = rank;
    hub_ = Hub::of(of(offers.front()).number);
    hub_->come(rank);
    return {};
}

Expected<bool> TestLink::met() { return hub_->members() > 0; }

Expected<void> TestLink::begin() {
    batch_.clear();
    return {};
}

Expected<void> TestLink::send(std::uint32_t to, std::uint64_t from, std::size_t size) {
    sent += size;
    batch_.emplace_back([hub = hub_, rank = rank_, to, from, size] {
        const auto *const bytes = std::bit_cast<const std::byte *>(from);
        hub->put(rank, to, {bytes, bytes + size});
        return true;
    });
    return {};
}

Expected<void> TestLink::receive(std::uint32_t from, std::uint64_t to, std::size_t size) {
    batch_.emplace_back([hub = hub_, rank = rank_, from, to, size] {
        return hub->take(from, rank, std::bit_cast<std::byte *>(to), size);
    });
    return {};
}

Expected<void> TestLink::end(const std::function<bool()> & /*given_up*/) {
    mover_->begin([aborted = aborted_, batch = std::exchange(batch_, {})]() mutable {
        std::erase_if(batch, [](const auto &one) { return one(); });
        return batch.empty() || *aborted;
    });
    return {};
}

void TestLink::abort() {
    ++aborts;
    *aborted_ = true;
}

} // namespace singularity::test
