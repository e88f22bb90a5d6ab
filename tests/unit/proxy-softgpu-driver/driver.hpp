// SPDX-License-Identifier: GPL-2.0-or-later
// What the tests of the driver have in common: contexts, and kernels as PTX.
#pragma once

#include "cmocka.hpp"
#include "proxy/libcuda/cuda.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

namespace singularity::test {

inline void expect_result(CUresult found, CUresult expected, const char *file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
    if (found != expected)
        fail("CUresult " + std::to_string(found) + ", expected " + std::to_string(expected), file, line);
}
inline void ok(CUresult found, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    expect_result(found, CUDA_SUCCESS, file, line);
}

// A context of its own, gone at the end.
class Scope {
  public:
    explicit Scope(CUdevice device = 0) {
        ok(cuInit(0));
        ok(cuCtxCreate_v4(&context, nullptr, 0, device));
    }
    ~Scope() { cuCtxDestroy_v2(context); }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;
    Scope(Scope &&) = delete;
    Scope &operator=(Scope &&) = delete;
    CUcontext context = nullptr;
};

// add(int *out, int value): out[global index] += value.  spin(int *flag): until *flag is not 0.
// bad(int *out): writes to address 16.  global variable `counter`, constant `factor`.
inline constexpr const char *kPtx = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter = 41;
.visible .const .align 4 .u32 factor = 3;
.visible .entry add(.param .u64 out, .param .u32 value) {
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    mul.wide.u32 %rd2, %r5, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r6, [%rd3];
    add.s32 %r7, %r6, %r1;
    st.global.u32 [%rd3], %r7;
    ret;
}
.visible .entry spin(.param .u64 flag) {
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [flag];
again:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra again;
    ret;
}
.visible .entry bad(.param .u64 out) {
    .reg .b64 %rd<2>;
    mov.u64 %rd1, 16;
    st.global.u32 [%rd1], 1;
    ret;
}
.visible .entry bump() {
    .reg .b32 %r<4>;
    ld.global.u32 %r1, [counter];
    ld.const.u32 %r2, [factor];
    add.s32 %r3, %r1, %r2;
    st.global.u32 [counter], %r3;
    ret;
}
)";

class Code {
  public:
    Code() {
        ok(cuModuleLoadData(&module, kPtx));
        ok(cuModuleGetFunction(&add, module, "add"));
        ok(cuModuleGetFunction(&spin, module, "spin"));
        ok(cuModuleGetFunction(&bad, module, "bad"));
        ok(cuModuleGetFunction(&bump, module, "bump"));
    }
    [[nodiscard]] CUresult launch_add(CUdeviceptr out, int value, unsigned count,
                                      CUstream stream = nullptr) const {
        void *parameters[] = {&out, &value};
        return cuLaunchKernel(add, 1, 1, 1, count, 1, 1, 0, stream, parameters, nullptr);
    }
    [[nodiscard]] CUresult launch_one(CUfunction function, CUdeviceptr argument,
                                      CUstream stream = nullptr) const {
        void *parameters[] = {&argument};
        return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
    }
    CUmodule module = nullptr;
    CUfunction add = nullptr;
    CUfunction spin = nullptr;
    CUfunction bad = nullptr;
    CUfunction bump = nullptr;
};

inline CUdeviceptr allocate(std::size_t size) {
    CUdeviceptr out = 0;
    ok(cuMemAlloc_v2(&out, size));
    return out;
}
inline CUdeviceptr zeros(std::size_t size) {
    const CUdeviceptr out = allocate(size);
    ok(cuMemsetD8_v2(out, 0, size));
    ok(cuCtxSynchronize());
    return out;
}
inline int read_int(CUdeviceptr address) {
    int value = 0;
    ok(cuMemcpyDtoH_v2(&value, address, sizeof value));
    return value;
}

template <class Condition>
bool soon(Condition &&condition, std::chrono::milliseconds limit = std::chrono::seconds(10)) {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > until)
            return false;
        std::this_thread::yield();
    }
    return true;
}

} // namespace singularity::test
