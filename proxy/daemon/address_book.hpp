// SPDX-License-Identifier: GPL-2.0-or-later
// What a session has mapped in its window: slabs and reservations of device memory, and host memory that
// client and daemon share. Ranges never overlap. Any thread of the session may use it.
#pragma once

#include "common/error.hpp"
#include "proxy/channel/packet.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace singularity::proxyd {

enum class RangeKind : std::uint8_t {
    slab,        // device memory, mapped
    reservation, // addresses; the program maps allocations into them
    host,        // the client's memfd, mapped here at the same address
};

struct Range {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    RangeKind kind{};
    std::uint64_t context = 0; // the client's handle of the context that a slab belongs to
};

class AddressBook {
  public:
    // In a window, shared host memory lies in `host`, slabs and reservations in `device`.
    AddressBook(const channel::AddressRange &window, const channel::AddressRange &host,
                const channel::AddressRange &device)
        : window_(window), host_(host), device_(device) {}

    [[nodiscard]] bool in_window(std::uint64_t address, std::uint64_t size) const;

    // Why not: the error's text is for the log, it is the client who must not ask for this.
    [[nodiscard]] Expected<void> add(const Range &range);
    // Exactly a range that was added, of this kind; else false and nothing happens.
    [[nodiscard]] bool remove(const Range &range);
    // Whether this very range is there.
    [[nodiscard]] bool has(const Range &range) const;

    // Device memory of this session: wholly inside a slab or a reservation, or inside shared host memory,
    // which the device reaches as well.
    [[nodiscard]] bool reaches(std::uint64_t address, std::uint64_t size) const;
    // Wholly inside one reservation.
    [[nodiscard]] bool reserved(std::uint64_t address, std::uint64_t size) const;
    // Where this process sees shared host memory; nullptr: it is not.
    [[nodiscard]] void *host(std::uint64_t address, std::uint64_t size) const;

    // Memory outside of the window that was found to be the session's (variables of its modules). library:
    // the client's handle of the library whose managed variable it is, 0 for others.
    void remember_foreign(std::uint64_t address, std::uint64_t size, std::uint64_t library = 0);
    [[nodiscard]] bool knows_foreign(std::uint64_t address, std::uint64_t size) const;
    // All but other libraries' managed variables: what still is the session's is found again.
    void forget_foreign(std::uint64_t library = 0);

    [[nodiscard]] std::vector<Range> all() const;

    // The range that holds all of this.
    [[nodiscard]] std::optional<Range> around(std::uint64_t address, std::uint64_t size) const;

  private:
    channel::AddressRange window_;
    channel::AddressRange host_;
    channel::AddressRange device_;
    mutable std::mutex lock_;
    std::map<std::uint64_t, Range> ranges_; // by address
    struct Foreign {
        std::uint64_t size = 0;
        std::uint64_t library = 0;
    };
    std::map<std::uint64_t, Foreign> foreign_; // by address
};

} // namespace singularity::proxyd
