// SPDX-License-Identifier: GPL-2.0-or-later
// Where mmap(2) puts what the driver's library asks for without saying where: variables of modules lie in
// such mappings, and a program that has asked for an address keeps it in its image.
//
// The kernel's choice depends on everything else that the process has mapped: libraries, threads' stacks,
// malloc's arenas, whose number depends on which threads happened to meet. So the driver's mappings get an
// area of their own, with a part for each power of two: a mapping takes the lowest free slot of the power of
// two that holds it. Its address then depends on the driver's own mappings of about that size alone, and
// these on its calls, which are the same after a restore.
//
// Half of each part is cut again, into a piece for each session: what other sessions of the process have, now
// or after a restore, changes nothing. A piece has no slots of a size of which there are too few, and few of
// the sizes next to that; what does not fit is placed with what is no session's.
//
// This program defines mmap() and mmap64() for that; the libraries in it call them. Calls from elsewhere,
// with an address, or with MAP_32BIT go to the kernel unchanged, and so does what does not fit. With
// AddressSanitizer or ThreadSanitizer, which define them, everything does.
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <cstdint>

namespace singularity::proxyd {

// Of the calling thread, until its end or the next such call: for the session with this number; 0: for
// none. Numbers from 1 to kPieces have a piece of their own, those above share these.
inline constexpr std::uint64_t kPieces = 255;
void place_mappings_for(std::uint64_t session);

// As long as it lives.
class MappingsOf {
  public:
    explicit MappingsOf(std::uint64_t session) { place_mappings_for(session); }
    MappingsOf(const MappingsOf &) = delete;
    MappingsOf &operator=(const MappingsOf &) = delete;
    MappingsOf(MappingsOf &&) = delete;
    MappingsOf &operator=(MappingsOf &&) = delete;
    ~MappingsOf() { place_mappings_for(0); }
};

// Whether this build does so: with some sanitizers it does not.
[[nodiscard]] bool places_mappings();

// From now on mappings of the library that has this function are placed so; not a second library's. Any
// thread.
[[nodiscard]] Expected<void> place_mappings_of(const void *function);

// The area, for tests: what lies in it was placed.
inline constexpr std::uintptr_t kMappingsBegin = 0x6000'0000'0000;
inline constexpr std::uintptr_t kMappingsEnd = 0x7000'0000'0000;

} // namespace singularity::proxyd
