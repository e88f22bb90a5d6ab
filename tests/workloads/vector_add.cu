// SPDX-License-Identifier: GPL-2.0-or-later
// Elementwise arithmetic on float, double and 64-bit integers, with a grid-stride loop. Argument: elements.
#include "workload.cuh"

template <typename T>
__global__ void add(const T *a, const T *b, T *sum, std::size_t count) {
    const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
        sum[i] = a[i] + b[i];
}

__global__ void scale_add(double factor, const double *x, double *y, std::size_t count) {
    const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i < count)
        y[i] = fma(factor, x[i], y[i]);
}

template <typename T>
std::vector<T> numbers(std::size_t count, std::uint64_t seed) {
    workload::Random random(seed);
    std::vector<T> values(count);
    for (T &value : values) {
        if constexpr (std::is_floating_point_v<T>)
            value = static_cast<T>(random.between(-8.0F, 8.0F));
        else
            value = static_cast<T>(random.next());
    }
    return values;
}

template <typename T>
void add_and_compare(workload::Report &report, const char *name, std::size_t count) {
    const auto a = numbers<T>(count, 1);
    const auto b = numbers<T>(count, 2);
    workload::Buffer<T> device_a(a);
    workload::Buffer<T> device_b(b);
    workload::Buffer<T> sum(count);
    add<<<64, 256>>>(device_a.data(), device_b.data(), sum.data(), count);
    CHECK_LAUNCH();
    std::vector<T> expected(count);
    for (std::size_t i = 0; i < count; ++i)
        expected[i] = a[i] + b[i];
    report.equal(name, sum.read(), expected);
}

int main(int argc, char **argv) {
    const std::size_t count = workload::size_argument(argc, argv, 200003);
    workload::Report report;
    add_and_compare<float>(report, "float", count);
    add_and_compare<double>(report, "double", count);
    add_and_compare<std::uint64_t>(report, "integer", count);

    const auto x = numbers<double>(count, 3);
    auto y = numbers<double>(count, 4);
    workload::Buffer<double> device_x(x);
    workload::Buffer<double> device_y(y);
    scale_add<<<workload::blocks_for(count, 192), 192>>>(1.0 / 3.0, device_x.data(), device_y.data(), count);
    CHECK_LAUNCH();
    for (std::size_t i = 0; i < count; ++i)
        y[i] = std::fma(1.0 / 3.0, x[i], y[i]);
    report.equal("scale_add", device_y.read(), y);
    return report.finish();
}
