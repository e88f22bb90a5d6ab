// SPDX-License-Identifier: GPL-2.0-or-later
// Copies between two devices that need no peer access: at once, in stream captures, and as nodes of graphs
// that run again and again, in both directions at the same time; of contexts of the driver API, too. Works
// with one device, which is then its own neighbour. Argument: launches of each graph.
#include "workload.cuh"

#include <cuda.h>

constexpr int kWidth = 96; // words of a row
constexpr int kRows = 24;
constexpr int kWords = kWidth * kRows;
constexpr std::size_t kBytes = kWords * sizeof(std::uint32_t);
constexpr int kPitch = 128; // words from row to row where rows are apart
constexpr unsigned kThreads = 128;

__global__ void fill(std::uint32_t *to, const std::uint32_t *round) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < kWords)
        to[i] = (i + 1) * 2654435761U + *round * 40503U;
}

__global__ void advance(std::uint32_t *round) { *round += 1; }

__global__ void mix(std::uint32_t *to, const std::uint32_t *from) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < kWords)
        to[i] = from[i] * 3 + 1;
}

std::uint32_t filled(unsigned i, std::uint32_t round) { return (i + 1) * 2654435761U + round * 40503U; }

void check(CUresult result, const char *what, int line) {
    if (result != CUDA_SUCCESS)
        workload::stop(__FILE__, line, what, "CUresult " + std::to_string(result));
}
#define CHECK_DRIVER(call) ::check((call), #call, __LINE__)

// What one device has for the tests.
struct Side {
    int device = 0;
    cudaStream_t stream = nullptr;
    std::uint32_t *first = nullptr, *second = nullptr, *apart = nullptr, *round = nullptr;

    explicit Side(int of) : device(of) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaMalloc(&first, kBytes));
        CHECK(cudaMalloc(&second, kBytes));
        CHECK(cudaMalloc(&apart, kPitch * kRows * sizeof(std::uint32_t)));
        CHECK(cudaMalloc(&round, sizeof(std::uint32_t)));
        set_round(0);
    }
    Side(const Side &) = delete;
    Side &operator=(const Side &) = delete;
    ~Side() {
        for (auto *memory : {first, second, apart, round})
            cudaFree(memory);
        cudaStreamDestroy(stream);
    }
    void set_round(std::uint32_t value) const {
        CHECK(cudaMemcpy(round, &value, sizeof(value), cudaMemcpyHostToDevice));
    }
    void fill_first() const {
        CHECK(cudaSetDevice(device));
        fill<<<workload::blocks_for(kWords, kThreads), kThreads, 0, stream>>>(first, round);
        CHECK_LAUNCH();
        advance<<<1, 1, 0, stream>>>(round);
        CHECK_LAUNCH();
    }
    void clear() const {
        CHECK(cudaSetDevice(device));
        CHECK(cudaMemset(first, 0, kBytes));
        CHECK(cudaMemset(second, 0, kBytes));
        CHECK(cudaMemset(apart, 0, kPitch * kRows * sizeof(std::uint32_t)));
        CHECK(cudaDeviceSynchronize());
    }
};

bool holds(const std::uint32_t *memory, int pitch, std::uint32_t round, std::uint32_t factor = 1,
           std::uint32_t added = 0) {
    std::vector<std::uint32_t> found(static_cast<std::size_t>(pitch) * kRows);
    CHECK(cudaMemcpy(found.data(), memory, found.size() * sizeof(std::uint32_t), cudaMemcpyDefault));
    for (int y = 0; y < kRows; ++y)
        for (int x = 0; x < kWidth; ++x)
            if (found[y * pitch + x] != filled(static_cast<unsigned>(y * kWidth + x), round) * factor + added)
                return false;
    return true;
}

void at_once(Side &here, Side &there, workload::Report &report) {
    here.clear();
    there.clear();
    here.set_round(7);
    here.fill_first();
    CHECK(cudaStreamSynchronize(here.stream));
    CHECK(cudaMemcpyPeer(there.first, there.device, here.first, here.device, kBytes));
    report.expect(holds(there.first, kWidth, 7), "cudaMemcpyPeer");
    CHECK(cudaMemcpyPeerAsync(there.second, there.device, here.first, here.device, kBytes, here.stream));
    CHECK(cudaStreamSynchronize(here.stream));
    report.expect(holds(there.second, kWidth, 7), "cudaMemcpyPeerAsync");
    CHECK(cudaMemset(there.first, 0, kBytes));
    CHECK(cudaMemcpy(there.first, here.first, kBytes, cudaMemcpyDefault));
    report.expect(holds(there.first, kWidth, 7), "cudaMemcpyDefault");
    CHECK(cudaMemcpy2D(there.apart, kPitch * sizeof(std::uint32_t), here.first,
                       kWidth * sizeof(std::uint32_t), kWidth * sizeof(std::uint32_t), kRows,
                       cudaMemcpyDeviceToDevice));
    report.expect(holds(there.apart, kPitch, 7), "cudaMemcpy2D");
    cudaMemcpy3DPeerParms box{};
    box.srcDevice = there.device;
    box.srcPtr = make_cudaPitchedPtr(there.apart, kPitch * sizeof(std::uint32_t), kPitch, kRows);
    box.dstDevice = here.device;
    box.dstPtr = make_cudaPitchedPtr(here.second, kWidth * sizeof(std::uint32_t), kWidth, kRows);
    box.extent = make_cudaExtent(kWidth * sizeof(std::uint32_t), kRows, 1);
    CHECK(cudaMemcpy3DPeer(&box));
    report.expect(holds(here.second, kWidth, 7), "cudaMemcpy3DPeer");
}

cudaGraphExec_t instantiated(cudaGraph_t graph) {
    cudaGraphExec_t executable = nullptr;
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return executable;
}

struct Hosts {
    std::uint32_t *pinned = nullptr;
    std::vector<std::uint32_t> pageable = std::vector<std::uint32_t>(kWords);
};

// On `here`'s stream: filled here, to there and back by other ways, mixed here; and the other's memory from
// and to the host's.
cudaGraphExec_t captured(const Side &here, const Side &there, Hosts &hosts) {
    cudaGraph_t graph = nullptr;
    const auto stream = here.stream;
    CHECK(cudaSetDevice(here.device));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    here.fill_first();
    CHECK(cudaMemcpyPeerAsync(there.first, there.device, here.first, here.device, kBytes, stream));
    CHECK(cudaMemcpy2DAsync(there.apart, kPitch * sizeof(std::uint32_t), there.first,
                            kWidth * sizeof(std::uint32_t), kWidth * sizeof(std::uint32_t), kRows,
                            cudaMemcpyDefault, stream));
    CHECK(cudaMemcpy2DAsync(here.second, kWidth * sizeof(std::uint32_t), there.apart,
                            kPitch * sizeof(std::uint32_t), kWidth * sizeof(std::uint32_t), kRows,
                            cudaMemcpyDefault, stream));
    mix<<<workload::blocks_for(kWords, kThreads), kThreads, 0, stream>>>(here.first, here.second);
    CHECK_LAUNCH();
    CHECK(cudaMemcpyAsync(there.second, here.first, kBytes, cudaMemcpyDefault, stream));
    CHECK(cudaMemcpyAsync(hosts.pinned, there.second, kBytes, cudaMemcpyDefault, stream));
    CHECK(cudaMemcpyAsync(there.first, hosts.pinned, kBytes, cudaMemcpyDefault, stream));
    CHECK(cudaMemcpyAsync(hosts.pageable.data(), there.first, kBytes, cudaMemcpyDefault, stream));
    CHECK(cudaMemcpyAsync(there.second, hosts.pageable.data(), kBytes, cudaMemcpyDefault, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    return instantiated(graph);
}

void captures(Side &here, Side &there, int launches, workload::Report &report) {
    Hosts hosts;
    CHECK(cudaMallocHost(&hosts.pinned, kBytes));
    here.clear();
    there.clear();
    here.set_round(0);
    auto *const graph = captured(here, there, hosts);
    bool right = true;
    for (int launch = 0; launch < launches; ++launch) {
        const auto round = static_cast<std::uint32_t>(launch);
        CHECK(cudaGraphLaunch(graph, here.stream));
        CHECK(cudaStreamSynchronize(here.stream));
        right = right && holds(here.second, kWidth, round) && holds(here.first, kWidth, round, 3, 1) &&
                holds(there.second, kWidth, round, 3, 1) && holds(hosts.pinned, kWidth, round, 3, 1);
        std::fill(hosts.pageable.begin(), hosts.pageable.end(), 0);
    }
    report.expect(right, "captured copies");
    // Launches behind each other, and work of the other device's between them.
    for (int launch = 0; launch < launches; ++launch) {
        CHECK(cudaGraphLaunch(graph, here.stream));
        CHECK(cudaSetDevice(there.device));
        advance<<<1, 1, 0, there.stream>>>(there.round);
        CHECK_LAUNCH();
    }
    CHECK(cudaStreamSynchronize(there.stream));
    CHECK(cudaStreamSynchronize(here.stream));
    report.expect(holds(there.second, kWidth, static_cast<std::uint32_t>(2 * launches - 1), 3, 1),
                  "launches behind each other");
    CHECK(cudaGraphExecDestroy(graph));
    CHECK(cudaFreeHost(hosts.pinned));
}

cudaMemcpy3DParms rows(std::uint32_t *to, int to_pitch, std::uint32_t *from, int from_pitch) {
    cudaMemcpy3DParms copy{};
    copy.dstPtr = make_cudaPitchedPtr(to, to_pitch * sizeof(std::uint32_t), to_pitch, kRows);
    copy.srcPtr = make_cudaPitchedPtr(from, from_pitch * sizeof(std::uint32_t), from_pitch, kRows);
    copy.extent = make_cudaExtent(kWidth * sizeof(std::uint32_t), kRows, 1);
    copy.kind = cudaMemcpyDefault;
    return copy;
}

// Each device's graph sends to the other while the other's does the same.
void nodes(Side &one, Side &other, int launches, workload::Report &report) {
    cudaGraphExec_t graphs[2] = {};
    cudaGraphNode_t copies[2] = {};
    bool typed = true;
    one.clear();
    other.clear();
    for (int which = 0; which < 2; ++which) {
        Side &here = which == 0 ? one : other;
        Side &there = which == 0 ? other : one;
        here.set_round(0);
        CHECK(cudaSetDevice(here.device));
        cudaGraph_t graph = nullptr;
        CHECK(cudaGraphCreate(&graph, 0));
        cudaGraphNode_t filling = nullptr;
        cudaKernelNodeParams kernel{};
        void *arguments[] = {&here.first, &here.round};
        kernel.func = reinterpret_cast<void *>(fill);
        kernel.gridDim = dim3(workload::blocks_for(kWords, kThreads));
        kernel.blockDim = dim3(kThreads);
        kernel.kernelParams = arguments;
        CHECK(cudaGraphAddKernelNode(&filling, graph, nullptr, 0, &kernel));
        cudaGraphNode_t advancing = nullptr;
        kernel.func = reinterpret_cast<void *>(advance);
        kernel.gridDim = kernel.blockDim = dim3(1);
        kernel.kernelParams = arguments + 1;
        CHECK(cudaGraphAddKernelNode(&advancing, graph, &filling, 1, &kernel));
        const auto copy = rows(there.apart, kPitch, here.first, kWidth);
        CHECK(cudaGraphAddMemcpyNode(&copies[which], graph, &filling, 1, &copy));
        cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
        CHECK(cudaGraphNodeGetType(copies[which], &type));
        typed = typed && type == cudaGraphNodeTypeMemcpy;
        CHECK(cudaGraphInstantiate(&graphs[which], graph, 0));
    }
    report.expect(typed, "the nodes are copies");
    bool right = true;
    for (int launch = 0; launch < launches; ++launch) {
        CHECK(cudaGraphLaunch(graphs[0], one.stream));
        CHECK(cudaGraphLaunch(graphs[1], other.stream));
        CHECK(cudaStreamSynchronize(one.stream));
        CHECK(cudaStreamSynchronize(other.stream));
        right = right && holds(one.apart, kPitch, static_cast<std::uint32_t>(launch)) &&
                holds(other.apart, kPitch, static_cast<std::uint32_t>(launch));
    }
    report.expect(right, "nodes of both devices");
    // The same node with other memory.
    const auto changed = rows(other.second, kWidth, one.first, kWidth);
    CHECK(cudaGraphExecMemcpyNodeSetParams(graphs[0], copies[0], &changed));
    CHECK(cudaGraphLaunch(graphs[0], one.stream));
    CHECK(cudaStreamSynchronize(one.stream));
    report.expect(holds(other.second, kWidth, static_cast<std::uint32_t>(launches)),
                  "a node that was changed");
    for (auto *const graph : graphs)
        CHECK(cudaGraphExecDestroy(graph));
}

// Contexts that are no device's primary one; the third is current while two others' memory is copied.
void contexts(int here, int there, workload::Report &report) {
    CUcontext made[3] = {};
    CUdeviceptr memory[2] = {};
    for (int which = 0; which < 3; ++which) {
        CHECK_DRIVER(cuCtxCreate(&made[which], nullptr, 0, which == 1 ? there : here));
        if (which < 2)
            CHECK_DRIVER(cuMemAlloc(&memory[which], kBytes));
        CUcontext popped = nullptr;
        CHECK_DRIVER(cuCtxPopCurrent(&popped));
    }
    CHECK_DRIVER(cuCtxPushCurrent(made[2]));
    CHECK_DRIVER(cuMemsetD32(memory[0], 0x1234abcd, kWords));
    CHECK_DRIVER(cuCtxSynchronize());
    CHECK_DRIVER(cuMemcpyPeer(memory[1], made[1], memory[0], made[0], kBytes));
    std::vector<std::uint32_t> found(kWords);
    CHECK_DRIVER(cuMemcpyDtoH(found.data(), memory[1], kBytes));
    bool right = true;
    for (const auto word : found)
        right = right && word == 0x1234abcd;
    report.expect(right, "contexts of the driver API");
    for (auto *const context : made)
        CHECK_DRIVER(cuCtxDestroy(context));
}

// Memory that has ended with its context, and the graph is told of too late to refuse the launch.
bool fails_behind_reset(Side &here, Side &there) {
    Hosts hosts;
    CHECK(cudaMallocHost(&hosts.pinned, kBytes));
    auto *const graph = captured(here, there, hosts);
    CHECK(cudaGraphLaunch(graph, here.stream));
    CHECK(cudaStreamSynchronize(here.stream));
    CHECK(cudaSetDevice(there.device));
    CHECK(cudaDeviceReset());
    CHECK(cudaSetDevice(here.device));
    auto status = cudaGraphLaunch(graph, here.stream);
    if (status == cudaSuccess)
        status = cudaStreamSynchronize(here.stream);
    return status != cudaSuccess;
}

int main(int argc, char **argv) {
    const int launches = static_cast<int>(workload::size_argument(argc, argv, 25));
    workload::Report report;
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    report.value("devices", devices);
    CHECK_DRIVER(cuInit(0));
    contexts(0, devices - 1, report);
    {
        Side one(0);
        Side other(devices - 1);
        at_once(one, other, report);
        captures(one, other, launches, report);
        captures(other, one, launches, report);
        nodes(one, other, launches, report);
        report.expect(fails_behind_reset(one, other), "a graph fails whose memory has gone");
    }
    return report.finish();
}
