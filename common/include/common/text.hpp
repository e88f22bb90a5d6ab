// SPDX-License-Identifier: GPL-2.0-or-later
// Text that people read: one line, no surprises.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace singularity {

// The text with everything that could break a line or steer a terminal written as \n, \t, \r, \xNN or
// \u{NNNN}: C0 and C1 control characters, Unicode line and paragraph separators, bidirectional controls,
// bytes that are not UTF-8. Other UTF-8 stays. A backslash stays as well, so that escaping twice changes
// nothing.
[[nodiscard]] std::string escaped(std::string_view text);

// For messages that quote a user's input: escaped, in single quotes, cut after a length that keeps a line
// readable.
[[nodiscard]] std::string quote(std::string_view text);

// The candidate with the fewest insertions, deletions, replacements and swaps of neighbours between it and
// the word; the first of equals; empty if there is no candidate.
[[nodiscard]] std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

// "96 B", "1.5 GiB": in the largest unit of which there is at least one.
[[nodiscard]] std::string byte_count(std::uint64_t bytes);

} // namespace singularity
