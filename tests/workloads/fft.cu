// SPDX-License-Identifier: GPL-2.0-or-later
// Radix-2 fast Fourier transform of complex floats: bit reversal, butterflies with twiddle factors made by
// sincospif, and the inverse. Compared with a double-precision transform on the CPU. Argument: binary
// logarithm of the length.
#include "workload.cuh"

#include <complex>

__global__ void reverse_bits(const float2 *in, float2 *out, unsigned exponent) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 1U << exponent)
        out[__brev(i) >> (32 - exponent)] = in[i];
}

__global__ void butterfly(float2 *values, unsigned half, unsigned pairs, float direction) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pairs)
        return;
    const unsigned within = i & (half - 1);
    const unsigned low = 2 * i - within;
    float sine = 0.0F;
    float cosine = 0.0F;
    sincospif(direction * static_cast<float>(within) / static_cast<float>(half), &sine, &cosine);
    const float2 a = values[low];
    const float2 b = values[low + half];
    const float2 turned{b.x * cosine - b.y * sine, b.x * sine + b.y * cosine};
    values[low] = make_float2(a.x + turned.x, a.y + turned.y);
    values[low + half] = make_float2(a.x - turned.x, a.y - turned.y);
}

__global__ void scale(float2 *values, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        values[i].x /= static_cast<float>(count);
        values[i].y /= static_cast<float>(count);
    }
}

void transform(workload::Buffer<float2> &from, workload::Buffer<float2> &to, unsigned exponent,
               float direction) {
    const unsigned count = 1U << exponent;
    reverse_bits<<<workload::blocks_for(count, 128), 128>>>(from.data(), to.data(), exponent);
    for (unsigned half = 1; half < count; half *= 2)
        butterfly<<<workload::blocks_for(count / 2, 128), 128>>>(to.data(), half, count / 2, direction);
    CHECK_LAUNCH();
}

// Recursive, in double: the reference.
void reference(std::vector<std::complex<double>> &values) {
    const std::size_t half = values.size() / 2;
    if (half == 0)
        return;
    std::vector<std::complex<double>> even(half);
    std::vector<std::complex<double>> odd(half);
    for (std::size_t i = 0; i < half; ++i) {
        even[i] = values[2 * i];
        odd[i] = values[2 * i + 1];
    }
    reference(even);
    reference(odd);
    for (std::size_t i = 0; i < half; ++i) {
        const double angle = -3.14159265358979323846 * static_cast<double>(i) / static_cast<double>(half);
        const std::complex<double> turned = odd[i] * std::polar(1.0, angle);
        values[i] = even[i] + turned;
        values[i + half] = even[i] - turned;
    }
}

std::vector<float> parts(const std::vector<float2> &values) {
    std::vector<float> flat;
    for (const float2 &value : values) {
        flat.push_back(value.x);
        flat.push_back(value.y);
    }
    return flat;
}

int main(int argc, char **argv) {
    const auto exponent = static_cast<unsigned>(workload::size_argument(argc, argv, 13, 22));
    const std::size_t count = std::size_t{1} << exponent;
    workload::Random random(43);
    std::vector<float2> signal(count);
    std::vector<std::complex<double>> spectrum(count);
    for (std::size_t i = 0; i < count; ++i) {
        signal[i] = make_float2(random.between(-1.0F, 1.0F), random.between(-1.0F, 1.0F));
        spectrum[i] = {signal[i].x, signal[i].y};
    }
    reference(spectrum);
    std::vector<double> expected;
    for (const auto &value : spectrum) {
        expected.push_back(value.real());
        expected.push_back(value.imag());
    }

    workload::Report report;
    workload::Buffer<float2> time(signal);
    workload::Buffer<float2> frequency(count);
    transform(time, frequency, exponent, -1.0F);
    // Errors grow with the square root of the length and slowly with its logarithm.
    const double bound = 1e-6 * std::sqrt(static_cast<double>(count));
    report.near("spectrum", parts(frequency.read()), expected, bound);
    transform(frequency, time, exponent, 1.0F);
    scale<<<workload::blocks_for(count, 128), 128>>>(time.data(), static_cast<unsigned>(count));
    CHECK_LAUNCH();
    report.near("signal", parts(time.read()), parts(signal), 1e-6);
    return report.finish();
}
