// SPDX-License-Identifier: GPL-2.0-or-later
// Bitonic sort of doubles: steps of a short distance in shared memory, the others in global memory.
// Argument: binary logarithm of the number of elements.
#include "workload.cuh"

#include <algorithm>

constexpr unsigned local = 512; // elements of a block

template <typename T>
__device__ void order(T &low, T &high, bool ascending) {
    if ((low > high) == ascending) {
        const T moved = low;
        low = high;
        high = moved;
    }
}

// Both all steps of the first phases (first = 2) and the last steps of a later phase (first = last = the
// phase's size).
__global__ void sort_shared(double *values, unsigned first, unsigned last) {
    __shared__ double items[local];
    const unsigned base = blockIdx.x * local;
    items[threadIdx.x] = values[base + threadIdx.x];
    items[threadIdx.x + local / 2] = values[base + threadIdx.x + local / 2];
    for (unsigned size = first; size <= last; size *= 2)
        for (unsigned distance = min(size, local) / 2; distance > 0; distance /= 2) {
            __syncthreads();
            const unsigned low = 2 * threadIdx.x - (threadIdx.x & (distance - 1));
            order(items[low], items[low + distance], ((base + low) & size) == 0);
        }
    __syncthreads();
    values[base + threadIdx.x] = items[threadIdx.x];
    values[base + threadIdx.x + local / 2] = items[threadIdx.x + local / 2];
}

__global__ void sort_step(double *values, unsigned size, unsigned distance) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned low = 2 * i - (i & (distance - 1));
    order(values[low], values[low + distance], (low & size) == 0);
}

int main(int argc, char **argv) {
    const auto exponent = static_cast<unsigned>(workload::size_argument(argc, argv, 13, 24));
    const unsigned count = std::max(1U << exponent, local);
    workload::Random random(29);
    std::vector<double> values(count);
    for (double &value : values)
        value = random.between(-1.0F, 1.0F) * std::ldexp(1.0, static_cast<int>(random.below(40)) - 20);
    workload::Buffer<double> device(values);
    sort_shared<<<count / local, local / 2>>>(device.data(), 2, local);
    for (unsigned size = 2 * local; size <= count; size *= 2) {
        for (unsigned distance = size / 2; distance >= local; distance /= 2)
            sort_step<<<count / local, local / 2>>>(device.data(), size, distance);
        sort_shared<<<count / local, local / 2>>>(device.data(), size, size);
    }
    CHECK_LAUNCH();
    std::sort(values.begin(), values.end());
    workload::Report report;
    report.equal("sorted", device.read(), values);
    return report.finish();
}
