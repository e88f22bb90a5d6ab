// SPDX-License-Identifier: GPL-2.0-or-later
// Histograms of bytes and of pairs, with atomics in shared and in global memory, of 32 and 64 bits.
// Argument: bytes of input.
#include "workload.cuh"

#include <algorithm>

constexpr unsigned threads = 256;
constexpr unsigned bins = 256;

__global__ void count_bytes(const unsigned char *data, std::size_t size, unsigned *counts) {
    __shared__ unsigned own[bins];
    for (unsigned bin = threadIdx.x; bin < bins; bin += blockDim.x)
        own[bin] = 0;
    __syncthreads();
    for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size;
         i += std::size_t{gridDim.x} * blockDim.x)
        atomicAdd(&own[data[i]], 1U);
    __syncthreads();
    for (unsigned bin = threadIdx.x; bin < bins; bin += blockDim.x)
        if (own[bin] != 0)
            atomicAdd(&counts[bin], own[bin]);
}

// For each class of four bits: the sum of the places, the smallest and largest place, and the combined bits.
struct Class {
    unsigned long long places;
    int first, last;
    unsigned any, all, odd;
};

__global__ void classify(const unsigned char *data, unsigned size, Class *classes) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size)
        return;
    Class &mine = classes[data[i] >> 4];
    atomicAdd(&mine.places, static_cast<unsigned long long>(i));
    atomicMin(&mine.first, static_cast<int>(i));
    atomicMax(&mine.last, static_cast<int>(i));
    atomicOr(&mine.any, 1U << (i % 32));
    atomicAnd(&mine.all, ~(1U << (i % 29)));
    atomicXor(&mine.odd, i);
}

int main(int argc, char **argv) {
    const std::size_t size = workload::size_argument(argc, argv, 200000);
    workload::Random random(31);
    std::vector<unsigned char> data(size);
    for (unsigned char &byte : data)
        byte = static_cast<unsigned char>((random.below(256) + random.below(256)) / 2); // not flat
    std::vector<unsigned> expected(bins);
    std::vector<Class> expected_classes(16, Class{0, 1 << 30, -1, 0, ~0U, 0});
    const std::vector<Class> initial = expected_classes;
    for (unsigned i = 0; i < size; ++i) {
        ++expected[data[i]];
        Class &mine = expected_classes[data[i] >> 4];
        mine.places += i;
        mine.first = std::min(mine.first, static_cast<int>(i));
        mine.last = std::max(mine.last, static_cast<int>(i));
        mine.any |= 1U << (i % 32);
        mine.all &= ~(1U << (i % 29));
        mine.odd ^= i;
    }

    workload::Report report;
    workload::Buffer<unsigned char> device(data);
    workload::Buffer<unsigned> counts(bins);
    counts.clear();
    count_bytes<<<24, threads>>>(device.data(), size, counts.data());
    CHECK_LAUNCH();
    report.equal("bytes", counts.read(), expected);

    workload::Buffer<Class> classes(initial);
    classify<<<workload::blocks_for(size, threads), threads>>>(device.data(), static_cast<unsigned>(size),
                                                               classes.data());
    CHECK_LAUNCH();
    const std::vector<Class> found = classes.read();
    bool same = true;
    for (std::size_t c = 0; c < found.size(); ++c) {
        std::printf("class %zu: places %llu, first %d, last %d, any %08x, all %08x, odd %08x\n", c,
                    found[c].places, found[c].first, found[c].last, found[c].any, found[c].all, found[c].odd);
        const Class &other = expected_classes[c];
        same = same && found[c].places == other.places && found[c].first == other.first &&
               found[c].last == other.last && found[c].any == other.any && found[c].all == other.all &&
               found[c].odd == other.odd;
    }
    report.expect(same, "classes");
    return report.finish();
}
