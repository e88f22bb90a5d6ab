// SPDX-License-Identifier: GPL-2.0-or-later
// Jacobi iteration for the steady heat of a plate, in pitched memory with two-dimensional copies and memsets,
// border and interior uploaded separately. Equal to the bit: every operation is rounded on its own. Argument:
// interior width.
#include "workload.cuh"

struct Plate {
    float *data;
    std::size_t pitch; // bytes
    __device__ float &at(int row, int column) const {
        return reinterpret_cast<float *>(reinterpret_cast<char *>(data) +
                                         static_cast<std::size_t>(row) * pitch)[column];
    }
};

__global__ void relax(Plate from, Plate to, int width, int height) {
    const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) + 1;
    const int row = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y) + 1;
    if (column > width || row > height)
        return;
    const float vertical = __fadd_rn(from.at(row - 1, column), from.at(row + 1, column));
    const float horizontal = __fadd_rn(from.at(row, column - 1), from.at(row, column + 1));
    to.at(row, column) = __fmul_rn(0.25F, __fadd_rn(vertical, horizontal));
}

int main(int argc, char **argv) {
    const int width = static_cast<int>(workload::size_argument(argc, argv, 93, 4096));
    const int height = width / 2 + 11;
    constexpr int sweeps = 40;
    const std::size_t row_bytes = static_cast<std::size_t>(width + 2) * sizeof(float);
    const std::size_t rows = static_cast<std::size_t>(height) + 2;
    workload::Random random(53);
    std::vector<float> plate(static_cast<std::size_t>(width + 2) * rows, 0.0F);
    const auto index = [&](int row, int column) {
        return static_cast<std::size_t>(row) * (width + 2) + column;
    };
    for (int row = 0; row < height + 2; ++row)
        for (int column = 0; column < width + 2; ++column)
            if (row == 0 || row == height + 1 || column == 0 || column == width + 1)
                plate[index(row, column)] = random.between(0.0F, 100.0F);

    Plate plates[2];
    for (Plate &one : plates) {
        CHECK(cudaMallocPitch(reinterpret_cast<void **>(&one.data), &one.pitch, row_bytes, rows));
        CHECK(cudaMemset2D(one.data, one.pitch, 0xff, row_bytes,
                           rows)); // not a number where nothing is written
        // The first row, the last row, and both sides by copies of one column's width.
        CHECK(
            cudaMemcpy2D(one.data, one.pitch, plate.data(), row_bytes, row_bytes, 1, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy2D(reinterpret_cast<char *>(one.data) + (rows - 1) * one.pitch, one.pitch,
                           &plate[index(height + 1, 0)], row_bytes, row_bytes, 1, cudaMemcpyHostToDevice));
        for (const int column : {0, width + 1})
            CHECK(cudaMemcpy2D(one.data + column, one.pitch, &plate[static_cast<std::size_t>(column)],
                               row_bytes, sizeof(float), rows, cudaMemcpyHostToDevice));
        CHECK(cudaMemset2D(reinterpret_cast<char *>(one.data) + one.pitch + sizeof(float), one.pitch, 0,
                           row_bytes - 2 * sizeof(float), rows - 2));
    }
    const dim3 block(32, 4);
    const dim3 grid(workload::blocks_for(width, block.x), workload::blocks_for(height, block.y));
    std::vector<float> next = plate;
    for (int sweep = 0; sweep < sweeps; ++sweep) {
        relax<<<grid, block>>>(plates[sweep % 2], plates[(sweep + 1) % 2], width, height);
        for (int row = 1; row <= height; ++row)
            for (int column = 1; column <= width; ++column)
                next[index(row, column)] =
                    0.25F * ((plate[index(row - 1, column)] + plate[index(row + 1, column)]) +
                             (plate[index(row, column - 1)] + plate[index(row, column + 1)]));
        plate.swap(next);
    }
    CHECK_LAUNCH();

    workload::Report report;
    std::vector<float> found(plate.size());
    CHECK(cudaMemcpy2D(found.data(), row_bytes, plates[sweeps % 2].data, plates[sweeps % 2].pitch, row_bytes,
                       rows, cudaMemcpyDeviceToHost));
    report.equal("plate", found, plate);
    // The same plate once more, through the other buffer on the device.
    CHECK(cudaMemcpy2D(plates[1].data, plates[1].pitch, plates[0].data, plates[0].pitch, row_bytes, rows,
                       cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy2D(found.data(), row_bytes, plates[1].data, plates[1].pitch, row_bytes, rows,
                       cudaMemcpyDeviceToHost));
    report.equal("copy", found, plate);
    for (const Plate &one : plates)
        CHECK(cudaFree(one.data));
    return report.finish();
}
