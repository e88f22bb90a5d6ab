// SPDX-License-Identifier: GPL-2.0-or-later
// Kernels of the kind programs consist of.
template <int N>
__global__ void matrix_product(float *c, const float *a, const float *b, int n) {
    __shared__ float as[N][N], bs[N][N];
    const int row = blockIdx.y * N + threadIdx.y, column = blockIdx.x * N + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < n; t += N) {
        as[threadIdx.y][threadIdx.x] = a[row * n + t + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + column];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < N; ++k)
            sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
template __global__ void matrix_product<16>(float *, const float *, const float *, int);

template <class T>
__global__ void reduction(T *out, const T *in, size_t n) {
    extern __shared__ unsigned char raw[];
    T *part = reinterpret_cast<T *>(raw);
    T sum = 0;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    part[threadIdx.x] = sum;
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = part[0];
}
template __global__ void reduction(float *, const float *, size_t);
template __global__ void reduction(double *, const double *, size_t);

extern "C" __global__ void gelu(float *y, const float *x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = 0.5F * x[i] * (1.F + tanhf(0.7978845608F * (x[i] + 0.044715F * x[i] * x[i] * x[i])));
}

extern "C" __global__ void bitonic(int *data, int j, int k) {
    const unsigned i = threadIdx.x + blockDim.x * blockIdx.x, other = i ^ static_cast<unsigned>(j);
    if (other > i && (((i & static_cast<unsigned>(k)) == 0) == (data[i] > data[other]))) {
        const int t = data[i];
        data[i] = data[other];
        data[other] = t;
    }
}
