// SPDX-License-Identifier: GPL-2.0-or-later
// The client's handles and the driver's, of one session. Any thread of the session may use it.
//
// A handle is 0x0C00'0000'0000 | kind << 36 | index << 4. The client chooses those of the objects that it
// makes; bit 31 of the index marks those that the daemon has invented, for objects first seen in an output.
// Below it they have the number of the device among the client's: several daemons name things for one client.
// An object that goes takes its children along (a module its functions, a graph its nodes), and a context
// everything made in it: a handle never stands for memory that the driver has freed.
#pragma once

#include "driver_api/handles.hpp"
#include "proxy/driver-api/dispatch.hpp"
#include "trace.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace singularity::proxyd {

[[nodiscard]] constexpr unsigned kind_of(std::uint64_t handle) {
    return static_cast<unsigned>((handle >> 36) & 0x3f);
}

class AddressBook;

class ObjectTable final : public driver_api::Objects {
  public:
    // addresses: for host(). It outlives the table. device: the driver's number of it; ordinal: the client's.
    ObjectTable(const AddressBook &addresses, int device, std::uint64_t ordinal)
        : addresses_(addresses), device_(device), ordinal_(ordinal) {}

    // --- for the generated dispatch
    // A stream may also be CU_STREAM_LEGACY (1); where a function is expected a kernel will do.
    [[nodiscard]] std::optional<std::uint64_t> real(unsigned kind, std::uint64_t handle) override;
    void add(unsigned kind, std::uint64_t handle, std::uint64_t real) override;
    void remove(unsigned kind, std::uint64_t handle) override;
    [[nodiscard]] std::uint64_t name_of(unsigned kind, std::uint64_t real) override;
    [[nodiscard]] void *host(const driver_api::HostRange &range) override;
    [[nodiscard]] int device() const override { return device_; }

    // --- for the session
    // What this thread adds while one lives was made in this context and belongs to this parent (0: none).
    class Origin {
      public:
        Origin(std::uint64_t context, std::uint64_t parent);
        ~Origin();
        Origin(const Origin &) = delete;
        Origin &operator=(const Origin &) = delete;
        Origin(Origin &&) = delete;
        Origin &operator=(Origin &&) = delete;

      private:
        std::uint64_t context_before_;
        std::uint64_t parent_before_;
    };

    // Handles of one kind that stand for something, and the driver's handles behind them.
    [[nodiscard]] std::vector<std::pair<std::uint64_t, std::uint64_t>> handles(unsigned kind);
    // Names that the daemon invents begin here: what was invented before is still known to the client.
    [[nodiscard]] std::uint64_t names_invented();
    void invent_from(std::uint64_t index);

    // The context in which it was made, 0 if none or unknown.
    [[nodiscard]] std::uint64_t context_of(std::uint64_t handle);
    // Everything that was made in the context, but for libraries, graphs and what else outlives one.
    void forget_context(std::uint64_t context);

    // The driver's handles of the streams that were made in the context.
    [[nodiscard]] std::vector<std::uint64_t> streams_of(std::uint64_t context);

    // The driver's handles of one kind, those included that the client has lost; for the session's end.
    [[nodiscard]] std::vector<std::uint64_t> all(unsigned kind);
    // Only objects that the daemon must end: those made by a call, not those named by an output or owned by
    // others.
    [[nodiscard]] std::vector<std::uint64_t> made(unsigned kind);
    [[nodiscard]] std::size_t size();

    // Set once the client has chosen a handle that it must not choose: what it did.
    [[nodiscard]] std::optional<std::string> broken_rule();

  private:
    struct Entry {
        std::uint64_t real = 0;
        std::uint64_t context = 0;
        std::uint64_t parent = 0;
        bool made = false;
        std::vector<std::uint64_t> children;
    };

    [[nodiscard]] std::uint64_t invent(unsigned kind); // with lock_ held
    void put(unsigned kind, std::uint64_t handle, std::uint64_t real, bool made);
    void take_out(std::uint64_t handle);
    [[nodiscard]] std::uint64_t name_again(Trace &trace, std::uint64_t handle); // with lock_ held
    [[nodiscard]] static std::uint64_t reverse_key(unsigned kind, std::uint64_t real) {
        return real ^ (static_cast<std::uint64_t>(kind) << 58);
    }

    const AddressBook &addresses_;
    int device_;
    std::uint64_t ordinal_;
    std::mutex lock_;
    std::unordered_map<std::uint64_t, Entry> entries_;
    std::unordered_map<std::uint64_t, std::uint64_t> names_;                // reverse_key -> handle
    std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> streams_; // by context: the driver's
    std::array<std::uint64_t, driver_api::kHandleKinds + 1> invented_{};
    std::vector<std::pair<unsigned, std::uint64_t>> lost_; // made under a handle that was taken
    std::optional<std::string> broken_;
};

} // namespace singularity::proxyd
