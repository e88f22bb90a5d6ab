// SPDX-License-Identifier: GPL-2.0-or-later
// What a program sees when something goes wrong: errors that leave the context usable and errors that stay
// with it. Each case is a child process, forked before CUDA is used; stdout has what the API answered.
#include "workload.cuh"

#include <cassert>
#include <cerrno>
#include <initializer_list>

#include <sys/wait.h>
#include <unistd.h>

__global__ void write_to(int *where) { *where = 1; }
__global__ void read_shared(int *out, int index) {
    __shared__ int some[32];
    some[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = some[index];
}
__global__ void fail_assertion(int value) { assert(value == 42 && "what this test is for"); }
__global__ void stop_here() { __trap(); }
__global__ void add_one(int *value) { ++*value; }
__global__ void count_to(int limit, int *out) {
    for (int i = 0; i < limit; ++i)
        out[threadIdx.x] += i;
}

// The answer's name; right if it is one of those allowed.
void answer(workload::Report &report, const char *what, cudaError_t found,
            std::initializer_list<cudaError_t> allowed) {
    report.text(what, cudaGetErrorName(found));
    bool right = false;
    for (const cudaError_t one : allowed)
        right = right || found == one;
    report.expect(right, what);
}

void still_works(workload::Report &report) {
    cudaGetLastError();
    workload::Buffer<int> value(1);
    value.write({41});
    add_one<<<1, 1>>>(value.data());
    CHECK_LAUNCH();
    report.expect(value.read()[0] == 42, "the context is still usable");
}

void stays(workload::Report &report, std::initializer_list<cudaError_t> allowed) {
    const cudaError_t first = cudaDeviceSynchronize();
    answer(report, "synchronise", first, allowed);
    void *memory = nullptr;
    answer(report, "allocation after it", cudaMalloc(&memory, 16), {first});
    int word = 0;
    answer(report, "copy after it", cudaMemcpy(&word, &word, sizeof word, cudaMemcpyDefault), {first});
    cudaStream_t stream = nullptr;
    answer(report, "stream after it", cudaStreamCreate(&stream), {first});
    answer(report, "synchronise again", cudaDeviceSynchronize(), {first});
}

void launch_configuration(workload::Report &report) {
    workload::Buffer<int> value(32);
    add_one<<<1, 2048>>>(value.data());
    answer(report, "2048 threads", cudaGetLastError(),
           {cudaErrorInvalidConfiguration, cudaErrorInvalidValue});
    answer(report, "asked again", cudaGetLastError(), {cudaSuccess});
    add_one<<<0, 32>>>(value.data());
    answer(report, "no block", cudaPeekAtLastError(), {cudaErrorInvalidConfiguration, cudaErrorInvalidValue});
    answer(report, "asked again", cudaGetLastError(), {cudaErrorInvalidConfiguration, cudaErrorInvalidValue});
    add_one<<<dim3(1, 70000), 1>>>(value.data());
    answer(report, "70000 blocks in y", cudaGetLastError(),
           {cudaErrorInvalidConfiguration, cudaErrorInvalidValue});
    add_one<<<1, 1, 1 << 20>>>(value.data());
    answer(report, "a megabyte of shared memory", cudaGetLastError(), {cudaErrorInvalidValue});
    still_works(report);
}

void out_of_memory(workload::Report &report) {
    void *memory = nullptr;
    answer(report, "a petabyte", cudaMalloc(&memory, std::size_t{1} << 50), {cudaErrorMemoryAllocation});
    answer(report, "last error", cudaGetLastError(), {cudaErrorMemoryAllocation});
    answer(report, "last error again", cudaGetLastError(), {cudaSuccess});
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    answer(report, "more than there is", cudaMalloc(&memory, total + (std::size_t{1} << 30)),
           {cudaErrorMemoryAllocation});
    still_works(report);
}

void wrong_arguments(workload::Report &report) {
    workload::Buffer<int> value(1);
    int word = 0;
    answer(report, "device 1000", cudaSetDevice(1000), {cudaErrorInvalidDevice});
    answer(report, "free of a number", cudaFree(reinterpret_cast<void *>(0x1230)), {cudaErrorInvalidValue});
    answer(report, "kind of a copy", cudaMemcpy(&word, value.data(), 4, static_cast<cudaMemcpyKind>(77)),
           {cudaErrorInvalidMemcpyDirection});
    cudaEvent_t event = nullptr;
    CHECK(cudaEventCreate(&event));
    float elapsed = 0.0F;
    answer(report, "time of events that were never recorded", cudaEventElapsedTime(&elapsed, event, event),
           {cudaErrorInvalidResourceHandle});
    CHECK(cudaEventDestroy(event));
    still_works(report);
}

void illegal_address(workload::Report &report) {
    workload::Buffer<int> value(1);
    write_to<<<1, 1>>>(value.data() + (std::size_t{1} << 42)); // 16 TiB away
    stays(report, {cudaErrorIllegalAddress});
}

void null_pointer(workload::Report &report) {
    workload::Buffer<int> value(1);
    write_to<<<1, 1>>>(nullptr);
    stays(report, {cudaErrorIllegalAddress});
}

void misaligned_address(workload::Report &report) {
    workload::Buffer<int> value(2);
    write_to<<<1, 1>>>(reinterpret_cast<int *>(reinterpret_cast<char *>(value.data()) + 1));
    stays(report, {cudaErrorMisalignedAddress});
}

void shared_memory(workload::Report &report) {
    workload::Buffer<int> value(32);
    read_shared<<<1, 32>>>(value.data(), 1 << 22);
    stays(report, {cudaErrorIllegalAddress, cudaErrorLaunchFailure});
}

void failed_assertion(workload::Report &report) {
    fail_assertion<<<2, 32>>>(42);
    answer(report, "an assertion that holds", cudaDeviceSynchronize(), {cudaSuccess});
    fail_assertion<<<1, 1>>>(41);
    stays(report, {cudaErrorAssert});
}

void trap(workload::Report &report) {
    stop_here<<<1, 1>>>();
    stays(report, {cudaErrorLaunchFailure, cudaErrorIllegalInstruction});
}

void reset(workload::Report &report) {
    void *memory = nullptr;
    CHECK(cudaMalloc(&memory, 1 << 20));
    CHECK(cudaMemset(memory, 0, 1 << 20));
    CHECK(cudaDeviceReset());
    answer(report, "memory of before the reset", cudaMemset(memory, 0, 4), {cudaErrorInvalidValue});
    still_works(report);
}

void asynchronous(workload::Report &report) {
    // The error of a kernel shows in a later call, and the results of what was done before it are kept.
    workload::Buffer<int> value(32);
    value.clear();
    count_to<<<1, 32>>>(100, value.data());
    const std::vector<int> found = value.read();
    report.equal("before", found, std::vector<int>(32, 4950));
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    write_to<<<1, 1, 0, stream>>>(value.data() + (std::size_t{1} << 42));
    answer(report, "the launch itself", cudaGetLastError(), {cudaSuccess});
    answer(report, "its stream", cudaStreamSynchronize(stream), {cudaErrorIllegalAddress});
    stays(report, {cudaErrorIllegalAddress});
}

void broken_capture(workload::Report &report) {
    // Of work in a second stream that never comes back to the first, there is no graph; both streams go on.
    cudaStream_t first = nullptr;
    cudaStream_t second = nullptr;
    cudaEvent_t forked = nullptr;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    workload::Buffer<int> value(32);
    value.clear();
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(forked, first));
    CHECK(cudaStreamWaitEvent(second, forked, 0));
    count_to<<<1, 32, 0, second>>>(100, value.data());
    cudaGraph_t graph = nullptr;
    answer(report, "the end of the capture", cudaStreamEndCapture(first, &graph),
           {cudaErrorStreamCaptureUnjoined});
    for (cudaStream_t stream : {first, second}) {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
        CHECK(cudaStreamIsCapturing(stream, &status));
        report.expect(status == cudaStreamCaptureStatusNone, "no capture after its end");
        count_to<<<1, 32, 0, stream>>>(10, value.data());
        CHECK(cudaStreamSynchronize(stream));
    }
    // One whose stream is destroyed is gone with it.
    CHECK(cudaStreamBeginCapture(second, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaDeviceSynchronize());
    report.equal("value", value.read(), std::vector<int>(32, 90));
    still_works(report);
}

struct Case {
    const char *name;
    void (*run)(workload::Report &report);
};
constexpr Case cases[] = {
    {"launch configuration", launch_configuration},
    {"out of memory", out_of_memory},
    {"wrong arguments", wrong_arguments},
    {"illegal address", illegal_address},
    {"null pointer", null_pointer},
    {"misaligned address", misaligned_address},
    {"shared memory", shared_memory},
    {"failed assertion", failed_assertion},
    {"trap", trap},
    {"reset", reset},
    {"asynchronous", asynchronous},
    {"broken capture", broken_capture},
};

int main() {
    workload::Report report;
    for (const Case &one : cases) {
        std::printf("-- %s\n", one.name);
        std::fflush(stdout);
        const pid_t child = fork();
        if (child < 0)
            workload::stop(__FILE__, __LINE__, "fork", std::strerror(errno));
        if (child == 0) {
            workload::Report own;
            one.run(own);
            std::fflush(stdout);
            std::exit(own.failures() == 0 ? 0 : 1);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child)
            workload::stop(__FILE__, __LINE__, "waitpid", std::strerror(errno));
        if (WIFSIGNALED(status))
            std::printf("ended by signal %d\n", WTERMSIG(status));
        report.expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, one.name);
    }
    return report.finish();
}
