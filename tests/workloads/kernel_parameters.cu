// SPDX-License-Identifier: GPL-2.0-or-later
// Parameters of kernels: every alignment, structs by value with holes, arrays of some kilobytes, function
// pointers, classes with methods, more than 4 KiB, and what is read only by some threads. Each kernel returns
// a checksum of what it got.
#include "workload.cuh"

#include <utility>

using Sum = unsigned long long;

__host__ __device__ inline Sum mix(Sum sum, Sum value) { return (sum ^ value) * 0x100000001b3ULL; }

struct Mixed {
    char a;
    short b;
    char c;
    double d;
    int e;
    char f[5];
    long long g;
};
struct alignas(16) Wide {
    float4 x;
    double2 y;
    char tail;
};
struct Big {
    int count;
    unsigned values[900]; // 3604 bytes with the count
};
struct Huge {
    unsigned values[4000]; // more than a kernel could take before CUDA 12.1
};
struct Empty {};

__host__ __device__ inline Sum sum_of(const Mixed &m) {
    Sum sum = mix(mix(mix(1, static_cast<Sum>(m.a)), static_cast<Sum>(m.b)), static_cast<Sum>(m.c));
    sum = mix(mix(sum, static_cast<Sum>(m.d * 1024)), static_cast<Sum>(m.e));
    for (const char one : m.f)
        sum = mix(sum, static_cast<Sum>(one));
    return mix(sum, static_cast<Sum>(m.g));
}
__host__ __device__ inline Sum sum_of(const Wide &w) {
    return mix(mix(mix(2, static_cast<Sum>(w.x.z * 8)), static_cast<Sum>(w.y.y * 16)),
               static_cast<Sum>(w.tail));
}

__global__ void scalars(Sum *out, char a, double b, short c, float d, bool e, long long f, unsigned char g,
                        unsigned h) {
    Sum sum = mix(3, static_cast<Sum>(a));
    sum = mix(mix(mix(sum, static_cast<Sum>(b * 4)), static_cast<Sum>(c)), static_cast<Sum>(d * 8));
    *out = mix(mix(mix(mix(sum, e ? 1 : 2), static_cast<Sum>(f)), g), h);
}
__global__ void structs(Mixed first, char between, Wide wide, Empty, short after, Mixed last, Sum *out) {
    *out = mix(mix(mix(mix(sum_of(first), static_cast<Sum>(between)), sum_of(wide)), static_cast<Sum>(after)),
               sum_of(last));
}
// Indexed by the thread: cannot be kept in registers.
__global__ void big(Big given, Sum *out) {
    Sum sum = threadIdx.x;
    for (int i = static_cast<int>(threadIdx.x); i < given.count; i += static_cast<int>(blockDim.x))
        sum = mix(sum, given.values[i]);
    out[threadIdx.x] = sum;
}
__global__ void huge(const __grid_constant__ Huge given, Sum *out) {
    const unsigned *values = given.values; // its address is taken
    Sum sum = threadIdx.x;
    for (int i = static_cast<int>(threadIdx.x); i < 4000; i += static_cast<int>(blockDim.x))
        sum = mix(sum, values[i]);
    out[threadIdx.x] = sum;
}
// A copy in the thread's own memory is changed, the next launch does not see it.
__global__ void scratch(Big given, int swaps, Sum *out) {
    for (int i = 0; i < swaps; ++i) {
        const unsigned place = (given.values[i] + threadIdx.x) % 900;
        const unsigned moved = given.values[i];
        given.values[i] = given.values[place];
        given.values[place] = moved;
    }
    Sum sum = 0;
    for (const unsigned value : given.values)
        sum = mix(sum, value);
    out[threadIdx.x] = sum;
}

template <typename Function>
__global__ void apply(Function function, const int *in, int *out, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count)
        out[i] = function(in[i]);
}

class Polynomial {
  public:
    explicit Polynomial(int scale) : factors_{scale, -3, 2, 1} {}
    __host__ __device__ int operator()(int x) const {
        int sum = 0;
        for (const int factor : factors_)
            sum = sum * x + factor;
        return sum;
    }

  private:
    int factors_[4];
};

int main() {
    workload::Report report;
    workload::Random random(193);
    workload::Buffer<Sum> out(64);
    const auto compare = [&](const char *name, const std::vector<Sum> &expected) {
        CHECK_LAUNCH();
        report.equal(name, out.read(expected.size()), expected);
    };

    scalars<<<1, 1>>>(out.data(), -7, 2.25, -300, 0.125F, true, -5000000000LL, 200, 4000000000U);
    Sum sum = mix(3, static_cast<Sum>(static_cast<char>(-7)));
    sum = mix(mix(mix(sum, 9), static_cast<Sum>(static_cast<short>(-300))), 1);
    sum = mix(mix(mix(mix(sum, 1), static_cast<Sum>(-5000000000LL)), 200), 4000000000U);
    compare("scalars", {sum});

    const Mixed first{'a', -1234, 'z', 3.5, 77, {1, 2, 3, 4, 5}, -9876543210LL};
    const Mixed last{'b', 4321, 'y', 0.25, -77, {5, 4, 3, 2, 1}, 1234567890123LL};
    const Wide wide{{1, 2, 3, 4}, {5, 6}, 'w'};
    structs<<<1, 1>>>(first, '!', wide, Empty{}, 99, last, out.data());
    compare("structs", {mix(mix(mix(mix(sum_of(first), '!'), sum_of(wide)), 99), sum_of(last))});

    Big given{900, {}};
    for (unsigned &value : given.values)
        value = static_cast<unsigned>(random.next());
    big<<<1, 64>>>(given, out.data());
    std::vector<Sum> expected;
    for (int thread = 0; thread < 64; ++thread) {
        sum = static_cast<Sum>(thread);
        for (int i = thread; i < given.count; i += 64)
            sum = mix(sum, given.values[i]);
        expected.push_back(sum);
    }
    compare("big", expected);

    for (int round = 0; round < 2; ++round) {
        scratch<<<1, 8>>>(given, 200, out.data());
        expected.clear();
        for (unsigned thread = 0; thread < 8; ++thread) {
            Big own = given;
            for (int i = 0; i < 200; ++i)
                std::swap(own.values[i], own.values[(own.values[i] + thread) % 900]);
            sum = 0;
            for (const unsigned value : own.values)
                sum = mix(sum, value);
            expected.push_back(sum);
        }
        compare("scratch", expected);
    }

    static Huge many;
    for (unsigned &value : many.values)
        value = static_cast<unsigned>(random.next());
    huge<<<1, 64>>>(many, out.data());
    expected.clear();
    for (int thread = 0; thread < 64; ++thread) {
        sum = static_cast<Sum>(thread);
        for (int i = thread; i < 4000; i += 64)
            sum = mix(sum, many.values[i]);
        expected.push_back(sum);
    }
    compare("huge", expected);

    std::vector<int> numbers(1000);
    for (int &number : numbers)
        number = static_cast<int>(random.below(2000)) - 1000;
    workload::Buffer<int> in(numbers);
    workload::Buffer<int> results(numbers.size());
    for (const int scale : {4, -5}) {
        const Polynomial polynomial(scale);
        apply<<<8, 128>>>(polynomial, in.data(), results.data(), static_cast<int>(numbers.size()));
        CHECK_LAUNCH();
        std::vector<int> values;
        for (const int number : numbers)
            values.push_back(polynomial(number));
        report.equal("polynomial", results.read(), values);
    }
    return report.finish();
}
