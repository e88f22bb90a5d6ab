// SPDX-License-Identifier: GPL-2.0-or-later
// Divergence, loops, switches (jump tables), launch bounds.
extern "C" __global__ void __launch_bounds__(128, 2) choose(int *out, const int *in) {
    const int v = in[threadIdx.x];
    int r = 0;
    switch (v) {
    case 0: r = out[1] * 3; break;
    case 1: r = out[2] / 5; break;
    case 2: out[9] = 7; r = 4; break;
    case 3: r = out[3] ^ 0x55; break;
    case 4: atomicAdd(out + 7, 1); break;
    case 5: r = out[4] % 11; [[fallthrough]];
    case 6: r += 2; break;
    case 7: r = -out[5]; break;
    case 8: r = out[8] << 2; break;
    case 9: r = __popc(out[6]); break;
    default: r = -1; out[11] = 3;
    }
    out[threadIdx.x] = r;
}

// nvcc 13.0 makes trees of comparisons of every switch; the jump table is written by hand.
extern "C" __global__ void table(int *out, unsigned v) {
    int r = 0;
    asm volatile("{ targets: .branchtargets L0, L1, L2, L1;\n"
                 "brx.idx %1, targets;\n"
                 "L0: mov.u32 %0, 5; bra.uni E;\n"
                 "L1: mov.u32 %0, 6; bra.uni E;\n"
                 "L2: mov.u32 %0, 7;\n"
                 "E: }"
                 : "=r"(r)
                 : "r"(v & 3U));
    out[v] = r;
}

extern "C" __global__ void loops(unsigned *out, const unsigned *in, unsigned n) {
    unsigned sum = 0;
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
        unsigned x = in[i];
        while (x != 1) {
            x = (x & 1U) != 0 ? 3 * x + 1 : x / 2;
            if (++sum > 1000)
                break;
            if (x == 17)
                return;
        }
        if (in[i] == 5)
            continue;
        sum ^= x;
    }
    out[threadIdx.x] = sum;
}

extern "C" __global__ void endless(volatile int *flag) {
    for (;;)
        *flag = 1;
}

extern "C" __global__ void special(long long *t, unsigned *u) {
    t[0] = clock64() - clock();
    t[1] = static_cast<long long>(gridDim.x) * blockDim.y + blockIdx.z + threadIdx.z + warpSize;
    unsigned r = 0;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(r));
    u[0] = r;
    asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(r));
    u[1] = r;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; @p bra done; add.u32 %0, %1, 1; done: }" : "=r"(r) : "r"(u[2]));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t[2]));
    __nanosleep(100);
    u[3] = r;
}
