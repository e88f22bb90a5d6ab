// SPDX-License-Identifier: GPL-2.0-or-later
// The grid-wide barrier of a cooperative launch, and asynchronous copies into shared memory.
#include <cooperative_groups.h>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;

extern "C" __global__ void grid_barrier(int *x, int rounds) {
    auto grid = cg::this_grid();
    for (int i = 0; i < rounds; ++i) {
        x[grid.thread_rank()] += i;
        grid.sync();
    }
}

extern "C" __global__ void pipeline(float4 *out, const float4 *in) {
    __shared__ float4 stage[64];
    __pipeline_memcpy_async(&stage[threadIdx.x], &in[threadIdx.x], sizeof(float4));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[threadIdx.x] = stage[63 - threadIdx.x];
}
