// SPDX-License-Identifier: GPL-2.0-or-later
// Conway's game of life on a torus: bytes with a halo in shared memory, and 32 cells in a word with bitwise
// adders; both have to agree with the CPU. Argument: width in words of 32 cells.
#include "workload.cuh"

constexpr int tile = 16;

__global__ void live_bytes(const unsigned char *from, unsigned char *to, int width, int height) {
    __shared__ unsigned char cells[tile + 2][tile + 2];
    const int left = static_cast<int>(blockIdx.x) * tile;
    const int top = static_cast<int>(blockIdx.y) * tile;
    for (int i = static_cast<int>(threadIdx.y * tile + threadIdx.x); i < (tile + 2) * (tile + 2);
         i += tile * tile) {
        const int y = i / (tile + 2);
        const int x = i % (tile + 2);
        const int row = (top + y - 1 + height) % height;
        const int column = (left + x - 1 + width) % width;
        cells[y][x] = from[row * width + column];
    }
    __syncthreads();
    const int column = left + static_cast<int>(threadIdx.x);
    const int row = top + static_cast<int>(threadIdx.y);
    if (column >= width || row >= height)
        return;
    int around = 0;
    for (int y = 0; y < 3; ++y)
        for (int x = 0; x < 3; ++x)
            around += cells[threadIdx.y + y][threadIdx.x + x];
    const int own = cells[threadIdx.y + 1][threadIdx.x + 1];
    to[row * width + column] = around == 3 || (around == 4 && own != 0) ? 1 : 0;
}

__device__ void add(unsigned one, unsigned &ones, unsigned &twos, unsigned &fours) {
    const unsigned carry = ones & one;
    ones ^= one;
    fours |= twos & carry;
    twos ^= carry;
}

__global__ void live_bits(const unsigned *from, unsigned *to, int words, int height) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= words * height)
        return;
    const int row = i / words;
    const int column = i % words;
    unsigned ones = 0;
    unsigned twos = 0;
    unsigned fours = 0; // four neighbours or more, and it stays
    for (int dy = -1; dy <= 1; ++dy) {
        const unsigned *line = from + (row + dy + height) % height * words;
        const unsigned centre = line[column];
        const unsigned before = line[(column + words - 1) % words];
        const unsigned after = line[(column + 1) % words];
        add(__funnelshift_l(before, centre, 1), ones, twos, fours);
        add(__funnelshift_r(centre, after, 1), ones, twos, fours);
        if (dy != 0)
            add(centre, ones, twos, fours);
    }
    to[i] = twos & ~fours & (ones | from[i]);
}

int main(int argc, char **argv) {
    const int words = static_cast<int>(workload::size_argument(argc, argv, 5, 256));
    const int width = words * 32;
    const int height = width - width / 5 + 1;
    constexpr int generations = 12;
    const std::size_t count = static_cast<std::size_t>(width) * height;
    workload::Random random(71);
    std::vector<unsigned char> cells(count);
    std::vector<unsigned> packed(count / 32, 0);
    for (std::size_t i = 0; i < count; ++i) {
        cells[i] = random.below(3) == 0 ? 1 : 0;
        packed[i / 32] |= static_cast<unsigned>(cells[i]) << (i % 32);
    }
    workload::Buffer<unsigned char> bytes[2]{workload::Buffer<unsigned char>(cells),
                                             workload::Buffer<unsigned char>(count)};
    workload::Buffer<unsigned> bits[2]{workload::Buffer<unsigned>(packed),
                                       workload::Buffer<unsigned>(count / 32)};
    const dim3 grid(workload::blocks_for(width, tile), workload::blocks_for(height, tile));
    std::vector<unsigned char> next(count);
    for (int generation = 0; generation < generations; ++generation) {
        const int from = generation % 2;
        live_bytes<<<grid, dim3(tile, tile)>>>(bytes[from].data(), bytes[1 - from].data(), width, height);
        live_bits<<<workload::blocks_for(count / 32, 64), 64>>>(bits[from].data(), bits[1 - from].data(),
                                                                words, height);
        for (int row = 0; row < height; ++row)
            for (int column = 0; column < width; ++column) {
                int around = 0;
                for (int y = height - 1; y <= height + 1; ++y)
                    for (int x = width - 1; x <= width + 1; ++x)
                        around += cells[static_cast<std::size_t>((row + y) % height) * width +
                                        (column + x) % width];
                const std::size_t own = static_cast<std::size_t>(row) * width + column;
                next[own] = around == 3 || (around == 4 && cells[own] != 0) ? 1 : 0;
            }
        cells.swap(next);
    }
    CHECK_LAUNCH();
    workload::Report report;
    std::size_t alive = 0;
    packed.assign(count / 32, 0);
    for (std::size_t i = 0; i < count; ++i) {
        alive += cells[i];
        packed[i / 32] |= static_cast<unsigned>(cells[i]) << (i % 32);
    }
    report.value("alive", alive);
    report.equal("bytes", bytes[generations % 2].read(), cells);
    report.equal("bits", bits[generations % 2].read(), packed);
    return report.finish();
}
