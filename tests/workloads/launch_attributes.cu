// SPDX-License-Identifier: GPL-2.0-or-later
// Launches with a configuration: priorities, cooperative, clusters (which a device may refuse, clearly),
// kernels by handle, preferences that only advise, flags and priorities of streams. Argument: blocks.
#include "workload.cuh"

#include <cooperative_groups.h>

__global__ void number(unsigned *out, unsigned offset) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = offset + blockIdx.x * 1000 + threadIdx.x;
}

// Rotates by one block: needs all blocks at once.
__global__ void rotate(unsigned *values) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const unsigned next = (blockIdx.x + 1) % gridDim.x;
    const unsigned taken = values[next * blockDim.x + threadIdx.x];
    grid.sync();
    values[blockIdx.x * blockDim.x + threadIdx.x] = taken;
}

constexpr unsigned threads = 64;

int main(int argc, char **argv) {
    const auto blocks = static_cast<unsigned>(workload::size_argument(argc, argv, 6, 64));
    workload::Report report;
    int least = 0;
    int greatest = 0;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    int priority = 1;
    unsigned flags = 0;
    CHECK(cudaStreamGetPriority(stream, &priority));
    CHECK(cudaStreamGetFlags(stream, &flags));
    report.expect(priority == greatest && flags == cudaStreamNonBlocking, "priority and flags of a stream");

    workload::Buffer<unsigned> out(std::size_t{blocks} * threads);
    std::vector<unsigned> expected(out.size());
    const auto expect_offset = [&](const char *name, unsigned offset, unsigned rotated) {
        CHECK(cudaStreamSynchronize(stream));
        for (unsigned block = 0; block < blocks; ++block)
            for (unsigned thread = 0; thread < threads; ++thread)
                expected[block * threads + thread] = offset + (block + rotated) % blocks * 1000 + thread;
        report.equal(name, out.read(), expected);
    };
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = stream;
    CHECK(cudaLaunchKernelEx(&config, number, out.data(), 5U));
    expect_offset("no attribute", 5, 0);

    cudaLaunchAttribute attributes[2]{};
    attributes[0].id = cudaLaunchAttributePriority;
    attributes[0].val.priority = least;
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;
    config.attrs = attributes;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, number, out.data(), 7U));
    expect_offset("priority", 7, 0);
    config.numAttrs = 2;
    CHECK(cudaLaunchKernelEx(&config, rotate, out.data()));
    expect_offset("cooperative", 7, 1);

    // Too many blocks to be there at once.
    config.gridDim = dim3(1U << 20);
    report.text("a cooperative grid that is too large",
                cudaGetErrorName(cudaLaunchKernelEx(&config, rotate, out.data())));
    report.expect(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge, "refused");
    config.gridDim = dim3(blocks);

    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {2, 1, 1};
    config.numAttrs = 1;
    config.gridDim = dim3(blocks + blocks % 2);
    workload::Buffer<unsigned> even(std::size_t{config.gridDim.x} * threads);
    const cudaError_t status = cudaLaunchKernelEx(&config, number, even.data(), 9U);
    report.text("clusters", cudaGetErrorName(status));
    cudaGetLastError();
    CHECK(cudaStreamSynchronize(stream)); // a refusal leaves the context usable
    if (status == cudaSuccess)
        report.expect(even.read()[threads + 3] == 1012, "in clusters");

    cudaFunction_t function = nullptr;
    CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void *>(number)));
    report.expect(function != nullptr, "a kernel's handle");
    CHECK(cudaFuncSetCacheConfig(number, cudaFuncCachePreferL1));
    CHECK(cudaFuncSetAttribute(number, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
    CHECK(cudaDeviceSetCacheConfig(cudaFuncCachePreferShared));
    number<<<blocks, threads, 0, stream>>>(out.data(), 11);
    CHECK_LAUNCH();
    expect_offset("with preferences", 11, 0);
    CHECK(cudaStreamDestroy(stream));
    return report.finish();
}
