// SPDX-License-Identifier: GPL-2.0-or-later
// An address of IPv4 or IPv6, as rtnetlink(7) takes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace singularity::network {

class IpAddress {
  public:
    constexpr IpAddress() = default;             // 0.0.0.0
    constexpr IpAddress(std::uint32_t address) { // in host byte order
        for (unsigned byte = 0; byte < 4; ++byte)
            bytes_[byte] = static_cast<std::uint8_t>(address >> (24 - 8 * byte));
    }
    IpAddress(const in6_addr &address) : family_(AF_INET6), size_(sizeof(address)) {
        std::memcpy(bytes_.data(), &address, sizeof(address));
    }
    [[nodiscard]] std::uint8_t family() const { return family_; }
    [[nodiscard]] const void *data() const { return bytes_.data(); }
    [[nodiscard]] std::size_t size() const { return size_; } // in bytes

  private:
    std::uint8_t family_ = AF_INET;
    std::size_t size_ = 4;
    std::array<std::uint8_t, 16> bytes_{};
};

} // namespace singularity::network
