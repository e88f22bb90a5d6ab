// SPDX-License-Identifier: GPL-2.0-or-later
// Reductions that a program has made for a communicator (ncclRedOpCreatePreMulSum).
#pragma once

#include "data_types.hpp"
#include "proxy/nccl/abi.hpp"

#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

namespace singularity::nccl {

struct OwnReduction {
    DataType type = DataType::int8;
    std::uint64_t scalar = 0;         // in its low bytes, or
    std::uint64_t scalar_address = 0; // where it is when an operation begins
};

class OwnReductions {
  public:
    // nullopt: there are as many as a handle can number.
    [[nodiscard]] std::optional<Reduction> add(const OwnReduction &one) {
        const std::scoped_lock lock(lock_);
        std::size_t at = 0;
        while (at < all_.size() && all_[at])
            ++at;
        if (at >= kMost)
            return std::nullopt;
        if (at == all_.size())
            all_.emplace_back();
        all_[at] = one;
        return static_cast<Reduction>(static_cast<int>(Reduction::first_own) + static_cast<int>(at));
    }
    [[nodiscard]] std::optional<OwnReduction> find(Reduction handle) const {
        const std::scoped_lock lock(lock_);
        const auto at = index(handle);
        return at < all_.size() ? all_[at] : std::nullopt;
    }
    [[nodiscard]] bool remove(Reduction handle) {
        const std::scoped_lock lock(lock_);
        const auto at = index(handle);
        if (at >= all_.size() || !all_[at])
            return false;
        all_[at].reset();
        return true;
    }

  private:
    static constexpr std::size_t kMost = std::size_t{1} << 20;
    static std::size_t index(Reduction handle) {
        return static_cast<std::size_t>(static_cast<int>(handle) - static_cast<int>(Reduction::first_own));
    }

    mutable std::mutex lock_;
    std::vector<std::optional<OwnReduction>> all_;
};

} // namespace singularity::nccl
