// SPDX-License-Identifier: GPL-2.0-or-later
// What came with compute capability 8.0: a filter whose input comes by asynchronous copies into two halves of
// shared memory, arrival barriers, and reductions of a warp in one instruction. Argument: tiles of 256
// samples for each block.
#include "workload.cuh"

#include <algorithm>

#include <cuda/barrier>
#include <cuda_pipeline.h>

constexpr int tile = 256;
constexpr int taps = 8;
constexpr int blocks = 4;

// out[i] = sum of weights[t] * in[i + t]; a block has `tiles` consecutive tiles, and loads one while it
// computes another.
__global__ void filter(const float *in, const float *weights, float *out, int tiles) {
    __shared__ alignas(16) float buffers[2][tile + taps];
    const int begin = static_cast<int>(blockIdx.x) * tiles * tile;
    const auto load = [&](int number) {
        const float *from = in + begin + number * tile;
        float *to = buffers[number % 2];
        for (int i = static_cast<int>(threadIdx.x) * 4; i < tile + taps;
             i += static_cast<int>(blockDim.x) * 4)
            __pipeline_memcpy_async(to + i, from + i, 4 * sizeof(float));
        __pipeline_commit();
    };
    load(0);
    for (int number = 0; number < tiles; ++number) {
        if (number + 1 < tiles)
            load(number + 1);
        else
            __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < tile; i += static_cast<int>(blockDim.x)) {
            float sum = 0.0F;
            for (int tap = 0; tap < taps; ++tap)
                sum = fmaf(weights[tap], buffers[number % 2][i + tap], sum);
            out[begin + number * tile + i] = sum;
        }
        __syncthreads();
    }
}

// Producers and consumers of a block take turns by two barriers: the first warp writes powers, the others add
// them up.
__global__ void take_turns(unsigned *sums, int rounds) {
    using Barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ alignas(8) unsigned char memory[2 * sizeof(Barrier)];
    __shared__ unsigned items[32];
    Barrier *full = reinterpret_cast<Barrier *>(memory);
    Barrier *free_again = full + 1;
    if (threadIdx.x == 0) {
        init(full, static_cast<int>(blockDim.x));
        init(free_again, static_cast<int>(blockDim.x));
    }
    __syncthreads();
    unsigned power = threadIdx.x + 1;
    unsigned sum = 0;
    for (int round = 0; round < rounds; ++round) {
        if (threadIdx.x < 32) {
            items[threadIdx.x] = power;
            power *= threadIdx.x + 3;
        }
        full->arrive_and_wait();
        if (threadIdx.x >= 32)
            for (unsigned i = 0; i < 32; ++i)
                sum += items[(i + threadIdx.x) % 32] * (i + 1);
        free_again->arrive_and_wait();
    }
    sums[threadIdx.x] = sum;
}

__global__ void reduce_warps(const int *in, int *results) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const unsigned lanes =
        threadIdx.x % 32 % 3 == 0 ? 0x49249249U : ~0x49249249U; // every third lane, and the others
    const auto value = static_cast<unsigned>(in[i]);
    const int results_of_lane[6] = {static_cast<int>(__reduce_add_sync(lanes, value)),
                                    __reduce_min_sync(lanes, in[i]),
                                    __reduce_max_sync(lanes, in[i]),
                                    static_cast<int>(__reduce_and_sync(lanes, value)),
                                    static_cast<int>(__reduce_or_sync(lanes, value)),
                                    static_cast<int>(__reduce_xor_sync(lanes, value))};
    for (int which = 0; which < 6; ++which)
        results[i * 6 + which] = results_of_lane[which];
}

int main(int argc, char **argv) {
    const int tiles = static_cast<int>(workload::size_argument(argc, argv, 12, 1U << 16));
    const int count = blocks * tiles * tile;
    workload::Report report;
    workload::Random random(151);
    std::vector<float> in(count + taps);
    std::vector<float> weights(taps);
    for (float &value : in)
        value = random.between(-1.0F, 1.0F);
    for (float &weight : weights)
        weight = random.between(-1.0F, 1.0F);
    workload::Buffer<float> device_in(in);
    workload::Buffer<float> device_weights(weights);
    workload::Buffer<float> out(count);
    filter<<<blocks, 64>>>(device_in.data(), device_weights.data(), out.data(), tiles);
    CHECK_LAUNCH();
    std::vector<float> expected(count, 0.0F);
    for (int i = 0; i < count; ++i)
        for (int tap = 0; tap < taps; ++tap)
            expected[i] = std::fmaf(weights[tap], in[i + tap], expected[i]);
    report.equal("filter", out.read(), expected);

    constexpr int rounds = 20;
    constexpr unsigned turn_threads = 96;
    workload::Buffer<unsigned> sums(turn_threads);
    take_turns<<<1, turn_threads>>>(sums.data(), rounds);
    CHECK_LAUNCH();
    std::vector<unsigned> expected_sums(turn_threads, 0);
    for (int round = 0; round < rounds; ++round)
        for (unsigned thread = 32; thread < turn_threads; ++thread)
            for (unsigned i = 0; i < 32; ++i) {
                unsigned power = (i + thread) % 32 + 1;
                for (int step = 0; step < round; ++step)
                    power *= (i + thread) % 32 + 3;
                expected_sums[thread] += power * (i + 1);
            }
    report.equal("turns", sums.read(), expected_sums);

    std::vector<int> words(256);
    for (int &word : words)
        word = static_cast<int>(random.next());
    workload::Buffer<int> device_words(words);
    workload::Buffer<int> results(words.size() * 6);
    reduce_warps<<<2, 128>>>(device_words.data(), results.data());
    CHECK_LAUNCH();
    std::vector<int> expected_results;
    for (int i = 0; i < 256; ++i) {
        const int warp = i / 32 * 32;
        const unsigned lanes = i % 32 % 3 == 0 ? 0x49249249U : ~0x49249249U;
        unsigned sum = 0;
        unsigned both = ~0U;
        unsigned any = 0;
        unsigned odd = 0;
        int low = INT32_MAX;
        int high = INT32_MIN;
        for (int lane = 0; lane < 32; ++lane)
            if ((lanes >> lane) & 1) {
                const int value = words[warp + lane];
                sum += static_cast<unsigned>(value);
                low = std::min(low, value);
                high = std::max(high, value);
                both &= static_cast<unsigned>(value);
                any |= static_cast<unsigned>(value);
                odd ^= static_cast<unsigned>(value);
            }
        for (const int result : {static_cast<int>(sum), low, high, static_cast<int>(both),
                                 static_cast<int>(any), static_cast<int>(odd)})
            expected_results.push_back(result);
    }
    report.equal("reductions", results.read(), expected_results);
    return report.finish();
}
