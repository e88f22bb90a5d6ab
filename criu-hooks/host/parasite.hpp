// SPDX-License-Identifier: GPL-2.0-or-later
// criu's code inside other processes, seen from outside: compel/src/lib/infect.c of CRIU puts it there.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "proc.hpp"

#include <cstdint>

namespace singularity::host {

enum class Presence : std::uint8_t {
    kGone,      // the process has ended
    kNone,      // nothing of criu is there
    kRemains,   // a mapping that nothing uses
    kWaiting,   // a thread waits in criu's code for a command; it puts everything back if criu goes
    kEntangled, // a thread has registers, or the process has code, that only criu can put back
};

// While criu is stopped; otherwise a thread that runs may be anywhere.
[[nodiscard]] Presence presence_in(const Process &process);

// After the end of criu: unmaps what is left, and the process runs on. False while a thread is still in
// there.
[[nodiscard]] Expected<bool> remove_remains(const Process &process, const Deadline &deadline);

} // namespace singularity::host
