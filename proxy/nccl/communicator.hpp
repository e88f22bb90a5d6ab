// SPDX-License-Identifier: GPL-2.0-or-later
// A communicator as this process has it: what may be asked about it, and what its members have to count
// alike.
#pragma once

#include "config.hpp"
#include "driver.hpp"
#include "gate.hpp"
#include "keys.hpp"
#include "outcome.hpp"
#include "own_reductions.hpp"
#include "proxy/nccl/abi.hpp"
#include "registrations.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace singularity::nccl {

// Calls hold it by shared pointer: another thread may end it under them.
struct Communicator {
    Communicator(const Place &where, Settings wishes)
        : number(next_number()), place(where), settings(std::move(wishes)) {}

    const std::uint64_t number; // in messages
    const Place place;
    const Settings settings;

    // Known before the state first leaves in_progress, and not changed from then on.
    Key key{};
    std::uint32_t rank = 0;
    std::uint32_t size = 0;

    // in_progress: an operation on the communicator as a whole is under way. An error stays.
    std::atomic<Result> state = Result::in_progress;
    std::atomic<bool> finalized = false;
    std::atomic<bool> revoked = false;
    std::atomic<bool> suspended = false; // no collectives until it is resumed
    std::atomic<bool> joined = false;    // the proxy knows it
    std::atomic<bool> cancelled = false; // whoever waits for it gives up

    // Groups have their numbers in the order in which they reach the proxy.
    std::mutex order;
    std::uint64_t groups = 0; // issued
    std::uint64_t splits = 0;
    std::uint64_t grows = 0;
    std::map<std::vector<int>, std::uint64_t> shrinks; // by excluded ranks: these do not count them

    OwnReductions reductions;
    Registrations registrations;

    // What is done on another thread, because the communicator is a non-blocking one.
    std::mutex background_lock;
    std::shared_future<void> background;

    // When the proxy was last asked whether it has failed; steady clock, in nanoseconds.
    std::atomic<std::int64_t> asked = 0;

    [[nodiscard]] CommunicatorHandle handle() { return this; }
    // The first failure is the one that is told.
    void fail(Result why) {
        auto now = state.load();
        while ((now == Result::success || now == Result::in_progress) &&
               !state.compare_exchange_weak(now, why)) {
        }
    }

  private:
    static std::uint64_t next_number() {
        static std::atomic<std::uint64_t> next = 1;
        return next.fetch_add(1);
    }
};

using CommunicatorPointer = std::shared_ptr<Communicator>;

// Those that the program has handles of.
class Registry {
  public:
    void add(const CommunicatorPointer &one) {
        const std::unique_lock lock(lock_);
        all_.emplace(one->handle(), one);
    }
    [[nodiscard]] CommunicatorPointer find(const Communicator *handle) const {
        const std::shared_lock lock(lock_);
        const auto found = all_.find(handle);
        return found == all_.end() ? nullptr : found->second;
    }
    // false: another thread has done it.
    bool remove(const Communicator *handle) {
        const std::unique_lock lock(lock_);
        return all_.erase(handle) != 0;
    }

  private:
    mutable std::shared_mutex lock_;
    std::unordered_map<const Communicator *, CommunicatorPointer> all_;
};

// What all calls share.
struct Library {
    Library(Driver &its_driver, Gate &its_gate) : driver(its_driver), gate(its_gate) {}

    Driver &driver;
    Gate &gate;
    Registry communicators;
};

// A handle of the program's, or InvalidArgument; `call` is the function's name for the message.
[[nodiscard]] Outcome<CommunicatorPointer> known(Library &library, CommunicatorHandle handle,
                                                 const char *call);
// The result of a pointer that may not be NULL.
[[nodiscard]] Result given_if(bool is, const char *call, const char *name);
template <class T>
[[nodiscard]] Result given(const T *pointer, const char *call, const char *name) {
    return given_if(pointer != nullptr, call, name);
}

} // namespace singularity::nccl
