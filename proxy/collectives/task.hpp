// SPDX-License-Identifier: GPL-2.0-or-later
// One operation of a group while its member's thread carries it out, step by step and without waiting.
#pragma once

#include "group.hpp"
#include "proxy/collectives/link.hpp"
#include "proxy/collectives/mover.hpp"
#include "proxy/protocol/collective.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace singularity::collectives {

// What tasks of one member share.
struct Desk {
    Group &group;
    Mover &mover;
    std::uint32_t rank;
    std::uint64_t rounds = 0; // that earlier collectives have taken
    bool on_device = false;   // what is staged may lie there, and the mover can work there
    // To all other members' devices; nullptr: there is none.
    struct Linked {
        Link *link = nullptr;
        std::uint64_t memory = 0; // of the device, linked_memory() bytes
        std::function<bool()> given_up;
    } linked{};
};

class Task {
  public:
    Task() = default;
    Task(const Task &) = delete;
    Task &operator=(const Task &) = delete;
    Task(Task &&) = delete;
    Task &operator=(Task &&) = delete;
    virtual ~Task() = default;

    // Tasks of one lane go one after the other: collectives, what goes to one member, what comes from one.
    [[nodiscard]] virtual std::uint32_t lane() const = 0;
    // Does what can be done now; whether there was anything.
    [[nodiscard]] virtual Expected<bool> advance() = 0;
    [[nodiscard]] virtual bool done() const = 0;
    // The mover's mark that it waits for next.
    [[nodiscard]] virtual std::optional<std::uint64_t> waits_for() const = 0;
    // It waits for the mover, but not with its thread: the other members may fail meanwhile.
    [[nodiscard]] virtual bool looks_at_mover() const { return false; }
};

// The operation has been checked: kind, type, reduction, peer.
[[nodiscard]] std::unique_ptr<Task> make_task(Desk &desk, const protocol::CollectiveOperation &operation);
[[nodiscard]] std::unique_ptr<Task> make_rounds(Desk &desk, const protocol::CollectiveOperation &operation);
[[nodiscard]] std::unique_ptr<Task> make_send(Desk &desk, const protocol::CollectiveOperation &operation);
[[nodiscard]] std::unique_ptr<Task> make_receive(Desk &desk, const protocol::CollectiveOperation &operation);
// All of a group, where devices are linked.
[[nodiscard]] std::vector<std::unique_ptr<Task>>
make_linked(Desk &desk, std::span<const protocol::CollectiveOperation> operations);
[[nodiscard]] std::size_t linked_memory();

} // namespace singularity::collectives
