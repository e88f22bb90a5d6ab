// SPDX-License-Identifier: GPL-2.0-or-later
// The driver API without the runtime: hand-written PTX, contexts and their stack, both ways to pass
// parameters, module variables, libraries, pitched copies, attributes, entry points by name, and what it
// answers to mistakes. Argument: numbers.
#include "workload.cuh"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <cuda.h>

// Steps of each number's Collatz sequence; counts the threads that had a number.
const char *const ptx = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .global .align 4 .u32 done;
.visible .const .align 4 .u32 factor = 3;

.visible .entry collatz(.param .u64 in, .param .u64 out, .param .u32 count)
{
    .reg .pred %p<4>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    ld.param.u32 %r5, [count];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    setp.ge.u32 %p1, %r4, %r5;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mul.wide.u32 %rd5, %r4, 4;
    add.s64 %rd6, %rd3, %rd5;
    ld.global.u32 %r6, [%rd6];
    mov.u32 %r7, 0;
    ld.const.u32 %r8, [factor];
LOOP:
    setp.le.u32 %p2, %r6, 1;
    @%p2 bra STORE;
    and.b32 %r9, %r6, 1;
    setp.eq.u32 %p3, %r9, 0;
    @%p3 shr.u32 %r6, %r6, 1;
    @!%p3 mad.lo.u32 %r6, %r6, %r8, 1;
    add.u32 %r7, %r7, 1;
    bra LOOP;
STORE:
    add.s64 %rd7, %rd4, %rd5;
    st.global.u32 [%rd7], %r7;
    red.global.add.u32 [done], 1;
DONE:
    ret;
}
)";

inline void check(CUresult status, int line, const char *what) {
    if (status == CUDA_SUCCESS)
        return;
    const char *name = nullptr;
    const char *words = nullptr;
    cuGetErrorName(status, &name);
    cuGetErrorString(status, &words);
    workload::stop(__FILE__, line, what,
                   std::string(name == nullptr ? "unknown error" : name) + ": " +
                       (words == nullptr ? "" : words));
}
#define DRIVER(call) check((call), __LINE__, #call)

unsigned collatz_steps(unsigned number) {
    unsigned steps = 0;
    for (; number > 1; ++steps)
        number = number % 2 == 0 ? number / 2 : number * 3 + 1;
    return steps;
}

// Downloads through a pitched allocation: rows of `width` words.
void pitched(workload::Report &report) {
    constexpr std::size_t width = 37;
    constexpr std::size_t height = 11;
    CUdeviceptr memory = 0;
    std::size_t pitch = 0;
    DRIVER(cuMemAllocPitch(&memory, &pitch, width * 4, height, 4));
    DRIVER(cuMemsetD2D32(memory, pitch, 0x01020304, width, height));
    std::vector<std::uint32_t> rows(width * 2);
    for (std::size_t i = 0; i < rows.size(); ++i)
        rows[i] = static_cast<std::uint32_t>(i);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = rows.data();
    copy.srcPitch = width * 4;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = memory;
    copy.dstPitch = pitch;
    copy.dstY = 3;
    copy.dstXInBytes = 8;
    copy.WidthInBytes = (width - 2) * 4;
    copy.Height = 2;
    DRIVER(cuMemcpy2D(&copy));
    std::vector<std::uint32_t> found(width * height);
    CUDA_MEMCPY2D back{};
    back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    back.srcDevice = memory;
    back.srcPitch = pitch;
    back.dstMemoryType = CU_MEMORYTYPE_HOST;
    back.dstHost = found.data();
    back.dstPitch = width * 4;
    back.WidthInBytes = width * 4;
    back.Height = height;
    DRIVER(cuMemcpy2D(&back));
    std::vector<std::uint32_t> expected(width * height, 0x01020304);
    for (std::size_t row = 0; row < 2; ++row)
        std::copy_n(&rows[row * width], width - 2, &expected[(row + 3) * width + 2]);
    report.equal("pitched", found, expected);

    CUdeviceptr base = 0;
    std::size_t size = 0;
    DRIVER(cuMemGetAddressRange(&base, &size, memory + pitch));
    report.expect(base == memory && size >= pitch * height, "range of an address");
    unsigned type = 0;
    DRIVER(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
    report.expect(type == CU_MEMORYTYPE_DEVICE, "kind of an address");
    DRIVER(cuMemFree(memory));
}

void contexts(workload::Report &report, CUdevice device) {
    CUcontext outer = nullptr;
    DRIVER(cuCtxGetCurrent(&outer));
    CUcontext own = nullptr;
    DRIVER(cuCtxCreate(&own, nullptr, CU_CTX_SCHED_BLOCKING_SYNC, device));
    CUcontext current = nullptr;
    DRIVER(cuCtxGetCurrent(&current));
    report.expect(current == own && own != outer, "a new context is current");
    CUdeviceptr memory = 0;
    DRIVER(cuMemAlloc(&memory, 1000));
    DRIVER(cuMemsetD8(memory, 7, 1000));
    std::vector<unsigned char> bytes(1000);
    DRIVER(cuMemcpyDtoH(bytes.data(), memory, bytes.size()));
    report.equal("in its own context", bytes, std::vector<unsigned char>(1000, 7));
    CUcontext popped = nullptr;
    DRIVER(cuCtxPopCurrent(&popped));
    DRIVER(cuCtxGetCurrent(&current));
    report.expect(popped == own && current == outer, "after popping it");
    DRIVER(cuCtxPushCurrent(own));
    CUdevice where = -1;
    DRIVER(cuCtxGetDevice(&where));
    report.expect(where == device, "device of a context");
    DRIVER(cuCtxDestroy(own)); // its memory goes with it
    DRIVER(cuCtxGetCurrent(&current));
    report.expect(current == outer, "after destroying it");
}

// A kernel of a library, its function, and the function of the library's module are one: a limit that is
// raised under one name holds under the others.
void limits_of_a_function(workload::Report &report, CUlibrary library, CUkernel kernel, void **pointers) {
    constexpr int kShared = 64 << 10;
    CUmodule module = nullptr;
    std::array<CUfunction, 2> functions{};
    DRIVER(cuLibraryGetModule(&module, library));
    DRIVER(cuKernelGetFunction(&functions[0], kernel));
    DRIVER(cuModuleGetFunction(&functions[1], module, "collatz"));
    const auto launch = [&](CUfunction function) {
        return cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, kShared, nullptr, pointers, nullptr);
    };
    CUdevice device = 0;
    DRIVER(cuCtxGetDevice(&device));
    const auto set_kernel = [&](int bytes) {
        DRIVER(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes, kernel, device));
    };
    for (auto *const function : functions)
        report.expect(launch(function) == CUDA_ERROR_INVALID_VALUE, "more shared memory than is allowed");
    set_kernel(kShared);
    for (auto *const function : functions)
        report.expect(launch(function) == CUDA_SUCCESS, "allowed to the kernel, used by the function");
    DRIVER(cuCtxSynchronize());
    set_kernel(0);
    DRIVER(cuFuncSetAttribute(functions[1], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kShared));
    report.expect(launch(reinterpret_cast<CUfunction>(kernel)) == CUDA_SUCCESS,
                  "allowed to the function, used by the kernel");
    DRIVER(cuCtxSynchronize());
}

// The private way by which cuFFT finds the kernel that it has built.
void functions_of(workload::Report &report, CUmodule module, CUfunction function) {
    const CUuuid id{{0x6e, 0x16, 0x3f, static_cast<char>(0xbe), static_cast<char>(0xb9), 0x58, 0x44, 0x4d,
                     static_cast<char>(0x83), 0x5c, static_cast<char>(0xe1), static_cast<char>(0x82),
                     static_cast<char>(0xaf), static_cast<char>(0xf1), static_cast<char>(0x99), 0x1e}};
    const void *table = nullptr;
    DRIVER(cuGetExportTable(&table, &id));
    using Visitor = void (*)(void *, CUfunction, const char *);
    using Visit = std::uint64_t (*)(CUcontext, CUmodule, Visitor, void *);
    CUcontext context = nullptr;
    DRIVER(cuCtxGetCurrent(&context));
    std::vector<std::pair<CUfunction, std::string>> found;
    const auto visit = reinterpret_cast<Visit>(static_cast<const void *const *>(table)[7]);
    const auto count = visit(
        context, module,
        [](void *data, CUfunction one, const char *name) {
            static_cast<decltype(found) *>(data)->emplace_back(one, name);
        },
        &found);
    report.expect(count == 1 && found.size() == 1 && found[0].first == function &&
                      found[0].second == "collatz",
                  "functions of a module");
}

int main(int argc, char **argv) {
    const auto count = static_cast<unsigned>(workload::size_argument(argc, argv, 10000, 100000));
    workload::Report report;
    CUdeviceptr nothing = 0;
    report.expect(cuMemAlloc(&nothing, 16) == CUDA_ERROR_NOT_INITIALIZED, "before cuInit");
    DRIVER(cuInit(0));
    report.expect(cuMemAlloc(&nothing, 16) == CUDA_ERROR_INVALID_CONTEXT, "without a context");
    int version = 0;
    DRIVER(cuDriverGetVersion(&version));
    report.expect(version >= 12000, "version");
    int devices = 0;
    DRIVER(cuDeviceGetCount(&devices));
    CUdevice device = -1;
    report.expect(cuDeviceGet(&device, devices) == CUDA_ERROR_INVALID_DEVICE, "a device too many");
    DRIVER(cuDeviceGet(&device, 0));
    int warp = 0;
    int major = 0;
    DRIVER(cuDeviceGetAttribute(&warp, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
    DRIVER(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    report.expect(warp == 32 && major >= 7, "attributes");
    CUcontext primary = nullptr;
    DRIVER(cuDevicePrimaryCtxRetain(&primary, device));
    DRIVER(cuCtxSetCurrent(primary));

    char log[2048] = "";
    CUjit_option options[2] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[2] = {log, reinterpret_cast<void *>(sizeof log)};
    CUmodule module = nullptr;
    DRIVER(cuModuleLoadDataEx(&module, ptx, 2, options, values));
    CUfunction collatz = nullptr;
    report.expect(cuModuleGetFunction(&collatz, module, "other") == CUDA_ERROR_NOT_FOUND,
                  "a kernel that is not there");
    DRIVER(cuModuleGetFunction(&collatz, module, "collatz"));
    CUmodule broken = nullptr;
    report.expect(cuModuleLoadData(&broken, "this is no PTX") != CUDA_SUCCESS, "what is no image");
    int threads = 0;
    DRIVER(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, collatz));
    report.expect(threads == 1024, "attribute of a kernel");
    std::size_t offset = 0;
    std::size_t size = 0;
    DRIVER(cuFuncGetParamInfo(collatz, 2, &offset, &size));
    report.expect(offset == 16 && size == 4, "place of a parameter");
    report.expect(cuFuncGetParamInfo(collatz, 3, &offset, &size) == CUDA_ERROR_INVALID_VALUE,
                  "a parameter too many");

    std::vector<unsigned> numbers(count);
    for (unsigned i = 0; i < count; ++i)
        numbers[i] = (i * 7919U) % 100000U + 1;
    CUdeviceptr in = 0;
    CUdeviceptr out = 0;
    DRIVER(cuMemAlloc(&in, count * sizeof(unsigned)));
    DRIVER(cuMemAlloc(&out, count * sizeof(unsigned)));
    DRIVER(cuMemcpyHtoD(in, numbers.data(), count * sizeof(unsigned)));
    CUdeviceptr done = 0;
    DRIVER(cuModuleGetGlobal(&done, &size, module, "done"));
    report.expect(size == 4, "size of a variable");
    CUstream stream = nullptr;
    DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRIVER(cuMemsetD32(done, 100, 1));
    DRIVER(cuStreamSynchronize(CU_STREAM_LEGACY));

    // Pointers to the parameters, then the parameters packed in one buffer, on half each.
    const unsigned half = count / 2;
    unsigned part = half;
    void *pointers[] = {&in, &out, &part};
    DRIVER(cuLaunchKernel(collatz, (half + 127) / 128 + 1, 1, 1, 128, 1, 1, 0, stream, pointers, nullptr));
    struct {
        CUdeviceptr in, out;
        unsigned count;
    } packed = {in + half * sizeof(unsigned), out + half * sizeof(unsigned), count - half};
    std::size_t packed_size = 20;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &packed_size,
                     CU_LAUNCH_PARAM_END};
    CUlaunchConfig config{};
    config.gridDimX = (count - half + 63) / 64;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 64;
    config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    DRIVER(cuLaunchKernelEx(&config, collatz, nullptr, extra));
    std::vector<unsigned> found(count);
    DRIVER(cuMemcpyDtoHAsync(found.data(), out, count * sizeof(unsigned), stream));
    DRIVER(cuStreamSynchronize(stream));
    std::vector<unsigned> expected(count);
    std::transform(numbers.begin(), numbers.end(), expected.begin(), collatz_steps);
    report.equal("collatz", found, expected);
    unsigned counted = 0;
    DRIVER(cuMemcpyDtoH(&counted, done, sizeof counted));
    report.value("done", counted);
    report.expect(counted == 100 + count, "variable of the module");

    // Through a library; the constant changed to 1: a number that is odd only loses one bit and gains one.
    CUlibrary library = nullptr;
    DRIVER(cuLibraryLoadData(&library, ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUkernel kernel = nullptr;
    DRIVER(cuLibraryGetKernel(&kernel, library, "collatz"));
    CUdeviceptr factor = 0;
    DRIVER(cuLibraryGetGlobal(&factor, &size, library, "factor"));
    const unsigned one = 1;
    DRIVER(cuMemcpyHtoD(factor, &one, sizeof one));
    part = 256;
    DRIVER(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 2, 1, 1, 128, 1, 1, 0, stream, pointers,
                          nullptr));
    DRIVER(cuStreamSynchronize(stream));
    found.resize(part);
    expected.resize(part);
    DRIVER(cuMemcpyDtoH(found.data(), out, part * sizeof(unsigned)));
    for (unsigned i = 0; i < part; ++i) {
        expected[i] = 0;
        for (unsigned number = numbers[i]; number > 1; ++expected[i])
            number = number % 2 == 0 ? number / 2 : number + 1;
    }
    report.equal("library", found, expected);
    limits_of_a_function(report, library, kernel, pointers);
    functions_of(report, module, collatz);
    DRIVER(cuLibraryUnload(library));

    void *entry = nullptr;
    CUdriverProcAddressQueryResult where{};
    DRIVER(cuGetProcAddress("cuMemGetInfo", &entry, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &where));
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    DRIVER(reinterpret_cast<CUresult (*)(std::size_t *, std::size_t *)>(entry)(&free_bytes, &total));
    report.expect(free_bytes > 0 && free_bytes <= total, "an entry point by name");
    report.expect(cuGetProcAddress("cuNoSuchFunction", &entry, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &where) ==
                          CUDA_ERROR_NOT_FOUND ||
                      where == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
                  "an entry point that is not there");
    report.expect(cuLaunchKernel(collatz, 1, 1, 1, 2048, 1, 1, 0, stream, pointers, nullptr) ==
                      CUDA_ERROR_INVALID_VALUE,
                  "a block that is too large");
    report.expect(cuMemFree(in + 4) == CUDA_ERROR_INVALID_VALUE, "freeing the middle of an allocation");

    pitched(report);
    contexts(report, device);
    DRIVER(cuStreamDestroy(stream));
    DRIVER(cuMemFree(in));
    DRIVER(cuMemFree(out));
    DRIVER(cuModuleUnload(module));
    DRIVER(cuDevicePrimaryCtxRelease(device));
    return report.finish();
}
