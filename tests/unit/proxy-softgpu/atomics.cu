// SPDX-License-Identifier: GPL-2.0-or-later
// Atomics: every operation, type, space, scope and memory order.
#include <cuda/atomic>

template <class T>
__device__ void all(T *p, T v) {
    atomicAdd(p, v);
    p[1] = atomicAdd(p + 2, v);
    p[3] = atomicExch(p + 4, v);
}

extern "C" __global__ void global_atomics(int *i, unsigned *u, unsigned long long *l, float *f, double *d, long long *s) {
    all(i, 1);
    all(u, 2U);
    all(l, 3ULL);
    atomicAdd(f, 1.5F);
    f[1] = atomicAdd(f + 2, 2.5F) + atomicExch(f + 3, 1.F);
    d[1] = atomicAdd(d, 2.0);
    i[5] = atomicSub(i + 6, 4) + atomicMin(i + 7, 5) + atomicMax(i + 8, 6) + atomicCAS(i + 9, 7, 8) + atomicAnd(i, 9);
    u[5] = atomicInc(u + 6, 7) + atomicDec(u + 7, 8) + atomicOr(u + 8, 1) + atomicXor(u + 9, 2) + atomicMin(u, 3) + atomicMax(u, 4);
    l[5] = atomicCAS(l + 6, 1ULL, 2ULL) + atomicMin(l, 3ULL) + atomicMax(l, 4ULL) + atomicAnd(l, 5ULL) + atomicXor(l, 6ULL);
    s[5] = atomicMin(s, 3LL) + atomicMax(s, 4LL);
    i[10] = atomicAdd_block(i + 11, 1) + atomicAdd_system(i + 12, 2);
    u[11] = atomicCAS(reinterpret_cast<unsigned short *>(u + 20), static_cast<unsigned short>(1), static_cast<unsigned short>(2));
}

extern "C" __global__ void shared_atomics(int *out, float *fout) {
    __shared__ int i[4];
    __shared__ unsigned long long l;
    __shared__ float f;
    atomicAdd(&i[threadIdx.x & 3], 1);
    atomicMax(&l, 7ULL);
    atomicAdd(&f, 0.5F);
    atomicCAS(&i[0], 1, 2);
    __syncthreads();
    out[0] = i[0] + static_cast<int>(l);
    fout[0] = f;
}

extern "C" __global__ void ordered(int *x, long long *y) {
    cuda::atomic_ref<int, cuda::thread_scope_device> a(*x);
    cuda::atomic_ref<long long, cuda::thread_scope_system> b(*y);
    a.store(1, cuda::memory_order_release);
    b.fetch_add(a.load(cuda::memory_order_acquire), cuda::memory_order_acq_rel);
    int expected = 2;
    a.compare_exchange_strong(expected, 3, cuda::memory_order_seq_cst);
    a.fetch_max(4, cuda::memory_order_relaxed);
    b.store(a.exchange(5), cuda::memory_order_relaxed);
    __threadfence();
    __threadfence_block();
    __threadfence_system();
    x[1] = *const_cast<volatile int *>(x + 2);
}
