// SPDX-License-Identifier: GPL-2.0-or-later
// Kernel templates over type, operation and block size with dynamic shared memory, also more than a kernel
// gets without asking; attributes and occupancy of kernels. Argument: elements.
#include "workload.cuh"

#include <algorithm>

struct Sum {
    template <typename T>
    __host__ __device__ T operator()(T a, T b) const {
        return a + b;
    }
    template <typename T>
    __host__ __device__ static T neutral() {
        return T{0};
    }
};
struct Smallest {
    template <typename T>
    __host__ __device__ T operator()(T a, T b) const {
        return b < a ? b : a;
    }
    template <typename T>
    __host__ __device__ static T neutral() {
        return static_cast<T>(1000000);
    }
};

template <typename T, typename Operation, unsigned block>
__global__ void reduce(const T *in, T *out, unsigned count) {
    extern __shared__ __align__(16) unsigned char memory[];
    T *items = reinterpret_cast<T *>(memory);
    const Operation operation{};
    T own = Operation::template neutral<T>();
    for (unsigned i = blockIdx.x * block + threadIdx.x; i < count; i += gridDim.x * block)
        own = operation(own, in[i]);
    items[threadIdx.x] = own;
    __syncthreads();
#pragma unroll
    for (unsigned half = block / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            items[threadIdx.x] = operation(items[threadIdx.x], items[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = items[0];
}

template <typename T, typename Operation, unsigned block>
void run(workload::Report &report, const char *name, const std::vector<T> &values) {
    constexpr unsigned blocks = 7;
    workload::Buffer<T> in(values);
    workload::Buffer<T> out(blocks);
    const auto count = static_cast<unsigned>(values.size());
    reduce<T, Operation, block><<<blocks, block, block * sizeof(T)>>>(in.data(), out.data(), count);
    CHECK_LAUNCH();
    // The same order as the device's: by thread, then by tree.
    std::vector<T> expected;
    for (unsigned b = 0; b < blocks; ++b) {
        std::vector<T> items(block, Operation::template neutral<T>());
        for (unsigned t = 0; t < block; ++t)
            for (unsigned i = b * block + t; i < count; i += blocks * block)
                items[t] = Operation{}(items[t], values[i]);
        for (unsigned half = block / 2; half > 0; half /= 2)
            for (unsigned t = 0; t < half; ++t)
                items[t] = Operation{}(items[t], items[t + half]);
        expected.push_back(items[0]);
    }
    report.equal(name, out.read(), expected);
}

template <typename T>
std::vector<T> numbers(std::size_t count) {
    workload::Random random(109);
    std::vector<T> values(count);
    for (T &value : values)
        value = static_cast<T>(random.between(-1000.0F, 1000.0F));
    return values;
}

// Reverses a row of up to 64 KiB in shared memory.
__global__ void reverse(int *values, int count) {
    extern __shared__ __align__(16) unsigned char memory[];
    int *items = reinterpret_cast<int *>(memory);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
        items[i] = values[i];
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
        values[i] = items[count - 1 - i];
}

__global__ void __launch_bounds__(128, 2) bounded(int *out) {
    __shared__ int some[100];
    some[threadIdx.x % 100] = static_cast<int>(threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = some[(threadIdx.x + 1) % 100];
}

int main(int argc, char **argv) {
    const std::size_t count = workload::size_argument(argc, argv, 40009);
    workload::Report report;
    run<int, Sum, 128>(report, "int sum", numbers<int>(count));
    run<long long, Smallest, 64>(report, "long smallest", numbers<long long>(count));
    run<float, Sum, 256>(report, "float sum", numbers<float>(count));
    run<double, Sum, 32>(report, "double sum", numbers<double>(count));
    run<double, Smallest, 512>(report, "double smallest", numbers<double>(count));
    run<short, Smallest, 128>(report, "short smallest", numbers<short>(count));

    int most = 0;
    CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    const int bytes = std::min(most, 64 * 1024);
    auto row = numbers<int>(static_cast<std::size_t>(bytes) / sizeof(int));
    workload::Buffer<int> device(row);
    // More than 48 KiB have to be asked for.
    reverse<<<1, 128, bytes>>>(device.data(), static_cast<int>(row.size()));
    report.expect(cudaGetLastError() == cudaErrorInvalidValue,
                  "a large block is refused before the attribute is set");
    CHECK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    reverse<<<1, 128, bytes>>>(device.data(), static_cast<int>(row.size()));
    CHECK_LAUNCH();
    std::reverse(row.begin(), row.end());
    report.equal("reversed", device.read(), row);

    cudaFuncAttributes attributes{};
    CHECK(cudaFuncGetAttributes(&attributes, bounded));
    report.value("static shared bytes", attributes.sharedSizeBytes);
    report.value("most threads", attributes.maxThreadsPerBlock);
    report.expect(attributes.sharedSizeBytes == 400 && attributes.maxThreadsPerBlock == 128, "attributes");
    bounded<<<1, 256>>>(device.data());
    report.expect(cudaGetLastError() != cudaSuccess, "more threads than the launch bounds are refused");
    int blocks = 0;
    int block = 0;
    CHECK(cudaOccupancyMaxPotentialBlockSize(&blocks, &block, bounded, 0, 0));
    report.expect(blocks > 0 && block == 128, "occupancy");
    return report.finish();
}
