// SPDX-License-Identifier: GPL-2.0-or-later
// Sparse matrix (compressed rows) times vector: a thread for each row, summed in the reference's order, and a
// warp for each row. Rows are of very different length. Argument: rows.
#include "workload.cuh"

struct Matrix {
    const int *starts;
    const int *columns;
    const double *values;
    int rows;
};

__global__ void thread_per_row(Matrix matrix, const double *x, double *y) {
    const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (row >= matrix.rows)
        return;
    double sum = 0.0;
    for (int i = matrix.starts[row]; i < matrix.starts[row + 1]; ++i)
        sum = fma(matrix.values[i], __ldg(&x[matrix.columns[i]]), sum);
    y[row] = sum;
}

__global__ void warp_per_row(Matrix matrix, const double *x, double *y) {
    const int row = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / warpSize);
    const int lane = static_cast<int>(threadIdx.x % warpSize);
    if (row >= matrix.rows)
        return;
    double sum = 0.0;
    for (int i = matrix.starts[row] + lane; i < matrix.starts[row + 1]; i += warpSize)
        sum = fma(matrix.values[i], x[matrix.columns[i]], sum);
    for (int offset = warpSize / 2; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffffU, sum, offset);
    if (lane == 0)
        y[row] = sum;
}

int main(int argc, char **argv) {
    const int rows = static_cast<int>(workload::size_argument(argc, argv, 3001, 1U << 22));
    workload::Random random(37);
    std::vector<int> starts{0};
    std::vector<int> columns;
    std::vector<double> values;
    for (int row = 0; row < rows; ++row) {
        const unsigned length = row % 97 == 0 ? 300 : row % 13 == 0 ? 0 : 1 + random.below(24);
        for (unsigned i = 0; i < length; ++i) {
            columns.push_back(static_cast<int>(random.below(static_cast<unsigned>(rows))));
            values.push_back(random.between(-1.0F, 1.0F));
        }
        starts.push_back(static_cast<int>(columns.size()));
    }
    std::vector<double> x(rows);
    for (double &value : x)
        value = random.between(-1.0F, 1.0F);
    std::vector<double> expected(rows);
    for (int row = 0; row < rows; ++row)
        for (int i = starts[row]; i < starts[row + 1]; ++i)
            expected[row] = std::fma(values[i], x[columns[i]], expected[row]);

    workload::Report report;
    report.value("entries", columns.size());
    workload::Buffer<int> device_starts(starts);
    workload::Buffer<int> device_columns(columns);
    workload::Buffer<double> device_values(values);
    workload::Buffer<double> device_x(x);
    workload::Buffer<double> y(rows);
    const Matrix matrix{device_starts.data(), device_columns.data(), device_values.data(), rows};
    thread_per_row<<<workload::blocks_for(rows, 128), 128>>>(matrix, device_x.data(), y.data());
    CHECK_LAUNCH();
    report.equal("thread per row", y.read(), expected);
    y.clear();
    warp_per_row<<<workload::blocks_for(std::size_t(rows) * 32, 128), 128>>>(matrix, device_x.data(),
                                                                             y.data());
    CHECK_LAUNCH();
    report.near("warp per row", y.read(), expected, 1e-13);
    return report.finish();
}
