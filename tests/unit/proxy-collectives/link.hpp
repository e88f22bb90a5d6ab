// SPDX-License-Identifier: GPL-2.0-or-later
// A link between devices that are memory of this process. What it sends and receives is in order with its
// mover's copies, and is done when the mover is asked about it.
#pragma once

#include "proxy/collectives/link.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace singularity::test {

class DelayedMover;

class TestLink final : public collectives::Link {
  public:
    enum class Can : std::uint8_t { all, nothing, not_meet };
    // device: its number; those of one device do not fit.
    explicit TestLink(std::uint32_t device, Can can = Can::all) : device_(device), can_(can) {}

    void use(DelayedMover *mover) { mover_ = mover; }
    std::atomic<std::uint64_t> sent = 0; // bytes
    std::atomic<int> aborts = 0;

    [[nodiscard]] collectives::LinkOffer offer(std::uint32_t rank) override;
    [[nodiscard]] bool fits(std::span<const collectives::LinkOffer> offers) const override;
    [[nodiscard]] Expected<void> meet(std::span<const collectives::LinkOffer> offers,
                                      std::uint32_t rank) override;
    [[nodiscard]] Expected<bool> met() override;
    [[nodiscard]] Expected<void> begin() override;
    [[nodiscard]] Expected<void> send(std::uint32_t to, std::uint64_t from, std::size_t size) override;
    [[nodiscard]] Expected<void> receive(std::uint32_t from, std::uint64_t to, std::size_t size) override;
    [[nodiscard]] Expected<void> end(const std::function<bool()> &given_up) override;
    [[nodiscard]] Expected<void> look() override { return {}; }
    void abort() override;
    void leave() override {}

  private:
    class Hub;
    std::uint32_t device_;
    Can can_;
    DelayedMover *mover_ = nullptr;
    std::uint32_t rank_ = 0;
    std::shared_ptr<Hub> hub_;
    std::shared_ptr<std::atomic<bool>> aborted_ = std::make_shared<std::atomic<bool>>(false);
    std::vector<std::function<bool()>> batch_; // each is asked until it is done
};

} // namespace singularity::test
