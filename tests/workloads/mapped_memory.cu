// SPDX-License-Identifier: GPL-2.0-or-later
// Host memory that the device reads and writes in place: pinned and mapped, registered after malloc,
// write-combined; and a host that waits for a flag which a kernel sets. Argument: elements.
#include "workload.cuh"

#include <chrono>

__global__ void smooth(const float *in, float *out, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= count)
        return;
    const float left = in[i > 0 ? i - 1 : 0];
    const float right = in[i + 1 < count ? i + 1 : i];
    out[i] = __fmul_rn(__fadd_rn(__fadd_rn(left, in[i]), right), 0.25F);
}

__global__ void answer(const volatile int *question, volatile int *reply) {
    *reply = *question * 3;
    __threadfence_system();
    reply[1] = 1;
}

std::vector<float> smoothed(const float *in, int count) {
    std::vector<float> out(count);
    for (int i = 0; i < count; ++i)
        out[i] = ((in[i > 0 ? i - 1 : 0] + in[i]) + in[i + 1 < count ? i + 1 : i]) * 0.25F;
    return out;
}

int main(int argc, char **argv) {
    const int count = static_cast<int>(workload::size_argument(argc, argv, 100003));
    const std::size_t bytes = count * sizeof(float);
    workload::Report report;
    workload::Random random(131);

    float *in = nullptr;
    float *out = nullptr;
    CHECK(cudaHostAlloc(&in, bytes, cudaHostAllocMapped | cudaHostAllocWriteCombined));
    CHECK(cudaMallocHost(&out, bytes));
    for (int i = 0; i < count; ++i)
        in[i] = random.between(-1.0F, 1.0F);
    float *device_in = nullptr;
    CHECK(cudaHostGetDevicePointer(&device_in, in, 0));
    smooth<<<workload::blocks_for(count, 256), 256>>>(device_in, out,
                                                      count); // unified addressing: the same pointer
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    const std::vector<float> expected = smoothed(in, count);
    report.equal("pinned and mapped", std::vector<float>(out, out + count), expected);

    // Memory of malloc, registered; the part need not begin at a page.
    std::vector<float> plain(out, out + count);
    CHECK(cudaHostRegister(plain.data(), bytes, cudaHostRegisterMapped));
    float *registered = nullptr;
    CHECK(cudaHostGetDevicePointer(&registered, plain.data(), 0));
    smooth<<<workload::blocks_for(count, 256), 256>>>(registered, out, count);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    report.equal("registered", std::vector<float>(out, out + count), smoothed(plain.data(), count));
    // Written by the host while it is registered, and read again.
    for (float &value : plain)
        value += 1.0F;
    smooth<<<workload::blocks_for(count, 256), 256>>>(registered, out, count);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    report.equal("registered and changed", std::vector<float>(out, out + count),
                 smoothed(plain.data(), count));
    // By the device.
    smooth<<<workload::blocks_for(count, 256), 256>>>(out, registered, count);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    report.equal("registered and written", plain, smoothed(out, count));
    CHECK(cudaHostUnregister(plain.data()));
    report.equal("after unregistering", plain, smoothed(out, count));

    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, in));
    report.expect(attributes.type == cudaMemoryTypeHost && attributes.devicePointer == device_in,
                  "pinned memory's kind");
    int local = 0;
    CHECK(cudaPointerGetAttributes(&attributes, &local));
    report.expect(attributes.type == cudaMemoryTypeUnregistered, "the stack's kind");

    // Without any call between launch and answer.
    int *talk = nullptr;
    CHECK(cudaHostAlloc(&talk, 3 * sizeof(int), cudaHostAllocMapped));
    talk[0] = 14;
    talk[1] = talk[2] = 0;
    answer<<<1, 1>>>(talk, talk + 1);
    CHECK_LAUNCH();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const volatile int *flag = talk + 2;
    while (*flag == 0 && std::chrono::steady_clock::now() < end) {
    }
    report.expect(*flag == 1 && talk[1] == 42, "the kernel's answer is seen without synchronising");
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFreeHost(talk));
    CHECK(cudaFreeHost(in));
    CHECK(cudaFreeHost(out));
    return report.finish();
}
