// SPDX-License-Identifier: GPL-2.0-or-later
// Device functions, function pointers, recursion, virtual functions, returned structures.
struct Triple {
    double x;
    int y;
    char z;
};
__device__ __noinline__ Triple make(int a, double b) { return {b * a, a + 1, static_cast<char>(a)}; }
__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ __noinline__ int negate(int x) { return -x; }
__device__ int (*operations[3])(int) = {twice, square, negate};
__device__ __noinline__ unsigned fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

struct Shape {
    __device__ virtual float area() const = 0;
};
struct Square : Shape {
    float side;
    __device__ explicit Square(float s) : side(s) {}
    __device__ float area() const override { return side * side; }
};
struct Circle : Shape {
    float radius;
    __device__ explicit Circle(float r) : radius(r) {}
    __device__ float area() const override { return 3.14F * radius * radius; }
};

extern "C" __global__ void calls(int *out, const int *in) {
    const Triple t = make(in[0], in[1]);
    out[0] = t.y + t.z + static_cast<int>(t.x);
    out[1] = operations[in[2] % 3](in[3]);
    out[2] = static_cast<int>(fibonacci(static_cast<unsigned>(in[4])));
}

extern "C" __global__ void dispatch(float *out, int n) {
    const Shape *shapes[2];
    Square square(out[0]);
    Circle circle(out[1]);
    shapes[n & 1] = &square;
    shapes[1 - (n & 1)] = &circle;
    out[2] = shapes[threadIdx.x & 1U]->area();
}

extern "C" __global__ void heap(int **out, int n) {
    int *p = new int[n];
    p[0] = n;
    out[threadIdx.x] = p;
    void *q = malloc(16);
    free(q);
}
