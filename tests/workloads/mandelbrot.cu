// SPDX-License-Identifier: GPL-2.0-or-later
// Mandelbrot set in double precision: iterations of each point, very divergent. Operations are rounded one by
// one, so that the counts are those of the CPU. Argument: width of the picture.
#include "workload.cuh"

constexpr int limit = 200;

#ifdef __CUDA_ARCH__
#define ADD(a, b) __dadd_rn(a, b)
#define MULTIPLY(a, b) __dmul_rn(a, b)
#else
#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#endif

__host__ __device__ inline int iterations(double real, double imaginary) {
    double x = 0.0;
    double y = 0.0;
    for (int i = 0; i < limit; ++i) {
        const double xx = MULTIPLY(x, x);
        const double yy = MULTIPLY(y, y);
        if (ADD(xx, yy) > 4.0)
            return i;
        y = ADD(MULTIPLY(MULTIPLY(2.0, x), y), imaginary);
        x = ADD(ADD(xx, -yy), real);
    }
    return limit;
}

__host__ __device__ inline int at(int row, int column, int width, int height) {
    const double real = ADD(-2.25, MULTIPLY(3.0 / width, static_cast<double>(column)));
    const double imaginary = ADD(-1.125, MULTIPLY(2.25 / height, static_cast<double>(row)));
    return iterations(real, imaginary);
}

__global__ void draw(int *picture, int width, int height) {
    const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int row = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
    if (column < width && row < height)
        picture[row * width + column] = at(row, column, width, height);
}

int main(int argc, char **argv) {
    const int width = static_cast<int>(workload::size_argument(argc, argv, 100, 8192));
    const int height = width * 3 / 4;
    workload::Buffer<int> picture(static_cast<std::size_t>(width) * height);
    const dim3 block(16, 8);
    draw<<<dim3(workload::blocks_for(width, block.x), workload::blocks_for(height, block.y)), block>>>(
        picture.data(), width, height);
    CHECK_LAUNCH();
    std::vector<int> expected;
    for (int row = 0; row < height; ++row)
        for (int column = 0; column < width; ++column)
            expected.push_back(at(row, column, width, height));
    workload::Report report;
    const std::vector<int> found = picture.read();
    for (int row = 0; row < height; row += height / 16 + 1) {
        for (int column = 0; column < width; column += width / 64 + 1) {
            const int count = found[static_cast<std::size_t>(row) * width + column];
            std::putchar(count == limit ? '#' : count > 12 ? '+' : count > 5 ? '.' : ' ');
        }
        std::putchar('\n');
    }
    report.equal("iterations", found, expected);
    return report.finish();
}
