// SPDX-License-Identifier: GPL-2.0-or-later
// Memory of a device, and work in it: where all members of a communicator are in this process and on one
// device, what they stage need not leave it.
#pragma once

#include "common/error.hpp"
#include "proxy/collectives/reduce.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace singularity::collectives {

// Freed with the last holder, on whatever thread that is.
class DeviceMemory {
  public:
    DeviceMemory() = default;
    DeviceMemory(const DeviceMemory &) = delete;
    DeviceMemory &operator=(const DeviceMemory &) = delete;
    DeviceMemory(DeviceMemory &&) = delete;
    DeviceMemory &operator=(DeviceMemory &&) = delete;
    virtual ~DeviceMemory() = default;

    [[nodiscard]] virtual std::uint64_t address() const = 0;
};

// Members that name the same one are on the same device.
class Device {
  public:
    Device() = default;
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;
    Device(Device &&) = delete;
    Device &operator=(Device &&) = delete;
    virtual ~Device() = default;

    // Memory that the movers of all members on it reach. On any thread.
    [[nodiscard]] virtual Expected<std::shared_ptr<const DeviceMemory>> stage(std::size_t size) = 0;
};

// Operands lie at `operands`, one every `stride` bytes, in the order of ranks. Everything begins at a whole
// line (shape.hpp), and up to the end of its last line nobody minds what is read and written.
struct DeviceReduction {
    std::uint32_t type = 0;
    std::uint32_t step = 0; // sum, product, largest, smallest
    std::uint64_t operands = 0;
    std::uint64_t stride = 0;
    std::uint32_t members = 0;
    std::uint32_t divisor = 0; // of the result; 0: none
    std::uint64_t result = 0;
    std::uint64_t count = 0; // elements
};

// What a mover does within its device: begun in one order with its copies, and told of by the same marks. To
// the bit what reduce() and scale() do.
class DeviceWork {
  public:
    DeviceWork() = default;
    DeviceWork(const DeviceWork &) = delete;
    DeviceWork &operator=(const DeviceWork &) = delete;
    DeviceWork(DeviceWork &&) = delete;
    DeviceWork &operator=(DeviceWork &&) = delete;
    virtual ~DeviceWork() = default;

    // From the program's memory to a stage, and back.
    [[nodiscard]] virtual Expected<void> fetch(std::uint64_t from, std::uint64_t to, std::size_t size) = 0;
    [[nodiscard]] virtual Expected<void> deliver(std::uint64_t from, std::uint64_t to, std::size_t size) = 0;
    [[nodiscard]] virtual Expected<void> scale(std::uint32_t type, std::uint64_t values, const Scalar &scalar,
                                               std::uint64_t count) = 0;
    [[nodiscard]] virtual Expected<void> reduce(const DeviceReduction &reduction) = 0;
};

} // namespace singularity::collectives
