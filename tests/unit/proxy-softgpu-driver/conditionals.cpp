// SPDX-License-Identifier: GPL-2.0-or-later
// Conditional nodes of graphs: bodies that run if, as long as, or by which a handle's value says.
#include "driver.hpp"

#include <array>

using namespace singularity::test;

namespace {

// step(int *value, handle): --*value, which is also the handle's.  show(int *value, handle): *value is the
// handle's.
constexpr const char *kSetting = R"(
.version 8.0
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry step(.param .u64 value, .param .u64 handle) {
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [value];
    ld.param.u64 %rd2, [handle];
    ld.global.u32 %r1, [%rd1];
    add.s32 %r2, %r1, -1;
    st.global.u32 [%rd1], %r2;
    {
        .param .b64 param0;
        .param .b32 param1;
        st.param.b64 [param0], %rd2;
        st.param.b32 [param1], %r2;
        call.uni cudaGraphSetConditional, (param0, param1);
    }
    ret;
}
.visible .entry show(.param .u64 value, .param .u64 handle) {
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [value];
    ld.param.u64 %rd2, [handle];
    ld.global.u32 %r1, [%rd1];
    {
        .param .b64 param0;
        .param .b32 param1;
        st.param.b64 [param0], %rd2;
        st.param.b32 [param1], %r1;
        call.uni cudaGraphSetConditional, (param0, param1);
    }
    ret;
}
)";

class Setting {
  public:
    Setting() {
        ok(cuModuleLoadData(&module_, kSetting));
        ok(cuModuleGetFunction(&step, module_, "step"));
        ok(cuModuleGetFunction(&show, module_, "show"));
    }
    CUfunction step = nullptr;
    CUfunction show = nullptr;

  private:
    CUmodule module_ = nullptr;
};

CUDA_KERNEL_NODE_PARAMS kernel_of(CUfunction function, void **parameters) {
    CUDA_KERNEL_NODE_PARAMS out{};
    out.func = function;
    out.gridDimX = out.gridDimY = out.gridDimZ = 1;
    out.blockDimX = out.blockDimY = out.blockDimZ = 1;
    out.kernelParams = parameters;
    return out;
}

CUgraphNode kernel(CUgraph graph, CUfunction function, CUdeviceptr address, CUgraphConditionalHandle handle,
                   CUgraphNode after = nullptr) {
    void *parameters[] = {&address, &handle};
    const auto described = kernel_of(function, parameters);
    CUgraphNode node = nullptr;
    ok(cuGraphAddKernelNode_v2(&node, graph, after == nullptr ? nullptr : &after, after == nullptr ? 0 : 1,
                               &described));
    return node;
}
CUgraphNode adding(CUgraph graph, const Code &code, CUdeviceptr address, int value,
                   CUgraphNode after = nullptr) {
    void *parameters[] = {&address, &value};
    const auto described = kernel_of(code.add, parameters);
    CUgraphNode node = nullptr;
    ok(cuGraphAddKernelNode_v2(&node, graph, after == nullptr ? nullptr : &after, after == nullptr ? 0 : 1,
                               &described));
    return node;
}

CUgraphConditionalHandle handle_of(CUgraph graph, unsigned value,
                                   unsigned flags = CU_GRAPH_COND_ASSIGN_DEFAULT) {
    CUgraphConditionalHandle handle = 0;
    CUcontext context = nullptr;
    ok(cuCtxGetCurrent(&context));
    ok(cuGraphConditionalHandleCreate(&handle, graph, context, value, flags));
    assert_true(handle != 0);
    return handle;
}

CUgraphNodeParams described(CUgraphConditionalHandle handle, CUgraphConditionalNodeType type, unsigned size) {
    CUgraphNodeParams out{};
    out.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    out.conditional.handle = handle;
    out.conditional.type = type;
    out.conditional.size = size;
    ok(cuCtxGetCurrent(&out.conditional.ctx));
    return out;
}

// The bodies: the program's as long as the node is.
CUgraph *conditional(CUgraph graph, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                     unsigned size, CUgraphNode after = nullptr, CUgraphNode *out = nullptr) {
    auto parameters = described(handle, type, size);
    CUgraphNode node = nullptr;
    ok(cuGraphAddNode_v2(&node, graph, after == nullptr ? nullptr : &after, nullptr, after == nullptr ? 0 : 1,
                         &parameters));
    assert_non_null(parameters.conditional.phGraph_out);
    CUgraphNodeType type_of = CU_GRAPH_NODE_TYPE_EMPTY;
    ok(cuGraphNodeGetType(node, &type_of));
    assert_int_equal(type_of, CU_GRAPH_NODE_TYPE_CONDITIONAL);
    if (out != nullptr)
        *out = node;
    return parameters.conditional.phGraph_out;
}

CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec executable = nullptr;
    ok(cuGraphInstantiateWithFlags(&executable, graph, 0));
    return executable;
}
void write(CUdeviceptr address, int value) { ok(cuMemcpyHtoD_v2(address, &value, sizeof value)); }
void launch(CUgraphExec executable) {
    ok(cuGraphLaunch(executable, nullptr));
    ok(cuCtxSynchronize());
}

void as_long_as(void ** /*state*/) {
    const Scope scope;
    const Code code;
    const Setting setting;
    const CUdeviceptr left = zeros(8);
    CUgraph graph = nullptr;
    ok(cuGraphCreate(&graph, 0));
    // The body runs first with the default, then as often as the kernel says.
    const auto handle = handle_of(graph, 1);
    CUgraphNode loop = nullptr;
    CUgraph body = *conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1, nullptr, &loop);
    CUgraphNode counted = adding(body, code, left + 4, 1);
    kernel(body, setting.step, left, handle, counted);
    adding(graph, code, left + 4, 1000, loop); // behind the whole loop
    CUgraphExec executable = instantiate(graph);
    for (const int times : {5, 1, 300}) {
        write(left, times);
        write(left + 4, 0);
        launch(executable);
        assert_int_equal(read_int(left), 0);
        assert_int_equal(read_int(left + 4), 1000 + times);
    }
    // A node of the body can be changed in the executable.
    CUdeviceptr address = left + 4;
    int value = 7;
    void *parameters[] = {&address, &value};
    const auto changed = kernel_of(code.add, parameters);
    ok(cuGraphExecKernelNodeSetParams_v2(executable, counted, &changed));
    write(left, 3);
    write(left + 4, 0);
    launch(executable);
    assert_int_equal(read_int(left + 4), 1021);
    // And all of it from the graph, which was not changed.
    CUgraphExecUpdateResultInfo info{};
    ok(cuGraphExecUpdate_v2(executable, graph, &info));
    write(left, 3);
    write(left + 4, 0);
    launch(executable);
    assert_int_equal(read_int(left + 4), 1003);
    // One more node in the body is another graph.
    adding(body, code, left + 4, 1);
    expect_result(cuGraphExecUpdate_v2(executable, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    ok(cuGraphExecDestroy(executable));
    ok(cuGraphDestroy(graph));
    std::size_t count = 0;
    expect_result(cuGraphGetNodes(body, nullptr, &count), CUDA_ERROR_INVALID_VALUE); // gone with its node
}

void if_and_which(void ** /*state*/) {
    const Scope scope;
    const Code code;
    const Setting setting;
    const CUdeviceptr value = zeros(16);
    CUgraph graph = nullptr;
    ok(cuGraphCreate(&graph, 0));
    const auto either = handle_of(graph, 1);
    const auto which = handle_of(graph, 0, 0);
    assert_true(either != which);
    CUgraphNode first = kernel(graph, setting.show, value, either);
    first = kernel(graph, setting.show, value, which, first);
    CUgraph *halves = conditional(graph, either, CU_GRAPH_COND_TYPE_IF, 2, first);
    adding(halves[0], code, value + 4, 1);
    adding(halves[1], code, value + 4, 10);
    CUgraph *cases = conditional(graph, which, CU_GRAPH_COND_TYPE_SWITCH, 3, first);
    for (int one = 0; one < 3; ++one)
        adding(cases[one], code, value + 8, one + 1);
    CUgraphExec executable = instantiate(graph);
    const std::array<std::array<int, 3>, 4> wanted{{{0, 10, 1}, {1, 1, 2}, {2, 1, 3}, {3, 1, 0}}};
    for (const auto &[set, half, chosen] : wanted) {
        ok(cuMemsetD8_v2(value, 0, 16));
        write(value, set);
        launch(executable);
        assert_int_equal(read_int(value + 4), half);
        assert_int_equal(read_int(value + 8), chosen);
    }
    ok(cuGraphExecDestroy(executable));
    ok(cuGraphDestroy(graph));
}

// A loop in a loop; the inner one's body is captured. Each launch begins with the defaults.
void inside_of_each_other(void ** /*state*/) {
    const Scope scope;
    const Code code;
    const Setting setting;
    const CUdeviceptr left = zeros(12);
    CUstream stream = nullptr;
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUgraph graph = nullptr;
    ok(cuGraphCreate(&graph, 0));
    const auto outer = handle_of(graph, 1);
    CUgraph body = *conditional(graph, outer, CU_GRAPH_COND_TYPE_WHILE, 1);
    const auto inner = handle_of(body, 1);
    CUgraphNode again = nullptr;
    CUdeviceptr inner_left = left + 4;
    CUDA_MEMSET_NODE_PARAMS two{};
    two.dst = inner_left;
    two.elementSize = 4;
    two.width = two.height = 1;
    two.value = 2;
    CUcontext context = nullptr;
    ok(cuCtxGetCurrent(&context));
    ok(cuGraphAddMemsetNode(&again, body, nullptr, 0, &two, context));
    again = kernel(body, setting.show, inner_left, inner, again);
    CUgraphNode loop = nullptr;
    CUgraph inside = *conditional(body, inner, CU_GRAPH_COND_TYPE_WHILE, 1, again, &loop);
    kernel(body, setting.step, left, outer, loop);
    ok(cuStreamBeginCaptureToGraph(stream, inside, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(code.launch_add(left + 8, 1, 1, stream));
    auto handle = inner;
    void *parameters[] = {&inner_left, &handle};
    ok(cuLaunchKernel(setting.step, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
    CUgraph captured = nullptr;
    ok(cuStreamEndCapture(stream, &captured));
    CUgraphExec executable = instantiate(graph);
    for (int round = 1; round <= 2; ++round) {
        write(left, 4);
        launch(executable);
        assert_int_equal(read_int(left + 8), round * 8);
    }
    ok(cuGraphExecDestroy(executable));
    ok(cuGraphDestroy(graph));
    ok(cuStreamDestroy_v2(stream));
}

void what_is_refused(void ** /*state*/) {
    const Scope scope;
    CUgraph graph = nullptr;
    ok(cuGraphCreate(&graph, 0));
    const auto handle = handle_of(graph, 1);
    CUgraphNode node = nullptr;
    const auto add = [&](CUgraphNodeParams parameters) {
        return cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &parameters);
    };
    expect_result(add(described(handle + 1000, CU_GRAPH_COND_TYPE_IF, 1)), CUDA_ERROR_INVALID_VALUE);
    expect_result(add(described(handle, CU_GRAPH_COND_TYPE_IF, 0)), CUDA_ERROR_INVALID_VALUE);
    expect_result(add(described(handle, CU_GRAPH_COND_TYPE_IF, 3)), CUDA_ERROR_INVALID_VALUE);
    expect_result(add(described(handle, CU_GRAPH_COND_TYPE_WHILE, 2)), CUDA_ERROR_INVALID_VALUE);
    expect_result(add(described(handle, CU_GRAPH_COND_TYPE_SWITCH, 0)), CUDA_ERROR_INVALID_VALUE);
    expect_result(add(described(handle, static_cast<CUgraphConditionalNodeType>(3), 1)),
                  CUDA_ERROR_INVALID_VALUE);
    conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1);
    expect_result(add(described(handle, CU_GRAPH_COND_TYPE_IF, 1)),
                  CUDA_ERROR_INVALID_VALUE); // one node for a handle
    CUgraph copy = nullptr;
    expect_result(cuGraphClone(&copy, graph), CUDA_ERROR_NOT_SUPPORTED);
    CUgraph other = nullptr;
    ok(cuGraphCreate(&other, 0));
    expect_result(cuGraphAddChildGraphNode(&node, other, nullptr, 0, graph), CUDA_ERROR_NOT_SUPPORTED);
    // Numbers are used again once their graph has gone.
    ok(cuGraphDestroy(graph));
    assert_int_equal(handle_of(other, 1), handle);
    ok(cuGraphDestroy(other));
}

void a_kernel_outside_of_the_graph(void ** /*state*/) {
    const Scope scope;
    const Setting setting;
    CUgraph graph = nullptr;
    ok(cuGraphCreate(&graph, 0));
    auto handle = handle_of(graph, 1);
    CUdeviceptr value = zeros(4);
    void *parameters[] = {&value, &handle};
    ok(cuLaunchKernel(setting.show, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    expect_result(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(as_long_as),
        cmocka_unit_test(if_and_which),
        cmocka_unit_test(inside_of_each_other),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(a_kernel_outside_of_the_graph),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
