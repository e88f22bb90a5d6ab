// SPDX-License-Identifier: GPL-2.0-or-later
// Single-precision matrix product with tiles in shared memory; sides that are no multiple of the tile. Each
// element is summed in one order with fused multiply-add, on the device as in the reference. Argument: rows
// of the left matrix.
#include "workload.cuh"

constexpr int tile = 16;

struct Shape {
    int rows, columns, depth;
};

__global__ void multiply(const float *left, const float *right, float *product, Shape shape) {
    __shared__ float left_tile[tile][tile];
    __shared__ float right_tile[tile][tile + 1];
    const int row = static_cast<int>(blockIdx.y) * tile + static_cast<int>(threadIdx.y);
    const int column = static_cast<int>(blockIdx.x) * tile + static_cast<int>(threadIdx.x);
    float sum = 0.0F;
    for (int start = 0; start < shape.depth; start += tile) {
        const int left_column = start + static_cast<int>(threadIdx.x);
        const int right_row = start + static_cast<int>(threadIdx.y);
        left_tile[threadIdx.y][threadIdx.x] =
            row < shape.rows && left_column < shape.depth ? left[row * shape.depth + left_column] : 0.0F;
        right_tile[threadIdx.y][threadIdx.x] = right_row < shape.depth && column < shape.columns
                                                   ? right[right_row * shape.columns + column]
                                                   : 0.0F;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < tile; ++k)
            sum = fmaf(left_tile[threadIdx.y][k], right_tile[k][threadIdx.x], sum);
        __syncthreads();
    }
    if (row < shape.rows && column < shape.columns)
        product[row * shape.columns + column] = sum;
}

int main(int argc, char **argv) {
    const int rows = static_cast<int>(workload::size_argument(argc, argv, 131, 8192));
    const Shape shape{rows, rows - rows / 8 + 3, rows + 9};
    workload::Random random(7);
    std::vector<float> left(static_cast<std::size_t>(shape.rows) * shape.depth);
    std::vector<float> right(static_cast<std::size_t>(shape.depth) * shape.columns);
    for (float &value : left)
        value = random.between(-1.0F, 1.0F);
    for (float &value : right)
        value = random.between(-1.0F, 1.0F);

    workload::Report report;
    workload::Buffer<float> device_left(left);
    workload::Buffer<float> device_right(right);
    workload::Buffer<float> device_product(static_cast<std::size_t>(shape.rows) * shape.columns);
    const dim3 grid(workload::blocks_for(shape.columns, tile), workload::blocks_for(shape.rows, tile));
    multiply<<<grid, dim3(tile, tile)>>>(device_left.data(), device_right.data(), device_product.data(),
                                         shape);
    CHECK_LAUNCH();

    std::vector<float> expected(device_product.size(), 0.0F);
    for (int i = 0; i < shape.rows; ++i)
        for (int k = 0; k < shape.depth; ++k)
            for (int j = 0; j < shape.columns; ++j) {
                float &sum = expected[static_cast<std::size_t>(i) * shape.columns + j];
                sum = std::fmaf(left[static_cast<std::size_t>(i) * shape.depth + k],
                                right[static_cast<std::size_t>(k) * shape.columns + j], sum);
            }
    report.equal("product", device_product.read(), expected);
    return report.finish();
}
