// SPDX-License-Identifier: GPL-2.0-or-later
// One member's memory that the other members read: its counters and what it has staged. Shared memory, so
// that a member may be in another process of the host; of a member on another host it is a copy, kept by its
// connection.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "proxy/collectives/shape.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

namespace singularity::collectives {

class Area {
  public:
    [[nodiscard]] static Expected<std::shared_ptr<Area>> make(const Shape &shape);
    // Another process's. Refused unless it is as large as the shape says, for good.
    [[nodiscard]] static Expected<std::shared_ptr<Area>> map(const Shape &shape, UniqueFd memory);
    Area(const Area &) = delete;
    Area &operator=(const Area &) = delete;
    Area(Area &&) = delete;
    Area &operator=(Area &&) = delete;
    ~Area();

    [[nodiscard]] int descriptor() const { return memory_.get(); }
    [[nodiscard]] const Shape &shape() const { return shape_; }
    [[nodiscard]] std::span<std::byte> all() { return {base_, shape_.size}; }
    // Offsets are of Shape's making, or were checked.
    [[nodiscard]] std::span<std::byte> bytes(std::size_t at, std::size_t size) { return {base_ + at, size}; }

    [[nodiscard]] std::uint64_t read(std::uint32_t counter) const {
        return counters_[counter].load(std::memory_order_seq_cst);
    }
    void write(std::uint32_t counter, std::uint64_t value) {
        counters_[counter].store(value, std::memory_order_seq_cst);
    }

    // The area's member says that it is about to sleep, looks at everything once more, and sleeps unless
    // somebody has rung in the meantime.
    [[nodiscard]] std::uint32_t about_to_sleep();
    void sleep(std::uint32_t seen, std::chrono::nanoseconds limit);
    void awake() { head_->sleeping.store(0, std::memory_order_relaxed); }
    // Wakes the member up if it sleeps.
    void ring();

  private:
    struct Head {
        std::atomic<std::uint32_t> bell;
        std::atomic<std::uint32_t> sleeping;
    };
    Area(const Shape &shape, UniqueFd memory, std::byte *base);
    [[nodiscard]] static Expected<std::shared_ptr<Area>> place(const Shape &shape, UniqueFd memory);

    Shape shape_;
    UniqueFd memory_;
    std::byte *base_;
    Head *head_;
    std::atomic<std::uint64_t> *counters_;
};

} // namespace singularity::collectives
