// SPDX-License-Identifier: GPL-2.0-or-later
// Constant memory and device variables: copies to and from symbols with offsets, addresses and sizes of
// symbols, pointers in device variables, initialised data. Evaluates polynomials and convolves. Argument:
// points.
#include "workload.cuh"

#include <algorithm>

constexpr int degree = 9;
constexpr int radius = 4;

__constant__ float coefficients[degree + 1] = {1.0F, -1.0F, 0.5F, -0.25F, 0.125F, 0, 0, 0, 0, 0};
__constant__ float filter[2 * radius + 1];
__constant__ struct {
    int count;
    float scale;
    double shift;
} parameters = {0, 1.5F, -0.75};
__device__ float table[64] = {3.0F, 1.0F, 4.0F};
__device__ unsigned long long calls = 5;
__device__ float *output;               // set by the host
__device__ float *first_of = &table[2]; // an address, initialised

__global__ void polynomial(const float *x) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= parameters.count)
        return;
    float sum = 0.0F;
    for (int power = degree; power >= 0; --power)
        sum = fmaf(sum, x[i], coefficients[power]);
    output[i] = fmaf(sum, parameters.scale, static_cast<float>(parameters.shift));
    if (i % 32 == 0)
        atomicAdd(&calls, 1ULL);
}

__global__ void convolve(const float *x, float *y, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= count)
        return;
    float sum = 0.0F;
#pragma unroll
    for (int j = -radius; j <= radius; ++j)
        if (i + j >= 0 && i + j < count)
            sum = fmaf(x[i + j], filter[j + radius], sum);
    y[i] = sum + *first_of;
}

int main(int argc, char **argv) {
    const int count = static_cast<int>(workload::size_argument(argc, argv, 50000));
    workload::Random random(113);
    std::vector<float> x(count);
    for (float &value : x)
        value = random.between(-1.0F, 1.0F);
    workload::Report report;
    workload::Buffer<float> device_x(x);
    workload::Buffer<float> device_y(count);

    float *y = device_y.data();
    CHECK(cudaMemcpyToSymbol(output, &y, sizeof y));
    CHECK(cudaMemcpyToSymbol(parameters, &count, sizeof count));
    std::vector<float> factors = {1.0F, -1.0F, 0.5F, -0.25F, 0.125F, 0, 0, 0, 0, 0};
    for (int round = 0; round < 3; ++round) {
        // A part of the array, at an offset; rounds differ.
        const float some[3] = {0.1F * static_cast<float>(round), -0.2F, 0.3F};
        CHECK(cudaMemcpyToSymbol(coefficients, some, sizeof some, (5 + round) * sizeof(float)));
        std::copy(some, some + 3, factors.begin() + 5 + round);
        polynomial<<<workload::blocks_for(count, 128), 128>>>(device_x.data());
        CHECK_LAUNCH();
        std::vector<float> expected(count);
        for (int i = 0; i < count; ++i) {
            float sum = 0.0F;
            for (int power = degree; power >= 0; --power)
                sum = std::fmaf(sum, x[i], factors[power]);
            expected[i] = std::fmaf(sum, 1.5F, -0.75F);
        }
        report.equal("polynomial", device_y.read(), expected);
    }
    unsigned long long called = 0;
    CHECK(cudaMemcpyFromSymbol(&called, calls, sizeof called));
    report.value("calls", called);
    report.expect(called == 5 + 3 * ((static_cast<unsigned long long>(count) + 31) / 32), "calls");

    float *address = nullptr;
    std::size_t size = 0;
    CHECK(cudaGetSymbolAddress(reinterpret_cast<void **>(&address), table));
    CHECK(cudaGetSymbolSize(&size, table));
    report.expect(address != nullptr && size == sizeof(float) * 64, "address and size of a symbol");
    std::vector<float> words(64);
    CHECK(cudaMemcpy(words.data(), address, size, cudaMemcpyDeviceToHost));
    std::vector<float> expected_words(64, 0.0F);
    expected_words[0] = 3.0F;
    expected_words[1] = 1.0F;
    expected_words[2] = 4.0F;
    report.equal("initialised table", words, expected_words);

    std::vector<float> weights(2 * radius + 1);
    for (float &weight : weights)
        weight = random.between(0.0F, 1.0F);
    // From memory of the device, asynchronously, on a stream.
    workload::Buffer<float> device_weights(weights);
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemcpyToSymbolAsync(filter, device_weights.data(), weights.size() * sizeof(float), 0,
                                  cudaMemcpyDeviceToDevice, stream));
    convolve<<<workload::blocks_for(count, 256), 256, 0, stream>>>(device_x.data(), device_y.data(), count);
    CHECK_LAUNCH();
    std::vector<float> expected(count);
    for (int i = 0; i < count; ++i) {
        float sum = 0.0F;
        for (int j = -radius; j <= radius; ++j)
            if (i + j >= 0 && i + j < count)
                sum = std::fmaf(x[i + j], weights[j + radius], sum);
        expected[i] = sum + 4.0F;
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
    report.equal("convolution", device_y.read(), expected);
    return report.finish();
}
