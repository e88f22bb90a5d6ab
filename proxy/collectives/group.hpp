// SPDX-License-Identifier: GPL-2.0-or-later
// A communicator whose members have all come, as one process sees it: the areas of all, who of them is here,
// and how the others learn what members here write.
#pragma once

#include "area.hpp"
#include "proxy/collectives/member.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace singularity::collectives {

using Instance = std::uint64_t; // of a communicator: each time its members have met it is another

// To a process on another host, which has copies of this one's areas. Returns at once.
class Outlet {
  public:
    Outlet() = default;
    Outlet(const Outlet &) = delete;
    Outlet &operator=(const Outlet &) = delete;
    Outlet(Outlet &&) = delete;
    Outlet &operator=(Outlet &&) = delete;
    virtual ~Outlet() = default;
    // Behind each other the other side sees them in this order.
    virtual void write(Instance instance, std::uint32_t rank, const std::shared_ptr<Area> &area,
                       std::size_t at, std::size_t size) = 0;
    virtual void count(Instance instance, std::uint32_t rank, std::uint32_t counter, std::uint64_t value) = 0;
};

enum class Where : std::uint8_t {
    here,    // in this process
    beside,  // in another one of this host
    distant, // on another host
};

class Group {
  public:
    struct Place {
        std::shared_ptr<Area> area;
        Where where = Where::here;
        std::shared_ptr<Outlet> outlet; // to distant ones
    };
    Group(Instance instance, std::vector<Place> places);

    [[nodiscard]] Instance instance() const { return instance_; }
    [[nodiscard]] const Shape &shape() const { return places_.front().area->shape(); }
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(places_.size()); }
    [[nodiscard]] Area &area(std::uint32_t rank) { return *places_[rank].area; }
    [[nodiscard]] Where where(std::uint32_t rank) const { return places_[rank].where; }

    [[nodiscard]] std::uint64_t read(std::uint32_t rank, std::uint32_t counter) const {
        return places_[rank].area->read(counter);
    }
    // By a member that is here. What it has offered before is there for whoever sees the counter.
    void publish(std::uint32_t rank, std::uint32_t counter, std::uint64_t value);
    // A part of the member's area that `reader` will want to see, or everybody.
    static constexpr std::uint32_t kEverybody = ~std::uint32_t{0};
    void offer(std::uint32_t rank, std::size_t at, std::size_t size, std::uint32_t reader);

    // What a distant member has written.
    void arrived(std::uint32_t rank, std::uint32_t counter, std::uint64_t value);

    // The first one counts. Wakes everybody here. tell: so that the other processes fail, too.
    void fail(Failure failure, bool tell = true);
    // How the others are told; before there is anything that fails.
    void on_failure(std::function<void(const std::string &text)> tell) { tell_ = std::move(tell); }
    [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_seq_cst); }
    [[nodiscard]] std::optional<Failure> failure() const;

  private:
    void ring();

    Instance instance_;
    std::vector<Place> places_;
    std::vector<std::shared_ptr<Outlet>> outlets_; // each once
    mutable std::mutex lock_;
    std::optional<Failure> failure_;
    std::function<void(const std::string &text)> tell_;
    std::atomic<bool> failed_ = false;
};

} // namespace singularity::collectives
