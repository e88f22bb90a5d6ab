// SPDX-License-Identifier: GPL-2.0-or-later
// cuBLAS: starts, allocates, copies matrices and vectors with their strides, and multiplies where it has
// kernels for the device. On a device that runs only PTX it has none: the program says so, and what it
// answered. Argument: rows.
#include "workload.cuh"

#include <cublas_v2.h>

inline void check(cublasStatus_t status, int line, const char *what) {
    if (status != CUBLAS_STATUS_SUCCESS)
        workload::stop(__FILE__, line, what, cublasGetStatusString(status));
}
#define CUBLAS(call) check((call), __LINE__, #call)

int main(int argc, char **argv) {
    const int rows = static_cast<int>(workload::size_argument(argc, argv, 96, 4096));
    const int columns = rows / 2;
    const int depth = rows / 3 + 1;
    workload::Report report;
    cublasHandle_t handle = nullptr;
    CUBLAS(cublasCreate(&handle));
    int version = 0;
    CUBLAS(cublasGetVersion(handle, &version));
    report.expect(version / 10000 >= 12, "version of cuBLAS");
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreate(&stream));
    CUBLAS(cublasSetStream(handle, stream));
    CUBLAS(cublasSetMathMode(handle, CUBLAS_PEDANTIC_MATH));

    workload::Random random(157);
    const auto matrix = [&](int height, int width) {
        std::vector<float> values(static_cast<std::size_t>(height) * width);
        for (float &value : values)
            value = random.between(-1.0F, 1.0F);
        return values;
    };
    // Column-major, as cuBLAS has it; on the device with longer columns than on the host.
    const int pitch = rows + 13;
    const std::vector<float> a = matrix(rows, depth);
    const std::vector<float> b = matrix(depth, columns);
    workload::Buffer<float> device_a(static_cast<std::size_t>(pitch) * depth);
    workload::Buffer<float> device_b(b.size());
    workload::Buffer<float> device_c(static_cast<std::size_t>(rows) * columns);
    device_a.clear();
    device_c.clear();
    CUBLAS(cublasSetMatrix(rows, depth, sizeof(float), a.data(), rows, device_a.data(), pitch));
    CUBLAS(
        cublasSetMatrixAsync(depth, columns, sizeof(float), b.data(), depth, device_b.data(), depth, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::vector<float> back(a.size());
    CUBLAS(cublasGetMatrix(rows, depth, sizeof(float), device_a.data(), pitch, back.data(), rows));
    report.equal("matrix", back, a);
    // Every second element of a row of `b`.
    std::vector<float> row(static_cast<std::size_t>(columns) / 2);
    CUBLAS(cublasGetVector(columns / 2, sizeof(float), device_b.data() + 1, 2 * depth, row.data(), 1));
    std::vector<float> expected_row;
    for (int column = 0; column < columns / 2; ++column)
        expected_row.push_back(b[static_cast<std::size_t>(column) * 2 * depth + 1]);
    report.equal("vector", row, expected_row);

    const float alpha = 0.5F;
    const float beta = 0.0F;
    const cublasStatus_t status =
        cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, rows, columns, depth, &alpha, device_a.data(), pitch,
                    device_b.data(), depth, &beta, device_c.data(), rows);
    report.text("product", cublasGetStatusString(status));
    if (status == CUBLAS_STATUS_SUCCESS) {
        CHECK(cudaStreamSynchronize(stream));
        std::vector<double> expected(device_c.size(), 0.0);
        for (int column = 0; column < columns; ++column)
            for (int k = 0; k < depth; ++k)
                for (int i = 0; i < rows; ++i)
                    expected[static_cast<std::size_t>(column) * rows + i] +=
                        0.5 * a[static_cast<std::size_t>(k) * rows + i] *
                        b[static_cast<std::size_t>(column) * depth + k];
        report.near("product", device_c.read(), expected, 1e-5);
    } else {
        report.text("product", "skipped: cuBLAS has no kernel that this device runs");
    }
    CUBLAS(cublasDestroy(handle));
    CHECK(cudaStreamDestroy(stream));
    return report.finish();
}
