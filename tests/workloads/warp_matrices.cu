// SPDX-License-Identifier: GPL-2.0-or-later
// Matrix products by the warp matrix functions of C++ (nvcuda::wmma), as CUDA's samples have them: tiles from global
// and from shared memory, in both layouts, of halves, bfloat16, TF32, doubles, bytes and bits; an accumulator that is
// scaled and converted element by element. Argument: tiles in each direction.
#include "workload.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;

// D = alpha A B + beta C, all of `tiles` tiles in each direction; one warp for each tile of D.
template <typename In, typename Fragment, typename Out, int M, int N, int K, typename LayoutA, typename LayoutB>
__global__ void product(const In *a, const In *b, const Out *c, Out *d, int tiles, Out alpha, Out beta) {
    const int row = blockIdx.y * M;
    const int column = blockIdx.x * N;
    const int m = tiles * M;
    const int n = tiles * N;
    const int k = tiles * K;
    constexpr bool a_rows = std::is_same_v<LayoutA, wmma::row_major>;
    constexpr bool b_rows = std::is_same_v<LayoutB, wmma::row_major>;
    wmma::fragment<wmma::accumulator, M, N, K, Out> sum;
    wmma::fragment<wmma::accumulator, M, N, K, Out> before;
    wmma::fill_fragment(sum, static_cast<Out>(0));
    for (int step = 0; step < k; step += K) {
        wmma::fragment<wmma::matrix_a, M, N, K, Fragment, LayoutA> left;
        wmma::fragment<wmma::matrix_b, M, N, K, Fragment, LayoutB> right;
        wmma::load_matrix_sync(left, a + (a_rows ? row * k + step : step * m + row), a_rows ? k : m);
        wmma::load_matrix_sync(right, b + (b_rows ? step * n + column : column * k + step), b_rows ? n : k);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::load_matrix_sync(before, c + row * n + column, n, wmma::mem_row_major);
    for (int i = 0; i < sum.num_elements; ++i)
        sum.x[i] = alpha * sum.x[i] + beta * before.x[i];
    wmma::store_matrix_sync(d + row * n + column, sum, n, wmma::mem_row_major);
}

// One tile in shared memory, by columns; the accumulator of floats is stored as halves.
__global__ void in_shared_memory(const __half *a, const __half *b, __half *d) {
    __shared__ __align__(32) __half left[16 * 24];
    __shared__ __align__(32) __half right[16 * 24];
    for (unsigned i = threadIdx.x; i < 256; i += warpSize) {
        left[i / 16 * 24 + i % 16] = a[i];
        right[i / 16 * 24 + i % 16] = b[i];
    }
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::col_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fragment<wmma::accumulator, 16, 16, 16, __half> halves;
    wmma::load_matrix_sync(x, left, 24);
    wmma::load_matrix_sync(y, right, 24);
    wmma::fill_fragment(sum, 0.0F);
    wmma::mma_sync(sum, x, y, sum);
    for (int i = 0; i < sum.num_elements; ++i)
        halves.x[i] = __float2half(sum.x[i]);
    wmma::store_matrix_sync(left, halves, 24, wmma::mem_col_major);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 256; i += warpSize)
        d[i] = left[i / 16 * 24 + i % 16];
}

// How many bits of a row of A and a column of B differ.
__global__ void bits(const unsigned *a, const unsigned *b, int *d) {
    using namespace wmma::experimental;
    wmma::fragment<wmma::matrix_a, 8, 8, 128, precision::b1, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 8, 8, 128, precision::b1, wmma::col_major> y;
    wmma::fragment<wmma::accumulator, 8, 8, 128, int> sum;
    wmma::load_matrix_sync(x, a, 128);
    wmma::load_matrix_sync(y, b, 128);
    wmma::fill_fragment(sum, 0);
    wmma::bmma_sync(sum, x, y, sum, bmmaBitOpXOR);
    wmma::store_matrix_sync(d, sum, 8, wmma::mem_row_major);
}

template <typename In, typename Fragment, typename Out, int M, int N, int K, typename LayoutA, typename LayoutB>
void check(workload::Report &report, const char *name, int tiles, int least, int most) {
    const int m = tiles * M;
    const int n = tiles * N;
    const int k = tiles * K;
    workload::Random random(41);
    const auto draw = [&](int count, int from, int to) {
        std::vector<int> values(count);
        for (int &value : values)
            value = static_cast<int>(random.between(static_cast<float>(from), static_cast<float>(to) + 0.99F));
        return values;
    };
    const auto converted = [](const std::vector<int> &values, auto example) {
        std::vector<decltype(example)> out;
        for (const int value : values)
            out.push_back(static_cast<decltype(example)>(static_cast<float>(value)));
        return out;
    };
    const auto a = draw(m * k, least, most);
    const auto b = draw(k * n, least, most);
    const auto c = draw(m * n, -9, 9);
    constexpr bool a_rows = std::is_same_v<LayoutA, wmma::row_major>;
    constexpr bool b_rows = std::is_same_v<LayoutB, wmma::row_major>;
    std::vector<Out> expected(m * n);
    for (int row = 0; row < m; ++row)
        for (int column = 0; column < n; ++column) {
            int sum = 0;
            for (int step = 0; step < k; ++step)
                sum += a[a_rows ? row * k + step : step * m + row] * b[b_rows ? step * n + column : column * k + step];
            expected[row * n + column] = static_cast<Out>(2 * sum + 3 * c[row * n + column]);
        }
    workload::Buffer<In> device_a(converted(a, In{}));
    workload::Buffer<In> device_b(converted(b, In{}));
    workload::Buffer<Out> device_c(converted(c, Out{}));
    workload::Buffer<Out> device_d(m * n);
    product<In, Fragment, Out, M, N, K, LayoutA, LayoutB><<<dim3(tiles, tiles), 32>>>(
        device_a.data(), device_b.data(), device_c.data(), device_d.data(), tiles, Out{2}, Out{3});
    CHECK(cudaGetLastError());
    report.equal(name, device_d.read(), expected);
}

int main(int argc, char **argv) {
    const int tiles = static_cast<int>(workload::size_argument(argc, argv, 3));
    workload::Report report;
    using Rows = wmma::row_major;
    using Columns = wmma::col_major;
    check<__half, __half, float, 16, 16, 16, Rows, Columns>(report, "halves", tiles, -4, 4);
    check<__half, __half, float, 32, 8, 16, Columns, Columns>(report, "halves, 32 x 8", tiles, -4, 4);
    check<__half, __half, float, 8, 32, 16, Rows, Rows>(report, "halves, 8 x 32", tiles, -4, 4);
    check<__nv_bfloat16, __nv_bfloat16, float, 16, 16, 16, Columns, Rows>(report, "bfloat16", tiles, -4, 4);
    check<float, wmma::precision::tf32, float, 16, 16, 8, Rows, Columns>(report, "TF32", tiles, -4, 4);
    check<double, double, double, 8, 8, 4, Rows, Rows>(report, "doubles", tiles, -999, 999);
    check<signed char, signed char, int, 16, 16, 16, Rows, Columns>(report, "bytes", tiles, -128, 127);
    check<unsigned char, unsigned char, int, 8, 32, 16, Columns, Columns>(report, "unsigned bytes", tiles, 0, 255);

    workload::Random random(43);
    std::vector<__half> a(256);
    std::vector<__half> b(256);
    std::vector<float> expected(256);
    for (auto *matrix : {&a, &b})
        for (__half &value : *matrix)
            value = __float2half(static_cast<float>(static_cast<int>(random.between(-4.0F, 4.99F))));
    for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 16; ++column)
            for (int step = 0; step < 16; ++step)
                expected[column * 16 + row] += __half2float(a[step * 16 + row]) * __half2float(b[step * 16 + column]);
    workload::Buffer<__half> device_a(a);
    workload::Buffer<__half> device_b(b);
    workload::Buffer<__half> device_d(256);
    in_shared_memory<<<1, 32>>>(device_a.data(), device_b.data(), device_d.data());
    CHECK(cudaGetLastError());
    std::vector<float> found;
    for (const __half value : device_d.read())
        found.push_back(__half2float(value));
    report.equal("in shared memory", found, expected);

    std::vector<unsigned> left(32);
    std::vector<unsigned> right(32);
    for (auto *words : {&left, &right})
        for (unsigned &word : *words)
            word = static_cast<unsigned>(random.between(0.0F, 65535.0F)) * 65537U;
    std::vector<int> differences(64);
    for (int row = 0; row < 8; ++row)
        for (int column = 0; column < 8; ++column)
            for (int word = 0; word < 4; ++word)
                differences[row * 8 + column] += __builtin_popcount(left[row * 4 + word] ^ right[column * 4 + word]);
    workload::Buffer<unsigned> device_left(left);
    workload::Buffer<unsigned> device_right(right);
    workload::Buffer<int> device_differences(64);
    bits<<<1, 32>>>(device_left.data(), device_right.data(), device_differences.data());
    CHECK(cudaGetLastError());
    report.equal("bits", device_differences.read(), differences);
    return report.finish();
}
