// SPDX-License-Identifier: GPL-2.0-or-later
// Copies of collectives, on a stream of their own: a collective holds up the program's stream and nothing
// else.
#pragma once

#include "collective_session.hpp"
#include "driver_api/backend.hpp"
#include "proxy/collectives/device.hpp"
#include "proxy/collectives/mover.hpp"
#include "slabs.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace singularity::proxyd {

class NcclLink;
class ReductionKernels;

// On one thread, with its context current. What it has made goes with the context.
class CollectiveMover final : public collectives::Mover, public collectives::DeviceWork {
  public:
    // kernels: of that context; nullptr: it does no work on the device. link: nullptr: it has none.
    CollectiveMover(CollectiveSession &session, std::shared_ptr<const ReductionKernels> kernels,
                    std::shared_ptr<NcclLink> link);
    CollectiveMover(const CollectiveMover &) = delete;
    CollectiveMover &operator=(const CollectiveMover &) = delete;
    CollectiveMover(CollectiveMover &&) = delete;
    CollectiveMover &operator=(CollectiveMover &&) = delete;
    ~CollectiveMover() override;

    [[nodiscard]] Expected<void> fetch(std::uint64_t from, std::span<std::byte> to) override;
    [[nodiscard]] Expected<void> deliver(std::span<const std::byte> from, std::uint64_t to) override;
    [[nodiscard]] Expected<std::uint64_t> mark() override;
    [[nodiscard]] Expected<bool> passed(std::uint64_t mark) override;
    [[nodiscard]] Expected<void> wait(std::uint64_t mark) override;

    [[nodiscard]] collectives::DeviceWork *on_device() override {
        return kernels_ == nullptr ? nullptr : this;
    }
    [[nodiscard]] collectives::Link *link() override;
    [[nodiscard]] Expected<void> fetch(std::uint64_t from, std::uint64_t to, std::size_t size) override;
    [[nodiscard]] Expected<void> deliver(std::uint64_t from, std::uint64_t to, std::size_t size) override;
    [[nodiscard]] Expected<void> scale(std::uint32_t type, std::uint64_t values,
                                       const collectives::Scalar &scalar, std::uint64_t count) override;
    [[nodiscard]] Expected<void> reduce(const collectives::DeviceReduction &reduction) override;
    // What it has done, for the log.
    struct Done {
        std::uint64_t reductions = 0; // on the device
        std::uint64_t on_device = 0;  // bytes fetched and delivered there
        std::uint64_t through_host = 0;
    };
    [[nodiscard]] const Done &done() const { return done_; }

  private:
    [[nodiscard]] Expected<void> get_ready();
    [[nodiscard]] Expected<void> use(std::uint64_t memory, std::size_t size, Slabs::Use how,
                                     const char *doing,
                                     const std::function<CUresult(const Slabs::Piece &)> &copy);
    [[nodiscard]] CUresult copy_at_once(const Slabs::Piece &piece, std::uint64_t stage, bool from_piece);
    [[nodiscard]] Expected<void> check(CUresult result, const char *doing, std::uint64_t address,
                                       std::size_t size) const;

    CollectiveSession &session_;
    const driver_api::Backend &driver_;
    std::shared_ptr<const ReductionKernels> kernels_;
    std::shared_ptr<NcclLink> link_;
    CUstream stream_ = nullptr;
    struct Mark {
        std::uint64_t number;
        CUevent event;
    };
    std::deque<Mark> marks_;     // that have not passed, as far as is known
    std::vector<CUevent> spare_; // events
    std::uint64_t last_ = 0;
    bool copied_ = false; // or computed, since the last mark
    Done done_;
};

} // namespace singularity::proxyd
