// SPDX-License-Identifier: GPL-2.0-or-later
// Requests and reports as bytes. Reports come from users' processes: decoding trusts nothing.
#pragma once

#include "common/error.hpp"
#include "proxy/barrier/lines.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace singularity::barrier {

// Of one message; a line takes 40 bytes.
inline constexpr std::size_t kLargestMessage = std::size_t{16} << 20U;

[[nodiscard]] std::vector<std::byte> encode(const Request &request);
[[nodiscard]] std::vector<std::byte> encode(const Report &report);
// An error says what is wrong, code EPROTO. Text in a report is shortened, and made printable.
[[nodiscard]] Expected<Request> decode_request(std::span<const std::byte> bytes);
[[nodiscard]] Expected<Report> decode_report(std::span<const std::byte> bytes);

} // namespace singularity::barrier
