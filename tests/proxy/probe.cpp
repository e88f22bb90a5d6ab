// SPDX-License-Identifier: GPL-2.0-or-later
// A CUDA program for the failure tests: does one thing, says what it saw in "name value" lines, and never
// waits longer than its caller wants. See test_failures.py.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include <cuda.h>
#include <poll.h>
#include <unistd.h>

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

double milliseconds(CUevent start, CUevent end) {
    float time = 0;
    CHECK(cuEventElapsedTime(&time, start, end));
    return double{time};
}

// Times between events, to the bit; for each line that it reads again, then with one that is recorded anew.
void events() {
    const Device device;
    constexpr std::size_t kEvents = 200; // more than are kept pair by pair
    std::vector<CUevent> all(kEvents);
    CUevent never = nullptr;
    CUevent timeless = nullptr;
    CUevent by_graph = nullptr;
    CUevent now = nullptr;
    CUevent soon = nullptr;
    CHECK(cuEventCreate(&never, 0));
    CHECK(cuEventCreate(&timeless, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(timeless, nullptr));
    for (auto *event : {&by_graph, &now, &soon})
        CHECK(cuEventCreate(event, 0));
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec launched = nullptr;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddEventRecordNode(&node, graph, nullptr, 0, by_graph));
    CHECK(cuGraphInstantiate(&launched, graph, 0));
    CHECK(cuEventRecord(by_graph, nullptr));
    auto *const nothing = device.function("nothing");
    for (auto &event : all) {
        CHECK(cuEventCreate(&event, 0));
        CHECK(cuEventRecord(event, nullptr));
        CHECK(Device::launch(nothing));
    }
    CHECK(cuCtxSynchronize());
    ready();
    while (std::getchar() != EOF) {
        CHECK(cuEventRecord(now, nullptr));
        CHECK(cuEventSynchronize(now));
        float time = 0;
        std::printf("never %s timeless %s first %a last %a back %a near",
                    name_of(cuEventElapsedTime(&time, all[0], never)),
                    name_of(cuEventElapsedTime(&time, all[0], timeless)), milliseconds(all[0], all[1]),
                    milliseconds(all[kEvents - 2], all[kEvents - 1]), milliseconds(all[3], all[0]));
        for (std::size_t at = 1; at <= 60; ++at)
            std::printf(" %a", milliseconds(all[at], all[at + 60]));
        std::printf(" far %f since %f until %f none %f", milliseconds(all[0], all[kEvents - 1]),
                    milliseconds(all[0], now), milliseconds(now, all[0]), milliseconds(now, now));
        CHECK(cuEventRecord(soon, nullptr));
        CHECK(cuGraphLaunch(launched, nullptr));
        CHECK(cuCtxSynchronize());
        std::printf(" soon %f graph %f\n", milliseconds(now, soon), milliseconds(now, by_graph));
        std::fflush(stdout);
    }
}

// Contexts that come and go, with host memory that they share, until its standard input ends.
void contexts() {
    CHECK(cuInit(0));
    CUdevice device = 0;
    CHECK(cuDeviceGet(&device, 0));
    ready();
    unsigned rounds = 0;
    for (pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}; poll(&input, 1, 0) == 0;
         ++rounds) {
        CUcontext context = nullptr;
        CHECK(cuCtxCreate(&context, nullptr, 0, device));
        void *host = nullptr;
        CHECK(cuMemHostAlloc(&host, sizeof(rounds), CU_MEMHOSTALLOC_DEVICEMAP));
        CUdeviceptr seen = 0;
        CHECK(cuMemHostGetDevicePointer(&seen, host, 0));
        CHECK(cuMemsetD32(seen, rounds, 1));
        CHECK(cuCtxSynchronize());
        unsigned found = 0;
        std::memcpy(&found, host, sizeof(found));
        if (found != rounds) {
            std::fprintf(stderr, "probe: %u in round %u\n", found, rounds);
            std::exit(EXIT_FAILURE);
        }
        CHECK(cuMemFreeHost(host));
        CHECK(cuCtxDestroy(context));
    }
    std::printf("rounds %u\n", rounds);
}

constexpr CUstreamCaptureMode kCaptureModes[] = {
    CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};

// What each mode of a capture does to an allocation, by each mode of a thread, the capture's own and another.
void captures() {
    const Device device;
    for (const auto mode : kCaptureModes)
        for (const auto interaction : kCaptureModes)
            for (const bool other : {false, true}) {
                CUstream stream = nullptr;
                CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
                CHECK(cuStreamBeginCapture(stream, mode));
                const auto act = [&] {
                    CHECK(cuCtxSetCurrent(device.context));
                    auto before = interaction;
                    CHECK(cuThreadExchangeStreamCaptureMode(&before));
                    CUdeviceptr memory = 0;
                    const auto allocated = cuMemAlloc(&memory, 4096);
                    CHECK(cuThreadExchangeStreamCaptureMode(&before));
                    std::printf("%d/%d/%s ", static_cast<int>(mode), static_cast<int>(interaction),
                                other ? "other" : "own");
                    say("allocation", allocated);
                };
                if (other)
                    std::thread(act).join();
                else
                    act();
                CUgraph graph = nullptr;
                if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
                    std::thread([&] {
                        CHECK(cuCtxSetCurrent(device.context));
                        say("end elsewhere", cuStreamEndCapture(stream, &graph));
                    }).join();
                say("end", cuStreamEndCapture(stream, &graph));
                CHECK(cuStreamDestroy(stream));
                say("after", cuCtxSynchronize());
            }
}

// Two devices: each one's memory, and what the other can do with it.
void peers() {
    const Device first;
    CUdevice other = 0;
    CHECK(cuDeviceGet(&other, 1));
    CUcontext second = nullptr;
    CHECK(cuDevicePrimaryCtxRetain(&second, other));
    int access = -1;
    CHECK(cuDeviceCanAccessPeer(&access, 0, other));
    std::printf("access %d\n", access);
    say("enable", cuCtxEnablePeerAccess(second, 0));
    say("enable with flags", cuCtxEnablePeerAccess(second, 1));
    say("disable", cuCtxDisablePeerAccess(second));
    constexpr std::size_t kBytes = (std::size_t{9} << 20) + 12;
    std::vector<std::uint8_t> data(kBytes);
    for (std::size_t at = 0; at < kBytes; ++at)
        data[at] = static_cast<std::uint8_t>(at * 13 + at / 4096);
    CUdeviceptr here = 0;
    CHECK(cuMemAlloc(&here, kBytes));
    CHECK(cuMemcpyHtoD(here, data.data(), kBytes));
    CHECK(cuCtxSetCurrent(second));
    CUdeviceptr there = 0;
    CHECK(cuMemAlloc(&there, kBytes));
    say("peer", cuMemcpyPeer(there, second, here, first.context, kBytes));
    std::vector<std::uint8_t> back(kBytes);
    CHECK(cuMemcpyDtoH(back.data(), there, kBytes));
    std::printf("same %d\n", back == data ? 1 : 0);
    // In a stream's order, and the other way round, without saying whose memory it is.
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemsetD8Async(there, 5, kBytes, stream));
    say("peer async", cuMemcpyPeerAsync(here, first.context, there, second, kBytes, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpy(there, here, kBytes));
    CHECK(cuMemcpyDtoH(back.data(), there, kBytes));
    std::printf("fives %d\n", back == std::vector<std::uint8_t>(kBytes, 5) ? 1 : 0);
    say("too long", cuMemcpyPeer(there, second, here, first.context, kBytes * 64));
    say("no context", cuMemcpyPeer(there, nullptr, here, first.context, 4));
}

// Handles for conditional nodes are refused before anything is made of them.
void conditional() {
    const Device device;
    CUgraph graph = nullptr;
    CHECK(cuGraphCreate(&graph, 0));
    CUgraphConditionalHandle handle = 0;
    say("handle", cuGraphConditionalHandleCreate(&handle, graph, device.context, 0, 0));
    say("destroy", cuGraphDestroy(graph));
}

// How the program tells its devices apart.
void identities() {
    CHECK(cuInit(0));
    int count = 0;
    CHECK(cuDeviceGetCount(&count));
    for (int device = 0; device < count; ++device) {
        CUuuid uuid{};
        CHECK(cuDeviceGetUuid(&uuid, device));
        char bus_id[32] = {};
        CHECK(cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), device));
        CUdevice found = -1;
        CHECK(cuDeviceGetByPCIBusId(&found, bus_id));
        if (found != device)
            std::printf("%s is device %d, not %d\n", bus_id, found, device);
        for (const char byte : uuid.bytes)
            std::printf("%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
        std::printf(" %s\n", bus_id);
    }
}

struct Mode {
    std::string_view name;
    void (*run)();
};
constexpr Mode kModes[] = {{"free", free_memory},        {"endless", endless},
                           {"launches", launches},       {"calls", calls},
                           {"copies", copies},           {"bad-store", bad_store},
                           {"exhaust", exhaust},         {"steady", steady},
                           {"captures", captures},       {"peers", peers},
                           {"conditional", conditional}, {"identities", identities},
                           {"contexts", contexts},       {"events", events}};

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
