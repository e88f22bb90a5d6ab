// SPDX-License-Identifier: GPL-2.0-or-later
// Arithmetic, comparisons and conversions of half and bfloat16, scalar and in pairs, each rounded once: equal
// to the bit with the same functions of the toolkit's headers on the host. Argument: values.
#include "workload.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int results = 8;

template <typename T>
struct Pair;
template <>
struct Pair<__half> {
    using type = __half2;
};
template <>
struct Pair<__nv_bfloat16> {
    using type = __nv_bfloat162;
};

template <typename T>
__host__ __device__ T from_float(float value);
template <>
__host__ __device__ __half from_float(float value) {
    return __float2half_rn(value);
}
template <>
__host__ __device__ __nv_bfloat16 from_float(float value) {
    return __float2bfloat16_rn(value);
}
__host__ __device__ inline float to_float(__half value) { return __half2float(value); }
__host__ __device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

__host__ __device__ inline void from_double(double value, __half &result) { result = __double2half(value); }
__host__ __device__ inline void from_double(double value, __nv_bfloat16 &result) {
    result = __double2bfloat16(value);
}

// The headers have the fused operations for the device only: on the host in double, which holds the exact
// sum.
template <typename T>
__host__ __device__ T fused(T a, T b, T c) {
#ifdef __CUDA_ARCH__
    return __hfma(a, b, c);
#else
    T result;
    from_double(std::fma(double{to_float(a)}, double{to_float(b)}, double{to_float(c)}), result);
    return result;
#endif
}

template <typename Two>
__host__ __device__ Two fused_pair(Two a, Two b, Two c) {
#ifdef __CUDA_ARCH__
    return __hfma2(a, b, c);
#else
    return {fused(a.x, b.x, c.x), fused(a.y, b.y, c.y)};
#endif
}

// What is computed of two numbers, written once for both machines.
template <typename T>
__host__ __device__ void compute(float x, float y, T *out) {
    const T a = from_float<T>(x);
    const T b = from_float<T>(y);
    out[0] = __hadd(a, b);
    out[1] = __hmul(a, b);
    out[2] = __hsub(a, b);
    out[3] = fused(a, b, from_float<T>(0.5F));
    out[4] = __hlt(a, b) ? __hneg(a) : __habs(b);
    const typename Pair<T>::type pair{a, b};
    const typename Pair<T>::type turned{b, a};
    const auto sum = __hadd2(pair, turned);
    const auto product = fused_pair(pair, turned, sum);
    out[5] = __low2float(product) > 0.0F ? product.x : sum.y;
    out[6] = from_float<T>(fmaf(to_float(a), to_float(b), 1.0F));
    out[7] = from_float<T>(static_cast<float>(static_cast<int>(to_float(a) * 4.0F)));
}

template <typename T>
__global__ void compute_all(const float2 *in, T *out, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        compute<T>(in[i].x, in[i].y, out + std::size_t{i} * results);
}

// A dot product with the products rounded to T and the sum in float.
template <typename T>
__global__ void dot(const float2 *in, float *sums, unsigned count) {
    float sum = 0.0F;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
        sum += to_float(__hmul(from_float<T>(in[i].x), from_float<T>(in[i].y)));
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xffffffffU, sum, offset);
    if (threadIdx.x == 0)
        *sums = sum;
}

template <typename T>
void run(workload::Report &report, const char *name, const std::vector<float2> &in) {
    const auto count = static_cast<unsigned>(in.size());
    workload::Buffer<float2> device(in);
    workload::Buffer<T> out(in.size() * results);
    compute_all<<<workload::blocks_for(count, 128), 128>>>(device.data(), out.data(), count);
    CHECK_LAUNCH();
    std::vector<T> expected(in.size() * results);
    for (std::size_t i = 0; i < in.size(); ++i)
        compute<T>(in[i].x, in[i].y, expected.data() + i * results);
    report.equal(name, out.read(), expected);

    workload::Buffer<float> sum(1);
    dot<T><<<1, 32>>>(device.data(), sum.data(), count);
    CHECK_LAUNCH();
    double reference = 0.0;
    for (const float2 &pair : in)
        reference +=
            to_float(from_float<T>(to_float(from_float<T>(pair.x)) * to_float(from_float<T>(pair.y))));
    report.near("dot product", sum.read()[0], reference, 1e-3);
}

int main(int argc, char **argv) {
    workload::Random random(89);
    std::vector<float2> in(workload::size_argument(argc, argv, 20000));
    for (float2 &pair : in)
        pair = make_float2(random.between(-4.0F, 4.0F),
                           std::ldexp(random.between(-1.0F, 1.0F), static_cast<int>(random.below(20)) - 16));
    workload::Report report;
    run<__half>(report, "half", in);
    run<__nv_bfloat16>(report, "bfloat16", in);
    return report.finish();
}
