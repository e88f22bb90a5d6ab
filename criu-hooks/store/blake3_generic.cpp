// SPDX-License-Identifier: GPL-2.0-or-later
// BLAKE3 for vectors of 128 bits, which every 64-bit processor has. CMakeLists.txt gives this file its
// compiler flags.
#define BLAKE3_LANES 4
#include "blake3_kernel.hpp"

namespace singularity::store::blake3 {

std::size_t hash_generic(const Job &job, const std::byte *input, std::size_t count, std::byte *output) {
    return hash_groups(job, input, count, output);
}

} // namespace singularity::store::blake3
