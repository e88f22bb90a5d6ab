// SPDX-License-Identifier: GPL-2.0-or-later
// Communication inside a warp and a block.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

extern "C" __global__ void shuffles(int *out, double *d) {
    int v = out[threadIdx.x];
    for (int offset = 16; offset > 0; offset /= 2)
        v += __shfl_down_sync(0xffffffffU, v, offset);
    v ^= __shfl_xor_sync(0xffffffffU, v, 5) + __shfl_up_sync(0xffffffffU, v, 1, 16) + __shfl_sync(0xffffffffU, v, 3, 8);
    d[threadIdx.x] = __shfl_sync(0xffffffffU, d[threadIdx.x], 0);
    out[threadIdx.x] = v;
}

extern "C" __global__ void votes(unsigned *out, const int *in, const unsigned long long *wide) {
    const unsigned mask = __activemask();
    const int v = in[threadIdx.x];
    unsigned r = __ballot_sync(mask, v > 0);
    r += static_cast<unsigned>(__all_sync(mask, v > 1)) + static_cast<unsigned>(__any_sync(mask, v > 2)) + static_cast<unsigned>(__uni_sync(mask, v > 3));
    __syncwarp();
    int same = 0;
    r ^= __match_any_sync(mask, v) ^ __match_all_sync(mask, v, &same) ^ __match_any_sync(mask, wide[threadIdx.x]);
    out[threadIdx.x] = r + static_cast<unsigned>(same);
#if __CUDA_ARCH__ >= 800
    out[32] = __reduce_add_sync(mask, v) + __reduce_max_sync(mask, r) + __reduce_xor_sync(mask, r) + __reduce_min_sync(mask, v) + __reduce_or_sync(mask, r);
#endif
}

extern "C" __global__ void barriers(int *out, int v) {
    out[0] = __syncthreads_count(v) + __syncthreads_and(v) + __syncthreads_or(v);
    asm volatile("bar.sync 3, 64;");
    asm volatile("bar.arrive 4, 64;");
    asm volatile("barrier.sync 5;");
    __syncthreads();
}

extern "C" __global__ void groups(int *out) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    out[block.thread_rank()] = cg::reduce(tile, out[block.thread_rank()], cg::plus<int>());
    auto active = cg::coalesced_threads();
    out[active.thread_rank()] += active.shfl(out[1], 0) + static_cast<int>(tile.any(out[2]));
    block.sync();
}
