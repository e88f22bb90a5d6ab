// SPDX-License-Identifier: GPL-2.0-or-later
// NVRTC for the device that there is, as frameworks and NVIDIA's samples use it: the program asks the device for
// its compute capability and NVRTC for machine code of that (nvrtcGetCUBIN), or for PTX, and loads either.
// Argument: values.
#include "workload.cuh"

#include <algorithm>

#include <cuda.h>
#include <nvrtc.h>

inline void check(CUresult status, int line, const char *what) {
    const char *name = nullptr;
    if (status != CUDA_SUCCESS) {
        cuGetErrorName(status, &name);
        workload::stop(__FILE__, line, what, name == nullptr ? "unknown error" : name);
    }
}
inline void check(nvrtcResult status, int line, const char *what) {
    if (status != NVRTC_SUCCESS)
        workload::stop(__FILE__, line, what, nvrtcGetErrorString(status));
}
#define DRIVER(call) check((call), __LINE__, #call)

// NVRTC as PyTorch has it: a table of functions, filled from addresses that the dynamic linker knows.
struct Nvrtc {
    decltype(&nvrtcCreateProgram) create = nvrtcCreateProgram;
    decltype(&nvrtcCompileProgram) compile = nvrtcCompileProgram;
    decltype(&nvrtcGetCUBINSize) machine_code_size = nvrtcGetCUBINSize;
    decltype(&nvrtcGetCUBIN) machine_code = nvrtcGetCUBIN;
    decltype(&nvrtcDestroyProgram) destroy = nvrtcDestroyProgram;
};
Nvrtc nvrtc;

// What the compiler makes of it depends on the architecture: sums of warps, of pairs of floats, of bytes.
const char *const source = R"(
struct __align__(16) Four { float x, y, z, w; };
extern "C" __global__ void sums(const Four *in, const unsigned *words, double *out, unsigned *most, unsigned count) {
    __shared__ double of_warp[8];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    double sum = 0;
    unsigned largest = 0;
    if (i < count) {
        const Four four = in[i];
        sum = (double)(four.x * 2.0f + four.y * 2.0f) + (double)(four.z + four.w);
        largest = __vmaxu4(words[i], __byte_perm(words[i], 0, 0x0123));
        largest = max(largest, __popc(words[i]) << 8);
    }
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    largest = __reduce_max_sync(0xffffffffu, largest);
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = sum;
        atomicMax(most, largest);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned warp = 1; warp < blockDim.x / 32; ++warp)
            of_warp[0] += of_warp[warp];
        out[blockIdx.x] = of_warp[0];
    }
}
)";

std::string option_for_device(const char *kind) {
    int major = 0;
    int minor = 0;
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    return "--gpu-architecture=" + std::string(kind) + std::to_string(major) + std::to_string(minor);
}

nvrtcProgram compiled(const std::string &architecture) {
    nvrtcProgram program = nullptr;
    DRIVER(nvrtc.create(&program, source, "sums.cu", 0, nullptr, nullptr));
    const char *const options[] = {"--std=c++17", architecture.c_str(), "--fmad=false"};
    DRIVER(nvrtc.compile(program, 3, options));
    return program;
}

std::vector<char> machine_code() {
    nvrtcProgram program = compiled(option_for_device("sm_"));
    std::size_t size = 0;
    DRIVER(nvrtc.machine_code_size(program, &size));
    std::vector<char> code(size);
    DRIVER(nvrtc.machine_code(program, code.data()));
    DRIVER(nvrtc.destroy(&program));
    return code;
}

std::vector<char> ptx() {
    nvrtcProgram program = compiled(option_for_device("compute_"));
    std::size_t size = 0;
    DRIVER(nvrtcGetPTXSize(program, &size));
    std::vector<char> code(size);
    DRIVER(nvrtcGetPTX(program, code.data()));
    DRIVER(nvrtcDestroyProgram(&program));
    return code;
}

int main(int argc, char **argv) {
    auto count = static_cast<unsigned>(workload::size_argument(argc, argv, 30000));
    constexpr unsigned threads = 256;
    const unsigned blocks = workload::blocks_for(count, threads);
    workload::Report report;
    CHECK(cudaFree(nullptr));

    workload::Random random(31);
    std::vector<float4> values(count);
    std::vector<unsigned> words(count);
    for (unsigned i = 0; i < count; ++i) {
        // Multiples of 1/4 below 256: every sum is exact, in whatever order.
        const auto quarter = [&] { return static_cast<float>(static_cast<int>(random.between(0.0F, 1023.0F))) / 4; };
        values[i] = {quarter(), quarter(), quarter(), quarter()};
        words[i] = static_cast<unsigned>(random.between(0.0F, 65535.0F)) * 65537U;
    }
    std::vector<double> sums(blocks);
    unsigned most = 0;
    for (unsigned i = 0; i < count; ++i) {
        sums[i / threads] += 2.0 * values[i].x + 2.0 * values[i].y + values[i].z + values[i].w;
        unsigned bytes = 0;
        for (int at = 0; at < 4; ++at) {
            // The second operand's bytes are the first's, the other way around.
            const unsigned one = words[i] >> (8 * at) & 0xFFU;
            const unsigned other = words[i] >> (8 * (3 - at)) & 0xFFU;
            bytes |= std::max(one, other) << (8 * at);
        }
        most = std::max({most, bytes, static_cast<unsigned>(__builtin_popcount(words[i])) << 8});
    }

    workload::Buffer<float4> device_values(values);
    workload::Buffer<unsigned> device_words(words);
    const float4 *in = device_values.data();
    const unsigned *in_words = device_words.data();
    const auto run = [&](const char *name, auto launch) {
        workload::Buffer<double> out(blocks);
        workload::Buffer<unsigned> largest(std::vector<unsigned>{0});
        double *to = out.data();
        unsigned *to_largest = largest.data();
        void *parameters[] = {&in, &in_words, &to, &to_largest, &count};
        launch(parameters);
        report.equal(name, out.read(), sums);
        report.equal("largest", largest.read(), std::vector<unsigned>{most});
    };
    const auto by_driver = [&](CUfunction function) {
        return [&, function](void **parameters) {
            DRIVER(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, nullptr, parameters, nullptr));
        };
    };

    const std::vector<char> code = machine_code();
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    DRIVER(cuModuleLoadDataEx(&module, code.data(), 0, nullptr, nullptr));
    DRIVER(cuModuleGetFunction(&function, module, "sums"));
    run("machine code, module", by_driver(function));
    DRIVER(cuModuleUnload(module));

    cudaLibrary_t library = nullptr;
    cudaKernel_t kernel = nullptr;
    CHECK(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(cudaLibraryGetKernel(&kernel, library, "sums"));
    run("machine code, library", [&](void **parameters) {
        CHECK(cudaLaunchKernel(reinterpret_cast<const void *>(kernel), dim3(blocks), dim3(threads), parameters, 0,
                               nullptr));
    });
    CHECK(cudaLibraryUnload(library));

    const std::vector<char> text = ptx();
    DRIVER(cuModuleLoadData(&module, text.data()));
    DRIVER(cuModuleGetFunction(&function, module, "sums"));
    run("PTX", by_driver(function));
    DRIVER(cuModuleUnload(module));
    return report.finish();
}
