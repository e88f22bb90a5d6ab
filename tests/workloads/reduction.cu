// SPDX-License-Identifier: GPL-2.0-or-later
// Sum, maximum with its place, and count under a condition, with warp shuffles, votes and a second pass over
// the blocks' results. Argument: elements.
#include "workload.cuh"

constexpr unsigned threads = 256;
constexpr unsigned all_lanes = 0xffffffffU;

template <typename T>
__device__ T warp_sum(T value) {
    for (int offset = warpSize / 2; offset > 0; offset /= 2)
        value += __shfl_down_sync(all_lanes, value, offset);
    return value;
}

// Every block's sum of in[], in the same order in every run.
template <typename T>
__global__ void block_sums(const T *in, T *out, std::size_t count) {
    __shared__ T of_warps[threads / 32];
    T sum = 0;
    for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
         i += std::size_t{gridDim.x} * blockDim.x)
        sum += in[i];
    sum = warp_sum(sum);
    if (threadIdx.x % warpSize == 0)
        of_warps[threadIdx.x / warpSize] = sum;
    __syncthreads();
    if (threadIdx.x < warpSize) {
        sum = warp_sum(threadIdx.x < threads / 32 ? of_warps[threadIdx.x] : T{0});
        if (threadIdx.x == 0)
            out[blockIdx.x] = sum;
    }
}

template <typename T>
T device_sum(const std::vector<T> &values) {
    constexpr unsigned blocks = 40;
    workload::Buffer<T> in(values);
    workload::Buffer<T> partial(blocks);
    workload::Buffer<T> total(1);
    block_sums<<<blocks, threads>>>(in.data(), partial.data(), values.size());
    block_sums<<<1, threads>>>(partial.data(), total.data(), blocks);
    CHECK_LAUNCH();
    return total.read()[0];
}

// The value as an ordered integer above the place from the end: a maximum of this is the first place of the
// largest.
__device__ unsigned long long place_key(float value, unsigned place) {
    const unsigned bits = __float_as_uint(value);
    const unsigned ordered = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
    return (static_cast<unsigned long long>(ordered) << 32) | (0xffffffffU - place);
}

__global__ void find_maximum(const float *in, unsigned long long *key, unsigned *positive,
                             std::size_t count) {
    const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
    unsigned long long mine = i < count ? place_key(in[i], static_cast<unsigned>(i)) : 0;
    const unsigned lanes = __ballot_sync(all_lanes, i < count && in[i] > 0.0F);
    for (int mask = warpSize / 2; mask > 0; mask /= 2)
        mine = max(mine, __shfl_xor_sync(all_lanes, mine, mask));
    if (threadIdx.x % warpSize == 0) {
        atomicMax(key, mine);
        atomicAdd(positive, static_cast<unsigned>(__popc(lanes)));
    }
}

int main(int argc, char **argv) {
    const std::size_t count = workload::size_argument(argc, argv, 300007);
    workload::Random random(11);
    std::vector<long long> integers(count);
    std::vector<float> floats(count);
    std::vector<double> doubles(count);
    long long integer_sum = 0;
    double float_sum = 0.0;
    double double_sum = 0.0;
    std::size_t largest = 0;
    unsigned positive = 0;
    for (std::size_t i = 0; i < count; ++i) {
        integers[i] = static_cast<long long>(random.next() >> 20) - (1LL << 43);
        floats[i] = random.between(-2.0F, 3.0F);
        doubles[i] = static_cast<double>(random.unit()) / 3.0;
        integer_sum += integers[i];
        float_sum += floats[i];
        double_sum += doubles[i];
        largest = floats[i] > floats[largest] ? i : largest;
        positive += floats[i] > 0.0F ? 1 : 0;
    }

    workload::Report report;
    report.value("integer sum", device_sum(integers));
    report.expect(device_sum(integers) == integer_sum, "integer sum");
    report.near("float sum", device_sum(floats), float_sum, 1e-5);
    report.near("double sum", device_sum(doubles), double_sum, 1e-12);

    workload::Buffer<float> in(floats);
    workload::Buffer<unsigned long long> key(1);
    workload::Buffer<unsigned> counted(1);
    key.clear();
    counted.clear();
    find_maximum<<<workload::blocks_for(count, threads), threads>>>(in.data(), key.data(), counted.data(),
                                                                    count);
    CHECK_LAUNCH();
    const unsigned place = 0xffffffffU - static_cast<unsigned>(key.read()[0]);
    report.value("maximum at", place);
    report.value("maximum", floats[place]);
    report.expect(place == largest, "place of the maximum");
    report.value("positive", counted.read()[0]);
    report.expect(counted.read()[0] == positive, "count of positive values");
    return report.finish();
}
