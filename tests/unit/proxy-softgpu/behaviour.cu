// SPDX-License-Identifier: GPL-2.0-or-later
// Programs whose outcome depends on how lanes, warps and blocks get their turns.
#include <cassert>
#include <cooperative_groups.h>
#include <cstdio>
namespace cg = cooperative_groups;

// Every lane of every block takes the same lock, in the way that hangs without independent thread scheduling.
extern "C" __global__ void spin_lock(int *lock, int *count) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *count = *static_cast<volatile int *>(count) + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}
extern "C" __global__ void spin_outside(int *lock, volatile int *count) {
    while (atomicCAS(lock, 0, 1) != 0)
        ;
    *count = *count + 1;
    __threadfence();
    atomicExch(lock, 0);
}

// A lane waits for what a later lane of its own warp writes.
extern "C" __global__ void hand_over(volatile int *flags) {
    const int lane = threadIdx.x;
    if (lane < 31)
        while (flags[lane + 1] == 0)
            ;
    flags[lane] = lane + 1;
}

// The same among blocks, the last first: all must be resident.
extern "C" __global__ void block_chain(volatile int *flags) {
    if (threadIdx.x == 0) {
        if (blockIdx.x + 1 < gridDim.x)
            while (flags[blockIdx.x + 1] == 0)
                ;
        flags[blockIdx.x] = 1 + (blockIdx.x + 1 < gridDim.x ? flags[blockIdx.x + 1] : 0);
    }
}

// A ticket per block: who comes when is seen.
extern "C" __global__ void tickets(unsigned *next, unsigned *order, float *sum) {
    if (threadIdx.x == 0)
        order[atomicAdd(next, 1U)] = blockIdx.x;
    atomicAdd(sum, 1.F / static_cast<float>(1 + threadIdx.x + blockIdx.x * blockDim.x));
}

extern "C" __global__ void histogram(unsigned *bins, const unsigned *in, unsigned n) {
    __shared__ unsigned part[64];
    if (threadIdx.x < 64)
        part[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&part[in[i] & 63U], 1U);
    __syncthreads();
    if (threadIdx.x < 64)
        atomicAdd(&bins[threadIdx.x], part[threadIdx.x]);
}

__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
extern "C" __global__ void recursion(unsigned *out) { out[threadIdx.x] = ackermann(threadIdx.x % 3, threadIdx.x / 8); }

__device__ __noinline__ unsigned endless_recursion(unsigned n) { return n == 0xFFFFFFFFU ? 0 : endless_recursion(n + 1) * 3 + 1; }
extern "C" __global__ void deep(unsigned *out) { out[0] = endless_recursion(out[1]); }

__device__ __noinline__ int plus(int a) { return a + 1; }
__device__ __noinline__ int minus(int a) { return a - 1; }
__device__ __noinline__ int doubled(int a) {
    if (a % 2 == 0)
        return 2 * a;
    return 2 * a + 1000;
}
__device__ int (*table[4])(int) = {plus, minus, doubled, nullptr};
extern "C" __global__ void indirect(int *out, int bad) {
    out[threadIdx.x] = table[threadIdx.x % 3 + bad](static_cast<int>(threadIdx.x));
    // After different callees the warp is whole again.
    out[threadIdx.x] += static_cast<int>(__popc(__activemask())) << 16;
}

extern "C" __global__ void nested(int *out, const int *in) {
    const int v = in[threadIdx.x];
    int r = 0;
    if (v & 1) {
        if (v & 2)
            for (int i = 0; i < v; ++i) {
                if (i == 7)
                    break;
                r += i;
            }
        else
            r = 100;
        r += static_cast<int>(__popc(__activemask())) * 1000;
    } else if (v & 4) {
        if (v & 8)
            return;
        r = 200;
    }
    out[threadIdx.x] = r + static_cast<int>(__popc(__activemask())) * 100000;
}

// Lanes meet in a shuffle from different places.
extern "C" __global__ void split_shuffle(int *out) {
    const int lane = threadIdx.x;
    int v;
    if (lane & 1)
        v = __shfl_xor_sync(0xFFFFFFFFU, lane * 10, 1);
    else
        v = __shfl_xor_sync(0xFFFFFFFFU, lane * 100, 1);
    out[lane] = v;
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    if (lane < 16)
        out[lane] += static_cast<int>(__ballot_sync(lane < 8 ? 0xFFU : 0xFF00U, lane % 3 == 0)) << 16;
    tile.sync();
    out[lane] += tile.shfl(lane, 3) * 10000000;
}

extern "C" __global__ void collectives(unsigned *out, const unsigned *in) {
    const unsigned v = in[threadIdx.x];
    unsigned *mine = out + 16 * threadIdx.x;
    mine[0] = __shfl_up_sync(~0U, v, 3);
    mine[1] = __shfl_down_sync(~0U, v, 5, 16);
    mine[2] = __shfl_sync(~0U, v, threadIdx.x * 7, 8);
    mine[3] = __ballot_sync(~0U, v & 1U);
    mine[4] = __any_sync(~0U, v == 5) + 2 * __all_sync(~0U, v < 1000) + 4 * __all_sync(~0U, v != 3);
    mine[5] = __match_any_sync(~0U, v & 3U);
    int same = 0;
    mine[6] = __match_all_sync(~0U, v >> 20, &same) + static_cast<unsigned>(same);
    const double d = __shfl_xor_sync(~0U, static_cast<double>(v), 9);
    mine[7] = static_cast<unsigned>(d);
#if __CUDA_ARCH__ >= 800
    mine[8] = __reduce_add_sync(~0U, v);
    mine[9] = __reduce_min_sync(~0U, v);
    mine[10] = __reduce_max_sync(~0U, static_cast<int>(v) - 50);
    mine[11] = __reduce_xor_sync(~0U, v);
#endif
}

extern "C" __global__ void named_barriers(int *out) {
    __shared__ int stage;
    const int warp = threadIdx.x / 32;
    // Warps 0 and 1 by barrier 1; 2 produces for 3 by barrier 2.
    if (warp == 0)
        stage = 0;
    __syncthreads();
    if (warp < 2) {
        if (threadIdx.x == 0)
            stage = 5;
        asm volatile("bar.sync 1, 64;" ::: "memory");
        out[threadIdx.x] = *static_cast<volatile int *>(&stage);
    } else if (warp == 2) {
        out[threadIdx.x] = 1;
        asm volatile("bar.arrive 2, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 2, 64;" ::: "memory");
        out[threadIdx.x] = out[threadIdx.x - 32] + 1;
    }
    const int odd = __syncthreads_count(threadIdx.x & 1);
    const int all = __syncthreads_and(threadIdx.x < 1000);
    const int any = __syncthreads_or(threadIdx.x == 77);
    out[threadIdx.x] += 10 * odd + 10000 * all + 20000 * any;
}

extern "C" __global__ void half_barrier(int *out) {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        asm volatile("bar.sync 1, 64;");
    out[threadIdx.x] = 1;
}

extern "C" __global__ void exits_before_barrier(int *out) {
    __shared__ int s;
    if (threadIdx.x == 3)
        s = 9;
    if (threadIdx.x >= 40)
        return;
    __syncthreads();
    out[threadIdx.x] = s;
}

extern "C" __global__ void prints(int n) {
    printf("block %d thread %u: %5.2f %s %llx %c|%-4d|%%\n", static_cast<int>(blockIdx.x), threadIdx.x, 1.5 * n, "text", 0xABCDEF0123ULL, 'z', n);
}

extern "C" __global__ void asserts(const int *n) { assert(n[threadIdx.x] > 0 && "positive"); }

extern "C" __global__ void out_of_bounds(int *p, int stride) { p[threadIdx.x * stride] = 1; }
extern "C" __global__ void misaligned(char *p) { *reinterpret_cast<int *>(p + threadIdx.x) = 1; }
extern "C" __global__ void shared_overrun(int *out, int n) {
    __shared__ int s[32];
    s[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = *(volatile int *)(s + n * threadIdx.x);
}

extern "C" __global__ void loops_for_ever(volatile int *p) {
    while (p[0] == 0)
        ;
}
extern "C" __global__ void counts_for_ever(int *p, int step) {
    for (unsigned i = 0; i != 1; i += 2 * step)
        p[i & 15] = i;
}

extern "C" __global__ void uses_heap(int *out) {
    int *p = static_cast<int *>(malloc(16 * sizeof(int)));
    for (int i = 0; i < 16; ++i)
        p[i] = static_cast<int>(threadIdx.x) * i;
    int sum = 0;
    for (int i = 0; i < 16; ++i)
        sum += p[i];
    out[threadIdx.x] = sum;
    free(p);
}

extern "C" __global__ void grid_sums(int *x, int *sum, int rounds) {
    auto grid = cg::this_grid();
    const int n = static_cast<int>(grid.size());
    const int i = static_cast<int>(grid.thread_rank());
    for (int r = 0; r < rounds; ++r) {
        x[i] = i + r;
        grid.sync();
        sum[i] += x[(i + 33) % n];
        grid.sync();
    }
}

extern "C" __global__ void times(long long *out) {
    const long long start = clock64();
    long long x = start;
    for (int i = 0; i < 100; ++i)
        x = x * 3 + i;
    out[threadIdx.x] = clock64() - start + (x == 42);
}
