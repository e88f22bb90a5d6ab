// SPDX-License-Identifier: GPL-2.0-or-later
// Integer arithmetic of every width, with the intrinsics that have instructions of their own.
#include <cstdint>

template <class T>
__device__ T mix(T a, T b, int n) {
    T r = static_cast<T>(a + b * a - b);
    r ^= static_cast<T>(b != 0 ? a / b : a);
    r += static_cast<T>(b != 0 ? a % b : b);
    r |= static_cast<T>(a << (n & 7)) & static_cast<T>(~b >> (n & 3));
    r = r < a ? r : static_cast<T>(a - r);
    return static_cast<T>(r > b ? -r : r);
}

template <class T>
__global__ void arithmetic(T *out, const T *a, const T *b, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = mix(a[i], b[i], n);
}
template __global__ void arithmetic(int8_t *, const int8_t *, const int8_t *, int);
template __global__ void arithmetic(uint8_t *, const uint8_t *, const uint8_t *, int);
template __global__ void arithmetic(int16_t *, const int16_t *, const int16_t *, int);
template __global__ void arithmetic(uint16_t *, const uint16_t *, const uint16_t *, int);
template __global__ void arithmetic(int32_t *, const int32_t *, const int32_t *, int);
template __global__ void arithmetic(uint32_t *, const uint32_t *, const uint32_t *, int);
template __global__ void arithmetic(int64_t *, const int64_t *, const int64_t *, int);
template __global__ void arithmetic(uint64_t *, const uint64_t *, const uint64_t *, int);
template __global__ void arithmetic(__int128 *, const __int128 *, const __int128 *, int);

extern "C" __global__ void intrinsics(uint32_t *u, uint64_t *l, int32_t *s, int64_t *ls) {
    u[0] = __popc(u[1]) + __clz(s[1]) + __ffs(s[2]) + __brev(u[2]);
    u[3] = __byte_perm(u[4], u[5], u[6]) + __funnelshift_l(u[1], u[2], u[3]) + __funnelshift_rc(u[1], u[2], u[7]);
    u[8] = __umulhi(u[1], u[2]) + __mul24(s[3], s[4]) + __umul24(u[3], u[4]) + __sad(s[1], s[2], u[1]) + __usad(u[1], u[2], u[3]);
    u[9] = __dp4a(u[1], u[2], u[3]) + __dp4a(s[1], s[2], s[3]) + __dp2a_lo(u[1], u[2], u[3]) + __dp2a_hi(s[1], s[2], s[3]);
    u[10] = __vadd4(u[1], u[2]) + __vabsdiffu4(u[1], u[2]) + __vmaxs2(u[3], u[4]) + __vcmpgtu4(u[5], u[6]) + __vavgs4(u[1], u[9]);
    u[11] = __viaddmax_s32(s[1], s[2], s[3]) + __vimin3_u32(u[1], u[2], u[3]) + __vimax_s16x2_relu(u[1], u[2]);
    u[12] = __hadd(s[1], s[2]) + __urhadd(u[1], u[2]) + __brev(u[3]) + __fns(u[1], u[2], s[3]);
    l[0] = __popcll(l[1]) + __clzll(ls[1]) + __ffsll(ls[2]) + __brevll(l[2]) + __umul64hi(l[3], l[4]);
    ls[0] = __mul64hi(ls[1], ls[2]) + static_cast<int64_t>(s[1]) * s[2] + min(ls[3], ls[4]) + abs(ls[5]);
    l[5] = static_cast<uint64_t>(u[1]) * u[2] + max(l[6], l[7]);
    u[13] = (u[1] & u[2]) | (~u[1] & u[3]) ^ ((u[4] >> 5) & 0x3ff);
    s[5] = abs(s[6]) + min(s[7], s[8]) + max(u[7], u[8]) + (s[9] >> 3) + s[1] / 7 + s[2] % 10;
}
