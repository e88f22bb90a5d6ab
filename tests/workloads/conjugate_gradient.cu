// SPDX-License-Identifier: GPL-2.0-or-later
// Conjugate gradients on the five-point Laplacian of a square, in double precision; scalars stay on the
// device until the residual is read. Checked by the true residual on the CPU. Argument: points on a side.
#include "workload.cuh"

constexpr unsigned threads = 128;

__global__ void laplacian(const double *x, double *y, int side) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= side * side)
        return;
    const int row = i / side;
    const int column = i % side;
    double sum = 4.0 * x[i];
    if (row > 0)
        sum -= x[i - side];
    if (row + 1 < side)
        sum -= x[i + side];
    if (column > 0)
        sum -= x[i - 1];
    if (column + 1 < side)
        sum -= x[i + 1];
    y[i] = sum;
}

// One block, always the same order: the result does not depend on scheduling.
__global__ void dot(const double *a, const double *b, double *result, int count) {
    __shared__ double sums[threads];
    double sum = 0.0;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += threads)
        sum = fma(a[i], b[i], sum);
    sums[threadIdx.x] = sum;
    for (unsigned half = threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        *result = sums[0];
}

struct Scalars {
    double residual, next_residual, curvature;
};

// x += a p and r -= a q, a = (r,r)/(p,q)
__global__ void step(const Scalars *scalars, const double *p, const double *q, double *x, double *r,
                     int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= count)
        return;
    const double length = scalars->residual / scalars->curvature;
    x[i] = fma(length, p[i], x[i]);
    r[i] = fma(-length, q[i], r[i]);
}

__global__ void turn(const Scalars *scalars, const double *r, double *p, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count)
        p[i] = fma(scalars->next_residual / scalars->residual, p[i], r[i]);
}

__global__ void advance(Scalars *scalars) { scalars->residual = scalars->next_residual; }

int main(int argc, char **argv) {
    const int side = static_cast<int>(workload::size_argument(argc, argv, 32, 2048));
    const int count = side * side;
    const unsigned blocks = workload::blocks_for(count, threads);
    workload::Random random(41);
    std::vector<double> right(count);
    double norm = 0.0;
    for (double &value : right) {
        value = random.between(-1.0F, 1.0F);
        norm += value * value;
    }
    workload::Report report;
    workload::Buffer<double> x(count);
    workload::Buffer<double> r(right);
    workload::Buffer<double> p(right);
    workload::Buffer<double> q(count);
    workload::Buffer<Scalars> scalars(1);
    Scalars *device = scalars.data();
    x.clear();
    dot<<<1, threads>>>(r.data(), r.data(), &device->residual, count);
    int iterations = 0;
    double residual = norm;
    for (const int limit = 10 * side; iterations < limit && residual > 1e-20 * norm; ++iterations) {
        laplacian<<<blocks, threads>>>(p.data(), q.data(), side);
        dot<<<1, threads>>>(p.data(), q.data(), &device->curvature, count);
        step<<<blocks, threads>>>(device, p.data(), q.data(), x.data(), r.data(), count);
        dot<<<1, threads>>>(r.data(), r.data(), &device->next_residual, count);
        turn<<<blocks, threads>>>(device, r.data(), p.data(), count);
        advance<<<1, 1>>>(device);
        CHECK_LAUNCH();
        CHECK(cudaMemcpy(&residual, &device->residual, sizeof residual, cudaMemcpyDeviceToHost));
        if (iterations % 16 == 0)
            report.value("squared residual", residual);
    }
    report.value("iterations", iterations);
    const std::vector<double> solution = x.read();
    report.bits("solution", solution);
    double error = 0.0;
    for (int i = 0; i < count; ++i) {
        const int row = i / side;
        const int column = i % side;
        double sum = 4.0 * solution[i] - right[i];
        sum -= row > 0 ? solution[i - side] : 0.0;
        sum -= row + 1 < side ? solution[i + side] : 0.0;
        sum -= column > 0 ? solution[i - 1] : 0.0;
        sum -= column + 1 < side ? solution[i + 1] : 0.0;
        error += sum * sum;
    }
    report.expect(error <= 1e-18 * norm, "residual on the CPU below 1e-9 of the right side");
    return report.finish();
}
