// SPDX-License-Identifier: GPL-2.0-or-later
// Copies of collectives, on a stream of their own: a collective holds up the program's stream and nothing
// else.
#pragma once

#include "driver_api/backend.hpp"
#include "proxy/collectives/mover.hpp"

#include <cstdint>
#include <deque>
#include <vector>

namespace singularity::proxyd {

class Session;

// On one thread, with its context current. What it has made goes with the context.
class CollectiveMover final : public collectives::Mover {
  public:
    explicit CollectiveMover(Session &session);
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

  private:
    [[nodiscard]] Expected<void> get_ready();
    [[nodiscard]] Expected<void> check(CUresult result, const char *doing, std::uint64_t address,
                                       std::size_t size) const;

    Session &session_;
    const driver_api::Backend &driver_;
    CUstream stream_ = nullptr;
    struct Mark {
        std::uint64_t number;
        CUevent event;
    };
    std::deque<Mark> marks_;     // that have not passed, as far as is known
    std::vector<CUevent> spare_; // events
    std::uint64_t last_ = 0;
    bool copied_ = false; // since the last mark
};

} // namespace singularity::proxyd
