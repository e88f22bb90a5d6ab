// SPDX-License-Identifier: GPL-2.0-or-later
// Calls at the end of a program: from the destructor of a static variable, when all thread_local variables
// are gone already. PyTorch destroys its handles of cuSOLVER and cuBLAS there. Code is loaded there as well:
// cudart loads a module when one of its kernels is first launched. The same by a thread that ends.
#include "workload.cuh"

#include <array>
#include <thread>

#include <cuda.h>
#include <malloc.h>

namespace {

constexpr unsigned kCount = 1 << 12;

#define DRIVER(call)                                                                                         \
    do                                                                                                       \
        if (const CUresult status = (call); status != CUDA_SUCCESS)                                          \
            ::workload::stop(__FILE__, __LINE__, #call, "CUresult " + std::to_string(status));               \
    while (false)

__global__ void fill(unsigned *out, unsigned from) {
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    out[index] = from + index;
}

const char *const kDoubles = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .entry doubles(.param .u64 numbers)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [numbers];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r5, [%rd4];
    shl.b32 %r5, %r5, 1;
    st.global.u32 [%rd4], %r5;
    ret;
}
)";

void run_doubles(unsigned *numbers, cudaStream_t stream) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    DRIVER(cuModuleLoadData(&module, kDoubles));
    DRIVER(cuModuleGetFunction(&function, module, "doubles"));
    void *parameters[] = {&numbers};
    DRIVER(cuLaunchKernel(function, kCount / 256, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr));
    DRIVER(cuStreamSynchronize(stream));
    DRIVER(cuModuleUnload(module));
}

// What was written into freed memory is found by who gets it next: malloc(3) then ends the program.
void use_the_heap() {
    for (std::size_t size = 8; size < 4096; size += 8) {
        std::array<void *, 16> taken{};
        for (auto &one : taken) {
            one = std::malloc(size);
            std::memset(one, 0xa5, size);
        }
        for (auto *one : taken)
            std::free(one);
    }
    malloc_trim(0);
}

// A stack of contexts that grows and shrinks, streams, memory, launches, new code.
std::uint64_t work(CUcontext other) {
    CUcontext own = nullptr;
    for (int round = 0; round < 8; ++round) {
        DRIVER(cuCtxGetCurrent(&own));
        DRIVER(cuCtxPushCurrent(other));
        DRIVER(cuCtxSetCurrent(own));
        DRIVER(cuCtxPushCurrent(other));
        CUcontext popped = nullptr;
        DRIVER(cuCtxPopCurrent(&popped));
        DRIVER(cuCtxPopCurrent(&popped));
        if (popped != own)
            workload::stop(__FILE__, __LINE__, "cuCtxPopCurrent", "it is another context");
    }
    workload::Buffer<unsigned> numbers(kCount);
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreate(&stream));
    fill<<<kCount / 256, 256, 0, stream>>>(numbers.data(), 7);
    CHECK_LAUNCH();
    fill<<<kCount / 256, 256, 0, cudaStreamPerThread>>>(numbers.data(), 7);
    CHECK_LAUNCH();
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamSynchronize(cudaStreamPerThread));
    run_doubles(numbers.data(), stream);
    CHECK(cudaStreamDestroy(stream));
    const auto read = numbers.read();
    return workload::checksum(read.data(), read.size() * sizeof(read[0]));
}

// Made before anything of CUDA, so that its destructor comes after all of it.
struct Last {
    CUcontext other = nullptr;
    std::uint64_t before = 0;
    ~Last() {
        if (other == nullptr)
            return;
        const bool same = work(other) == before;
        use_the_heap();
        std::printf("at the end the same %s\n%s\n", same ? "yes" : "NO", same ? "PASSED" : "FAILED");
        std::fflush(stdout);
        if (!same)
            std::_Exit(1);
    }
};
Last last;

// A thread_local variable of the program's, whose destructor calls as well.
struct ThreadsLast {
    CUcontext other = nullptr;
    std::uint64_t *sum = nullptr;
    ~ThreadsLast() {
        if (sum != nullptr)
            *sum = work(other);
    }
};
thread_local ThreadsLast threads_last;

} // namespace

int main() {
    CHECK(cudaFree(nullptr));
    CUcontext primary = nullptr;
    CUdevice device = 0;
    DRIVER(cuCtxGetCurrent(&primary));
    DRIVER(cuDeviceGet(&device, 0));
    CUcontext other = nullptr;
#if CUDA_VERSION >= 13000
    DRIVER(cuCtxCreate(&other, nullptr, 0, device));
#else
    DRIVER(cuCtxCreate(&other, 0, device));
#endif
    DRIVER(cuCtxSetCurrent(primary));
    last.before = work(other);
    std::printf("sum %llx\n", static_cast<unsigned long long>(last.before));
    for (int round = 0; round < 4; ++round) {
        std::uint64_t sum = 0;
        std::thread([&] {
            threads_last.other = other;
            threads_last.sum = &sum;
            CHECK(cudaSetDevice(0));
            DRIVER(cuCtxSetCurrent(primary));
        }).join();
        std::printf("by a thread that ends %s\n", sum == last.before ? "yes" : "NO");
        if (sum != last.before)
            return 1;
    }
    last.other = other;
    return 0;
}
