// SPDX-License-Identifier: GPL-2.0-or-later
// Memory that graphs allocate and the program frees: a histogram in memory of a captured graph, used and
// freed outside of it, by the program or by another graph, or by the next launch. Argument: launches of each
// kind.
#include "workload.cuh"

constexpr int kBins = 256;
constexpr int kValues = 5003;

__global__ void count(const unsigned char *values, int *bins, int added) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < kValues)
        atomicAdd(&bins[values[i]], added);
}

__global__ void add(int *bins, int value) { bins[threadIdx.x] += value; }

struct Histogram {
    cudaStream_t stream = nullptr;
    const unsigned char *values = nullptr;
    std::vector<int> expected; // of one launch

    // What a launch makes, and `more` that the program adds to each.
    [[nodiscard]] bool right(const int *bins, int more) const {
        std::vector<int> found(kBins);
        CHECK(cudaMemcpyAsync(found.data(), bins, kBins * sizeof(int), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (int bin = 0; bin < kBins; ++bin)
            if (found[bin] != expected[bin] + more)
                return false;
        return true;
    }
};

bool is_invalid(cudaError_t status) {
    static_cast<void>(cudaGetLastError());
    return status == cudaErrorInvalidValue;
}

int main(int argc, char **argv) {
    const int launches = static_cast<int>(workload::size_argument(argc, argv, 40));
    workload::Report report;
    workload::Random random(41);
    std::vector<unsigned char> values(kValues);
    Histogram all;
    all.expected.assign(kBins, 0);
    for (auto &value : values) {
        value = static_cast<unsigned char>(random.below(kBins));
        all.expected[value] += 3;
    }
    workload::Buffer<unsigned char> on_device(kValues);
    CHECK(cudaMemcpy(on_device.data(), values.data(), kValues, cudaMemcpyHostToDevice));
    all.values = on_device.data();
    CHECK(cudaStreamCreateWithFlags(&all.stream, cudaStreamNonBlocking));
    const auto stream = all.stream;

    // Captured: the memory outlives the graph.
    int *bins = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t launched = nullptr;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMallocAsync(&bins, kBins * sizeof(int), stream));
    CHECK(cudaMemsetAsync(bins, 0, kBins * sizeof(int), stream));
    count<<<workload::blocks_for(kValues, 128), 128, 0, stream>>>(all.values, bins, 3);
    CHECK_LAUNCH();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&launched, graph, 0));
    report.expect(is_invalid(cudaFreeAsync(bins, stream)), "it is not allocated before the first launch");
    bool right = true;
    bool refused = true;
    for (int launch = 0; launch < launches; ++launch) {
        CHECK(cudaGraphLaunch(launched, stream));
        refused = refused && is_invalid(cudaGraphLaunch(launched, stream));
        add<<<1, kBins, 0, stream>>>(bins, launch);
        CHECK_LAUNCH();
        right = right && all.right(bins, launch);
        if (launch % 2 == 0)
            CHECK(cudaFreeAsync(bins, stream));
        else
            CHECK(cudaFree(bins));
        refused = refused && is_invalid(cudaFreeAsync(bins, stream));
        // What others allocate meanwhile is not the graph's.
        int *other = nullptr;
        CHECK(cudaMallocAsync(&other, kBins * sizeof(int), stream));
        CHECK(cudaMemsetAsync(other, 0x5a, kBins * sizeof(int), stream));
        CHECK(cudaGraphLaunch(launched, stream));
        int word = 0;
        CHECK(cudaMemcpyAsync(&word, other + kBins - 1, sizeof(int), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        right = right && word == 0x5a5a5a5a;
        CHECK(cudaFreeAsync(other, stream));
        CHECK(cudaFreeAsync(bins, stream));
    }
    report.expect(right, "captured, freed by the program");
    report.expect(refused, "neither two launches nor two frees in a row");

    // By hand: allocated by one graph, freed by another.
    cudaMemAllocNodeParams parameters{};
    parameters.poolProps.allocType = cudaMemAllocationTypePinned;
    parameters.poolProps.location = {cudaMemLocationTypeDevice, 0};
    parameters.bytesize = kBins * sizeof(int);
    cudaGraph_t making = nullptr;
    cudaGraph_t freeing = nullptr;
    cudaGraphNode_t allocation = nullptr;
    cudaGraphNode_t node = nullptr;
    CHECK(cudaGraphCreate(&making, 0));
    CHECK(cudaGraphAddMemAllocNode(&allocation, making, nullptr, 0, &parameters));
    int *made = static_cast<int *>(parameters.dptr);
    cudaMemsetParams clear{};
    clear.dst = made;
    clear.elementSize = 4;
    clear.width = kBins;
    clear.height = 1;
    CHECK(cudaGraphAddMemsetNode(&node, making, &allocation, 1, &clear));
    CHECK(cudaGraphCreate(&freeing, 0));
    CHECK(cudaGraphAddMemFreeNode(&node, freeing, nullptr, 0, made));
    cudaGraphExec_t makes = nullptr;
    cudaGraphExec_t frees = nullptr;
    CHECK(cudaGraphInstantiate(&makes, making, 0));
    CHECK(cudaGraphInstantiate(&frees, freeing, 0));
    right = true;
    refused = true;
    for (int launch = 0; launch < launches; ++launch) {
        CHECK(cudaGraphLaunch(makes, stream));
        refused = refused && is_invalid(cudaGraphLaunch(makes, stream));
        count<<<workload::blocks_for(kValues, 128), 128, 0, stream>>>(all.values, made, 3);
        CHECK_LAUNCH();
        add<<<1, kBins, 0, stream>>>(made, 2 * launch);
        CHECK_LAUNCH();
        right = right && all.right(made, 2 * launch);
        CHECK(cudaGraphLaunch(frees, stream));
        refused = refused && is_invalid(cudaFree(made));
    }
    report.expect(right, "freed by another graph");
    report.expect(refused, "which has freed it");

    // Freed by each launch.
    cudaGraphExec_t automatic = nullptr;
    CHECK(cudaGraphExecDestroy(launched));
    CHECK(cudaGraphInstantiate(&automatic, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    right = true;
    for (int launch = 0; launch < launches; ++launch) {
        CHECK(cudaGraphLaunch(automatic, stream));
        right = right && all.right(bins, 0);
    }
    CHECK(cudaFreeAsync(bins, stream));
    report.expect(right, "freed by the next launch");
    report.value("checksum", workload::checksum(all.expected.data(), kBins * sizeof(int)));

    CHECK(cudaStreamSynchronize(stream));
    for (auto *const one : {makes, frees, automatic})
        CHECK(cudaGraphExecDestroy(one));
    for (auto *const one : {graph, making, freeing})
        CHECK(cudaGraphDestroy(one));
    CHECK(cudaStreamDestroy(stream));
    return report.finish();
}
