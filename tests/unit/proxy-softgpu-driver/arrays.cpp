// SPDX-License-Identifier: GPL-2.0-or-later
// CUDA arrays: what they can be made as, copies from and to them, and their memory.
#include "driver.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <numeric>
#include <vector>

namespace {

using namespace singularity::test;

CUDA_ARRAY3D_DESCRIPTOR description(std::size_t width, std::size_t height, std::size_t depth,
                                    unsigned flags = 0, CUarray_format format = CU_AD_FORMAT_UNSIGNED_INT8,
                                    unsigned channels = 1) {
    return {width, height, depth, format, channels, flags};
}

CUarray made(const CUDA_ARRAY3D_DESCRIPTOR &wanted) {
    CUarray array = nullptr;
    ok(cuArray3DCreate_v2(&array, &wanted));
    return array;
}

std::vector<unsigned char> counted(std::size_t size) {
    std::vector<unsigned char> bytes(size);
    std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(1));
    return bytes;
}

CUDA_MEMCPY3D to_array(CUarray array, const void *from, std::size_t width, std::size_t height,
                       std::size_t depth) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = from;
    copy.srcPitch = width;
    copy.srcHeight = height;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.WidthInBytes = width;
    copy.Height = height;
    copy.Depth = depth;
    return copy;
}

void what_can_be_made(void ** /*state*/) {
    const Scope scope;
    struct Row {
        CUDA_ARRAY3D_DESCRIPTOR wanted;
        CUresult result;
    };
    const Row rows[] = {
        {description(8, 0, 0), CUDA_SUCCESS},
        {description(8, 4, 0), CUDA_SUCCESS},
        {description(8, 4, 3), CUDA_SUCCESS},
        {description(8, 0, 3, CUDA_ARRAY3D_LAYERED), CUDA_SUCCESS},
        {description(8, 8, 6, CUDA_ARRAY3D_CUBEMAP), CUDA_SUCCESS},
        {description(8, 8, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED), CUDA_SUCCESS},
        {description(8, 4, 0, CUDA_ARRAY3D_SURFACE_LDST, CU_AD_FORMAT_HALF, 4), CUDA_SUCCESS},
        {description(0, 4, 0), CUDA_ERROR_INVALID_VALUE},
        {description(8, 0, 3), CUDA_ERROR_INVALID_VALUE},
        {description(8, 4, 0, CUDA_ARRAY3D_LAYERED), CUDA_ERROR_INVALID_VALUE},
        {description(8, 4, 6, CUDA_ARRAY3D_CUBEMAP), CUDA_ERROR_INVALID_VALUE},
        {description(8, 8, 7, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED), CUDA_ERROR_INVALID_VALUE},
        {description(8, 4, 0, 0, CU_AD_FORMAT_FLOAT, 3), CUDA_ERROR_INVALID_VALUE},
        {description(8, 4, 0, 0, CU_AD_FORMAT_NV12, 1), CUDA_ERROR_NOT_SUPPORTED},
        {description(8, 4, 0, CUDA_ARRAY3D_SPARSE), CUDA_ERROR_NOT_SUPPORTED},
        {description(100000, 60000, 0, 0, CU_AD_FORMAT_FLOAT, 4), CUDA_ERROR_OUT_OF_MEMORY},
    };
    for (const Row &row : rows) {
        CUarray array = nullptr;
        expect_result(cuArray3DCreate_v2(&array, &row.wanted), row.result);
        if (row.result != CUDA_SUCCESS)
            continue;
        CUDA_ARRAY3D_DESCRIPTOR said{};
        ok(cuArray3DGetDescriptor_v2(&said, array));
        assert_memory_equal(&said, &row.wanted, offsetof(CUDA_ARRAY3D_DESCRIPTOR, Flags) + sizeof said.Flags);
        ok(cuArrayDestroy(array));
        expect_result(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    }
}

void memory_is_counted(void ** /*state*/) {
    const Scope scope;
    std::size_t before = 0;
    std::size_t with = 0;
    std::size_t after = 0;
    std::size_t total = 0;
    ok(cuMemGetInfo_v2(&before, &total));
    const CUarray array = made(description(1024, 1024, 0, 0, CU_AD_FORMAT_FLOAT, 4));
    ok(cuMemGetInfo_v2(&with, &total));
    assert_int_equal(before - with, 16U << 20U);
    ok(cuArrayDestroy(array));
    ok(cuMemGetInfo_v2(&after, &total));
    assert_int_equal(before, after);
    {
        // What a context leaves behind is given back with it.
        const Scope other;
        (void)made(description(1024, 1024, 0));
    }
    ok(cuMemGetInfo_v2(&after, &total));
    assert_int_equal(before, after);
}

void boxes(void ** /*state*/) {
    const Scope scope;
    const CUarray array = made(description(10, 6, 4));
    const auto in = counted(10 * 6 * 4);
    CUDA_MEMCPY3D copy = to_array(array, in.data(), 10, 6, 4);
    ok(cuMemcpy3D_v2(&copy));
    // A box from the middle to memory of the device, and to the host from there.
    CUdeviceptr memory = 0;
    ok(cuMemAlloc_v2(&memory, 3 * 2 * 2));
    CUDA_MEMCPY3D out{};
    out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    out.srcArray = array;
    out.srcXInBytes = 4;
    out.srcY = 3;
    out.srcZ = 1;
    out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    out.dstDevice = memory;
    out.dstPitch = 3;
    out.dstHeight = 2;
    out.WidthInBytes = 3;
    out.Height = 2;
    out.Depth = 2;
    ok(cuMemcpy3DAsync_v2(&out, nullptr));
    std::array<unsigned char, 12> box{};
    ok(cuMemcpyDtoH_v2(box.data(), memory, box.size()));
    for (unsigned z = 0; z < 2; ++z)
        for (unsigned y = 0; y < 2; ++y)
            for (unsigned x = 0; x < 3; ++x)
                assert_int_equal(box[(z * 2 + y) * 3 + x], in[((1 + z) * 6 + 3 + y) * 10 + 4 + x]);
    // What is outside, on each side.
    for (const auto where : {&CUDA_MEMCPY3D::srcXInBytes, &CUDA_MEMCPY3D::srcY, &CUDA_MEMCPY3D::srcZ}) {
        auto outside = out;
        outside.*where += where == &CUDA_MEMCPY3D::srcZ ? 2 : where == &CUDA_MEMCPY3D::srcY ? 2 : 4;
        expect_result(cuMemcpy3D_v2(&outside), CUDA_ERROR_INVALID_VALUE);
        outside.*where = SIZE_MAX;
        expect_result(cuMemcpy3D_v2(&outside), CUDA_ERROR_INVALID_VALUE);
    }
    out.srcArray = std::bit_cast<CUarray>(std::uint64_t{0x1234});
    expect_result(cuMemcpy3D_v2(&out), CUDA_ERROR_INVALID_HANDLE);
}

void whole_texels_only(void ** /*state*/) {
    const Scope scope;
    const CUarray array = made(description(8, 0, 0, 0, CU_AD_FORMAT_SIGNED_INT16, 2));
    const auto in = counted(32);
    ok(cuMemcpyHtoA_v2(array, 8, in.data(), 12));
    std::array<unsigned char, 12> out{};
    ok(cuMemcpyAtoH_v2(out.data(), array, 8, 12));
    assert_memory_equal(out.data(), in.data(), 12);
    expect_result(cuMemcpyHtoA_v2(array, 6, in.data(), 4), CUDA_ERROR_INVALID_VALUE);
    expect_result(cuMemcpyHtoA_v2(array, 0, in.data(), 6), CUDA_ERROR_INVALID_VALUE);
    expect_result(cuMemcpyHtoA_v2(array, 24, in.data(), 12), CUDA_ERROR_INVALID_VALUE);
    const CUarray other = made(description(8, 0, 0, 0, CU_AD_FORMAT_SIGNED_INT16, 2));
    ok(cuMemcpyAtoA_v2(other, 0, array, 8, 8));
    ok(cuMemcpyAtoH_v2(out.data(), other, 0, 8));
    assert_memory_equal(out.data(), in.data(), 8);
}

void an_array_that_a_copy_uses_stays(void ** /*state*/) {
    const Scope scope;
    CUdeviceptr flag = 0;
    ok(cuMemAlloc_v2(&flag, 4));
    ok(cuMemsetD32_v2(flag, 0, 1));
    CUstream stream = nullptr;
    CUstream other = nullptr;
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    const CUarray array = made(description(16, 0, 0));
    unsigned char *pinned = nullptr;
    ok(cuMemHostAlloc(reinterpret_cast<void **>(&pinned), 16, 0));
    std::fill_n(pinned, 16, static_cast<unsigned char>(9));
    ok(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    ok(cuMemcpyHtoAAsync_v2(array, 0, pinned, 16, stream));
    ok(cuStreamWriteValue32_v2(other, flag, 1, 0));
    ok(cuArrayDestroy(array)); // waits
    ok(cuStreamQuery(stream));
}

void levels(void ** /*state*/) {
    const Scope scope;
    CUmipmappedArray mipmap = nullptr;
    const auto wanted = description(12, 5, 0);
    ok(cuMipmappedArrayCreate(&mipmap, &wanted, 99));
    const std::array<std::array<std::size_t, 2>, 4> sizes{{{12, 5}, {6, 2}, {3, 1}, {1, 1}}};
    for (unsigned level = 0; level < sizes.size(); ++level) {
        CUarray array = nullptr;
        ok(cuMipmappedArrayGetLevel(&array, mipmap, level));
        CUDA_ARRAY_DESCRIPTOR said{};
        ok(cuArrayGetDescriptor_v2(&said, array));
        assert_int_equal(said.Width, sizes[level][0]);
        assert_int_equal(said.Height, sizes[level][1]);
        expect_result(cuArrayDestroy(array), CUDA_ERROR_INVALID_VALUE);
    }
    CUarray none = nullptr;
    expect_result(cuMipmappedArrayGetLevel(&none, mipmap, 4), CUDA_ERROR_INVALID_VALUE);
    CUarray first = nullptr;
    ok(cuMipmappedArrayGetLevel(&first, mipmap, 0));
    ok(cuMipmappedArrayDestroy(mipmap));
    CUDA_ARRAY_DESCRIPTOR said{};
    expect_result(cuArrayGetDescriptor_v2(&said, first), CUDA_ERROR_INVALID_HANDLE);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_can_be_made),
        cmocka_unit_test(memory_is_counted),
        cmocka_unit_test(boxes),
        cmocka_unit_test(whole_texels_only),
        cmocka_unit_test(an_array_that_a_copy_uses_stays),
        cmocka_unit_test(levels),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
