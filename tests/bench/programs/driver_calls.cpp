// SPDX-License-Identifier: GPL-2.0-or-later
// What driver calls cost, on whatever libcuda.so.1 this program is started with. Prints "name value" lines;
// tests/bench/proxy.py compares runs. Times are medians; ratios are taken within the run.
//     driver_calls costs   launches, calls with a reply, copies against memcpy, memory of this process
//     driver_calls work    a fixed amount of small work, for several clients at once
//     driver_calls hold    opens a context, does a little, prints "ready", ends when stdin ends
//     driver_calls keep N  fills N MiB of device memory with noise, prints "ready", then only looks whether
//     it is done driver_calls watch   prints "free_mb MB SECONDS" when the device's free memory changes, and
//     "failed 1 SECONDS"
//                          when a call fails, which ends it; SECONDS are CLOCK_MONOTONIC's
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <cuda.h>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBatches = 200;
constexpr int kLaunchesPerBatch = 200; // fewer than fill the ring: what is measured is the client's own time
constexpr int kCalls = 20000;
constexpr int kCopies = 15;
constexpr std::size_t kCopyBytes = std::size_t{64} << 20;

// Two parameters, as small kernels have; does nothing.
constexpr const char *kPtx = R"(.version 7.5
.target sm_75
.address_size 64
.visible .entry nothing(.param .u64 a, .param .u32 n)
{
    ret;
}
)";

void check(CUresult result, const char *what) {
    if (result == CUDA_SUCCESS)
        return;
    const char *name = nullptr;
    cuGetErrorName(result, &name);
    std::fprintf(stderr, "driver_calls: %s: %s\n", what, name != nullptr ? name : "?");
    std::exit(EXIT_FAILURE);
}
#define CHECK(call) check(call, #call)

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

double seconds_of(const std::function<void()> &work) {
    const auto start = Clock::now();
    work();
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// VmRSS of this process in MB.
double resident_mb() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmRSS:"))
            return std::strtod(line.c_str() + std::string_view("VmRSS:").size(), nullptr) / 1024;
    return 0;
}

struct Session {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction nothing = nullptr;
    CUdeviceptr memory = 0;

    Session() {
        CHECK(cuInit(0));
        CUdevice device = 0;
        CHECK(cuDeviceGet(&device, 0));
        CHECK(cuDevicePrimaryCtxRetain(&context, device));
        CHECK(cuCtxSetCurrent(context));
        CHECK(cuModuleLoadData(&module, kPtx));
        CHECK(cuModuleGetFunction(&nothing, module, "nothing"));
        CHECK(cuMemAlloc(&memory, kCopyBytes));
    }

    void launch() const {
        CUdeviceptr first = memory;
        std::uint32_t second = 1;
        void *parameters[] = {&first, &second};
        CHECK(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
    }
};

void measure_launches(const Session &session) {
    std::vector<double> launch;
    std::vector<double> whole;
    for (int batch = 0; batch < kBatches; ++batch) {
        double asynchronous = 0;
        whole.push_back(seconds_of([&] {
            asynchronous = seconds_of([&] {
                for (int at = 0; at < kLaunchesPerBatch; ++at)
                    session.launch();
            });
            CHECK(cuCtxSynchronize());
        }));
        launch.push_back(asynchronous);
    }
    std::printf("launch_ns %.1f\n", median(launch) / kLaunchesPerBatch * 1e9);
    std::printf("launch_through_ns %.1f\n", median(whole) / kLaunchesPerBatch * 1e9);
}

void measure_calls() {
    std::vector<double> call;
    call.reserve(kCalls);
    CUfunc_cache config{};
    for (int at = 0; at < kCalls; ++at)
        call.push_back(seconds_of([&] { CHECK(cuCtxGetCacheConfig(&config)); }));
    std::printf("sync_rtt_us %.3f\n", median(call) * 1e6);
}

// Throughput of a copy over that of memcpy, each pair timed one after the other.
void measure_copy(const char *name, std::byte *host, const std::byte *source, std::byte *scratch,
                  const std::function<void(std::byte *)> &copy) {
    std::vector<double> ratios;
    for (int at = 0; at < kCopies; ++at) {
        const double plain = seconds_of([&] { std::memcpy(scratch, source, kCopyBytes); });
        const double through = seconds_of([&] { copy(host); });
        ratios.push_back(plain / through);
    }
    std::printf("%s %.4f\n", name, median(ratios));
}

void measure_copies(const Session &session) {
    std::vector<std::byte> pageable(kCopyBytes, std::byte{1});
    std::vector<std::byte> source(kCopyBytes, std::byte{2});
    std::vector<std::byte> scratch(kCopyBytes, std::byte{3});
    void *pinned = nullptr;
    CHECK(cuMemAllocHost(&pinned, kCopyBytes));
    std::memset(pinned, 4, kCopyBytes);
    const auto to_device = [&](std::byte *host) { CHECK(cuMemcpyHtoD(session.memory, host, kCopyBytes)); };
    const auto to_host = [&](std::byte *host) { CHECK(cuMemcpyDtoH(host, session.memory, kCopyBytes)); };
    auto *const pinned_bytes = static_cast<std::byte *>(pinned);
    measure_copy("h2d_ratio", pageable.data(), source.data(), scratch.data(), to_device);
    measure_copy("h2d_pinned_ratio", pinned_bytes, source.data(), scratch.data(), to_device);
    measure_copy("d2h_ratio", pageable.data(), source.data(), scratch.data(), to_host);
    measure_copy("d2h_pinned_ratio", pinned_bytes, source.data(), scratch.data(), to_host);
    CHECK(cuMemFreeHost(pinned));
}

// Handing memory on to another processor, with nothing else to do: one thread copies into a buffer that stays
// in the caches, another one out of it.
void measure_relay() {
    constexpr std::size_t kPiece = std::size_t{64} << 10;
    constexpr std::size_t kPieces = 8;
    constexpr std::size_t kAll = kCopyBytes / kPiece;
    std::vector<std::byte> source(kCopyBytes, std::byte{1});
    std::vector<std::byte> destination(kCopyBytes, std::byte{2});
    std::vector<std::byte> scratch(kCopyBytes, std::byte{3});
    std::vector<std::byte> between(kPieces * kPiece);
    std::vector<double> ratios;
    for (int at = 0; at < kCopies; ++at) {
        const double plain = seconds_of([&] { std::memcpy(scratch.data(), source.data(), kCopyBytes); });
        const double through = seconds_of([&] {
            std::atomic<std::size_t> in = 0;
            std::atomic<std::size_t> out = 0;
            std::thread reader([&] {
                for (std::size_t piece = 0; piece < kAll; out.store(++piece)) {
                    while (in.load() <= piece)
                        std::this_thread::yield();
                    std::memcpy(destination.data() + piece * kPiece,
                                between.data() + piece % kPieces * kPiece, kPiece);
                }
            });
            for (std::size_t piece = 0; piece < kAll; in.store(++piece)) {
                while (piece - out.load() >= kPieces)
                    std::this_thread::yield();
                std::memcpy(between.data() + piece % kPieces * kPiece, source.data() + piece * kPiece,
                            kPiece);
            }
            reader.join();
        });
        ratios.push_back(plain / through);
    }
    std::printf("relay_ratio %.4f\n", median(ratios));
}

void costs() {
    const double before = resident_mb();
    const Session session;
    measure_launches(session);
    measure_calls();
    std::printf("rss_mb %.2f\n", resident_mb() - before);
    measure_copies(session);
    measure_relay();
}

void work() {
    const Session session;
    std::vector<std::byte> host(std::size_t{1} << 20);
    constexpr int kRounds = 400;
    for (int round = 0; round < kRounds; ++round) {
        CHECK(cuMemcpyHtoD(session.memory, host.data(), host.size()));
        for (int at = 0; at < 100; ++at)
            session.launch();
        CHECK(cuMemcpyDtoH(host.data(), session.memory, host.size()));
    }
    std::puts("done 1");
}

void hold() {
    const double before = resident_mb();
    const Session session;
    for (int at = 0; at < 1000; ++at)
        session.launch();
    CHECK(cuCtxSynchronize());
    std::printf("rss_mb %.2f\nready\n", resident_mb() - before);
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
}

// The same noise in every process.
void keep(std::size_t mebibytes) {
    const Session session;
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, mebibytes << 20));
    std::mt19937_64 noise(1);
    std::vector<std::uint64_t> piece((std::size_t{1} << 20) / sizeof(std::uint64_t));
    for (std::size_t at = 0; at < mebibytes; ++at) {
        std::ranges::generate(piece, std::ref(noise));
        CHECK(cuMemcpyHtoD(memory + (at << 20), piece.data(), std::size_t{1} << 20));
    }
    std::puts("ready");
    std::fflush(stdout);
    for (;;) {
        CHECK(cuCtxSynchronize());
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

void say_when(const char *name, double value) {
    const double now = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
    std::printf("%s %.0f %.6f\n", name, value, now);
    std::fflush(stdout);
}

void watch() {
    const Session session;
    std::size_t before = 0;
    std::size_t free = 0;
    std::size_t total = 0;
    while (cuMemGetInfo(&free, &total) == CUDA_SUCCESS) {
        if (free != before)
            say_when("free_mb", static_cast<double>(free >> 20));
        before = free;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    say_when("failed", 1);
}

} // namespace

int main(int argc, char **argv) {
    const std::string_view what = argc >= 2 ? argv[1] : "";
    if (what == "costs")
        costs();
    else if (what == "work")
        work();
    else if (what == "hold")
        hold();
    else if (what == "watch")
        watch();
    else if (what == "keep" && argc == 3)
        keep(std::strtoul(argv[2], nullptr, 10));
    else {
        std::fprintf(stderr, "usage: driver_calls costs|work|hold|watch|keep N\n");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
