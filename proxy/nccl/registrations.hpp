// SPDX-License-Identifier: GPL-2.0-or-later
// Buffers that a program has registered (ncclCommRegister). Data travels the same way with and without, so
// only what the program may ask is kept: the same range has the same handle, as often as it is registered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace singularity::nccl {

class Registrations {
  public:
    [[nodiscard]] void *add(std::uint64_t address, std::size_t size) {
        const std::scoped_lock lock(lock_);
        auto &one = all_[{address, size}];
        if (one == nullptr)
            one = std::make_unique<std::uint64_t>(0);
        ++*one;
        return one.get();
    }
    // false: there is no such handle.
    [[nodiscard]] bool remove(const void *handle) {
        const std::scoped_lock lock(lock_);
        for (auto at = all_.begin(); at != all_.end(); ++at)
            if (at->second.get() == handle) {
                if (--*at->second == 0)
                    all_.erase(at);
                return true;
            }
        return false;
    }

  private:
    std::mutex lock_;
    std::map<std::pair<std::uint64_t, std::size_t>, std::unique_ptr<std::uint64_t>> all_; // how often
};

} // namespace singularity::nccl
