// SPDX-License-Identifier: GPL-2.0-or-later
// What tests of turns have in the place of sessions.
#pragma once

#include "residency.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace singularity::proxyd {

// A session that only counts: it has so many bytes, in chunks of so many.
class Counted final : public Tenant {
  public:
    Counted(std::shared_ptr<Residency> residency, std::uint64_t wants, std::uint64_t chunk)
        : wants_(wants), chunk_(chunk), residency_(std::move(residency)) {}
    ~Counted() override { leave(); }

    static std::shared_ptr<Counted> make(const std::shared_ptr<Residency> &residency, std::uint64_t wants,
                                         std::uint64_t chunk = 1) {
        auto made = std::make_shared<Counted>(residency, wants, chunk);
        residency->join(made, made->gate);
        return made;
    }
    void leave() {
        gate.end();
        residency_->leave(gate);
        const std::scoped_lock lock(lock_);
        residency_->give_back(there_);
        there_ = 0;
    }
    std::string who() const override { return "a tenant"; }
    bool ending() const override { return ends.load(); }
    bool quiet() override { return !works.load(); }
    bool waits_on_device() override { return stuck.load(); }
    std::uint64_t on_device() const override {
        const std::scoped_lock lock(lock_);
        return there_;
    }
    CUresult send_out() override {
        const std::scoped_lock lock(lock_);
        if (inside.load() != 0)
            ++violations;
        if (there_ == 0)
            return CUDA_SUCCESS;
        there_ -= chunk_;
        residency_->give_back(chunk_);
        return CUDA_SUCCESS;
    }
    bool release_left() override { return false; }
    CUresult bring_in(bool on_host) {
        const std::scoped_lock lock(lock_);
        while (there_ + lent_ < wants_) {
            if (residency_->take(chunk_, true))
                there_ += chunk_;
            else if (on_host)
                lent_ += chunk_;
            else
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        return CUDA_SUCCESS;
    }
    // What a session does with each call.
    CUresult enter() {
        if (gate.enter())
            return CUDA_SUCCESS;
        return residency_->ask(gate, [this](bool on_host) { return bring_in(on_host); });
    }
    // Its first call.
    CUresult begin() {
        return residency_->ask(gate, [this](bool on_host) { return bring_in(on_host); });
    }
    bool complete() const {
        const std::scoped_lock lock(lock_);
        return there_ + lent_ == wants_;
    }
    std::uint64_t lent() const {
        const std::scoped_lock lock(lock_);
        return lent_;
    }

    Gate gate;
    std::atomic<bool> works = false;
    std::atomic<bool> stuck = false;
    std::atomic<bool> ends = false;
    std::atomic<unsigned> inside = 0;
    std::atomic<unsigned> violations = 0;

  private:
    std::uint64_t wants_;
    std::uint64_t chunk_;
    std::shared_ptr<Residency> residency_;
    mutable std::mutex lock_;
    std::uint64_t there_ = 0;
    std::uint64_t lent_ = 0;
};

// Whether it happens before long.
inline bool in_time(const std::function<bool()> &what) {
    constexpr std::chrono::seconds kLimit{20};
    const auto until = std::chrono::steady_clock::now() + kLimit;
    while (!what()) {
        if (std::chrono::steady_clock::now() > until)
            return false;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
}

// A thread of its program: it comes in and goes again. What is not as it should be is counted in `wrong`.
inline void use(const std::shared_ptr<Counted> &one, unsigned calls, std::atomic<unsigned> &wrong) {
    if (one->begin() != CUDA_SUCCESS)
        ++wrong;
    one->gate.leave();
    for (unsigned call = 0; call < calls; ++call) {
        if (one->enter() != CUDA_SUCCESS) {
            ++wrong;
            return;
        }
        ++one->inside;
        if (!one->complete())
            ++wrong;
        std::this_thread::yield();
        --one->inside;
        one->gate.leave();
        if (call % 8 == 0) {
            one->gate.wait_for_others(true);
            std::this_thread::yield();
            one->gate.wait_for_others(false);
        }
    }
}

} // namespace singularity::proxyd
