// SPDX-License-Identifier: GPL-2.0-or-later
// Copies and fills in every shape.
#include "driver.hpp"

#include <array>
#include <bit>
#include <numeric>
#include <vector>

using namespace singularity::test;

namespace {

std::vector<unsigned char> pattern(std::size_t size) {
    std::vector<unsigned char> out(size);
    for (std::size_t at = 0; at < size; ++at)
        out[at] = static_cast<unsigned char>((at * 7) + 3);
    return out;
}

void linear(void ** /*state*/) {
    const Scope scope;
    const auto in = pattern(300000);
    std::vector<unsigned char> out(in.size());
    const CUdeviceptr a = allocate(in.size());
    const CUdeviceptr b = allocate(in.size());
    ok(cuMemcpyHtoD_v2(a, in.data(), in.size()));
    ok(cuMemcpyDtoD_v2(b, a, in.size()));
    ok(cuMemcpyDtoH_v2(out.data(), b, in.size()));
    assert_memory_equal(in.data(), out.data(), in.size());
    std::ranges::fill(out, static_cast<unsigned char>(0));
    ok(cuMemcpy(std::bit_cast<CUdeviceptr>(out.data()), b + 1, 10));
    assert_memory_equal(in.data() + 1, out.data(), 10);
}

void what_is_not_device_memory_is_refused(void ** /*state*/) {
    const Scope scope;
    std::array<char, 64> host{};
    const CUdeviceptr memory = allocate(64);
    expect_result(cuMemcpyHtoD_v2(memory, host.data(), 65), CUDA_ERROR_INVALID_VALUE);
    expect_result(cuMemcpyHtoD_v2(memory + 64, host.data(), 1), CUDA_ERROR_INVALID_VALUE);
    expect_result(cuMemcpyHtoD_v2(memory - 1, host.data(), 1), CUDA_ERROR_INVALID_VALUE);
    expect_result(cuMemcpyDtoH_v2(host.data(), 8, 1), CUDA_ERROR_INVALID_VALUE);
    expect_result(cuMemcpyDtoD_v2(memory, std::bit_cast<CUdeviceptr>(host.data()), 4),
                  CUDA_ERROR_INVALID_VALUE);
    expect_result(cuMemcpyHtoD_v2(memory, nullptr, 4), CUDA_ERROR_INVALID_VALUE);
    expect_result(cuMemcpyHtoD_v2(memory, host.data(), SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
    ok(cuMemcpyHtoD_v2(memory, host.data(), 0));
}

// The source may change as soon as an asynchronous copy from pageable memory has returned.
void pageable_sources_are_read_at_once(void ** /*state*/) {
    const Scope scope;
    const Code code;
    const CUdeviceptr flag = zeros(4);
    const CUdeviceptr memory = zeros(4);
    CUstream stream = nullptr;
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(code.launch_one(code.spin, flag, stream));
    int value = 77;
    ok(cuMemcpyHtoDAsync_v2(memory, &value, sizeof value, stream));
    value = 0;
    CUstream other = nullptr;
    ok(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    ok(cuStreamWriteValue32_v2(other, flag, 1, 0));
    ok(cuStreamSynchronize(stream));
    assert_int_equal(read_int(memory), 77);
}

void two_dimensions(void ** /*state*/) {
    const Scope scope;
    const auto in = pattern(10 * 8);
    CUdeviceptr memory = 0;
    std::size_t pitch = 0;
    ok(cuMemAllocPitch_v2(&memory, &pitch, 10, 8, 4));
    assert_int_equal(pitch, 512);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = in.data();
    copy.srcPitch = 10;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = memory;
    copy.dstPitch = pitch;
    copy.WidthInBytes = 10;
    copy.Height = 8;
    ok(cuMemcpy2D_v2(&copy));
    std::array<unsigned char, 6> out{};
    CUDA_MEMCPY2D back{};
    back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    back.srcDevice = memory;
    back.srcPitch = pitch;
    back.srcXInBytes = 4;
    back.srcY = 5;
    back.dstMemoryType = CU_MEMORYTYPE_HOST;
    back.dstHost = out.data();
    back.dstPitch = 3;
    back.WidthInBytes = 3;
    back.Height = 2;
    ok(cuMemcpy2D_v2(&back));
    assert_memory_equal(out.data(), in.data() + 54, 3);
    assert_memory_equal(out.data() + 3, in.data() + 64, 3);
    copy.dstPitch = 9;
    expect_result(cuMemcpy2D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.dstPitch = pitch;
    copy.Height = 9000;
    expect_result(cuMemcpy2D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
}

void three_dimensions(void ** /*state*/) {
    const Scope scope;
    const auto in = pattern(std::size_t{4} * 5 * 6);
    const CUdeviceptr memory = zeros(std::size_t{16} * 10 * 6);
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = in.data();
    copy.srcPitch = 4;
    copy.srcHeight = 5;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = memory;
    copy.dstPitch = 16;
    copy.dstHeight = 10;
    copy.dstXInBytes = 2;
    copy.dstY = 1;
    copy.WidthInBytes = 4;
    copy.Height = 5;
    copy.Depth = 6;
    ok(cuMemcpy3D_v2(&copy));
    std::array<unsigned char, 4> out{};
    ok(cuMemcpyDtoH_v2(out.data(), memory + (std::size_t{5} * 160) + (std::size_t{3} * 16) + 2, 4));
    assert_memory_equal(out.data(), in.data() + (std::size_t{5} * 20) + 8, 4);
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    expect_result(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_HANDLE);
}

void between_devices(void ** /*state*/) {
    const Scope first(0);
    const CUdeviceptr a = zeros(64);
    ok(cuMemsetD32_v2(a, 42, 16));
    const Scope second(1);
    const CUdeviceptr b = zeros(64);
    ok(cuMemcpyPeer(b, second.context, a, first.context, 64));
    ok(cuCtxSynchronize());
    assert_int_equal(read_int(b + 60), 42);
    expect_result(cuMemcpyPeer(b, second.context, a, nullptr, 64), CUDA_ERROR_INVALID_CONTEXT);
}

void fills(void ** /*state*/) {
    const Scope scope;
    const CUdeviceptr memory = zeros(4096);
    ok(cuMemsetD8_v2(memory, 0xAB, 3));
    ok(cuMemsetD16_v2(memory + 4, 0x1234, 2));
    ok(cuMemsetD32Async(memory + 8, 0xCAFEBABE, 1, nullptr));
    std::array<unsigned char, 12> out{};
    ok(cuMemcpyDtoH_v2(out.data(), memory, out.size()));
    const std::array<unsigned char, 12> expected{0xAB, 0xAB, 0xAB, 0,    0x34, 0x12,
                                                 0x34, 0x12, 0xBE, 0xBA, 0xFE, 0xCA};
    assert_memory_equal(out.data(), expected.data(), out.size());
    ok(cuMemsetD2D8_v2(memory, 16, 7, 4, 3));
    ok(cuMemcpyDtoH_v2(out.data(), memory + 32, 5));
    assert_int_equal(out[3], 7);
    assert_int_equal(out[4], 0);
    expect_result(cuMemsetD32_v2(memory + 2, 1, 1), CUDA_ERROR_INVALID_VALUE);
    expect_result(cuMemsetD8_v2(memory, 1, 4097), CUDA_ERROR_INVALID_VALUE);
    expect_result(cuMemsetD2D32_v2(memory, 6, 1, 2, 2), CUDA_ERROR_INVALID_VALUE);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(linear),
        cmocka_unit_test(what_is_not_device_memory_is_refused),
        cmocka_unit_test(two_dimensions),
        cmocka_unit_test(pageable_sources_are_read_at_once),
        cmocka_unit_test(three_dimensions),
        cmocka_unit_test(between_devices),
        cmocka_unit_test(fills),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
