// SPDX-License-Identifier: GPL-2.0-or-later
// Adaptive Simpson quadrature in double precision, each thread with its own stack in local memory and an
// integrand chosen at run time. Compared with the closed forms. Argument: intervals.
#include "workload.cuh"

constexpr int depth = 40;

__device__ double integrand(int which, double x) {
    switch (which) {
    case 0:
        return exp(-x * x);
    case 1:
        return 4.0 / (1.0 + x * x);
    case 2:
        return sin(20.0 * x) * cos(3.0 * x);
    case 3:
        return log1p(x) * sqrt(x);
    case 4:
        return pow(x, 2.5) + cbrt(x);
    default:
        return tanh(5.0 * x - 2.5);
    }
}

struct Part {
    double left, right, at_left, at_middle, at_right, whole, tolerance;
};

__device__ double simpson(double width, double left, double middle, double right) {
    return width / 6.0 * (left + 4.0 * middle + right);
}

__global__ void integrate(int which, double *sums, int intervals, double tolerance) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= intervals)
        return;
    Part stack[depth];
    int size = 1;
    Part &first = stack[0];
    first.left = static_cast<double>(i) / intervals;
    first.right = static_cast<double>(i + 1) / intervals;
    first.at_left = integrand(which, first.left);
    first.at_middle = integrand(which, 0.5 * (first.left + first.right));
    first.at_right = integrand(which, first.right);
    first.whole = simpson(first.right - first.left, first.at_left, first.at_middle, first.at_right);
    first.tolerance = tolerance / intervals;
    double sum = 0.0;
    while (size > 0) {
        const Part part = stack[--size];
        const double middle = 0.5 * (part.left + part.right);
        const double low = integrand(which, 0.5 * (part.left + middle));
        const double high = integrand(which, 0.5 * (middle + part.right));
        const double left = simpson(middle - part.left, part.at_left, low, part.at_middle);
        const double right = simpson(part.right - middle, part.at_middle, high, part.at_right);
        const double error = left + right - part.whole;
        if (fabs(error) <= 15.0 * part.tolerance || size + 2 > depth) {
            sum += left + right + error / 15.0;
            continue;
        }
        stack[size++] = {part.left, middle, part.at_left, low, part.at_middle, left, part.tolerance / 2};
        stack[size++] = {middle, part.right, part.at_middle, high, part.at_right, right, part.tolerance / 2};
    }
    sums[i] = sum;
}

int main(int argc, char **argv) {
    const int intervals = static_cast<int>(workload::size_argument(argc, argv, 64, 1U << 20));
    // The integrals from 0 to 1.
    const double exact[6] = {
        0.5 * std::sqrt(std::acos(-1.0)) * std::erf(1.0),
        std::acos(-1.0),
        0.5 * ((1.0 - std::cos(23.0)) / 23.0 + (1.0 - std::cos(17.0)) / 17.0),
        // x^1.5 ln(1+x) 2/3 - (2/3) integral of x^1.5/(1+x)
        2.0 / 3.0 * std::log(2.0) - 2.0 / 3.0 * (2.0 / 3.0 - 2.0 + 2.0 * std::atan(1.0)),
        1.0 / 3.5 + 0.75,
        0.0,
    };
    const char *const names[6] = {"exp(-x^2)",      "4/(1+x^2)",      "sin 20x cos 3x",
                                  "ln(1+x) sqrt x", "x^2.5 + cbrt x", "tanh(5x-2.5)"};
    workload::Report report;
    workload::Buffer<double> sums(intervals);
    for (int which = 0; which < 6; ++which) {
        integrate<<<workload::blocks_for(intervals, 32), 32>>>(which, sums.data(), intervals, 1e-9);
        CHECK_LAUNCH();
        double sum = 0.0;
        for (const double part : sums.read())
            sum += part;
        report.near(names[which], sum, exact[which], 1e-8);
    }
    return report.finish();
}
