// SPDX-License-Identifier: GPL-2.0-or-later
// What every workload uses: checks that stop with a clear message, exact printing of results, comparison with
// a CPU reference, device buffers, and a generator of reproducible input. What goes to stdout is the same in
// every run: no times, no addresses. The last line is "PASSED" and the exit status 0 only if every comparison
// held.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <cuda_runtime.h>

namespace workload {

[[noreturn]] inline void stop(const char *file, int line, const std::string &what, const std::string &why) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, what.c_str(), why.c_str());
    std::exit(1);
}

inline void check(cudaError_t status, const char *file, int line, const char *what) {
    if (status != cudaSuccess)
        stop(file, line, what, std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status));
}

#define CHECK(call) ::workload::check((call), __FILE__, __LINE__, #call)
// After a launch with <<<>>>, whose own errors have no other way out.
#define CHECK_LAUNCH() ::workload::check(cudaGetLastError(), __FILE__, __LINE__, "launch")

// The first argument of the program as a size, within [1, limit].
inline std::size_t size_argument(int argc, char **argv, std::size_t preset, std::size_t limit = 1U << 28) {
    if (argc < 2)
        return preset;
    char *end = nullptr;
    const unsigned long long value = std::strtoull(argv[1], &end, 10);
    if (end == argv[1] || *end != '\0' || value == 0 || value > limit)
        stop(argv[0], 0, argv[1], "the size has to be a number from 1 to " + std::to_string(limit));
    return static_cast<std::size_t>(value);
}

inline unsigned blocks_for(std::size_t count, unsigned threads) {
    return static_cast<unsigned>((count + threads - 1) / threads);
}

// SplitMix64 (Steele, Lea, Flood 2014): the same numbers on every machine.
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15ULL;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
    }
    std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(next() % limit); }
    // [0, 1), exact in a float.
    float unit() { return static_cast<float>(next() >> 40) * 0x1p-24F; }
    float between(float low, float high) { return low + (high - low) * unit(); }

  private:
    std::uint64_t state_;
};

// FNV-1a over the bytes: two results are taken as equal to the bit when their sums are.
inline std::uint64_t checksum(const void *data, std::size_t size) {
    std::uint64_t sum = 0xcbf29ce484222325ULL;
    const auto *bytes = static_cast<const unsigned char *>(data);
    for (std::size_t i = 0; i < size; ++i)
        sum = (sum ^ bytes[i]) * 0x100000001b3ULL;
    return sum;
}

// Memory of the current device; freed at the end of the scope.
template <typename T>
class Buffer {
  public:
    explicit Buffer(std::size_t count) : count_(count) {
        CHECK(cudaMalloc(reinterpret_cast<void **>(&data_), count * sizeof(T)));
    }
    explicit Buffer(const std::vector<T> &from) : Buffer(from.size()) { write(from); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    ~Buffer() { cudaFree(data_); }

    T *data() { return data_; }
    [[nodiscard]] std::size_t size() const { return count_; }
    void write(const std::vector<T> &from) {
        CHECK(cudaMemcpy(data_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    void clear() { CHECK(cudaMemset(data_, 0, count_ * sizeof(T))); }
    [[nodiscard]] std::vector<T> read() const { return read(count_); }
    [[nodiscard]] std::vector<T> read(std::size_t count) const {
        std::vector<T> to(count);
        CHECK(cudaMemcpy(to.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost));
        return to;
    }

  private:
    T *data_ = nullptr;
    std::size_t count_;
};

// Prints results exactly and counts the comparisons that did not hold.
class Report {
  public:
    template <typename T>
    void value(const char *name, T number) {
        if constexpr (std::is_floating_point_v<T>)
            std::printf("%s %a\n", name, static_cast<double>(number));
        else if constexpr (std::is_signed_v<T>)
            std::printf("%s %lld\n", name, static_cast<long long>(number));
        else
            std::printf("%s %llu\n", name, static_cast<unsigned long long>(number));
    }
    void text(const char *name, const char *words) { std::printf("%s %s\n", name, words); }
    template <typename T>
    void bits(const char *name, const std::vector<T> &values) {
        std::printf("%s %zu values, bits %016llx\n", name, values.size(),
                    static_cast<unsigned long long>(checksum(values.data(), values.size() * sizeof(T))));
    }
    bool expect(bool held, const char *what) {
        std::printf("%s: %s\n", what, held ? "ok" : "WRONG");
        failures_ += held ? 0 : 1;
        return held;
    }
    // Equal to the bit; prints the checksum and the first difference.
    template <typename T>
    bool equal(const char *name, const std::vector<T> &device, const std::vector<T> &reference) {
        bits(name, device);
        if (device.size() == reference.size() &&
            std::memcmp(device.data(), reference.data(), device.size() * sizeof(T)) == 0)
            return true;
        ++failures_;
        std::size_t i = 0;
        while (i < device.size() && i < reference.size() &&
               std::memcmp(&device[i], &reference[i], sizeof(T)) == 0)
            ++i;
        std::printf("%s: WRONG: %zu values, %zu expected; the first difference is at %zu", name,
                    device.size(), reference.size(), i);
        if constexpr (std::is_arithmetic_v<T>)
            if (i < device.size() && i < reference.size())
                std::printf(": %.17g, expected %.17g", static_cast<double>(device[i]),
                            static_cast<double>(reference[i]));
        std::printf("\n");
        return false;
    }
    // |device - reference| <= bound * max(1, |reference|) for every value; prints the bits of the device's.
    template <typename T, typename U>
    bool near(const char *name, const std::vector<T> &device, const std::vector<U> &reference, double bound) {
        bits(name, device);
        bool held = device.size() == reference.size();
        for (std::size_t i = 0; held && i < device.size(); ++i)
            held = within(name, i, static_cast<double>(device[i]), static_cast<double>(reference[i]), bound);
        failures_ += held ? 0 : 1;
        return held;
    }
    bool near(const char *name, double device, double reference, double bound) {
        std::printf("%s %a\n", name, device);
        const bool held = within(name, 0, device, reference, bound);
        failures_ += held ? 0 : 1;
        return held;
    }
    [[nodiscard]] int failures() const { return failures_; }
    // The program's last line and exit status.
    [[nodiscard]] int finish() const {
        if (failures_ == 0)
            std::printf("PASSED\n");
        else
            std::printf("FAILED: %d comparisons did not hold\n", failures_);
        std::fflush(stdout);
        return failures_ == 0 ? 0 : 1;
    }

  private:
    static bool within(const char *name, std::size_t i, double device, double reference, double bound) {
        const double size = std::fabs(reference) > 1 ? std::fabs(reference) : 1;
        if (std::fabs(device - reference) <= bound * size)
            return true;
        std::printf("%s: WRONG: value %zu is %.17g, expected %.17g within %g\n", name, i, device, reference,
                    bound);
        return false;
    }
    int failures_ = 0;
};

} // namespace workload
