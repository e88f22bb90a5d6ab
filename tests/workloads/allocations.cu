// SPDX-License-Identifier: GPL-2.0-or-later
// Allocates and frees at random, from bytes to megabytes: what is allocated at once never overlaps, keeps its
// content, is aligned, and comes back to the device when it is freed. Argument: steps.
#include "workload.cuh"

#include <algorithm>

struct Allocation {
    unsigned char *data;
    std::size_t size;
    std::uint32_t mark;
};

// Marks both ends, and some words between.
__global__ void mark(unsigned char *data, std::size_t size, std::uint32_t value) {
    const std::size_t words = size / sizeof(std::uint32_t);
    auto *at = reinterpret_cast<std::uint32_t *>(data);
    for (std::size_t i = threadIdx.x; i < 32 && i < words; i += blockDim.x) {
        at[i] = value;
        at[words - 1 - i] = value;
        at[words / 33 * i] = value;
    }
    for (std::size_t i = words * sizeof(std::uint32_t) + threadIdx.x; i < size; i += blockDim.x)
        data[i] = static_cast<unsigned char>(value);
}

__global__ void verify(const unsigned char *data, std::size_t size, std::uint32_t value, unsigned *wrong) {
    const std::size_t words = size / sizeof(std::uint32_t);
    const auto *at = reinterpret_cast<const std::uint32_t *>(data);
    unsigned bad = 0;
    for (std::size_t i = threadIdx.x; i < 32 && i < words; i += blockDim.x)
        bad += (at[i] != value) + (at[words - 1 - i] != value) + (at[words / 33 * i] != value);
    for (std::size_t i = words * sizeof(std::uint32_t) + threadIdx.x; i < size; i += blockDim.x)
        bad += data[i] != static_cast<unsigned char>(value);
    if (bad != 0)
        atomicAdd(wrong, bad);
}

std::size_t free_memory() {
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

int main(int argc, char **argv) {
    const std::size_t steps = workload::size_argument(argc, argv, 1500, 1U << 24);
    constexpr std::size_t at_once = 100;
    workload::Report report;
    workload::Random random(191);
    workload::Buffer<unsigned> wrong(1);
    wrong.clear();
    const std::size_t before = free_memory();
    std::vector<Allocation> live;
    std::size_t bytes = 0;
    bool aligned = true;
    bool apart = true;
    const auto release = [&](std::size_t index) {
        const Allocation gone = live[index];
        live[index] = live.back();
        live.pop_back();
        verify<<<1, 32>>>(gone.data, gone.size, gone.mark, wrong.data());
        CHECK_LAUNCH();
        CHECK(cudaFree(gone.data));
    };
    for (std::size_t step = 0; step < steps; ++step) {
        if (live.size() == at_once || (!live.empty() && random.below(3) == 0)) {
            release(random.below(static_cast<unsigned>(live.size())));
            continue;
        }
        // Sizes over many orders of magnitude.
        const std::size_t size = 1 + random.next() % (std::size_t{4} << random.below(21));
        Allocation made{nullptr, size, static_cast<std::uint32_t>(random.next())};
        CHECK(cudaMalloc(&made.data, size));
        bytes += size;
        aligned = aligned && reinterpret_cast<std::uintptr_t>(made.data) % 256 == 0;
        for (const Allocation &other : live)
            apart = apart && (made.data + made.size <= other.data || other.data + other.size <= made.data);
        mark<<<1, 32>>>(made.data, made.size, made.mark);
        CHECK_LAUNCH();
        live.push_back(made);
    }
    report.value("bytes", bytes);
    report.value("left", live.size());
    report.expect(aligned, "multiples of 256");
    report.expect(apart, "no overlap");
    const std::size_t during = free_memory();
    report.expect(during < before, "less memory is free while some is allocated");
    while (!live.empty())
        release(live.size() - 1);
    report.expect(wrong.read()[0] == 0, "content");
    // A driver may keep some megabytes of what was freed.
    report.expect(free_memory() + (std::size_t{64} << 20) >= before, "freed memory is free");
    void *nothing = &nothing;
    CHECK(cudaMalloc(&nothing, 0));
    report.expect(nothing == nullptr, "nothing for zero bytes");
    CHECK(cudaFree(nullptr));
    return report.finish();
}
