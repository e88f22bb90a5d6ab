// SPDX-License-Identifier: GPL-2.0-or-later
// Which messages make, change or end what a device image has to make anew.
#pragma once

#include <cstdint>

namespace singularity::proxyd {

enum class Effect : std::uint8_t {
    none,
    makes,
    changes, // something about an object: the last of the same sort counts
    adds,    // to an object: all count
    updates, // an executable graph as a whole: all earlier changes are void
    ends,
    names, // makes nothing, but may name objects that the client has not seen
    capture_begins,
    capture_ends,
};

struct JournalRule {
    Effect effect = Effect::none;
    // Of `changes`: the message's bytes that say what is changed; the last with the same bytes counts.
    std::uint16_t key_at = 0;
    std::uint16_t key_size = 0;
};

// By a message's id, generated or hand-written.
[[nodiscard]] const JournalRule &journal_rule(std::uint32_t id);

} // namespace singularity::proxyd
