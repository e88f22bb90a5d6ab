// SPDX-License-Identifier: GPL-2.0-or-later
// All devices: each computes a part, parts go around a ring by peer copies until everybody has the sum (a
// ring all-reduce), ordered by events across devices. Works with one device, which is then its own neighbour.
// Argument: words of each device.
#include "workload.cuh"

constexpr unsigned threads = 128;

__global__ void fill(std::uint32_t *values, unsigned count, std::uint32_t device) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = (i + 1) * (device + 3) * 2654435761U;
}

__global__ void add(std::uint32_t *sum, const std::uint32_t *part, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        sum[i] += part[i];
}

__global__ void read_peer(const std::uint32_t *peer, std::uint32_t *own, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        own[i] = ~peer[i];
}

struct Part {
    std::uint32_t *sum, *passing[2];
    cudaStream_t stream;
    cudaEvent_t copied, added;
};

int main(int argc, char **argv) {
    const auto count = static_cast<unsigned>(workload::size_argument(argc, argv, 50000));
    const std::size_t bytes = count * sizeof(std::uint32_t);
    const unsigned blocks = workload::blocks_for(count, threads);
    workload::Report report;
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    report.value("devices", devices);
    report.text("copies", devices == 1 ? "from the device to itself" : "between neighbours");
    std::vector<Part> parts(devices);
    std::vector<std::uint32_t> expected(count, 0);
    for (int device = 0; device < devices; ++device) {
        CHECK(cudaSetDevice(device));
        Part &part = parts[device];
        for (std::uint32_t **memory : {&part.sum, &part.passing[0], &part.passing[1]})
            CHECK(cudaMalloc(memory, bytes));
        CHECK(cudaStreamCreateWithFlags(&part.stream, cudaStreamNonBlocking));
        for (cudaEvent_t *event : {&part.copied, &part.added})
            CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
        fill<<<blocks, threads, 0, part.stream>>>(part.sum, count, static_cast<std::uint32_t>(device));
        CHECK_LAUNCH();
        CHECK(cudaMemcpyAsync(part.passing[0], part.sum, bytes, cudaMemcpyDeviceToDevice, part.stream));
        CHECK(cudaEventRecord(part.added, part.stream));
        for (unsigned i = 0; i < count; ++i)
            expected[i] += (i + 1) * (static_cast<std::uint32_t>(device) + 3) * 2654435761U;
    }
    for (int step = 0; step + 1 < devices; ++step) {
        const int from = step % 2;
        for (int device = 0; device < devices; ++device) {
            const int next = (device + 1) % devices;
            CHECK(cudaSetDevice(device));
            // The neighbour has used what lies in the place that is written now.
            CHECK(cudaStreamWaitEvent(parts[device].stream, parts[next].added, 0));
            CHECK(cudaMemcpyPeerAsync(parts[next].passing[1 - from], next, parts[device].passing[from],
                                      device, bytes, parts[device].stream));
            CHECK(cudaEventRecord(parts[device].copied, parts[device].stream));
        }
        for (int device = 0; device < devices; ++device) {
            const int before = (device + devices - 1) % devices;
            CHECK(cudaSetDevice(device));
            CHECK(cudaStreamWaitEvent(parts[device].stream, parts[before].copied, 0));
            add<<<blocks, threads, 0, parts[device].stream>>>(parts[device].sum,
                                                              parts[device].passing[1 - from], count);
            CHECK_LAUNCH();
            CHECK(cudaEventRecord(parts[device].added, parts[device].stream));
        }
    }
    for (int device = 0; device < devices; ++device) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamSynchronize(parts[device].stream));
        std::vector<std::uint32_t> found(count);
        CHECK(cudaMemcpy(found.data(), parts[device].sum, bytes, cudaMemcpyDeviceToHost));
        report.equal("sum", found, expected);
    }

    // A kernel that reads the neighbour's memory, where devices can.
    const int peer = devices - 1;
    int can = 0;
    CHECK(cudaSetDevice(0));
    if (peer != 0) {
        CHECK(cudaDeviceCanAccessPeer(&can, 0, peer));
        if (can != 0)
            CHECK(cudaDeviceEnablePeerAccess(peer, 0));
    }
    // Not on stdout: whether devices reach each other's memory may differ between two ways to the same
    // devices.
    std::fprintf(stderr, "a kernel reads %s\n",
                 peer == 0  ? "its own device"
                 : can != 0 ? "its peer"
                            : "a copy, for want of access");
    const std::uint32_t *source = parts[peer].sum;
    if (peer != 0 && can == 0) {
        CHECK(cudaMemcpyPeer(parts[0].passing[1], 0, parts[peer].sum, peer, bytes));
        source = parts[0].passing[1];
    }
    read_peer<<<blocks, threads>>>(source, parts[0].passing[0], count);
    CHECK_LAUNCH();
    std::vector<std::uint32_t> found(count);
    // The direction from the addresses.
    CHECK(cudaMemcpy(found.data(), parts[0].passing[0], bytes, cudaMemcpyDefault));
    for (std::uint32_t &word : expected)
        word = ~word;
    report.equal("read", found, expected);
    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, parts[peer].sum));
    report.expect(attributes.type == cudaMemoryTypeDevice && attributes.device == peer, "whose memory it is");
    for (int device = 0; device < devices; ++device) {
        CHECK(cudaSetDevice(device));
        for (std::uint32_t *memory : {parts[device].sum, parts[device].passing[0], parts[device].passing[1]})
            CHECK(cudaFree(memory));
        CHECK(cudaEventDestroy(parts[device].copied));
        CHECK(cudaEventDestroy(parts[device].added));
        CHECK(cudaStreamDestroy(parts[device].stream));
    }
    return report.finish();
}
