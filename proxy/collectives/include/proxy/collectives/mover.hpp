// SPDX-License-Identifier: GPL-2.0-or-later
// Who copies between a program's memory, which may be a device's, and memory of this process.
#pragma once

#include "common/error.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace singularity::collectives {

class DeviceWork;
class Link;

// Used by one thread. Copies end in the order in which they have begun.
class Mover {
  public:
    Mover() = default;
    Mover(const Mover &) = delete;
    Mover &operator=(const Mover &) = delete;
    Mover(Mover &&) = delete;
    Mover &operator=(Mover &&) = delete;
    virtual ~Mover() = default;

    // Begin a copy. Memory of this process stays as it is until the copy has ended.
    [[nodiscard]] virtual Expected<void> fetch(std::uint64_t from, std::span<std::byte> to) = 0;
    [[nodiscard]] virtual Expected<void> deliver(std::span<const std::byte> from, std::uint64_t to) = 0;
    // A number for what has begun until now; copies with it or a lower one end before copies that begin
    // later.
    [[nodiscard]] virtual Expected<std::uint64_t> mark() = 0;
    [[nodiscard]] virtual Expected<bool> passed(std::uint64_t mark) = 0;
    [[nodiscard]] virtual Expected<void> wait(std::uint64_t mark) = 0;
    // nullptr: its device, if it has one, does no work. Never of a member that has named a device.
    [[nodiscard]] virtual DeviceWork *on_device() { return nullptr; }
    // To other devices, in order with copies; nullptr: it has none. The same one for the member's whole life.
    [[nodiscard]] virtual Link *link() { return nullptr; }
};

// Between memory that this process reaches itself.
class HostMover final : public Mover {
  public:
    [[nodiscard]] Expected<void> fetch(std::uint64_t from, std::span<std::byte> to) override {
        std::memcpy(to.data(), std::bit_cast<const std::byte *>(from), to.size());
        return {};
    }
    [[nodiscard]] Expected<void> deliver(std::span<const std::byte> from, std::uint64_t to) override {
        std::memmove(std::bit_cast<std::byte *>(to), from.data(), from.size());
        return {};
    }
    [[nodiscard]] Expected<std::uint64_t> mark() override { return 0; }
    [[nodiscard]] Expected<bool> passed(std::uint64_t /*mark*/) override { return true; }
    [[nodiscard]] Expected<void> wait(std::uint64_t /*mark*/) override { return {}; }
};

} // namespace singularity::collectives
