// SPDX-License-Identifier: GPL-2.0-or-later
// One operation of a group while its member's thread carries it out, step by step and without waiting.
#pragma once

#include "group.hpp"
#include "proxy/collectives/mover.hpp"
#include "proxy/protocol/collective.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace singularity::collectives {

// What tasks of one member share.
struct Desk {
    Group &group;
    Mover &mover;
    std::uint32_t rank;
    std::uint64_t rounds = 0; // that earlier collectives have taken
    bool on_device = false;   // what is staged may lie there, and the mover can work there
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
};

// The operation has been checked: kind, type, reduction, peer.
[[nodiscard]] std::unique_ptr<Task> make_task(Desk &desk, const protocol::CollectiveOperation &operation);
[[nodiscard]] std::unique_ptr<Task> make_rounds(Desk &desk, const protocol::CollectiveOperation &operation);
[[nodiscard]] std::unique_ptr<Task> make_send(Desk &desk, const protocol::CollectiveOperation &operation);
[[nodiscard]] std::unique_ptr<Task> make_receive(Desk &desk, const protocol::CollectiveOperation &operation);

// Progress needs that member's counter, and it has left: nothing will come.
[[nodiscard]] std::unexpected<Error> has_left(std::uint32_t rank);

} // namespace singularity::collectives
