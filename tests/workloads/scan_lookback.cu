// SPDX-License-Identifier: GPL-2.0-or-later
// Inclusive prefix sum in a single pass: a block adds up what its predecessors have published ("decoupled
// look-back", Merrill and Garland 2016). Blocks take their part by an atomic ticket, so that one never waits
// for a block that has not begun. Argument: elements.
#include "workload.cuh"

constexpr unsigned threads = 256;
constexpr unsigned all_lanes = 0xffffffffU;
// The upper half of a published word says what the lower half is.
enum State : unsigned { nothing = 0, own_sum = 1, prefix = 2 };

__device__ unsigned long long published(State state, unsigned value) {
    return (static_cast<unsigned long long>(state) << 32) | value;
}

__device__ unsigned inclusive_in_warp(unsigned value) {
    for (unsigned offset = 1; offset < warpSize; offset *= 2) {
        const unsigned left = __shfl_up_sync(all_lanes, value, offset);
        if (threadIdx.x % warpSize >= offset)
            value += left;
    }
    return value;
}

__device__ unsigned sum_of_predecessors(volatile unsigned long long *words, unsigned part) {
    unsigned sum = 0;
    for (unsigned before = part; before-- > 0;) {
        unsigned long long word = 0;
        do
            word = words[before];
        while (word >> 32 == nothing);
        sum += static_cast<unsigned>(word);
        if (word >> 32 == prefix)
            break;
    }
    return sum;
}

__global__ void scan(const unsigned *in, unsigned *out, unsigned long long *words, unsigned *ticket,
                     unsigned count) {
    __shared__ unsigned part;
    __shared__ unsigned before;
    __shared__ unsigned of_warps[threads / 32];
    if (threadIdx.x == 0)
        part = atomicAdd(ticket, 1U);
    __syncthreads();
    const unsigned i = part * threads + threadIdx.x;
    unsigned value = inclusive_in_warp(i < count ? in[i] : 0);
    if (threadIdx.x % warpSize == warpSize - 1)
        of_warps[threadIdx.x / warpSize] = value;
    __syncthreads();
    for (unsigned warp = 0; warp < threadIdx.x / warpSize; ++warp)
        value += of_warps[warp];
    if (threadIdx.x == threads - 1) {
        auto *own = reinterpret_cast<volatile unsigned long long *>(words) + part;
        *own = published(own_sum, value);
        __threadfence();
        before = sum_of_predecessors(words, part);
        *own = published(prefix, before + value);
    }
    __syncthreads();
    if (i < count)
        out[i] = before + value;
}

int main(int argc, char **argv) {
    const auto count = static_cast<unsigned>(workload::size_argument(argc, argv, 250017));
    workload::Random random(17);
    std::vector<unsigned> values(count);
    std::vector<unsigned> expected(count);
    unsigned sum = 0;
    for (unsigned i = 0; i < count; ++i) {
        values[i] = static_cast<unsigned>(random.next());
        expected[i] = sum += values[i];
    }
    const unsigned blocks = workload::blocks_for(count, threads);
    workload::Report report;
    workload::Buffer<unsigned> in(values);
    workload::Buffer<unsigned> out(count);
    workload::Buffer<unsigned long long> words(blocks);
    workload::Buffer<unsigned> ticket(1);
    words.clear();
    ticket.clear();
    scan<<<blocks, threads>>>(in.data(), out.data(), words.data(), ticket.data(), count);
    CHECK_LAUNCH();
    report.equal("inclusive scan", out.read(), expected);
    report.expect(ticket.read()[0] == blocks, "every block took one ticket");
    return report.finish();
}
