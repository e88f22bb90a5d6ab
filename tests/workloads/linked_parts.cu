// SPDX-License-Identifier: GPL-2.0-or-later
// Device code in two parts that the driver links (nvcc -rdc=true). This file is compiled twice, and the part
// with OTHER_PART has a kernel that calls, reads and counts in what the other one defines, and gives it
// pointers to functions. Argument: elements.
#include "workload.cuh"

using Step = unsigned (*)(unsigned value, unsigned round);

// Of the first part.
extern __constant__ unsigned linked_table[4];
extern __device__ unsigned long long linked_count;
__device__ unsigned linked_mix(unsigned value, unsigned round);
// Of the other one.
__device__ Step linked_step(unsigned element);
void mix_there(const unsigned *in, unsigned *out, unsigned count);

constexpr unsigned kRounds = 9;
constexpr unsigned kBlock = 128;

__host__ __device__ inline unsigned scatter(unsigned value, unsigned constant) {
    return (value ^ (value >> 7U)) * 2654435761U + constant;
}
__host__ __device__ inline unsigned turned(unsigned value, unsigned round) {
    return (value << (round + 1)) | (value >> (31 - round));
}

#ifdef OTHER_PART

namespace {

__device__ unsigned turn(unsigned value, unsigned round) { return turned(value, round); }

__global__ void mix(const unsigned *in, unsigned *out, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    unsigned value = in[i];
    for (unsigned round = 0; round < kRounds; ++round)
        value = linked_mix(value, round);
    out[i] = value + linked_table[1];
    atomicAdd(&linked_count, 1ULL);
}

} // namespace

__device__ Step linked_step(unsigned element) { return element % 3 == 0 ? linked_mix : turn; }

void mix_there(const unsigned *in, unsigned *out, unsigned count) {
    mix<<<workload::blocks_for(count, kBlock), kBlock>>>(in, out, count);
    CHECK_LAUNCH();
}

#else

__constant__ unsigned linked_table[4] = {3, 5, 7, 11};
__device__ unsigned long long linked_count;
__device__ unsigned linked_mix(unsigned value, unsigned round) {
    return scatter(value, linked_table[round % 4]);
}

namespace {

// The same name as in the other part: each has its own.
__global__ void mix(const unsigned *in, unsigned *out, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    const Step step = linked_step(i);
    unsigned value = in[i];
    for (unsigned round = 0; round < kRounds; ++round)
        value = step(value, round);
    out[i] = value;
}

} // namespace

int main(int argc, char **argv) {
    const auto count = static_cast<unsigned>(workload::size_argument(argc, argv, 3000, 1U << 24));
    workload::Report report;
    workload::Random random(11);
    std::vector<unsigned> values(count);
    for (auto &value : values)
        value = static_cast<unsigned>(random.next());
    workload::Buffer<unsigned> in(values);
    workload::Buffer<unsigned> out(count);
    unsigned table[4] = {3, 5, 7, 11};
    for (unsigned long long round = 1; round <= 2; ++round) {
        std::vector<unsigned> there(count);
        std::vector<unsigned> here(count);
        for (unsigned i = 0; i < count; ++i) {
            unsigned all_mixed = values[i];
            unsigned all_turned = values[i];
            for (unsigned step = 0; step < kRounds; ++step) {
                all_mixed = scatter(all_mixed, table[step % 4]);
                all_turned = turned(all_turned, step);
            }
            there[i] = all_mixed + table[1];
            here[i] = i % 3 == 0 ? all_mixed : all_turned;
        }
        mix_there(in.data(), out.data(), count);
        report.equal("the other part's kernel", out.read(), there);
        mix<<<workload::blocks_for(count, kBlock), kBlock>>>(in.data(), out.data(), count);
        CHECK_LAUNCH();
        report.equal("this part's kernel", out.read(), here);
        unsigned long long counted = 0;
        CHECK(cudaMemcpyFromSymbol(&counted, linked_count, sizeof(counted)));
        report.expect(counted == round * count, "counted by the other part");
        // Both parts see what the host writes.
        table[1] = 1000003;
        CHECK(cudaMemcpyToSymbol(linked_table, table, sizeof(table)));
    }
    return report.finish();
}

#endif
