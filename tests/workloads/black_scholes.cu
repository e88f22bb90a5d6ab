// SPDX-License-Identifier: GPL-2.0-or-later
// Prices of European options with logf, expf, sqrtf and erfcf, and the implied volatility found back by
// Newton's method in double. Compared with the C library's functions. Argument: options.
#include "workload.cuh"

#include <algorithm>

struct Option {
    float price, strike, years, rate, volatility;
};
struct Values {
    float call, put;
};

template <typename T>
__host__ __device__ T normal(T x) {
    return T(0.5) * erfc(-x * T(0.70710678118654752440));
}

template <typename T>
__host__ __device__ T call_value(const Option &option, T volatility) {
    const T spread = volatility * sqrt(T(option.years));
    const T ratio = log(T(option.price) / T(option.strike));
    const T high = (ratio + (T(option.rate) + T(0.5) * volatility * volatility) * T(option.years)) / spread;
    return T(option.price) * normal(high) -
           T(option.strike) * exp(-T(option.rate) * T(option.years)) * normal(high - spread);
}

__global__ void value(const Option *options, Values *values, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    const Option option = options[i];
    const float call = call_value(option, option.volatility);
    values[i] = {call, call - option.price + option.strike * expf(-option.rate * option.years)};
}

__global__ void find_volatility(const Option *options, double *found, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    const Option option = options[i];
    const double target = call_value<double>(option, option.volatility);
    double volatility = 0.5;
    for (int round = 0; round < 12; ++round) {
        const double error = call_value<double>(option, volatility) - target;
        if (fabs(error) < 1e-12)
            break;
        constexpr double width = 1e-5;
        const double slope = (call_value<double>(option, volatility + width) -
                              call_value<double>(option, volatility - width)) /
                             (2 * width);
        volatility -= error / slope;
    }
    found[i] = volatility;
}

int main(int argc, char **argv) {
    const auto count = static_cast<unsigned>(workload::size_argument(argc, argv, 3000));
    workload::Random random(61);
    std::vector<Option> options(count);
    std::vector<double> expected;
    for (Option &option : options) {
        option = {random.between(80, 120), random.between(80, 120), random.between(0.5F, 2.0F),
                  random.between(0.0F, 0.05F), random.between(0.2F, 0.6F)};
        const double call = call_value<double>(option, option.volatility);
        expected.push_back(call);
        expected.push_back(call - option.price +
                           option.strike * std::exp(-double{option.rate} * option.years));
    }
    workload::Report report;
    workload::Buffer<Option> device(options);
    workload::Buffer<Values> values(count);
    value<<<workload::blocks_for(count, 128), 128>>>(device.data(), values.data(), count);
    CHECK_LAUNCH();
    std::vector<float> found;
    for (const Values &pair : values.read()) {
        found.push_back(pair.call);
        found.push_back(pair.put);
    }
    // Differences of numbers near 100: absolute errors of some 1e-5.
    report.near("prices", found, expected, 1e-4);

    const unsigned some = std::min(count, 512U);
    workload::Buffer<double> volatilities(some);
    find_volatility<<<workload::blocks_for(some, 64), 64>>>(device.data(), volatilities.data(), some);
    CHECK_LAUNCH();
    std::vector<float> given;
    for (unsigned i = 0; i < some; ++i)
        given.push_back(options[i].volatility);
    report.near("volatilities", volatilities.read(), given, 1e-9);
    return report.finish();
}
