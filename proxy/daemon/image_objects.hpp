// SPDX-License-Identifier: GPL-2.0-or-later
// Objects of which an image needs more than the call that makes them: what arrays hold, and the numbers of
// textures and surfaces.
#pragma once

#include "array_copier.hpp"
#include "common/error.hpp"
#include "driver_api/backend.hpp"
#include "journal.hpp"

#include <bit>
#include <cstdint>
#include <optional>
#include <utility>

namespace singularity::proxyd {

// Whose number is the driver's: the handle of the texture or surface that the entry makes.
[[nodiscard]] std::optional<std::uint64_t> numbered_object(const JournalEntry &entry);
// The linear memory that the texture of an entry is of, and its size; nothing: there is none.
[[nodiscard]] std::optional<std::pair<std::uint64_t, std::uint64_t>>
memory_of_texture(const JournalEntry &entry);
// The array that the entry makes by itself: not a level of another.
[[nodiscard]] std::optional<std::uint64_t> own_array(const JournalEntry &entry);

// Calls each(level, array) for all levels; the first failure ends it.
template <class Each>
Expected<void> for_each_level(const driver_api::Backend &driver, std::uint64_t real, Each each) {
    constexpr unsigned kMostLevels = 32;
    for (unsigned level = 0; level < kMostLevels && driver.cuMipmappedArrayGetLevel != nullptr; ++level) {
        CUarray array = nullptr;
        if (driver.cuMipmappedArrayGetLevel(&array, std::bit_cast<CUmipmappedArray>(real), level) !=
            CUDA_SUCCESS)
            break;
        if (auto done = each(level, array); !done)
            return done;
    }
    return {};
}

} // namespace singularity::proxyd
