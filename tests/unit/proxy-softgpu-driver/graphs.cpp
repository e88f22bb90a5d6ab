// SPDX-License-Identifier: GPL-2.0-or-later
// Graphs: capture across streams, its errors, manual construction, updates, memory nodes.
#include "driver.hpp"

#include <array>

using namespace singularity::test;

namespace {

struct Streams {
    Streams() {
        ok(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
        ok(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
        ok(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
        ok(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    }
    CUstream first = nullptr;
    CUstream second = nullptr;
    CUevent fork = nullptr;
    CUevent join = nullptr;
};

void capture_across_streams(void ** /*state*/) {
    const Scope scope;
    const Code code;
    const Streams s;
    const CUdeviceptr memory = zeros(64);
    ok(cuStreamBeginCapture_v2(s.first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(cuMemsetD32Async(memory, 1, 16, s.first));
    ok(cuEventRecord(s.fork, s.first));
    ok(cuStreamWaitEvent(s.second, s.fork, 0));
    ok(code.launch_add(memory, 10, 8, s.second));
    ok(cuEventRecord(s.join, s.second));
    ok(code.launch_add(memory + 32, 100, 8, s.first));
    ok(cuStreamWaitEvent(s.first, s.join, 0));
    ok(code.launch_add(memory, 1000, 16, s.first));
    CUgraph graph = nullptr;
    ok(cuStreamEndCapture(s.first, &graph));
    std::size_t count = 0;
    ok(cuGraphGetNodes(graph, nullptr, &count));
    assert_int_equal(count, 4);
    ok(cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &count));
    assert_int_equal(count, 4);
    assert_int_equal(read_int(memory), 0); // nothing has run
    CUgraphExec executable = nullptr;
    ok(cuGraphInstantiateWithFlags(&executable, graph, 0));
    for (int round = 0; round < 3; ++round)
        ok(cuGraphLaunch(executable, s.first));
    ok(cuStreamSynchronize(s.first));
    assert_int_equal(read_int(memory), 1011);
    assert_int_equal(read_int(memory + 60), 1101);
    ok(cuGraphExecDestroy(executable));
    ok(cuGraphDestroy(graph));
    expect_result(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
}

void what_captures_forbid(void ** /*state*/) {
    const Scope scope;
    const Code code;
    const Streams s;
    const CUdeviceptr memory = zeros(4);
    CUgraph graph = nullptr;
    CUdeviceptr more = 0;
    ok(cuStreamBeginCapture_v2(s.first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    expect_result(cuStreamSynchronize(s.first), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_result(code.launch_add(memory, 1, 1, s.first), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    expect_result(cuStreamEndCapture(s.first, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(graph);
    ok(cuStreamBeginCapture_v2(s.first, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    expect_result(cuMemAlloc_v2(&more, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_result(cuStreamEndCapture(s.first, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ok(cuStreamBeginCapture_v2(s.first, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ok(cuThreadExchangeStreamCaptureMode(&mode));
    ok(cuMemAlloc_v2(&more, 4));
    ok(cuThreadExchangeStreamCaptureMode(&mode));
    ok(code.launch_add(memory, 1, 1, s.first));
    ok(cuEventRecord(s.fork, s.first));
    ok(cuStreamWaitEvent(s.second, s.fork, 0));
    ok(code.launch_add(memory, 1, 1, s.second));
    expect_result(cuStreamEndCapture(s.second, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    expect_result(cuStreamEndCapture(s.first, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    ok(cuStreamBeginCapture_v2(s.first, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CUresult elsewhere = CUDA_SUCCESS;
    std::thread([&] {
        cuCtxSetCurrent(scope.context);
        elsewhere = cuStreamEndCapture(s.first, &graph);
    }).join();
    expect_result(elsewhere, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    ok(cuStreamEndCapture(s.first, &graph));
    ok(cuGraphDestroy(graph));
    CUstream blocking = nullptr;
    ok(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    ok(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    expect_result(code.launch_add(memory, 1, 1, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    expect_result(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    expect_result(cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
                  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

// PyTorch keeps the events of its collectives, and records those of a capture again for others.
void an_event_of_a_capture_is_recorded_again(void ** /*state*/) {
    const Scope scope;
    const Streams s;
    CUgraph graph = nullptr;
    ok(cuStreamBeginCapture_v2(s.first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(cuEventRecord(s.fork, s.first));
    ok(cuStreamEndCapture(s.first, &graph));
    expect_result(cuEventQuery(s.fork), CUDA_ERROR_CAPTURED_EVENT);
    ok(cuEventRecord(s.fork, s.first));
    ok(cuEventSynchronize(s.fork));
    ok(cuEventQuery(s.fork));
    ok(cuGraphDestroy(graph));
}

void by_hand(void ** /*state*/) {
    const Scope scope;
    const Code code;
    CUdeviceptr memory = zeros(4);
    int value = 5;
    void *parameters[] = {&memory, &value};
    CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
    kernel.func = code.add;
    kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = kernel.blockDimX = kernel.blockDimY =
        kernel.blockDimZ = 1;
    kernel.kernelParams = parameters;
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.dst = memory;
    fill.elementSize = 4;
    fill.value = 20;
    fill.width = fill.height = 1;
    int seen = 0;
    const CUDA_HOST_NODE_PARAMS host{[](void *data) { ++*static_cast<int *>(data); }, &seen};
    CUgraph graph = nullptr;
    CUgraphNode first = nullptr;
    CUgraphNode second = nullptr;
    CUgraphNode third = nullptr;
    ok(cuGraphCreate(&graph, 0));
    ok(cuGraphAddKernelNode_v2(&second, graph, nullptr, 0, &kernel));
    ok(cuGraphAddMemsetNode(&first, graph, nullptr, 0, &fill, scope.context));
    ok(cuGraphAddHostNode(&third, graph, &second, 1, &host));
    ok(cuGraphAddDependencies_v2(graph, &first, &second, nullptr, 1));
    expect_result(cuGraphAddDependencies_v2(graph, &third, &first, nullptr, 1),
                  CUDA_ERROR_INVALID_VALUE); // a cycle
    CUgraphExec executable = nullptr;
    ok(cuGraphInstantiateWithFlags(&executable, graph, 0));
    ok(cuGraphLaunch(executable, nullptr));
    assert_int_equal(read_int(memory), 25);
    assert_int_equal(seen, 1);
    value = 7;
    ok(cuGraphExecKernelNodeSetParams_v2(executable, second, &kernel));
    ok(cuGraphLaunch(executable, nullptr));
    assert_int_equal(read_int(memory), 27);
    ok(cuGraphNodeSetEnabled(executable, second, 0));
    ok(cuGraphLaunch(executable, nullptr));
    assert_int_equal(read_int(memory), 20);
    CUgraph clone = nullptr;
    CUgraphNode twin = nullptr;
    ok(cuGraphClone(&clone, graph));
    ok(cuGraphNodeFindInClone(&twin, first, clone));
    fill.value = 50;
    ok(cuGraphMemsetNodeSetParams(twin, &fill));
    CUgraphExecUpdateResultInfo info{};
    ok(cuGraphNodeSetEnabled(executable, second, 1));
    ok(cuGraphExecUpdate_v2(executable, clone, &info));
    ok(cuGraphLaunch(executable, nullptr));
    assert_int_equal(read_int(memory), 55); // the clone's kernel adds what the graph's does
    ok(cuGraphDestroyNode(third));
    expect_result(cuGraphExecUpdate_v2(executable, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
}

void memory_of_graphs(void ** /*state*/) {
    const Scope scope;
    const Code code;
    const Streams s;
    const CUdeviceptr result = zeros(4);
    CUdeviceptr inner = 0;
    ok(cuStreamBeginCapture_v2(s.first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(cuMemAllocAsync(&inner, 4096, s.first));
    ok(cuMemsetD32Async(inner, 3, 1024, s.first));
    ok(code.launch_add(inner, 4, 1024, s.first));
    ok(cuMemcpyDtoDAsync_v2(result, inner + 4092, 4, s.first));
    ok(cuMemFreeAsync(inner, s.first));
    CUgraph graph = nullptr;
    ok(cuStreamEndCapture(s.first, &graph));
    CUgraphExec executable = nullptr;
    ok(cuGraphInstantiateWithFlags(&executable, graph, 0));
    ok(cuGraphLaunch(executable, s.first));
    ok(cuGraphLaunch(executable, s.first));
    ok(cuStreamSynchronize(s.first));
    assert_int_equal(read_int(result), 7);
    expect_result(cuMemsetD8_v2(inner, 0, 1), CUDA_ERROR_INVALID_VALUE); // freed
}

// A graph of one node that allocates, and what else it has.
struct Allocating {
    explicit Allocating(std::size_t bytes) {
        ok(cuGraphCreate(&graph, 0));
        CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
        parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
        parameters.bytesize = bytes;
        ok(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &parameters));
        address = parameters.dptr;
    }
    [[nodiscard]] CUgraphExec instantiate(unsigned long long flags = 0) const {
        CUgraphExec executable = nullptr;
        ok(cuGraphInstantiateWithFlags(&executable, graph, flags));
        return executable;
    }
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUdeviceptr address = 0;
};

// The calls come before the graph has run, most of the time.
void memory_that_outlives_its_graph(void ** /*state*/) {
    const Scope scope;
    const Code code;
    const Streams s;
    const Allocating one(std::size_t{1} << 20);
    CUgraphExec executable = one.instantiate();
    expect_result(cuMemFreeAsync(one.address, s.first), CUDA_ERROR_INVALID_VALUE); // not yet
    expect_result(cuMemFree_v2(one.address), CUDA_ERROR_INVALID_VALUE);
    for (int round = 0; round < 200; ++round) {
        ok(cuGraphLaunch(executable, s.first));
        expect_result(cuGraphLaunch(executable, s.first), CUDA_ERROR_INVALID_VALUE);
        ok(cuMemsetD32Async(one.address, static_cast<unsigned>(round), 4, s.first));
        ok(code.launch_add(one.address, 1, 4, s.first));
        if (round % 3 == 0) {
            ok(cuStreamSynchronize(s.first));
            assert_int_equal(read_int(one.address), round + 1);
        }
        if (round % 2 == 0)
            ok(cuMemFreeAsync(one.address, s.first));
        else
            ok(cuMemFree_v2(one.address));
        expect_result(cuMemFreeAsync(one.address, s.first), CUDA_ERROR_INVALID_VALUE);
    }
    ok(cuStreamSynchronize(s.first));
    expect_result(cuMemsetD8_v2(one.address, 0, 1), CUDA_ERROR_INVALID_VALUE);
    // Another graph frees it; then the first may be launched again.
    CUgraph freeing = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec frees = nullptr;
    ok(cuGraphCreate(&freeing, 0));
    ok(cuGraphAddMemFreeNode(&node, freeing, nullptr, 0, one.address));
    ok(cuGraphInstantiateWithFlags(&frees, freeing, 0));
    for (int round = 0; round < 200; ++round) {
        ok(cuGraphLaunch(executable, s.first));
        ok(code.launch_add(one.address, 1, 4, s.first));
        ok(cuMemsetD32Async(one.address, 9, 4, s.first));
        ok(cuGraphLaunch(frees, s.first));
        expect_result(cuMemFree_v2(one.address), CUDA_ERROR_INVALID_VALUE);
    }
    // Freed by each launch, or by the program.
    CUgraphExec automatic = one.instantiate(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    for (int round = 0; round < 20; ++round) {
        ok(cuGraphLaunch(automatic, s.first));
        ok(cuMemsetD32Async(one.address, 5, 4, s.first));
    }
    ok(cuMemFreeAsync(one.address, s.first));
    ok(cuGraphLaunch(automatic, s.first));
    ok(cuMemFree_v2(one.address));
    ok(cuCtxSynchronize());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(capture_across_streams),
        cmocka_unit_test(what_captures_forbid),
        cmocka_unit_test(an_event_of_a_capture_is_recorded_again),
        cmocka_unit_test(by_hand),
        cmocka_unit_test(memory_of_graphs),
        cmocka_unit_test(memory_that_outlives_its_graph),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
