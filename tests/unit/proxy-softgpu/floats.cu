// SPDX-License-Identifier: GPL-2.0-or-later
// f32 and f64: IEEE operations with every rounding, approximations, and the mathematical library.
#define OPERATIONS(T, a, b, c, add, sub, mul, fma, div, sqrt, rcp)                                                  \
    add##_rn(a, b) + add##_rz(a, b) + add##_ru(a, b) + add##_rd(a, b) + sub##_rn(a, b) + sub##_rz(a, c) +          \
        mul##_rn(a, b) + mul##_rz(a, b) + mul##_ru(a, b) + mul##_rd(a, b) + fma##_rn(a, b, c) + fma##_rz(a, b, c) + \
        fma##_ru(a, b, c) + fma##_rd(a, b, c) + div##_rn(a, b) + div##_rz(a, b) + div##_ru(a, b) + div##_rd(a, b) + \
        sqrt##_rn(a) + sqrt##_rz(a) + sqrt##_ru(a) + sqrt##_rd(a) + rcp##_rn(a) + rcp##_rz(b) + rcp##_ru(a) + rcp##_rd(c)

extern "C" __global__ void single(float *x, int *flags) {
    const float a = x[0], b = x[1], c = x[2];
    x[3] = OPERATIONS(float, a, b, c, __fadd, __fsub, __fmul, __fmaf, __fdiv, __fsqrt, __frcp);
    x[4] = a * b + c - a / b + sqrtf(c) + fabsf(a) + fminf(a, b) + fmaxf(b, c) + copysignf(a, b) + __saturatef(a);
    x[5] = __sinf(a) + __cosf(b) + __logf(c) + __expf(a) + __fdividef(a, b) + __powf(a, b) + rsqrtf(c) + __tanf(a);
    x[6] = sinf(a) + cosf(b) + expf(c) + logf(a) + powf(a, b) + tanhf(c) + erff(a) + cbrtf(b) + fmodf(a, b) + remainderf(a, c);
    x[7] = floorf(a) + ceilf(b) + truncf(c) + rintf(a) + roundf(b) + nearbyintf(c) + ldexpf(a, flags[0]) + lgammaf(b) + j0f(a);
    x[8] = 1.5e-3f * a + 3.402823466e38f + 0x1p-149f + INFINITY;
    flags[1] = isnan(a) + 2 * isinf(b) + 4 * isfinite(c) + 8 * signbit(a) + 16 * (a < b) + 32 * (a != c) + 64 * !(a >= c);
}

extern "C" __global__ void twice(double *x, int *flags) {
    const double a = x[0], b = x[1], c = x[2];
    x[3] = OPERATIONS(double, a, b, c, __dadd, __dsub, __dmul, __fma, __ddiv, __dsqrt, __drcp);
    x[4] = a * b + c - a / b + sqrt(c) + fabs(a) + fmin(a, b) + fmax(b, c) + copysign(a, b) + rsqrt(a);
    x[5] = sin(a) + cos(b) + exp(c) + log(a) + pow(a, b) + tanh(c) + erf(a) + cbrt(b) + fmod(a, b) + tgamma(c);
    x[6] = floor(a) + ceil(b) + trunc(c) + rint(a) + round(b) + ldexp(a, flags[0]) + 0.1 + 1e308 * a;
    flags[1] = isnan(a) + 2 * isinf(b) + 4 * isfinite(c) + 8 * (a < b) + 16 * (b == c);
    flags[2] = __double2hiint(a) + __double2loint(b);
    x[7] = __hiloint2double(flags[3], flags[4]);
}
