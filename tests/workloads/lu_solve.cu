// SPDX-License-Identifier: GPL-2.0-or-later
// Dense linear equations by LU factorisation with partial pivoting in double precision: the pivot is found,
// rows are exchanged and the rest is updated on the device, several right sides are solved by blocks. Checked
// against the same elimination on the CPU, to the bit, and by the residual. Argument: equations.
#include "workload.cuh"

#include <algorithm>

constexpr unsigned threads = 128;

__global__ void find_pivot(const double *a, int n, int step, int *pivot) {
    __shared__ double sizes[threads];
    __shared__ int rows[threads];
    double largest = -1.0;
    int at = step;
    for (int row = step + static_cast<int>(threadIdx.x); row < n; row += threads)
        if (fabs(a[row * n + step]) > largest) {
            largest = fabs(a[row * n + step]);
            at = row;
        }
    sizes[threadIdx.x] = largest;
    rows[threadIdx.x] = at;
    for (unsigned half = threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            const unsigned other = threadIdx.x + half;
            if (sizes[other] > sizes[threadIdx.x] ||
                (sizes[other] == sizes[threadIdx.x] && rows[other] < rows[threadIdx.x])) {
                sizes[threadIdx.x] = sizes[other];
                rows[threadIdx.x] = rows[other];
            }
        }
    }
    if (threadIdx.x == 0)
        pivot[step] = rows[0];
}

__global__ void exchange(double *a, int n, int step, const int *pivot) {
    const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int other = pivot[step];
    if (column >= n || other == step)
        return;
    const double moved = a[step * n + column];
    a[step * n + column] = a[other * n + column];
    a[other * n + column] = moved;
}

__global__ void divide(double *a, int n, int step) {
    const int row = step + 1 + static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (row < n)
        a[row * n + step] /= a[step * n + step];
}

__global__ void update(double *a, int n, int step) {
    const int column = step + 1 + static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int row = step + 1 + static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
    if (row < n && column < n)
        a[row * n + column] = fma(-a[row * n + step], a[step * n + column], a[row * n + column]);
}

// A block solves one right side, in place.
__global__ void solve(const double *a, int n, const int *pivot, double *sides) {
    double *x = sides + static_cast<std::size_t>(blockIdx.x) * n;
    if (threadIdx.x == 0)
        for (int step = 0; step < n; ++step) {
            const double moved = x[step];
            x[step] = x[pivot[step]];
            x[pivot[step]] = moved;
        }
    __syncthreads();
    for (int step = 0; step < n; ++step) {
        for (int row = step + 1 + static_cast<int>(threadIdx.x); row < n; row += static_cast<int>(blockDim.x))
            x[row] = fma(-a[row * n + step], x[step], x[row]);
        __syncthreads();
    }
    for (int step = n - 1; step >= 0; --step) {
        if (threadIdx.x == 0)
            x[step] /= a[step * n + step];
        __syncthreads();
        for (int row = static_cast<int>(threadIdx.x); row < step; row += static_cast<int>(blockDim.x))
            x[row] = fma(-a[row * n + step], x[step], x[row]);
        __syncthreads();
    }
}

int main(int argc, char **argv) {
    const int n = static_cast<int>(workload::size_argument(argc, argv, 72, 4096));
    constexpr int sides = 4;
    workload::Random random(103);
    std::vector<double> matrix(static_cast<std::size_t>(n) * n);
    std::vector<double> right(static_cast<std::size_t>(n) * sides);
    for (double &value : matrix)
        value = random.between(-1.0F, 1.0F);
    for (double &value : right)
        value = random.between(-1.0F, 1.0F);

    workload::Report report;
    workload::Buffer<double> a(matrix);
    workload::Buffer<double> x(right);
    workload::Buffer<int> pivot(n);
    const dim3 block(16, 8);
    for (int step = 0; step < n; ++step) {
        const int rest = n - step - 1;
        find_pivot<<<1, threads>>>(a.data(), n, step, pivot.data());
        exchange<<<workload::blocks_for(n, threads), threads>>>(a.data(), n, step, pivot.data());
        if (rest == 0)
            break;
        divide<<<workload::blocks_for(rest, threads), threads>>>(a.data(), n, step);
        update<<<dim3(workload::blocks_for(rest, block.x), workload::blocks_for(rest, block.y)), block>>>(
            a.data(), n, step);
    }
    solve<<<sides, 64>>>(a.data(), n, pivot.data(), x.data());
    CHECK_LAUNCH();

    std::vector<double> factors = matrix;
    std::vector<int> pivots(n);
    const auto at = [&](int row, int column) -> double & {
        return factors[static_cast<std::size_t>(row) * n + column];
    };
    for (int step = 0; step < n; ++step) {
        int largest = step;
        for (int row = step + 1; row < n; ++row)
            if (std::fabs(at(row, step)) > std::fabs(at(largest, step)))
                largest = row;
        pivots[step] = largest;
        for (int column = 0; column < n && largest != step; ++column)
            std::swap(at(step, column), at(largest, column));
        for (int row = step + 1; row < n; ++row) {
            at(row, step) /= at(step, step);
            for (int column = step + 1; column < n; ++column)
                at(row, column) = std::fma(-at(row, step), at(step, column), at(row, column));
        }
    }
    report.equal("pivots", pivot.read(), pivots);
    report.equal("factors", a.read(), factors);
    const std::vector<double> found = x.read();
    report.bits("solutions", found);
    double worst = 0.0;
    for (int side = 0; side < sides; ++side)
        for (int row = 0; row < n; ++row) {
            double sum = -right[static_cast<std::size_t>(side) * n + row];
            for (int column = 0; column < n; ++column)
                sum += matrix[static_cast<std::size_t>(row) * n + column] *
                       found[static_cast<std::size_t>(side) * n + column];
            worst = std::max(worst, std::fabs(sum));
        }
    report.expect(worst < 1e-11 * n, "residual below 1e-11 times the equations");
    return report.finish();
}
