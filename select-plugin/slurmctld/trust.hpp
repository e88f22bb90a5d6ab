// SPDX-License-Identifier: GPL-2.0-or-later
// Whether the layout of slurmctld's records is known to be right, and who decides on that ground. The select
// plugin owns the one instance in the process and exports it; the priority plugin, a shared object of its
// own, finds it there.
#pragma once

#include "select-plugin/hooks.hpp"

#include <atomic>
#include <cstdint>

namespace singularity {

enum class Trust : std::uint8_t {
    kUnverified, // nothing compared yet: no decisions
    kTrusted,    // all that was compared agreed
    kForwarding, // never again in the life of this process
};

// Invariant: kForwarding is never left.
class Shared {
  public:
    // Changes with the layout of this class or of Hooks: the two plugins are installed as separate files.
    static constexpr std::uint32_t kVersion = 2;

    [[nodiscard]] bool compatible() const noexcept { return version_ == kVersion; }
    [[nodiscard]] Trust trust() const noexcept { return trust_.load(std::memory_order_acquire); }

    // False if decisions had already ended.
    bool grant() noexcept {
        Trust expected = Trust::kUnverified;
        return trust_.compare_exchange_strong(expected, Trust::kTrusted, std::memory_order_acq_rel) ||
               expected == Trust::kTrusted;
    }
    // False if decisions had already ended: the caller who gets true says why.
    bool withdraw() noexcept {
        return trust_.exchange(Trust::kForwarding, std::memory_order_acq_rel) != Trust::kForwarding;
    }

    void install(hooks::Hooks *policy) noexcept { hooks_.store(policy, std::memory_order_release); }

    // The policy to ask, or nullptr: forward.
    [[nodiscard]] hooks::Hooks *policy() const noexcept {
        return trust() == Trust::kTrusted ? hooks_.load(std::memory_order_acquire) : nullptr;
    }

  private:
    std::uint32_t version_ = kVersion;
    std::atomic<Trust> trust_ = Trust::kUnverified;
    std::atomic<hooks::Hooks *> hooks_ = nullptr;
};

} // namespace singularity
