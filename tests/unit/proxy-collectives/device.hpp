// SPDX-License-Identifier: GPL-2.0-or-later
// A device that is memory of this process, and movers on it that do nothing before they are asked about it.
#pragma once

#include "link.hpp"
#include "proxy/collectives/device.hpp"
#include "proxy/collectives/mover.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

namespace singularity::test {

class FakeDevice final : public collectives::Device {
  public:
    explicit FakeDevice(bool has_memory = true) : has_memory_(has_memory) {}
    [[nodiscard]] Expected<std::shared_ptr<const collectives::DeviceMemory>> stage(std::size_t size) override;

    std::atomic<int> asked = 0;      // for memory
    std::atomic<int> memories = 0;   // that there are
    std::atomic<int> reductions = 0; // that its movers have done
    std::atomic<int> copies = 0;     // between programs and memory of its

  private:
    bool has_memory_;
};

// As with a stream, all goes one after the other; each question about a mark does one thing more.
class DelayedMover final : public collectives::Mover, public collectives::DeviceWork {
  public:
    // nullptr: between memory of the host only, and without links.
    explicit DelayedMover(std::shared_ptr<FakeDevice> device, std::shared_ptr<TestLink> link = nullptr)
        : device_(std::move(device)), link_(std::move(link)) {
        if (link_ != nullptr)
            link_->use(this);
    }

    [[nodiscard]] Expected<void> fetch(std::uint64_t from, std::span<std::byte> to) override;
    [[nodiscard]] Expected<void> deliver(std::span<const std::byte> from, std::uint64_t to) override;
    [[nodiscard]] Expected<std::uint64_t> mark() override { return begun_; }
    [[nodiscard]] Expected<bool> passed(std::uint64_t mark) override;
    [[nodiscard]] Expected<void> wait(std::uint64_t mark) override;
    [[nodiscard]] collectives::DeviceWork *on_device() override {
        return device_ == nullptr ? nullptr : this;
    }

    [[nodiscard]] collectives::Link *link() override { return link_.get(); }

    [[nodiscard]] Expected<void> fetch(std::uint64_t from, std::uint64_t to, std::size_t size) override;
    [[nodiscard]] Expected<void> deliver(std::uint64_t from, std::uint64_t to, std::size_t size) override;
    [[nodiscard]] Expected<void> scale(std::uint32_t type, std::uint64_t values,
                                       const collectives::Scalar &scalar, std::uint64_t count) override;
    [[nodiscard]] Expected<void> reduce(const collectives::DeviceReduction &reduction) override;

    // One thing more, which is asked until it is done.
    void begin(std::function<bool()> work);

  private:
    [[nodiscard]] Expected<void> copy(std::function<void()> work);
    void do_one();

    std::shared_ptr<FakeDevice> device_;
    std::shared_ptr<TestLink> link_;
    std::deque<std::function<bool()>> work_;
    std::uint64_t begun_ = 0;
    std::uint64_t done_ = 0;
};

} // namespace singularity::test
