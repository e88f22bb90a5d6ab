// SPDX-License-Identifier: GPL-2.0-or-later
// Pi by counting random points in a circle: an own counter-based generator (Philox 4x32-10, Salmon et al.
// 2011), integer arithmetic throughout, so that the count is that of the CPU. Argument: points in units of
// 1024.
#include "workload.cuh"

struct Four {
    unsigned words[4];
};

__host__ __device__ inline unsigned high_product(unsigned a, unsigned b) {
#ifdef __CUDA_ARCH__
    return __umulhi(a, b);
#else
    return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32);
#endif
}

__host__ __device__ inline Four philox(Four counter, unsigned key0, unsigned key1) {
    for (int round = 0; round < 10; ++round) {
        const unsigned high0 = high_product(0xD2511F53U, counter.words[0]);
        const unsigned high1 = high_product(0xCD9E8D57U, counter.words[2]);
        const unsigned low0 = 0xD2511F53U * counter.words[0];
        const unsigned low1 = 0xCD9E8D57U * counter.words[2];
        counter = {{high1 ^ counter.words[1] ^ key0, low1, high0 ^ counter.words[3] ^ key1, low0}};
        key0 += 0x9E3779B9U;
        key1 += 0xBB67AE85U;
    }
    return counter;
}

// Of the two points that one counter gives: how many are in the circle.
__host__ __device__ inline unsigned hits(unsigned counter) {
    const Four random = philox({{counter, 1, 2, 3}}, 0xdeadbeefU, 0x01234567U);
    unsigned inside = 0;
    for (int i = 0; i < 4; i += 2) {
        const unsigned long long x = random.words[i] >> 1;
        const unsigned long long y = random.words[i + 1] >> 1;
        inside += x * x + y * y < (1ULL << 62) ? 1 : 0;
    }
    return inside;
}

__global__ void count(unsigned pairs, unsigned long long *total) {
    unsigned inside = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < pairs; i += gridDim.x * blockDim.x)
        inside += hits(i);
    for (int offset = 16; offset > 0; offset /= 2)
        inside += __shfl_down_sync(0xffffffffU, inside, offset);
    if (threadIdx.x % 32 == 0)
        atomicAdd(total, inside);
}

int main(int argc, char **argv) {
    const auto pairs = static_cast<unsigned>(workload::size_argument(argc, argv, 200, 1U << 20)) * 512U;
    workload::Report report;
    // The generator itself, against a published test vector (Random123, philox4x32-10, all zero).
    const Four zero = philox({{0, 0, 0, 0}}, 0, 0);
    report.expect(zero.words[0] == 0x6627e8d5U && zero.words[1] == 0xe169c58dU &&
                      zero.words[2] == 0xbc57ac4cU && zero.words[3] == 0x9b00dbd8U,
                  "generator");
    workload::Buffer<unsigned long long> total(1);
    total.clear();
    count<<<32, 128>>>(pairs, total.data());
    CHECK_LAUNCH();
    unsigned long long expected = 0;
    for (unsigned i = 0; i < pairs; ++i)
        expected += hits(i);
    const unsigned long long inside = total.read()[0];
    report.value("inside", inside);
    report.value("pi", 4.0 * static_cast<double>(inside) / (2.0 * pairs));
    report.expect(inside == expected, "count of the CPU");
    return report.finish();
}
