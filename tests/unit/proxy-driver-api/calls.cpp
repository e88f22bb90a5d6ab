// SPDX-License-Identifier: GPL-2.0-or-later
// From a C call to a message and back to the caller's memory.
#include "driver_api/calls.hpp"

#include "cmocka.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace {

using namespace singularity;
using namespace singularity::driver_api;

View view_of_object(const auto &object) {
    return {.bytes = std::as_bytes(std::span(&object, 1)), .present = true};
}

void bytes_by_value(void ** /*state*/) {
    const std::string_view text = "eight...";
    const auto request =
        MemcpyHtoDV2Call::request(ApiId::kMemcpyHtoDV2Ptds, 0x7000, text.data(), text.size());
    assert_true(request.has_value());
    assert_true(request->api == ApiId::kMemcpyHtoDV2Ptds);
    assert_int_equal(request->dstDevice, 0x7000);
    assert_int_equal(request->srcHost.bytes.size(), 8);
    assert_memory_equal(request->srcHost.bytes.data(), text.data(), 8);
    const auto null = MemcpyHtoDV2Call::request(ApiId::kMemcpyHtoDV2, 0x7000, nullptr, 8);
    assert_false(null.has_value());
    test::expect_contains(null.error().message(), "must point to memory");
}

void memory_that_outlives_the_call(void ** /*state*/) {
    std::array<char, 16> host{};
    const auto request =
        MemcpyDtoHAsyncV2Call::request(ApiId::kMemcpyDtoHAsyncV2, host.data(), 0x7000, host.size(), nullptr);
    assert_true(request.has_value());
    assert_int_equal(request->dstHost.address, std::bit_cast<std::uintptr_t>(host.data()));
    assert_int_equal(request->dstHost.size, 16);
    assert_false(MemcpyDtoHAsyncV2Call::request(ApiId::kMemcpyDtoHAsyncV2, host.data(), 0, SIZE_MAX, nullptr)
                     .has_value());
}

void outputs_are_written_back(void ** /*state*/) {
    size_t value = 0;
    const auto request = CtxGetLimitCall::request(ApiId::kCtxGetLimit, &value, CU_LIMIT_STACK_SIZE);
    assert_true(request.has_value());
    const size_t answer = 4096;
    CtxGetLimitReply reply;
    reply.pvalue = view_of_object(answer);
    assert_true(check(*request, reply).has_value());
    CtxGetLimitCall::finish(*request, reply, &value);
    assert_int_equal(value, 4096);
    const std::uint32_t half = 1;
    reply.pvalue = view_of_object(half);
    assert_false(check(*request, reply).has_value());
    reply.pvalue = {};
    assert_false(check(*request, reply).has_value());
    reply.driver_result = CUDA_ERROR_INVALID_CONTEXT;
    assert_true(check(*request, reply).has_value());
    assert_false(CtxGetLimitCall::request(ApiId::kCtxGetLimit, nullptr, CU_LIMIT_STACK_SIZE).has_value());
}

void a_null_output_that_may_be(void ** /*state*/) {
    CUdeviceptr address = 0;
    CUmodule module = std::bit_cast<CUmodule>(std::uintptr_t{0x11});
    const auto request =
        ModuleGetGlobalV2Call::request(ApiId::kModuleGetGlobalV2, &address, nullptr, module, "weights");
    assert_true(request.has_value());
    assert_true(request->want_dptr);
    assert_false(request->want_bytes);
    assert_int_equal(request->hmod, 0x11);
    assert_int_equal(request->name.bytes.size(), sizeof("weights"));
    assert_int_equal(*output_size(*request), sizeof(CUdeviceptr));
    const size_t extra = 1;
    ModuleGetGlobalV2Reply reply;
    reply.dptr = view_of_object(extra);
    reply.bytes = view_of_object(extra);
    assert_false(check(*request, reply).has_value());
}

void new_handles_are_the_clients(void ** /*state*/) {
    CUstream stream = nullptr;
    const auto request =
        StreamCreateCall::request(ApiId::kStreamCreate, 0x55, &stream, CU_STREAM_NON_BLOCKING);
    assert_true(request.has_value());
    assert_int_equal(request->phStream, 0x55);
    StreamCreateReply reply;
    reply.driver_result = CUDA_ERROR_OUT_OF_MEMORY;
    StreamCreateCall::finish(*request, reply, &stream);
    assert_null(stream);
    reply.driver_result = CUDA_SUCCESS;
    StreamCreateCall::finish(*request, reply, &stream);
    assert_int_equal(std::bit_cast<std::uintptr_t>(stream), 0x55);
    assert_false(StreamCreateCall::request(ApiId::kStreamCreate, 0, &stream, 0).has_value());
}

void a_count_behind_a_pointer(void ** /*state*/) {
    std::array<CUgraphNode, 3> nodes{};
    size_t count = nodes.size();
    CUgraph graph = std::bit_cast<CUgraph>(std::uintptr_t{9});
    const auto request = GraphGetNodesCall::request(ApiId::kGraphGetNodes, graph, nodes.data(), &count);
    assert_true(request.has_value());
    assert_int_equal(*output_size(*request), 3 * 8 + 8);
    const std::array<std::uint64_t, 2> found{7, 8};
    const size_t two = 2;
    GraphGetNodesReply reply;
    reply.nodes = {.bytes = std::as_bytes(std::span(found)), .present = true};
    reply.numNodes = view_of_object(two);
    assert_true(check(*request, reply).has_value());
    GraphGetNodesCall::finish(*request, reply, nodes.data(), &count);
    assert_int_equal(count, 2);
    assert_int_equal(std::bit_cast<std::uintptr_t>(nodes[1]), 8);
    const std::array<std::uint64_t, 4> four{};
    reply.nodes = {.bytes = std::as_bytes(std::span(four)), .present = true};
    assert_false(check(*request, reply).has_value());
    count = SIZE_MAX;
    assert_false(GraphGetNodesCall::request(ApiId::kGraphGetNodes, graph, nodes.data(), &count).has_value());
}

void lengths_that_are_differences(void ** /*state*/) {
    alignas(64) CUtensorMap map{};
    std::array<cuuint64_t, 2> dimensions{64, 64};
    std::array<cuuint64_t, 1> strides{256};
    std::array<cuuint32_t, 2> box{8, 8};
    const auto encode_rank = [&](cuuint32_t rank) {
        return TensorMapEncodeTiledCall::request(
            ApiId::kTensorMapEncodeTiled, &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank, &map,
            dimensions.data(), strides.data(), box.data(), box.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
            CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
    const auto request = encode_rank(2);
    assert_true(request.has_value());
    assert_int_equal(request->globalStrides.bytes.size(), 8);
    assert_int_equal(request->globalAddress, std::bit_cast<std::uintptr_t>(&map));
    assert_false(encode_rank(0).has_value());
}

void windows_pointers_must_be_null(void ** /*state*/) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    CUmemGenericAllocationHandle handle = 0;
    const auto ask = [&] {
        return MemCreateCall::request(ApiId::kMemCreate, 3, &handle, 1 << 21, &properties, 0);
    };
    assert_true(ask().has_value());
    properties.win32HandleMetaData = &properties;
    assert_false(ask().has_value());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(bytes_by_value),
        cmocka_unit_test(memory_that_outlives_the_call),
        cmocka_unit_test(outputs_are_written_back),
        cmocka_unit_test(a_null_output_that_may_be),
        cmocka_unit_test(new_handles_are_the_clients),
        cmocka_unit_test(a_count_behind_a_pointer),
        cmocka_unit_test(lengths_that_are_differences),
        cmocka_unit_test(windows_pointers_must_be_null),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
