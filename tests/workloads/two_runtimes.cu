// SPDX-License-Identifier: GPL-2.0-or-later
// Several runtimes in one process: this program has cudart built in, and opens two shared objects of the same
// source, one with another copy of cudart built in and one with the shared cudart. Memory and streams made by
// one are used by all.
#include "workload.cuh"

#include <string>

#include <dlfcn.h>
#include <unistd.h>

#ifdef PART_NAME

// One of the shared objects: multiplies, each with a factor of its own kept on the device.
__constant__ unsigned factor = 1;

__global__ void multiply(unsigned *values, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] *= factor;
}

extern "C" int run_part(unsigned *values, unsigned count, unsigned by, cudaStream_t stream) {
    cudaError_t status = cudaMemcpyToSymbol(factor, &by, sizeof by);
    if (status == cudaSuccess) {
        multiply<<<workload::blocks_for(count, 128), 128, 0, stream>>>(values, count);
        status = cudaGetLastError();
    }
    return static_cast<int>(status);
}

extern "C" unsigned *allocate_part(unsigned count) {
    unsigned *memory = nullptr;
    return cudaMalloc(&memory, count * sizeof(unsigned)) == cudaSuccess ? memory : nullptr;
}

#else

__global__ void fill(unsigned *values, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = i;
}

template <typename Function>
Function *entry(void *object, const char *name) {
    void *found = object == nullptr ? nullptr : dlsym(object, name);
    if (found == nullptr)
        workload::stop(__FILE__, __LINE__, name, dlerror());
    return reinterpret_cast<Function *>(found);
}

void *open_part(const std::string &name) {
    char path[4096] = "";
    if (readlink("/proc/self/exe", path, sizeof path - 1) < 0)
        workload::stop(__FILE__, __LINE__, "readlink", "/proc/self/exe");
    const std::string own = path;
    return dlopen((own.substr(0, own.rfind('/') + 1) + name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

int main(int argc, char **argv) {
    const auto count = static_cast<unsigned>(workload::size_argument(argc, argv, 20000));
    workload::Report report;
    // The driver opened beside the runtimes, by name.
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int version = 0;
    report.expect(entry<int(int *)>(driver, "cuDriverGetVersion")(&version) == 0 && version >= 12000,
                  "the driver opened by hand");
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::vector<unsigned> expected(count);
    for (unsigned i = 0; i < count; ++i)
        expected[i] = i;
    unsigned *values = nullptr;
    unsigned by = 3;
    for (const char *name : {"two_runtimes_static.so", "two_runtimes_shared.so"}) {
        void *part = open_part(name);
        if (values == nullptr) {
            values = entry<unsigned *(unsigned)>(part, "allocate_part")(count);
            report.expect(values != nullptr, "memory of another runtime");
            fill<<<workload::blocks_for(count, 64), 64, 0, stream>>>(values, count);
            CHECK_LAUNCH();
        }
        report.expect(entry<int(unsigned *, unsigned, unsigned, cudaStream_t)>(part, "run_part")(
                          values, count, by, stream) == 0,
                      name);
        for (unsigned &value : expected)
            value *= by;
        by += 4;
    }
    std::vector<unsigned> found(count);
    CHECK(cudaMemcpyAsync(found.data(), values, count * sizeof(unsigned), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    report.equal("product of all parts", found, expected);
    CHECK(cudaFree(values));
    CHECK(cudaStreamDestroy(stream));
    return report.finish();
}

#endif
