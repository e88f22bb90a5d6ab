// SPDX-License-Identifier: GPL-2.0-or-later
// Shared (static and dynamic), local, constant and global memory; vector loads; cache hints; address spaces.
struct Node {
    Node *next;
    const char *name;
    int value;
};
__constant__ float table[64] = {1.F, 2.5F, -3.F};
__constant__ int scale;
__device__ int counters[4] = {1, -2, 3};
__device__ double pi = 3.141592653589793;
__device__ Node second = {nullptr, "second", 2};
__device__ Node first = {&second, "first", 1};
__device__ int *middle = &counters[2];
__device__ unsigned char bytes[5] = {1, 2, 3, 4, 5};
__device__ short halves[3] = {-1, 2, 3};
__managed__ int managed = 7;
extern __shared__ float dynamic[];

extern "C" __global__ void spaces(float *out, int n) {
    __shared__ float tile[32][33];
    __shared__ alignas(16) double wide[2];
    const unsigned x = threadIdx.x, y = threadIdx.y;
    tile[y][x] = out[y * 32 + x];
    dynamic[x] = tile[y][x] * table[x & 63U];
    wide[x & 1U] = pi;
    __syncthreads();
    out[x * 32 + y] = tile[x][y] + dynamic[31 - x] + static_cast<float>(scale + counters[n & 3] + managed) + static_cast<float>(wide[n & 1]);
}

extern "C" __global__ void local_array(int *out, const int *in, int n) {
    int stack[40];
    for (int i = 0; i < 40; ++i)
        stack[i] = in[i];
    for (int i = 0; i < n; ++i) {
        const int j = (stack[i % 40] & 0x7fffffff) % 40;
        const int t = stack[j];
        stack[j] = stack[i % 40];
        stack[i % 40] = t;
    }
    out[threadIdx.x] = stack[n % 40];
}

extern "C" __global__ void lists(int *out) {
    int sum = 0;
    for (const Node *node = &first; node != nullptr; node = node->next)
        sum += node->value + node->name[0];
    out[0] = sum + *middle + bytes[out[1]] + halves[out[2]];
}

struct alignas(16) Big {
    float4 a;
    double2 b;
    char c[3];
};
extern "C" __global__ void vectors(float4 *f, const int2 *__restrict__ i, uchar4 *c, Big big, ushort2 *s, char one, short two) {
    f[0] = make_float4(f[1].x, f[2].y, static_cast<float>(i[0].x), big.a.w);
    c[0] = make_uchar4(c[1].x, big.c[2], one, 4);
    s[0] = make_ushort2(s[1].y, two);
    f[3] = __ldg(f + 4);
    f[5] = __ldcg(f + 6);
    __stcs(f + 7, __ldcs(f + 8));
    f[9].x = static_cast<float>(big.b.y) + __ldlu(&f[9].y) + __ldcv(&f[9].z);
    __stwt(&f[10].x, 1.F);
}

extern "C" __global__ void address_spaces(int *out, void *p) {
    __shared__ int s;
    int local = out[1];
    int *choice = out[2] != 0 ? &s : out[3] != 0 ? &local : out;
    *choice = 5;
    out[0] = static_cast<int>(__isGlobal(p)) + 2 * static_cast<int>(__isShared(choice)) + 4 * static_cast<int>(__isLocal(p)) + local +
             8 * static_cast<int>(__isConstant(p)) + static_cast<int>(__cvta_generic_to_shared(choice)) + s;
}
