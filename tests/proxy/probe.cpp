// SPDX-License-Identifier: GPL-2.0-or-later
// A CUDA program for the failure tests: does one thing, says what it saw in "name value" lines, and never
// waits longer than its caller wants. See test_failures.py.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include <cuda.h>

namespace {

constexpr const char *kPtx = R"(.version 7.5
.target sm_75
.address_size 64
.visible .entry nothing()
{
    ret;
}
.visible .entry endless()
{
again:
    bra again;
}
.visible .entry store(.param .u64 address)
{
    .reg .u64 %rd<2>;
    .reg .u32 %r<2>;
    ld.param.u64 %rd1, [address];
    mov.u32 %r1, 7;
    st.global.u32 [%rd1], %r1;
    ret;
}
)";

const char *name_of(CUresult result) {
    const char *name = nullptr;
    cuGetErrorName(result, &name);
    return name != nullptr ? name : "?";
}

void say(const char *what, CUresult result) {
    std::printf("%s %s\n", what, name_of(result));
    std::fflush(stdout);
}

void check(CUresult result, const char *what) {
    if (result == CUDA_SUCCESS)
        return;
    std::fprintf(stderr, "probe: %s: %s\n", what, name_of(result));
    std::exit(EXIT_FAILURE);
}
#define CHECK(call) check(call, #call)

void ready() {
    std::puts("ready 1");
    std::fflush(stdout);
}

struct Device {
    CUcontext context = nullptr;
    CUmodule module = nullptr;

    Device() {
        CHECK(cuInit(0));
        CUdevice device = 0;
        CHECK(cuDeviceGet(&device, 0));
        CHECK(cuDevicePrimaryCtxRetain(&context, device));
        CHECK(cuCtxSetCurrent(context));
        CHECK(cuModuleLoadData(&module, kPtx));
    }
    [[nodiscard]] CUfunction function(const char *name) const {
        CUfunction out = nullptr;
        CHECK(cuModuleGetFunction(&out, module, name));
        return out;
    }
    static CUresult launch(CUfunction function, void **parameters = nullptr) {
        return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
    }
};

// Memory of the device that nobody has.
void free_memory() {
    const Device device;
    std::size_t free = 0;
    std::size_t total = 0;
    CHECK(cuMemGetInfo(&free, &total));
    std::printf("free %zu\ntotal %zu\n", free, total);
}

// Takes memory, starts a kernel that never ends, waits for it: until killed, or until the proxy is.
void endless() {
    const Device device;
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, std::size_t{256} << 20));
    auto *const nothing = device.function("nothing");
    CHECK(Device::launch(device.function("endless")));
    ready();
    say("result", cuCtxSynchronize());
    say("after", cuCtxSynchronize());
    say("launch", Device::launch(nothing));
}

// Calls without a reply, until one fails.
void launches() {
    const Device device;
    auto *const nothing = device.function("nothing");
    CHECK(Device::launch(nothing));
    CHECK(cuCtxSynchronize());
    ready();
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS)
        result = Device::launch(nothing);
    say("result", result);
    say("after", cuCtxSynchronize());
}

// Calls with a reply, until one fails.
void calls() {
    const Device device;
    ready();
    CUfunc_cache config{};
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS)
        result = cuCtxGetCacheConfig(&config);
    say("result", result);
    say("after", cuCtxGetCacheConfig(&config));
}

// A copy of more than the channel holds, again and again.
void copies() {
    const Device device;
    std::vector<std::byte> host(std::size_t{16} << 20);
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, host.size()));
    ready();
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS) {
        result = cuMemcpyHtoD(memory, host.data(), host.size());
        if (result == CUDA_SUCCESS)
            result = cuMemcpyDtoH(host.data(), memory, host.size());
    }
    say("result", result);
}

// A store to nobody's memory: the error, and that it stays.
void bad_store() {
    const Device device;
    CUdeviceptr nowhere = 0x10;
    void *parameters[] = {&nowhere};
    auto *const nothing = device.function("nothing");
    CHECK(Device::launch(device.function("store"), parameters));
    say("result", cuCtxSynchronize());
    CUdeviceptr memory = 0;
    say("after", cuMemAlloc(&memory, 4096));
    say("launch", Device::launch(nothing));
    say("again", cuCtxSynchronize());
}

// More than there is, then something that there is.
void exhaust() {
    const Device device;
    std::size_t free = 0;
    std::size_t total = 0;
    CHECK(cuMemGetInfo(&free, &total));
    CUdeviceptr memory = 0;
    say("result", cuMemAlloc(&memory, total + 1));
    say("after", cuMemAlloc(&memory, 4096));
}

// Works until its standard input ends; the number of rounds says that it did.
void steady() {
    const Device device;
    auto *const store = device.function("store");
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 4096));
    void *parameters[] = {&memory};
    ready();
    while (std::getchar() != EOF) {
        std::uint32_t value = 0;
        CHECK(cuMemsetD32(memory, 0, 1));
        CHECK(Device::launch(store, parameters));
        CHECK(cuMemcpyDtoH(&value, memory, sizeof(value)));
        std::printf("value %u\n", value);
        std::fflush(stdout);
    }
}

struct Mode {
    std::string_view name;
    void (*run)();
};
constexpr Mode kModes[] = {{"free", free_memory}, {"endless", endless}, {"launches", launches},
                           {"calls", calls},      {"copies", copies},   {"bad-store", bad_store},
                           {"exhaust", exhaust},  {"steady", steady}};

} // namespace

int main(int argc, char **argv) {
    for (const auto &mode : kModes)
        if (argc == 2 && mode.name == argv[1]) {
            mode.run();
            return EXIT_SUCCESS;
        }
    std::fprintf(stderr, "usage: probe MODE\n");
    return EXIT_FAILURE;
}
