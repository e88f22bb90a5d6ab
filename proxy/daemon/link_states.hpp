// SPDX-License-Identifier: GPL-2.0-or-later
// What the driver's linker keeps pointing to as long as a link lives: its options' values and logs, which are
// the daemon's memory, and its input images.
#pragma once

#include "blobs.hpp"
#include "proxy/libcuda/cuda.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace singularity::proxyd {

// Options of the compiler as the driver wants them, in memory that stays where it is.
struct CodeOptions {
    std::vector<CUjit_option> names;
    std::vector<void *> values;
    std::vector<char> info_log; // empty: not wanted
    std::vector<char> error_log;
};

struct LinkState {
    CodeOptions options;
    std::vector<std::shared_ptr<const Blob>> inputs;
};

class LinkStates {
  public:
    void put(std::uint64_t link, std::shared_ptr<LinkState> state) {
        const std::scoped_lock lock(lock_);
        states_[link] = std::move(state);
    }
    [[nodiscard]] std::shared_ptr<LinkState> find(std::uint64_t link) {
        const std::scoped_lock lock(lock_);
        const auto found = states_.find(link);
        return found == states_.end() ? nullptr : found->second;
    }
    void drop(std::uint64_t link) {
        const std::scoped_lock lock(lock_);
        states_.erase(link);
    }

  private:
    std::mutex lock_;
    std::unordered_map<std::uint64_t, std::shared_ptr<LinkState>> states_;
};

} // namespace singularity::proxyd
