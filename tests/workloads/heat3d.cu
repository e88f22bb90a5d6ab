// SPDX-License-Identifier: GPL-2.0-or-later
// Heat flow in a box: cudaMalloc3D, cudaMemcpy3D of the whole and of a part of it, cudaMemset3D,
// three-dimensional grids. Equal to the bit. Argument: points on the longest side.
#include "workload.cuh"

struct Box {
    cudaPitchedPtr memory;
    __device__ double &at(unsigned x, unsigned y, unsigned z) const {
        char *row =
            static_cast<char *>(memory.ptr) + (static_cast<std::size_t>(z) * memory.ysize + y) * memory.pitch;
        return reinterpret_cast<double *>(row)[x];
    }
};

__global__ void diffuse(Box from, Box to, dim3 size) {
    const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
    const unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= size.x || y >= size.y || z >= size.z)
        return;
    const double centre = from.at(x, y, z);
    if (x == 0 || y == 0 || z == 0 || x + 1 == size.x || y + 1 == size.y || z + 1 == size.z) {
        to.at(x, y, z) = centre;
        return;
    }
    double around = fma(-6.0, centre, from.at(x - 1, y, z));
    around += from.at(x + 1, y, z);
    around += from.at(x, y - 1, z);
    around += from.at(x, y + 1, z);
    around += from.at(x, y, z - 1);
    around += from.at(x, y, z + 1);
    to.at(x, y, z) = fma(0.1, around, centre);
}

int main(int argc, char **argv) {
    const auto side = static_cast<unsigned>(workload::size_argument(argc, argv, 29, 512));
    const dim3 size(side, side - side / 4, side - side / 3);
    constexpr int steps = 10;
    const std::size_t count = std::size_t{size.x} * size.y * size.z;
    const auto index = [&](unsigned x, unsigned y, unsigned z) {
        return (std::size_t{z} * size.y + y) * size.x + x;
    };
    workload::Random random(59);
    std::vector<double> heat(count);
    for (double &value : heat)
        value = random.between(0.0F, 1.0F);

    Box boxes[2];
    const cudaExtent extent = make_cudaExtent(size.x * sizeof(double), size.y, size.z);
    for (Box &box : boxes) {
        CHECK(cudaMalloc3D(&box.memory, extent));
        CHECK(cudaMemset3D(box.memory, 0, extent));
    }
    cudaMemcpy3DParms up{};
    up.srcPtr = make_cudaPitchedPtr(heat.data(), size.x * sizeof(double), size.x, size.y);
    up.dstPtr = boxes[0].memory;
    up.extent = extent;
    up.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&up));

    const dim3 block(8, 4, 4);
    const dim3 grid(workload::blocks_for(size.x, block.x), workload::blocks_for(size.y, block.y),
                    workload::blocks_for(size.z, block.z));
    std::vector<double> next = heat;
    for (int step = 0; step < steps; ++step) {
        diffuse<<<grid, block>>>(boxes[step % 2], boxes[(step + 1) % 2], size);
        for (unsigned z = 1; z + 1 < size.z; ++z)
            for (unsigned y = 1; y + 1 < size.y; ++y)
                for (unsigned x = 1; x + 1 < size.x; ++x) {
                    const double centre = heat[index(x, y, z)];
                    double around = std::fma(-6.0, centre, heat[index(x - 1, y, z)]);
                    around += heat[index(x + 1, y, z)];
                    around += heat[index(x, y - 1, z)];
                    around += heat[index(x, y + 1, z)];
                    around += heat[index(x, y, z - 1)];
                    around += heat[index(x, y, z + 1)];
                    next[index(x, y, z)] = std::fma(0.1, around, centre);
                }
        heat.swap(next);
    }
    CHECK_LAUNCH();

    workload::Report report;
    std::vector<double> found(count);
    cudaMemcpy3DParms down{};
    down.srcPtr = boxes[steps % 2].memory;
    down.dstPtr = make_cudaPitchedPtr(found.data(), size.x * sizeof(double), size.x, size.y);
    down.extent = extent;
    down.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&down));
    report.equal("box", found, heat);

    // A part from the middle, on the device into the other box at another place, then down into a packed
    // array.
    const dim3 part(size.x / 2, size.y / 2, size.z / 2);
    cudaMemcpy3DParms inside{};
    inside.srcPtr = boxes[steps % 2].memory;
    inside.srcPos = make_cudaPos(3 * sizeof(double), 2, 1);
    inside.dstPtr = boxes[(steps + 1) % 2].memory;
    inside.dstPos = make_cudaPos(1 * sizeof(double), 4, 2);
    inside.extent = make_cudaExtent(part.x * sizeof(double), part.y, part.z);
    inside.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaMemcpy3DAsync(&inside, nullptr));
    std::vector<double> middle(std::size_t{part.x} * part.y * part.z);
    cudaMemcpy3DParms out{};
    out.srcPtr = inside.dstPtr;
    out.srcPos = inside.dstPos;
    out.dstPtr = make_cudaPitchedPtr(middle.data(), part.x * sizeof(double), part.x, part.y);
    out.extent = inside.extent;
    out.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&out));
    std::vector<double> expected;
    for (unsigned z = 0; z < part.z; ++z)
        for (unsigned y = 0; y < part.y; ++y)
            for (unsigned x = 0; x < part.x; ++x)
                expected.push_back(heat[index(x + 3, y + 2, z + 1)]);
    report.equal("part", middle, expected);
    for (const Box &box : boxes)
        CHECK(cudaFree(box.memory.ptr));
    return report.finish();
}
