// SPDX-License-Identifier: GPL-2.0-or-later
// What communicators, their movers and their links need of the session that they belong to.
#pragma once

#include "driver_api/backend.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace singularity::proxyd {

class AddressBook;
class BackEnd;
class ObjectTable;
class ParkedStreams;
class Slabs;

// Outlives all of them. The session is a final class: who calls it as a Session calls none of these through a
// table of functions.
class CollectiveSession {
  public:
    CollectiveSession() = default;
    CollectiveSession(const CollectiveSession &) = delete;
    CollectiveSession &operator=(const CollectiveSession &) = delete;
    CollectiveSession(CollectiveSession &&) = delete;
    CollectiveSession &operator=(CollectiveSession &&) = delete;
    virtual ~CollectiveSession() = default;

    // --- what it has
    [[nodiscard]] virtual std::string who() const = 0; // for the log
    [[nodiscard]] virtual const driver_api::Backend &driver() const = 0;
    [[nodiscard]] virtual const BackEnd &back_end() const = 0;
    [[nodiscard]] virtual ObjectTable &objects() = 0;
    [[nodiscard]] virtual AddressBook &addresses() = 0;
    [[nodiscard]] virtual Slabs &slabs() = 0;
    [[nodiscard]] virtual ParkedStreams &parked() = 0;
    // Whether memory is the session's.
    [[nodiscard]] virtual bool reaches(std::uint64_t address, std::uint64_t size) = 0;

    // --- what it is doing
    [[nodiscard]] virtual bool ending() const = 0;
    // Whether the memory of sessions moves.
    [[nodiscard]] virtual bool crowded() const = 0;
    [[nodiscard]] virtual bool settled() const = 0;
    [[nodiscard]] virtual bool capturing(CUstream stream) = 0;

    // --- what it does for them
    // The first failure of what nobody waits for.
    virtual void note(CUresult result) = 0;
    // On a thread of the session's. false: it has none.
    [[nodiscard]] virtual bool run_beside(std::function<void()> whole) = 0;
    virtual void begin_thread() const = 0;
    virtual void make_current_for(std::uint64_t context) = 0;
};

} // namespace singularity::proxyd
