// SPDX-License-Identifier: GPL-2.0-or-later
// What memory contains, in 16 bytes (digest.hpp). Compiled to PTX, which the daemon carries
// (digest_kernel.hpp).
#include "digest.hpp"

namespace {

using singularity::proxyd::Digest;
using singularity::proxyd::DigestArguments;
using singularity::proxyd::kDigestThreads;

// The last step of MurmurHash3, which Austin Appleby has put into the public domain: no two values become the
// same.
__device__ std::uint64_t mixed(std::uint64_t value) {
    value = (value ^ (value >> 33)) * 0xff51afd7ed558ccdULL;
    value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53ULL;
    return value ^ (value >> 33);
}

// Sums, so that blocks and threads may be as many as one likes: of what each half of a word becomes together
// with its place, and of that times an odd number that is the place's own.
__device__ void add_half(std::uint64_t &sum, std::uint64_t &weighted, std::uint64_t half,
                         std::uint64_t place) {
    const auto term = mixed(half + (place * 0x9e3779b97f4a7c15ULL));
    sum += term;
    weighted += term * ((2 * place) + 1);
}

} // namespace

extern "C" __global__ void digest(const DigestArguments arguments) {
    __shared__ std::uint64_t sums[kDigestThreads];
    __shared__ std::uint64_t all_weighted[kDigestThreads];
    std::uint64_t sum = 0;
    std::uint64_t weighted = 0;
    const auto *const words = reinterpret_cast<const ulonglong2 *>(arguments.memory);
    const auto step = std::uint64_t{gridDim.x} * blockDim.x;
    for (auto index = (std::uint64_t{blockIdx.x} * blockDim.x) + threadIdx.x; index < arguments.words;
         index += step) {
        const ulonglong2 word = words[index];
        add_half(sum, weighted, word.x, 2 * index);
        add_half(sum, weighted, word.y, (2 * index) + 1);
    }
    sums[threadIdx.x] = sum;
    all_weighted[threadIdx.x] = weighted;
    for (unsigned half = kDigestThreads / 2; half != 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
            all_weighted[threadIdx.x] += all_weighted[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0)
        reinterpret_cast<Digest *>(arguments.parts)[blockIdx.x] = {.sum = sums[0],
                                                                   .weighted = all_weighted[0]};
}
