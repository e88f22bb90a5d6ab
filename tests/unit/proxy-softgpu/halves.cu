// SPDX-License-Identifier: GPL-2.0-or-later
// f16 and bf16, scalar and packed.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <class T>
__device__ T compute(T a, T b, T c) {
    T r = __hfma(a, b, c) + a * b - c / b;
    r = __hadd(r, __hmul(a, b)) + __habs(a) + __hneg(b) + __hfma_relu(a, b, c) + __hmax(a, b) + __hmin_nan(b, c);
    r += hsqrt(a) + hrcp(b) + hexp(c) + hlog2(a) + hsin(b) + hfloor(c) + hrint(a) + hexp2(c);
    return __hlt(a, b) || __hisnan(c) ? r : __hsub(a, r);
}

extern "C" __global__ void half_scalar(__half *x, int *n) {
    x[3] = compute(x[0], x[1], x[2]) + __hadd_sat(x[0], x[1]) + __hfma_sat(x[0], x[1], x[2]) + htanh(x[0]);
    n[0] = __half2int_rn(x[0]) + __half2uint_rz(x[1]) + __half_as_short(x[2]) + __hle(x[0], x[1]);
    x[4] = __int2half_rd(n[1]) + __float2half_ru(3.25F * static_cast<float>(n[2])) + __double2half(n[3]);
}

extern "C" __global__ void half_packed(__half2 *x, unsigned *mask) {
    x[3] = __hfma2(x[0], x[1], x[2]) + __hmul2(x[0], x[1]) - __h2div(x[1], x[2]) + __hmax2(x[0], x[1]) + h2exp2(x[2]);
    x[4] = __floats2half2_rn(__low2float(x[0]), __high2float(x[1])) + __lowhigh2highlow(x[2]) + __habs2(x[0]) + __hneg2(x[1]);
    mask[0] = __hlt2_mask(x[0], x[1]) | __hbeq2(x[0], x[2]);
    x[5] = __heq2(x[0], x[1]);
    atomicAdd(&x[6], x[0]);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
extern "C" __global__ void bfloat_scalar(__nv_bfloat16 *x, float *f) {
    x[3] = compute(x[0], x[1], x[2]);
    f[0] = __bfloat162float(x[0]) + static_cast<float>(x[1]);
    x[4] = __float2bfloat16_rn(f[1]) + __float2bfloat16_rz(f[2]);
    atomicAdd(&x[5], x[0]);
}

extern "C" __global__ void bfloat_packed(__nv_bfloat162 *x) {
    x[3] = __hfma2(x[0], x[1], x[2]) + __hmul2(x[0], x[1]) + __hmin2(x[0], x[1]) + __floats2bfloat162_rn(1.F, __low2float(x[2]));
    atomicAdd(&x[4], x[0]);
}
#endif
