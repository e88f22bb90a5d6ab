// SPDX-License-Identifier: GPL-2.0-or-later
// A communicator whose members have all come, as one process sees it: the areas of all, who of them is here,
// and how the others learn what members here write.
#pragma once

#include "area.hpp"
#include "proxy/collectives/device.hpp"
#include "proxy/collectives/failure.hpp"

#include <array>
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
    // device: on which all members are; nullptr: there is none. may_link: all their processes have links.
    Group(Instance instance, std::vector<Place> places, std::shared_ptr<Device> device = nullptr,
          bool may_link = false);

    [[nodiscard]] Instance instance() const { return instance_; }
    [[nodiscard]] const Shape &shape() const { return places_.front().area->shape(); }
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(places_.size()); }
    [[nodiscard]] Area &area(std::uint32_t rank) { return *places_[rank].area; }
    [[nodiscard]] Where where(std::uint32_t rank) const { return places_[rank].where; }
    [[nodiscard]] bool may_link() const { return may_link_; }

    [[nodiscard]] std::uint64_t read(std::uint32_t rank, std::uint32_t counter) const {
        return places_[rank].area->read(counter);
    }
    // By a member that is here. What it has offered before is there for whoever sees the counter.
    void publish(std::uint32_t rank, std::uint32_t counter, std::uint64_t value);
    // A part of the member's area that `reader` will want to see, or everybody.
    static constexpr std::uint32_t kEverybody = ~std::uint32_t{0};
    void offer(std::uint32_t rank, std::size_t at, std::size_t size, std::uint32_t reader);

    // --- what is staged on the device; counters and heads are in the areas all the same
    [[nodiscard]] bool on_device() const { return device_ != nullptr; }
    // Parts of all members' areas, each with memory of its own once somebody needs it.
    enum class Part : std::uint8_t { rounds, slots };
    // Whether it lies on the device. Decided for all members by the first one that asks: without memory for
    // it all go through the areas. May take as long as the driver does.
    [[nodiscard]] bool staged_on_device(Part part);
    // Where what lies in an area at `at` lies instead; from one member's to the next one's it is
    // device_stride().
    [[nodiscard]] std::uint64_t device_address(Part part, std::uint32_t rank, std::size_t at) const;
    [[nodiscard]] std::size_t device_stride(Part part) const;
    // A member that is here does nothing more.
    void is_over();

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
    struct Staged {
        std::once_flag asked;
        std::shared_ptr<const DeviceMemory> memory;
    };
    [[nodiscard]] std::size_t begin_of(Part part) const;
    [[nodiscard]] std::size_t end_of(Part part) const;
    void ask_for(Part part);

    Instance instance_;
    std::vector<Place> places_;
    std::vector<std::shared_ptr<Outlet>> outlets_; // each once
    mutable std::mutex lock_;
    std::optional<Failure> failure_;
    std::function<void(const std::string &text)> tell_;
    std::atomic<bool> failed_ = false;
    std::shared_ptr<Device> device_;
    bool may_link_;
    std::array<Staged, 2> staged_; // by part
    std::atomic<std::uint32_t> over_ = 0;
};

} // namespace singularity::collectives
