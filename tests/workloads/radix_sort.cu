// SPDX-License-Identifier: GPL-2.0-or-later
// Stable least-significant-digit radix sort of 32-bit keys with values, 4 bits a pass: each thread counts the
// digits of its own run of elements, the counts are scanned, and the run is moved in order. Argument:
// elements.
#include "workload.cuh"

#include <algorithm>
#include <numeric>

constexpr unsigned digits = 16;
constexpr unsigned digit_bits = 4;
constexpr unsigned threads = 64;
constexpr unsigned run = 16; // elements of one thread

// counts[digit * runs + r]: how often the digit occurs in run r.
__global__ void count_digits(const unsigned *keys, unsigned *counts, unsigned runs, unsigned count,
                             unsigned shift) {
    const unsigned r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= runs)
        return;
    unsigned own[digits] = {};
    for (unsigned i = r * run; i < min((r + 1) * run, count); ++i)
        ++own[(keys[i] >> shift) % digits];
    for (unsigned digit = 0; digit < digits; ++digit)
        counts[digit * runs + r] = own[digit];
}

// One block; every thread scans a part, then adds what is before it.
__global__ void exclusive_scan(unsigned *counts, unsigned size) {
    __shared__ unsigned sums[1024];
    const unsigned part = (size + blockDim.x - 1) / blockDim.x;
    const unsigned begin = min(threadIdx.x * part, size);
    const unsigned end = min(begin + part, size);
    unsigned sum = 0;
    for (unsigned i = begin; i < end; ++i)
        sum += counts[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned offset = 1; offset < blockDim.x; offset *= 2) {
        const unsigned left = threadIdx.x >= offset ? sums[threadIdx.x - offset] : 0;
        __syncthreads();
        sums[threadIdx.x] += left;
        __syncthreads();
    }
    unsigned before = sums[threadIdx.x] - sum;
    for (unsigned i = begin; i < end; ++i) {
        const unsigned own = counts[i];
        counts[i] = before;
        before += own;
    }
}

__global__ void move(const unsigned *keys, const unsigned *values, unsigned *keys_out, unsigned *values_out,
                     const unsigned *places, unsigned runs, unsigned count, unsigned shift) {
    const unsigned r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= runs)
        return;
    unsigned next[digits];
    for (unsigned digit = 0; digit < digits; ++digit)
        next[digit] = places[digit * runs + r];
    for (unsigned i = r * run; i < min((r + 1) * run, count); ++i) {
        const unsigned place = next[(keys[i] >> shift) % digits]++;
        keys_out[place] = keys[i];
        values_out[place] = values[i];
    }
}

int main(int argc, char **argv) {
    const auto count = static_cast<unsigned>(workload::size_argument(argc, argv, 50021));
    workload::Random random(23);
    std::vector<unsigned> keys(count);
    std::vector<unsigned> values(count);
    for (unsigned i = 0; i < count; ++i) {
        // Few different keys in places: stability must show.
        keys[i] = random.below(4) == 0 ? random.below(100) : static_cast<unsigned>(random.next());
        values[i] = i;
    }
    const unsigned runs = workload::blocks_for(count, run);
    workload::Buffer<unsigned> from_keys(keys);
    workload::Buffer<unsigned> from_values(values);
    workload::Buffer<unsigned> to_keys(count);
    workload::Buffer<unsigned> to_values(count);
    workload::Buffer<unsigned> counts(std::size_t{digits} * runs);
    unsigned *keys_in = from_keys.data();
    unsigned *keys_out = to_keys.data();
    unsigned *values_in = from_values.data();
    unsigned *values_out = to_values.data();
    const unsigned blocks = workload::blocks_for(runs, threads);
    for (unsigned shift = 0; shift < 32; shift += digit_bits) {
        count_digits<<<blocks, threads>>>(keys_in, counts.data(), runs, count, shift);
        exclusive_scan<<<1, 1024>>>(counts.data(), digits * runs);
        move<<<blocks, threads>>>(keys_in, values_in, keys_out, values_out, counts.data(), runs, count,
                                  shift);
        CHECK_LAUNCH();
        std::swap(keys_in, keys_out);
        std::swap(values_in, values_out);
    }

    std::vector<unsigned> order(count);
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](unsigned a, unsigned b) { return keys[a] < keys[b]; });
    std::vector<unsigned> sorted(count);
    for (unsigned i = 0; i < count; ++i)
        sorted[i] = keys[order[i]];
    workload::Report report;
    report.equal("keys", from_keys.read(), sorted); // eight passes: back where they began
    report.equal("values", from_values.read(), order);
    return report.finish();
}
