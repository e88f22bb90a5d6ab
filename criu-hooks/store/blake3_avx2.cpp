// SPDX-License-Identifier: GPL-2.0-or-later
// BLAKE3 for AVX2. CMakeLists.txt gives this file its compiler flags.
#define BLAKE3_LANES 8
#include "blake3_kernel.hpp"

namespace singularity::store::blake3 {

std::size_t hash_avx2(const Job &job, const std::byte *input, std::size_t count, std::byte *output) {
    return hash_groups(job, input, count, output);
}

} // namespace singularity::store::blake3
