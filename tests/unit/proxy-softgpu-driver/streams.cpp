// SPDX-License-Identifier: GPL-2.0-or-later
// Streams: asynchrony, default streams' rules, host functions, values in memory, events between streams.
#include "driver.hpp"

#include <atomic>

using namespace singularity::test;

namespace {

struct Held { // a stream that waits until it is let go
    Held(unsigned flags) {
        flag = zeros(4);
        ok(cuStreamCreate(&stream, flags));
        ok(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
        ok(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    }
    void let_go() const { ok(cuStreamWriteValue32_v2(other, flag, 1, 0)); }
    CUdeviceptr flag = 0;
    CUstream stream = nullptr;
    CUstream other = nullptr;
};

void work_is_asynchronous(void ** /*state*/) {
    const Scope scope;
    const Code code;
    const CUdeviceptr memory = zeros(4);
    const Held held(CU_STREAM_NON_BLOCKING);
    ok(code.launch_add(memory, 1, 1, held.stream));
    expect_result(cuStreamQuery(held.stream), CUDA_ERROR_NOT_READY);
    ok(code.launch_add(memory, 10, 1, held.other)); // overtakes
    ok(cuStreamSynchronize(held.other));
    assert_int_equal(read_int(memory), 10);
    held.let_go();
    ok(cuStreamSynchronize(held.stream));
    ok(cuStreamQuery(held.stream));
    assert_int_equal(read_int(memory), 11);
    ok(cuStreamDestroy_v2(held.stream));
    expect_result(cuStreamDestroy_v2(held.stream), CUDA_ERROR_INVALID_HANDLE);
    expect_result(cuStreamQuery(held.stream), CUDA_ERROR_INVALID_HANDLE);
}

void the_legacy_stream_waits_for_blocking_ones(void ** /*state*/) {
    const Scope scope;
    const Code code;
    const Held held(CU_STREAM_DEFAULT);
    ok(code.launch_add(held.flag, 0, 1, nullptr));
    expect_result(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
    held.let_go();
    ok(cuStreamSynchronize(nullptr));
}

void the_legacy_stream_does_not_wait_for_non_blocking_ones(void ** /*state*/) {
    const Scope scope;
    const Code code;
    const Held held(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr memory = allocate(4);
    ok(cuMemsetD32_v2(memory, 0, 1));
    ok(code.launch_add(memory, 3, 1, nullptr));
    assert_int_equal(read_int(memory), 3);
    held.let_go();
    ok(cuCtxSynchronize());
}

void per_thread_streams_are_apart(void ** /*state*/) {
    const Scope scope;
    const CUdeviceptr flag = zeros(4);
    ok(cuStreamWaitValue32_v2(CU_STREAM_PER_THREAD, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    std::thread([&] {
        cuCtxSetCurrent(scope.context);
        const Code code;
        ok(code.launch_add(flag, 1, 1, CU_STREAM_PER_THREAD));
        ok(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    }).join();
    ok(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

struct Called {
    std::atomic<int> count{0};
    std::atomic<int> inside{-1};
};

void host_functions(void ** /*state*/) {
    const Scope scope;
    Called called;
    const auto function = [](void *data) {
        auto *const me = static_cast<Called *>(data);
        int device = 0;
        CUdeviceptr memory = 0;
        (void)device;
        me->inside = cuMemAlloc_v2(&memory, 4); // not allowed here, and there is no context
        ++me->count;
    };
    ok(cuLaunchHostFunc(nullptr, function, &called));
    ok(cuStreamAddCallback(
        nullptr,
        [](CUstream, CUresult status, void *data) {
            static_cast<Called *>(data)->count += status == CUDA_SUCCESS ? 10 : 0;
        },
        &called, 0));
    ok(cuCtxSynchronize());
    assert_int_equal(called.count.load(), 11);
    assert_int_not_equal(called.inside.load(), CUDA_SUCCESS);
    expect_result(cuLaunchHostFunc(nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

void properties(void ** /*state*/) {
    const Scope scope;
    CUstream stream = nullptr;
    ok(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100));
    int priority = 0;
    unsigned flags = 0;
    CUcontext context = nullptr;
    ok(cuStreamGetPriority(stream, &priority));
    ok(cuStreamGetFlags(stream, &flags));
    ok(cuStreamGetCtx(stream, &context));
    assert_int_equal(priority, -5);
    assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
    assert_ptr_equal(context, scope.context);
    expect_result(cuStreamCreate(&stream, 99), CUDA_ERROR_INVALID_VALUE);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(work_is_asynchronous),
        cmocka_unit_test(the_legacy_stream_waits_for_blocking_ones),
        cmocka_unit_test(the_legacy_stream_does_not_wait_for_non_blocking_ones),
        cmocka_unit_test(per_thread_streams_are_apart),
        cmocka_unit_test(host_functions),
        cmocka_unit_test(properties),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
