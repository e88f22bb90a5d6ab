// SPDX-License-Identifier: GPL-2.0-or-later
// Every conversion between arithmetic types, and the rounding forms.
#include <cstdint>
#include <cuda_fp8.h>

template <class To, class From>
__global__ void convert(To *to, const From *from) {
    to[threadIdx.x] = static_cast<To>(from[threadIdx.x]);
}
#define FROM(To, From) template __global__ void convert(To *, const From *);
#define TO(To)                                                                                                      \
    FROM(To, int8_t) FROM(To, uint8_t) FROM(To, int16_t) FROM(To, uint16_t) FROM(To, int32_t) FROM(To, uint32_t)   \
    FROM(To, int64_t) FROM(To, uint64_t) FROM(To, float) FROM(To, double) FROM(To, bool)
TO(int8_t) TO(uint8_t) TO(int16_t) TO(uint16_t) TO(int32_t) TO(uint32_t) TO(int64_t) TO(uint64_t) TO(float) TO(double) TO(bool)

extern "C" __global__ void rounded(float *f, double *d, int *i, unsigned *u, long long *l) {
    i[0] = __float2int_rn(f[0]) + __float2int_rz(f[1]) + __float2int_ru(f[2]) + __float2int_rd(f[3]) + __double2int_rn(d[0]);
    u[0] = __float2uint_rn(f[0]) + __float2uint_rd(f[1]) + __double2uint_ru(d[0]);
    l[0] = __float2ll_rn(f[0]) + __double2ll_rd(d[0]) + static_cast<long long>(__double2ull_rz(d[1]));
    f[4] = __int2float_ru(i[1]) + __uint2float_rd(u[1]) + __ll2float_rz(l[1]) + __double2float_rd(d[2]) + __double2float_ru(d[3]);
    d[4] = __ll2double_ru(l[2]) + __int2double_rn(i[2]);
    f[5] = __int_as_float(i[3]) + __uint_as_float(u[3]);
    i[4] = __float_as_int(f[6]);
    l[3] = __double_as_longlong(d[5]);
}

extern "C" __global__ void eight_bit(__nv_fp8_e4m3 *a, __nv_fp8_e5m2 *b, float *f, __nv_fp8x2_e4m3 *p, float2 *f2) {
    a[0] = __nv_fp8_e4m3(f[0]);
    b[0] = __nv_fp8_e5m2(f[1]);
    f[2] = static_cast<float>(a[1]) + static_cast<float>(b[1]);
    p[0] = __nv_fp8x2_e4m3(f2[0]);
    f2[1] = static_cast<float2>(p[1]);
}
