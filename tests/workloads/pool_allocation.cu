// SPDX-License-Identifier: GPL-2.0-or-later
// Stream-ordered allocation: a merge sort that takes and gives back its buffers on the stream, an own pool
// with limits, use from another stream after an event. Argument: elements.
#include "workload.cuh"

#include <algorithm>

// Merges pairs of sorted runs; each element finds its place by binary search in the other run.
__global__ void merge(const int *from, int *to, int run, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= count)
        return;
    const int start = i / (2 * run) * (2 * run);
    const bool right = i - start >= run;
    const int other = right ? start : start + run;
    int low = min(other, count);
    int high = min(other + run, count);
    const int first = low;
    while (low < high) {
        const int middle = (low + high) / 2;
        // Of equal elements those of the left run come first.
        if (right ? from[middle] <= from[i] : from[middle] < from[i])
            low = middle + 1;
        else
            high = middle;
    }
    const int within = right ? i - start - run : i - start;
    to[start + within + (low - first)] = from[i];
}

__global__ void fill(int *values, int value, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count)
        values[i] = value;
}

int *sorted(const int *values, int count, cudaStream_t stream) {
    int *from = nullptr;
    CHECK(cudaMallocAsync(&from, count * sizeof(int), stream));
    CHECK(cudaMemcpyAsync(from, values, count * sizeof(int), cudaMemcpyHostToDevice, stream));
    for (int run = 1; run < count; run *= 2) {
        int *to = nullptr;
        CHECK(cudaMallocAsync(&to, count * sizeof(int), stream));
        merge<<<workload::blocks_for(count, 128), 128, 0, stream>>>(from, to, run, count);
        CHECK_LAUNCH();
        CHECK(cudaFreeAsync(from, stream));
        from = to;
    }
    return from;
}

int main(int argc, char **argv) {
    const int count = static_cast<int>(workload::size_argument(argc, argv, 10007));
    workload::Report report;
    int supported = 0;
    CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
    report.expect(supported == 1, "memory pools are supported");
    workload::Random random(137);
    std::vector<int> values(count);
    for (int &value : values)
        value = static_cast<int>(random.next());
    cudaStream_t streams[2];
    for (cudaStream_t &stream : streams)
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

    int *result = sorted(values.data(), count, streams[0]);
    std::vector<int> found(count);
    CHECK(cudaMemcpyAsync(found.data(), result, count * sizeof(int), cudaMemcpyDeviceToHost, streams[0]));
    CHECK(cudaFreeAsync(result, streams[0]));
    CHECK(cudaStreamSynchronize(streams[0]));
    std::sort(values.begin(), values.end());
    report.equal("sorted", found, values);

    // A pool of its own that keeps what is given back.
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, 0};
    cudaMemPool_t pool = nullptr;
    CHECK(cudaMemPoolCreate(&pool, &properties));
    std::uint64_t keep = UINT64_MAX;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    keep = 0;
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    report.expect(keep == UINT64_MAX, "release threshold");
    constexpr int words = 1 << 18;
    int *made = nullptr;
    CHECK(cudaMallocFromPoolAsync(&made, words * sizeof(int), pool, streams[0]));
    fill<<<workload::blocks_for(words, 256), 256, 0, streams[0]>>>(made, 0x5a5a, words);
    CHECK_LAUNCH();
    // The other stream uses it after an event and frees it there.
    cudaEvent_t written = nullptr;
    CHECK(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
    CHECK(cudaEventRecord(written, streams[0]));
    CHECK(cudaStreamWaitEvent(streams[1], written, 0));
    std::vector<int> copied(words);
    CHECK(cudaMemcpyAsync(copied.data(), made, words * sizeof(int), cudaMemcpyDeviceToHost, streams[1]));
    CHECK(cudaFreeAsync(made, streams[1]));
    CHECK(cudaStreamSynchronize(streams[1]));
    report.equal("from the pool", copied, std::vector<int>(words, 0x5a5a));
    std::uint64_t used = 1;
    std::uint64_t reserved = 0;
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    report.value("used bytes", used);
    report.expect(used == 0 && reserved >= words * sizeof(int), "the pool keeps what is given back");
    CHECK(cudaMemPoolTrimTo(pool, 0));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    report.expect(reserved == 0, "the pool is trimmed");

    // Many small ones, in use at once: none may overlap.
    constexpr int small = 64;
    std::vector<int *> parts(small);
    for (int i = 0; i < small; ++i) {
        CHECK(cudaMallocFromPoolAsync(&parts[i], (i + 1) * sizeof(int), pool, streams[i % 2]));
        fill<<<1, 64, 0, streams[i % 2]>>>(parts[i], i, i + 1);
        CHECK_LAUNCH();
    }
    bool intact = true;
    for (int i = 0; i < small; ++i) {
        std::vector<int> part(i + 1);
        CHECK(cudaMemcpyAsync(part.data(), parts[i], part.size() * sizeof(int), cudaMemcpyDeviceToHost,
                              streams[i % 2]));
        CHECK(cudaStreamSynchronize(streams[i % 2]));
        intact = intact && std::count(part.begin(), part.end(), i) == i + 1;
        CHECK(cudaFreeAsync(parts[i], streams[i % 2]));
    }
    report.expect(intact, "small allocations do not overlap");

    CHECK(cudaDeviceSynchronize());
    CHECK(cudaEventDestroy(written));
    CHECK(cudaMemPoolDestroy(pool));
    for (cudaStream_t stream : streams)
        CHECK(cudaStreamDestroy(stream));
    return report.finish();
}
