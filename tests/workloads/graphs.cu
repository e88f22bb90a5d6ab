// SPDX-License-Identifier: GPL-2.0-or-later
// CUDA graphs: captured from streams that fork and join, built node by node, changed in the executable,
// updated as a whole, with child graphs, clones, memset, memcpy and host nodes, captured into one that is
// there. Argument: launches.
#include "workload.cuh"

#include <array>

constexpr unsigned words = 4096;
constexpr unsigned threads = 128;

__global__ void multiply_add(std::uint32_t *values, std::uint32_t factor, std::uint32_t addend) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    values[i] = values[i] * factor + addend;
}

__global__ void add(std::uint32_t *sum, const std::uint32_t *a, const std::uint32_t *b) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    sum[i] = a[i] + b[i];
}

void count_up(void *counter) { ++*static_cast<int *>(counter); }

std::size_t nodes_of(cudaGraph_t graph) {
    std::size_t count = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &count));
    return count;
}

// up -> two branches, each changed on its own stream -> sum -> down
void captured(workload::Report &report, int launches) {
    cudaStream_t main_stream = nullptr;
    cudaStream_t side_stream = nullptr;
    cudaEvent_t fork = nullptr;
    cudaEvent_t join = nullptr;
    CHECK(cudaStreamCreate(&main_stream));
    CHECK(cudaStreamCreateWithFlags(&side_stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    std::uint32_t *host = nullptr;
    CHECK(cudaMallocHost(&host, words * sizeof(std::uint32_t)));
    workload::Buffer<std::uint32_t> a(words);
    workload::Buffer<std::uint32_t> b(words);
    workload::Buffer<std::uint32_t> sum(words);
    int counted = 0;

    CHECK(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeThreadLocal));
    CHECK(
        cudaMemcpyAsync(a.data(), host, words * sizeof(std::uint32_t), cudaMemcpyHostToDevice, main_stream));
    CHECK(cudaEventRecord(fork, main_stream));
    CHECK(cudaStreamWaitEvent(side_stream, fork, 0));
    CHECK(cudaMemcpyAsync(b.data(), a.data(), words * sizeof(std::uint32_t), cudaMemcpyDeviceToDevice,
                          side_stream));
    CHECK(cudaEventRecord(join, side_stream));
    CHECK(cudaStreamWaitEvent(main_stream, join, 0)); // `b` is copied before `a` changes
    CHECK(cudaEventRecord(fork, main_stream));
    CHECK(cudaStreamWaitEvent(side_stream, fork, 0));
    multiply_add<<<words / threads, threads, 0, side_stream>>>(b.data(), 3, 1);
    multiply_add<<<words / threads, threads, 0, main_stream>>>(a.data(), 5, 2);
    CHECK(cudaEventRecord(join, side_stream));
    CHECK(cudaStreamWaitEvent(main_stream, join, 0));
    add<<<words / threads, threads, 0, main_stream>>>(sum.data(), a.data(), b.data());
    CHECK(cudaMemcpyAsync(host, sum.data(), words * sizeof(std::uint32_t), cudaMemcpyDeviceToHost,
                          main_stream));
    CHECK(cudaLaunchHostFunc(main_stream, count_up, &counted));
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CHECK(cudaStreamIsCapturing(main_stream, &status));
    report.expect(status == cudaStreamCaptureStatusActive, "the stream is capturing");
    // The capture does not need them any more.
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
    CHECK(cudaStreamDestroy(side_stream));
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(main_stream, &graph));
    report.value("captured nodes", nodes_of(graph));
    report.expect(nodes_of(graph) == 7 && counted == 0, "the capture only records");

    cudaGraphExec_t executable = nullptr;
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    std::vector<std::uint32_t> expected(words);
    for (unsigned i = 0; i < words; ++i)
        expected[i] = host[i] = i;
    for (int launch = 0; launch < launches; ++launch) {
        CHECK(cudaGraphLaunch(executable, main_stream)); // each takes what the one before has left in `host`
        for (std::uint32_t &value : expected)
            value = (value * 5 + 2) + (value * 3 + 1);
    }
    CHECK(cudaStreamSynchronize(main_stream));
    report.equal("captured", std::vector<std::uint32_t>(host, host + words), expected);
    report.expect(counted == launches, "the host node ran in each launch");
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaFreeHost(host));
    CHECK(cudaStreamDestroy(main_stream));
}

struct Step {
    std::uint32_t *values;
    std::uint32_t factor, addend;
    std::array<void *, 3> pointers{};

    cudaKernelNodeParams parameters() {
        pointers = {&values, &factor, &addend};
        cudaKernelNodeParams made{};
        made.func = reinterpret_cast<void *>(multiply_add);
        made.gridDim = dim3(words / threads);
        made.blockDim = dim3(threads);
        made.kernelParams = pointers.data();
        return made;
    }
};

// memset -> step -> step -> download, with the host node beside the download
void built(workload::Report &report) {
    workload::Buffer<std::uint32_t> values(words);
    std::vector<std::uint32_t> host(words);
    int counted = 0;
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreate(&stream));

    const auto build = [&](std::uint32_t start, std::uint32_t factor, cudaGraphNode_t *second_step) {
        cudaGraph_t graph = nullptr;
        CHECK(cudaGraphCreate(&graph, 0));
        cudaMemsetParams memset{};
        memset.dst = values.data();
        memset.value = start;
        memset.elementSize = sizeof(std::uint32_t);
        memset.width = words;
        memset.height = 1;
        cudaGraphNode_t cleared = nullptr;
        CHECK(cudaGraphAddMemsetNode(&cleared, graph, nullptr, 0, &memset));
        Step first{values.data(), factor, 7};
        const cudaKernelNodeParams first_parameters = first.parameters();
        cudaGraphNode_t one = nullptr;
        CHECK(cudaGraphAddKernelNode(&one, graph, &cleared, 1, &first_parameters));
        Step second{values.data(), 11, 13};
        const cudaKernelNodeParams second_parameters = second.parameters();
        CHECK(cudaGraphAddKernelNode(second_step, graph, &one, 1, &second_parameters));
        cudaGraphNode_t down = nullptr;
        CHECK(cudaGraphAddMemcpyNode1D(&down, graph, second_step, 1, host.data(), values.data(),
                                       words * sizeof(std::uint32_t), cudaMemcpyDeviceToHost));
        const cudaHostNodeParams host_parameters{count_up, &counted};
        cudaGraphNode_t count = nullptr;
        CHECK(cudaGraphAddHostNode(&count, graph, second_step, 1, &host_parameters));
        return graph;
    };
    cudaGraphNode_t second_step = nullptr;
    cudaGraph_t graph = build(2, 3, &second_step);
    report.value("built nodes", nodes_of(graph));
    cudaGraphExec_t executable = nullptr;
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    const auto launch = [&](const char *name, std::uint32_t expected) {
        CHECK(cudaGraphLaunch(executable, stream));
        CHECK(cudaStreamSynchronize(stream));
        report.equal(name, host, std::vector<std::uint32_t>(words, expected));
    };
    launch("built", (2 * 3 + 7) * 11 + 13);

    Step changed{values.data(), 17, 19};
    const cudaKernelNodeParams parameters = changed.parameters();
    CHECK(cudaGraphExecKernelNodeSetParams(executable, second_step, &parameters));
    launch("node changed", (2 * 3 + 7) * 17 + 19);

    cudaGraphNode_t unused = nullptr;
    cudaGraph_t other = build(5, 23, &unused);
    cudaGraphExecUpdateResultInfo result{};
    CHECK(cudaGraphExecUpdate(executable, other, &result));
    report.expect(result.result == cudaGraphExecUpdateSuccess, "update");
    launch("updated", (5 * 23 + 7) * 11 + 13);
    CHECK(cudaGraphDestroy(other));

    // Another shape cannot replace it, and the executable stays what it was.
    CHECK(cudaGraphCreate(&other, 0));
    cudaGraphNode_t lone = nullptr;
    CHECK(cudaGraphAddEmptyNode(&lone, other, nullptr, 0));
    report.expect(cudaGraphExecUpdate(executable, other, &result) == cudaErrorGraphExecUpdateFailure,
                  "another shape is refused");
    cudaGetLastError();
    launch("after the refused update", (5 * 23 + 7) * 11 + 13);
    CHECK(cudaGraphDestroy(other));
    report.expect(counted == 4, "the host node ran in each launch");

    // The graph as a child, twice, and a clone of the whole.
    CHECK(cudaGraphCreate(&other, 0));
    cudaGraphNode_t children[2];
    CHECK(cudaGraphAddChildGraphNode(&children[0], other, nullptr, 0, graph));
    CHECK(cudaGraphAddChildGraphNode(&children[1], other, &children[0], 1, graph));
    cudaGraph_t clone = nullptr;
    CHECK(cudaGraphClone(&clone, other));
    CHECK(cudaGraphDestroy(other));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphInstantiate(&executable, clone, 0));
    launch("child graphs", (2 * 3 + 7) * 11 + 13);
    report.expect(counted == 6, "host nodes of both children");
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(clone));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}

#if CUDART_VERSION >= 13000
// A graph is known by one name: the one that a capture was given, or that was told while it grew.
void named(workload::Report &report, int launches) {
    workload::Buffer<std::uint32_t> values(words);
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreate(&stream));
    const auto step = [&](std::uint32_t factor, std::uint32_t addend) {
        multiply_add<<<words / threads, threads, 0, stream>>>(values.data(), factor, addend);
        CHECK_LAUNCH();
    };
    const auto growing = [&] {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph));
        report.expect(status == cudaStreamCaptureStatusActive, "there is a capture");
        return graph;
    };
    const auto run = [&](const char *name, cudaGraph_t graph, std::uint32_t factor, std::uint32_t addend) {
        cudaGraphExec_t executable = nullptr;
        CHECK(cudaGraphInstantiate(&executable, graph, 0));
        std::uint32_t expected = 1;
        CHECK(cudaMemset(values.data(), 0, words * sizeof(std::uint32_t)));
        step(0, expected);
        for (int launch = 0; launch < launches; ++launch) {
            CHECK(cudaGraphLaunch(executable, stream));
            expected = expected * factor + addend;
        }
        CHECK(cudaStreamSynchronize(stream));
        report.equal(name, values.read(), std::vector<std::uint32_t>(words, expected));
        CHECK(cudaGraphExecDestroy(executable));
    };

    cudaGraph_t graph = nullptr;
    CHECK(cudaGraphCreate(&graph, 0));
    Step before{values.data(), 3, 5};
    const cudaKernelNodeParams parameters = before.parameters();
    cudaGraphNode_t node = nullptr;
    CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &parameters));
    cudaGraph_t ended = nullptr;
    for (std::uint32_t round = 0; round < 2; ++round) {
        CHECK(cudaStreamBeginCaptureToGraph(stream, graph, &node, nullptr, 1,
                                            cudaStreamCaptureModeThreadLocal));
        step(7, 11 + round);
        report.expect(growing() == graph, "the graph of a capture is the one that it was given");
        CHECK(cudaStreamEndCapture(stream, &ended));
        report.expect(ended == graph, "and it comes out");
        report.expect(nodes_of(graph) == 2 + round, "with what was captured");
        std::size_t roots = 0;
        CHECK(cudaGraphGetRootNodes(graph, nullptr, &roots));
        report.expect(roots == 1, "behind what was there");
        if (round == 0)
            run("captured into a graph", graph, 21, 5 * 7 + 11);
        CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaGraphDestroy(graph));

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    step(13, 17);
    graph = growing();
    CHECK(cudaStreamEndCapture(stream, &ended));
    report.expect(ended == graph, "a new graph has the name that it was told by");
    run("a graph that was asked for", graph, 13, 17);
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}
#else
void named(workload::Report & /*report*/, int /*launches*/) {}
#endif

// Copies from and to memory that is not pinned, as they are when the graph runs: rows by a node, all of it in
// a capture, in front of what goes to the device.
void of_the_program(workload::Report &report, int launches) {
    constexpr std::size_t row = 16;
    constexpr std::size_t rows = words / row / 2;
    std::vector<std::uint32_t> first(words);
    std::vector<std::uint32_t> second(words);
    std::vector<std::uint32_t> third(words);
    std::vector<std::uint32_t> found(words);
    workload::Buffer<std::uint32_t> values(words);
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreate(&stream));
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemcpyAsync(second.data(), first.data(), words * sizeof(std::uint32_t), cudaMemcpyHostToHost,
                          stream));
    CHECK(cudaMemcpyAsync(values.data(), second.data(), words * sizeof(std::uint32_t), cudaMemcpyHostToDevice,
                          stream));
    multiply_add<<<words / threads, threads, 0, stream>>>(values.data(), 2, 1);
    CHECK_LAUNCH();
    // The second half comes first.
    constexpr std::size_t half = words / 2 * sizeof(std::uint32_t);
    CHECK(cudaMemcpy2DAsync(found.data() + words / 2, half, values.data(), half, half, 1,
                            cudaMemcpyDeviceToHost, stream));
    CHECK(cudaMemcpy2DAsync(found.data(), half, values.data() + words / 2, half, half, 1,
                            cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t captured = nullptr;
    CHECK(cudaGraphInstantiate(&captured, graph, 0));
    CHECK(cudaGraphDestroy(graph));

    // Every second row of the first becomes the begin of the third.
    cudaMemcpy3DParms parameters{};
    parameters.srcPtr =
        make_cudaPitchedPtr(first.data(), 2 * row * sizeof(std::uint32_t), row * sizeof(std::uint32_t), rows);
    parameters.dstPtr =
        make_cudaPitchedPtr(third.data(), row * sizeof(std::uint32_t), row * sizeof(std::uint32_t), rows);
    parameters.extent = make_cudaExtent(row * sizeof(std::uint32_t), rows, 1);
    parameters.kind = cudaMemcpyHostToHost;
    cudaGraphNode_t node = nullptr;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, &parameters));
    cudaGraphNodeType type = cudaGraphNodeTypeCount;
    CHECK(cudaGraphNodeGetType(node, &type));
    report.expect(type == cudaGraphNodeTypeMemcpy, "it is a copy");
    cudaGraphExec_t built = nullptr;
    CHECK(cudaGraphInstantiate(&built, graph, 0));
    bool right = true;
    for (int launch = 0; launch < launches; ++launch) {
        for (unsigned i = 0; i < words; ++i)
            first[i] = i * 3 + static_cast<unsigned>(launch);
        CHECK(cudaGraphLaunch(captured, stream));
        CHECK(cudaGraphLaunch(built, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (unsigned i = 0; i < words; ++i) {
            right = right && second[i] == first[i] && found[(i + words / 2) % words] == first[i] * 2 + 1;
            right = right && third[i] == (i < rows * row ? first[i / row * 2 * row + i % row] : 0);
        }
    }
    report.expect(right, "from and to memory that is not pinned");
    // The same in the executable: now the odd rows.
    parameters.srcPtr.ptr = first.data() + row;
    CHECK(cudaGraphExecMemcpyNodeSetParams(built, node, &parameters));
    CHECK(cudaGraphLaunch(built, stream));
    CHECK(cudaStreamSynchronize(stream));
    report.expect(third[0] == first[row] && third[row] == first[3 * row], "changed in the executable");
    for (auto *const one : {captured, built})
        CHECK(cudaGraphExecDestroy(one));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv) {
    const int launches = static_cast<int>(workload::size_argument(argc, argv, 10, 1000000));
    workload::Report report;
    captured(report, launches);
    built(report);
    named(report, launches);
    of_the_program(report, launches);
    return report.finish();
}
