// SPDX-License-Identifier: GPL-2.0-or-later
// Events: order between streams, states, times.
#include "driver.hpp"

using namespace singularity::test;

namespace {

void order_between_streams(void ** /*state*/) {
    const Scope scope;
    const Code code;
    const CUdeviceptr flag = zeros(4);
    const CUdeviceptr memory = zeros(4);
    CUstream first = nullptr;
    CUstream second = nullptr;
    CUevent event = nullptr;
    ok(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    ok(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    ok(cuEventCreate(&event, CU_EVENT_DEFAULT));
    ok(cuEventQuery(event)); // never recorded
    ok(code.launch_one(code.spin, flag, first));
    ok(cuMemsetD32Async(memory, 5, 1, first));
    ok(cuEventRecord(event, first));
    ok(cuStreamWaitEvent(second, event, 0));
    ok(code.launch_add(memory, 1, 1, second));
    expect_result(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    CUstream third = nullptr;
    ok(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
    ok(cuStreamWriteValue32_v2(third, flag, 1, 0));
    ok(cuEventSynchronize(event));
    ok(cuStreamSynchronize(second));
    assert_int_equal(read_int(memory), 6);
    ok(cuEventDestroy_v2(event));
    expect_result(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
}

void times(void ** /*state*/) {
    const Scope scope;
    CUevent start = nullptr;
    CUevent end = nullptr;
    CUevent timeless = nullptr;
    float milliseconds = -1;
    ok(cuEventCreate(&start, 0));
    ok(cuEventCreate(&end, 0));
    ok(cuEventCreate(&timeless, CU_EVENT_DISABLE_TIMING));
    expect_result(cuEventElapsedTime_v2(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE);
    ok(cuEventRecord(start, nullptr));
    ok(cuLaunchHostFunc(
        nullptr, [](void *) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }, nullptr));
    ok(cuEventRecord(end, nullptr));
    ok(cuEventRecord(timeless, nullptr));
    ok(cuEventSynchronize(end));
    ok(cuEventElapsedTime_v2(&milliseconds, start, end));
    assert_true(milliseconds >= 20 && milliseconds < 10000);
    ok(cuEventSynchronize(timeless));
    expect_result(cuEventElapsedTime_v2(&milliseconds, start, timeless), CUDA_ERROR_INVALID_HANDLE);
    expect_result(cuEventCreate(&start, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(order_between_streams),
        cmocka_unit_test(times),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
