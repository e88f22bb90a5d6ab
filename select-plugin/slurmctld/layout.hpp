// SPDX-License-Identifier: GPL-2.0-or-later
// Where things lie in slurmctld's records; the values are in the generated slurm_records.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

namespace singularity::records {

// The offset or size of something for which the release built for has no table.
inline constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

struct StructLayout {
    std::string_view name;
    std::size_t size;         // of the struct, hence of the block that slurmctld allocated for it
    std::size_t magic_offset; // kNowhere: the struct has no magic number
    std::uint32_t magic;
};

struct FieldLayout {
    const StructLayout *record;
    std::string_view name;
    std::size_t offset;
};

} // namespace singularity::records
