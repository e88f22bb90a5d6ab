// SPDX-License-Identifier: GPL-2.0-or-later
// The answer of the export table INTEGRITY_CHECK: cudart asks the driver for a digest over the process, the
// tables and the devices, and goes on only if it computes the same. An interoperability constant that several
// open projects publish (ZLUDA, wine's nvcuda): HMAC-MD2 (RFC 2104, RFC 1319) with a fixed key.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace singularity::libcuda {

using Digest = std::array<std::byte, 16>;

[[nodiscard]] Digest md2(std::span<const std::byte> message);
[[nodiscard]] Digest hmac_md2(const Digest &key, std::span<const std::byte> message);

struct DeviceIdentity {
    std::array<std::byte, 16> uuid{};
    std::int32_t pci_domain = 0;
    std::int32_t pci_bus = 0;
    std::int32_t pci_device = 0;
};

struct IntegrityQuestion {
    std::uint32_t driver_version = 0; // what cuDriverGetVersion says
    std::uint32_t version = 0;        // the caller's argument
    std::uint32_t process = 0;        // getpid()
    std::uint32_t thread = 0;         // low half of pthread_self()
    std::uint64_t cudart_table = 0;   // addresses of the tables CUDART_INTERFACE and INTEGRITY_CHECK
    std::uint64_t integrity_table = 0;
    std::uint64_t integrity_function = 0; // slot 1 of INTEGRITY_CHECK
    std::uint64_t unix_seconds = 0;       // the caller's argument
    std::vector<DeviceIdentity> devices;  // in ordinal order
};
[[nodiscard]] std::array<std::uint64_t, 2> integrity_answer(const IntegrityQuestion &question);

} // namespace singularity::libcuda
