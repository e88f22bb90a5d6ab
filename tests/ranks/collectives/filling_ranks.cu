// SPDX-License-Identifier: GPL-2.0-or-later
// Ranks that fill their devices: MODE PERCENT STEPS [TIMES]. PERCENT of the device's memory lies in four
// buffers, all of which change in each step. Prints a hash of everything, rank by rank: it is the same
// wherever the ranks are. Each step computes TIMES as much.
//
//   reduce   each step reduces a part of each buffer, on a stream of its own, while the next one is computed
//   alone    no rank ever waits for another, nor for its device before the end
//   differ   as reduce; each rank has another share of its device, up to PERCENT
//   alike    as reduce; all ranks have the same in their buffers, as replicas do
//   graph    as reduce; what a step computes is a graph
//   captured as reduce; what a step computes and reduces is a graph
//   pool     as reduce; the buffers come from the stream-ordered allocator, two of them anew in each step
//   greedy   allocates until there is no more, which is at PERCENT or above
#include "members.cuh"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace {

constexpr std::size_t buffers = 4;
constexpr std::size_t stride = 1024; // words: one in each page changes
constexpr std::size_t reduced = 4096;

__global__ void change(std::uint32_t *words, std::size_t count, std::uint32_t salt,
                       const std::uint32_t *sums) {
    const std::size_t at = (blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x) * stride;
    if (at < count)
        words[at] = words[at] * 1664525u + 1013904223u + salt + sums[(at / stride) % reduced];
}

struct Rank {
    workload::World world;
    std::string mode;
    std::size_t count = 0; // words of a buffer
    std::vector<std::uint32_t *> memory;
    std::uint32_t *sums = nullptr;
    cudaStream_t compute = nullptr;
    cudaStream_t talk = nullptr;
    ncclComm_t all = nullptr;
    cudaGraphExec_t graph = nullptr;
    unsigned long times = 1;
};

// What makes a rank's memory another than the others'.
std::size_t own(const Rank &rank) {
    return rank.mode == "alike" ? 0 : static_cast<std::size_t>(rank.world.rank);
}

void change(const Rank &rank, std::size_t buffer) {
    const auto threads = static_cast<unsigned>((rank.count + stride - 1) / stride);
    change<<<(threads + 127) / 128, 128, 0, rank.compute>>>(
        rank.memory[buffer], rank.count, static_cast<std::uint32_t>(own(rank) * 7 + buffer),
        rank.sums + buffer * reduced);
    CHECK(cudaGetLastError());
}

void make_graph(Rank &rank) {
    cudaGraph_t made = nullptr;
    CHECK(cudaStreamBeginCapture(rank.compute, cudaStreamCaptureModeThreadLocal));
    for (std::size_t buffer = 0; buffer < buffers; ++buffer)
        change(rank, buffer);
    CHECK(cudaStreamEndCapture(rank.compute, &made));
    CHECK(cudaGraphInstantiate(&rank.graph, made, 0));
    CHECK(cudaGraphDestroy(made));
}

std::uint32_t *allocate(const Rank &rank, std::size_t buffer) {
    std::uint32_t *out = nullptr;
    const auto bytes = rank.count * sizeof(std::uint32_t);
    if (rank.mode == "pool")
        CHECK(cudaMallocAsync(&out, bytes, rank.compute));
    else
        CHECK(cudaMalloc(&out, bytes));
    CHECK(cudaMemsetAsync(out, static_cast<int>(own(rank) * 16 + buffer), bytes, rank.compute));
    return out;
}

void reduce(Rank &rank, std::size_t buffer, cudaEvent_t ready) {
    CHECK(cudaEventRecord(ready, rank.compute));
    CHECK(cudaStreamWaitEvent(rank.talk, ready, 0));
    CHECK_NCCL(ncclAllReduce(rank.memory[buffer], rank.sums + buffer * reduced, reduced, ncclUint32, ncclSum,
                             rank.all, rank.talk));
}

// A whole step.
void make_captured(Rank &rank, cudaEvent_t ready) {
    cudaGraph_t made = nullptr;
    CHECK(cudaStreamBeginCapture(rank.compute, cudaStreamCaptureModeThreadLocal));
    for (std::size_t buffer = 0; buffer < buffers; ++buffer) {
        change(rank, buffer);
        reduce(rank, buffer, ready);
    }
    CHECK(cudaEventRecord(ready, rank.talk));
    CHECK(cudaStreamWaitEvent(rank.compute, ready, 0));
    CHECK(cudaStreamEndCapture(rank.compute, &made));
    CHECK(cudaGraphInstantiate(&rank.graph, made, 0));
    CHECK(cudaGraphDestroy(made));
}

void step(Rank &rank, cudaEvent_t ready) {
    if (rank.graph != nullptr)
        CHECK(cudaGraphLaunch(rank.graph, rank.compute));
    if (rank.mode == "captured")
        return;
    for (std::size_t buffer = 0; buffer < buffers; ++buffer) {
        if (rank.mode == "pool" && buffer >= 2) {
            CHECK(cudaFreeAsync(rank.memory[buffer], rank.compute));
            rank.memory[buffer] = allocate(rank, buffer);
        }
        if (rank.graph == nullptr)
            for (unsigned long done = 0; done < rank.times; ++done)
                change(rank, buffer);
        if (rank.mode != "alone" && rank.mode != "greedy")
            reduce(rank, buffer, ready);
    }
    CHECK(cudaEventRecord(ready, rank.talk));
    CHECK(cudaStreamWaitEvent(rank.compute, ready, 0));
}

std::uint64_t hash(const Rank &rank) {
    std::uint64_t out = 14695981039346656037ull;
    std::vector<std::uint32_t> words(rank.count);
    for (const auto *buffer : rank.memory) {
        CHECK(cudaMemcpy(words.data(), buffer, words.size() * sizeof(words[0]), cudaMemcpyDeviceToHost));
        for (const auto word : words)
            out = (out ^ word) * 1099511628211ull;
    }
    return out;
}

// What a device of one's own has: blocks of a 32nd of it, until there are none.
int greedy(const Rank &rank, unsigned percent) {
    std::size_t free = 0;
    std::size_t total = 0;
    CHECK(cudaMemGetInfo(&free, &total));
    const auto block = total / 32;
    std::vector<void *> all;
    for (void *one = nullptr; cudaMalloc(&one, block) == cudaSuccess; all.push_back(one))
        CHECK(cudaMemset(one, rank.world.rank + 1, block));
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation, "out of memory");
    EXPECT(all.size() * block * 100 >= total * percent, "%zu of 32 blocks", all.size());
    std::vector<unsigned char> bytes(block);
    for (void *one : all) {
        CHECK(cudaMemcpy(bytes.data(), one, block, cudaMemcpyDeviceToHost));
        EXPECT(std::all_of(bytes.begin(), bytes.end(),
                           [&](unsigned char byte) { return byte == rank.world.rank + 1; }),
               "what was written");
    }
    std::printf("greedy\n");
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5)
        return 2;
    Rank rank;
    rank.world = workload::world_of_environment();
    rank.mode = argv[1];
    const auto percent = static_cast<unsigned>(std::stoul(argv[2]));
    const auto steps = std::stoul(argv[3]);
    if (argc == 5)
        rank.times = std::stoul(argv[4]);
    workload::use_device(rank.world);
    if (rank.mode == "greedy")
        return greedy(rank, percent);
    std::size_t free = 0;
    std::size_t total = 0;
    CHECK(cudaMemGetInfo(&free, &total));
    auto share = total / 100 * percent;
    if (rank.mode == "differ")
        share = share / (1 + static_cast<std::size_t>(rank.world.rank) % 3);
    rank.count = share / buffers / sizeof(std::uint32_t);
    CHECK(cudaStreamCreateWithFlags(&rank.compute, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&rank.talk, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&rank.sums, buffers * reduced * sizeof(std::uint32_t)));
    CHECK(cudaMemset(rank.sums, 0, buffers * reduced * sizeof(std::uint32_t)));
    if (rank.mode != "alone")
        rank.all = workload::meet(rank.world);
    for (std::size_t buffer = 0; buffer < buffers; ++buffer)
        rank.memory.push_back(allocate(rank, buffer));
    if (rank.mode == "graph")
        make_graph(rank);
    cudaEvent_t ready = nullptr;
    CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    if (rank.mode == "captured")
        make_captured(rank, ready);
    for (unsigned long done = 0; done < steps; ++done)
        step(rank, ready);
    CHECK(cudaDeviceSynchronize());
    std::printf("%s %zu MiB %016llx\n", rank.mode.c_str(), share >> 20,
                static_cast<unsigned long long>(hash(rank)));
    if (rank.all != nullptr)
        CHECK_NCCL(ncclCommDestroy(rank.all));
    return 0;
}
