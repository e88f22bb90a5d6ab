// SPDX-License-Identifier: GPL-2.0-or-later
// Texture and surface objects: what they can be made of, their numbers, and kernels that use them.
#include "driver.hpp"

#include <array>
#include <cstring>
#include <limits>

namespace {

using namespace singularity::test;

constexpr const char *kRead = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .entry read(.param .u64 out, .param .u64 texture, .param .s32 at) {
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [texture];
    ld.param.s32 %r1, [at];
    tex.1d.v4.s32.s32 {%r2, %r3, %r4, %r5}, [%rd2, {%r1}];
    st.global.s32 [%rd1], %r2;
    ret;
}
)";

class Reader {
  public:
    Reader() {
        ok(cuModuleLoadData(&module_, kRead));
        ok(cuModuleGetFunction(&function_, module_, "read"));
        ok(cuMemAlloc_v2(&out_, 4));
    }
    CUresult launch(CUtexObject texture, int at) {
        void *parameters[] = {&out_, &texture, &at};
        return cuLaunchKernel(function_, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
    }
    int read(CUtexObject texture, int at) {
        ok(launch(texture, at));
        int value = -1;
        ok(cuMemcpyDtoH_v2(&value, out_, sizeof value));
        return value;
    }

  private:
    CUmodule module_ = nullptr;
    CUfunction function_ = nullptr;
    CUdeviceptr out_ = 0;
};

CUDA_RESOURCE_DESC linear(CUdeviceptr memory, std::size_t size) {
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear.devPtr = memory;
    resource.res.linear.format = CU_AD_FORMAT_SIGNED_INT32;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = size;
    return resource;
}

CUDA_TEXTURE_DESC integers() {
    CUDA_TEXTURE_DESC texture{};
    texture.flags = CU_TRSF_READ_AS_INTEGER;
    return texture;
}

CUtexObject made(const CUDA_RESOURCE_DESC &resource) {
    CUtexObject object = 0;
    const auto texture = integers();
    ok(cuTexObjectCreate(&object, &resource, &texture, nullptr));
    return object;
}

CUdeviceptr filled(const std::array<int, 256> &values) {
    CUdeviceptr memory = 0;
    ok(cuMemAlloc_v2(&memory, sizeof values));
    ok(cuMemcpyHtoD_v2(memory, values.data(), sizeof values));
    return memory;
}

void memory_is_read(void ** /*state*/) {
    const Scope scope;
    Reader reader;
    std::array<int, 256> values{};
    for (int i = 0; i < 256; ++i)
        values[static_cast<std::size_t>(i)] = 1000 - i;
    const CUdeviceptr memory = filled(values);
    const auto object = made(linear(memory, 100 * sizeof(int)));
    assert_int_equal(reader.read(object, 0), 1000);
    assert_int_equal(reader.read(object, 99), 901);
    for (const int outside : {-1, 100, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()})
        assert_int_equal(reader.read(object, outside), 0);
    CUDA_RESOURCE_DESC resource{};
    ok(cuTexObjectGetResourceDesc(&resource, object));
    assert_int_equal(resource.res.linear.devPtr, memory);
    CUDA_TEXTURE_DESC texture{};
    ok(cuTexObjectGetTextureDesc(&texture, object));
    assert_int_equal(texture.flags, CU_TRSF_READ_AS_INTEGER);
    CUDA_RESOURCE_VIEW_DESC view{};
    expect_result(cuTexObjectGetResourceViewDesc(&view, object), CUDA_ERROR_INVALID_VALUE);
}

void freed_memory_is_not_touched(void ** /*state*/) {
    const Scope scope;
    Reader reader;
    CUdeviceptr memory = 0;
    ok(cuMemAlloc_v2(&memory, std::size_t{4} << 20U));
    const auto object = made(linear(memory, std::size_t{4} << 20U));
    ok(cuMemFree_v2(memory));
    ok(reader.launch(object, 5));
    expect_result(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

void there_must_be_one(void ** /*state*/) {
    const Scope scope;
    Reader reader;
    std::array<int, 256> values{};
    values[3] = 77;
    const auto object = made(linear(filled(values), sizeof values));
    // A kernel keeps what it was launched with.
    ok(reader.launch(object, 3));
    ok(cuTexObjectDestroy(object));
    ok(cuCtxSynchronize());
    expect_result(cuTexObjectDestroy(object), CUDA_ERROR_INVALID_VALUE);
    ok(reader.launch(object, 3));
    expect_result(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

// What a device image relies on: whoever makes as many gets the same numbers.
void numbers_are_the_smallest_that_are_free(void ** /*state*/) {
    const Scope scope;
    const auto resource = linear(filled({}), 64);
    const auto first = made(resource);
    const auto second = made(resource);
    const auto third = made(resource);
    assert_int_equal(second, first + 1);
    assert_int_equal(third, second + 1);
    ok(cuTexObjectDestroy(first));
    ok(cuTexObjectDestroy(second));
    assert_int_equal(made(resource), first);
    assert_int_equal(made(resource), second);
    assert_int_equal(made(resource), third + 1);
    const Scope other;
    assert_int_equal(made(linear(filled({}), 64)), first);
}

void what_they_cannot_be_made_of(void ** /*state*/) {
    const Scope scope;
    const CUdeviceptr memory = filled({});
    CUtexObject object = 0;
    const auto expect = [&](const CUDA_RESOURCE_DESC &resource, const CUDA_TEXTURE_DESC &texture,
                            CUresult result) {
        expect_result(cuTexObjectCreate(&object, &resource, &texture, nullptr), result);
    };
    expect(linear(memory + 4, 64), integers(), CUDA_ERROR_INVALID_VALUE);
    expect(linear(memory, 1U << 30U), integers(), CUDA_ERROR_INVALID_VALUE);
    expect(linear(memory, 2), integers(), CUDA_ERROR_INVALID_VALUE);
    expect(linear(0, 64), integers(), CUDA_ERROR_INVALID_VALUE);
    auto texture = integers();
    texture.flags |= CU_TRSF_SRGB;
    expect(linear(memory, 64), texture, CUDA_ERROR_NOT_SUPPORTED);
    texture = integers();
    constexpr int kNoMode = 9;
    std::memcpy(&texture.addressMode[1], &kNoMode, sizeof kNoMode);
    expect(linear(memory, 64), texture, CUDA_ERROR_INVALID_VALUE);

    const CUDA_ARRAY3D_DESCRIPTOR wanted{8, 8, 0, CU_AD_FORMAT_SIGNED_INT32, 1, 0};
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    ok(cuArray3DCreate_v2(&resource.res.array.hArray, &wanted));
    texture = integers();
    texture.filterMode = CU_TR_FILTER_MODE_LINEAR;
    expect(resource, texture, CUDA_ERROR_INVALID_VALUE);
    CUDA_RESOURCE_VIEW_DESC view{};
    view.width = view.height = 8;
    texture = integers();
    ok(cuTexObjectCreate(&object, &resource, &texture, &view));
    ok(cuTexObjectGetResourceViewDesc(&view, object));
    view.format = CU_RES_VIEW_FORMAT_UINT_4X8;
    expect_result(cuTexObjectCreate(&object, &resource, &texture, &view), CUDA_ERROR_NOT_SUPPORTED);
    // Not made to be written to.
    CUsurfObject surface = 0;
    expect_result(cuSurfObjectCreate(&surface, &resource), CUDA_ERROR_INVALID_VALUE);
    resource.res.array.hArray = nullptr;
    expect(resource, texture, CUDA_ERROR_INVALID_HANDLE);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_read),
        cmocka_unit_test(freed_memory_is_not_touched),
        cmocka_unit_test(there_must_be_one),
        cmocka_unit_test(numbers_are_the_smallest_that_are_free),
        cmocka_unit_test(what_they_cannot_be_made_of),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
