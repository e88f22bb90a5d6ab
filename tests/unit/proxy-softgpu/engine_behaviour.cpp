// SPDX-License-Identifier: GPL-2.0-or-later
// Turns of lanes, warps and blocks; faults and what they say; that results do not depend on host threads.
#include "engine_fixture.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <random>
#include <thread>

namespace {

using namespace singularity::softgpu;
using namespace singularity::softgpu::test;
using U = std::uint32_t;

constexpr const char *kTargets[] = {"behaviour.75.ptx", "behaviour.90.ptx", "behaviour.120.ptx"};

std::string compiled(const std::string &name) {
    return read_file(std::filesystem::path(SINGULARITY_SOFTGPU_COMPILED) / name);
}

template <class T>
std::vector<T> copy_of(const T *at, std::size_t count) {
    return {at, at + count};
}

template <class T>
void expect_all(const std::vector<T> &found, const std::vector<T> &expected, const std::string &what) {
    for (std::size_t i = 0; i < expected.size(); ++i)
        if (found[i] != expected[i])
            fail(fmt::format("{}: element {} is {}, not {}", what, i, found[i], expected[i]));
}

void locks(void **) {
    for (const char *target : kTargets) {
        Device device(compiled(target));
        for (const char *name : {"spin_lock", "spin_outside"}) {
            int *lock = device.zeroed<int>(1);
            int *count = device.zeroed<int>(1);
            device.run(name, {3}, {96}, Arguments(lock, count));
            if (*count != 3 * 96)
                fail(fmt::format("{} {}: {} of 288", target, name, *count));
        }
        int *flags = device.zeroed<int>(32);
        device.run("hand_over", {1}, {32}, Arguments(flags));
        for (int i = 0; i < 32; ++i)
            assert_int_equal(flags[i], i + 1);
        int *chain = device.zeroed<int>(20);
        device.run("block_chain", {20}, {64}, Arguments(chain));
        assert_int_equal(chain[0], 20);
    }
}

void divergence(void **) {
    for (const char *target : kTargets) {
        Device device(compiled(target));
        std::vector<int> in(32);
        std::iota(in.begin(), in.end(), 0);
        int *out = device.upload(std::vector<int>(32, -1));
        device.run("nested", {1}, {32}, Arguments(out, device.upload(in)));
        for (int v = 0; v < 32; ++v) {
            int r = 0;
            const bool returns = (v & 1) == 0 && (v & 4) != 0 && (v & 8) != 0;
            if ((v & 1) != 0) {
                if ((v & 2) != 0)
                    for (int i = 0; i < std::min(v, 7); ++i)
                        r += i;
                else
                    r = 100;
                r += 16 * 1000; // all odd lanes are together again
            } else if ((v & 4) != 0) {
                r = 200;
            }
            const int expected = returns ? -1 : r + 28 * 100000;
            if (out[v] != expected)
                fail(fmt::format("{}: lane {} has {}, not {}", target, v, out[v], expected));
        }
        U *values = device.zeroed<U>(32);
        device.run("recursion", {1}, {32}, Arguments(values));
        for (U t = 0; t < 32; ++t) {
            const U m = t % 3;
            const U n = t / 8;
            assert_int_equal(values[t], m == 0 ? n + 1 : m == 1 ? n + 2 : 2 * n + 3);
        }
        int *called = device.zeroed<int>(32);
        device.run("indirect", {1}, {32}, Arguments(called, 0));
        for (int t = 0; t < 32; ++t) {
            const int expected = t % 3 == 0 ? t + 1 : t % 3 == 1 ? t - 1 : 2 * t + (t % 2 != 0 ? 1000 : 0);
            if (called[t] != expected + (32 << 16))
                fail(fmt::format("{}: lane {} has {:#x}, not {:#x}", target, t, called[t],
                                 expected + (32 << 16)));
        }
        const Fault fault = device.fault_of(device.launch("indirect", {1}, {32}, Arguments(called, 1)),
                                            FaultKind::invalid_pc);
        expect_contains(fault.text, "kernel indirect");
        expect_contains(fault.text, "is not the address of a function");
    }
}

void collectives(void **) {
    for (const char *target : kTargets) {
        Device device(compiled(target));
        int *split = device.zeroed<int>(32);
        device.run("split_shuffle", {1}, {32}, Arguments(split));
        for (int lane = 0; lane < 32; ++lane) {
            int expected = (lane & 1) != 0 ? (lane - 1) * 100 : (lane + 1) * 10;
            int ballot = 0;
            for (int other = lane / 8 * 8; lane < 16 && other < lane / 8 * 8 + 8; ++other)
                ballot |= other % 3 == 0 ? 1 << other : 0;
            expected += (ballot << 16) + (lane / 8 * 8 + 3) * 10000000;
            if (split[lane] != expected)
                fail(fmt::format("{}: lane {} has {}, not {}", target, lane, split[lane], expected));
        }
        std::vector<U> in(32);
        std::mt19937 random(2);
        std::ranges::generate(in, [&] { return static_cast<U>(random() % 100); });
        U *out = device.zeroed<U>(32 * 16);
        device.run("collectives", {1}, {32}, Arguments(out, device.upload(in)));
        const auto value = [&](U lane) { return in[lane]; };
        U odd = 0;
        for (U i = 0; i < 32; ++i)
            odd |= (in[i] & 1U) << i;
        for (U lane = 0; lane < 32; ++lane) {
            const U *mine = out + 16 * lane;
            const auto expect = [&](unsigned slot, U expected) {
                if (mine[slot] != expected)
                    fail(fmt::format("{}: lane {}, result {}: {}, not {}", target, lane, slot, mine[slot],
                                     expected));
            };
            expect(0, lane < 3 ? value(lane) : value(lane - 3));
            expect(1, lane % 16 + 5 > 15 ? value(lane) : value(lane + 5));
            expect(2, value(lane / 8 * 8 + lane * 7 % 8));
            expect(3, odd);
            expect(4, (std::ranges::find(in, 5U) != in.end() ? 1U : 0U) + 2 +
                          (std::ranges::find(in, 3U) == in.end() ? 4U : 0U));
            U same = 0;
            for (U other = 0; other < 32; ++other)
                same |= (in[other] & 3U) == (in[lane] & 3U) ? 1U << other : 0U;
            expect(5, same);
            expect(6, 0U); // ~0 + 1
            expect(7, value(lane ^ 9U));
            if (std::string_view(target) == "behaviour.75.ptx")
                continue;
            expect(8, std::accumulate(in.begin(), in.end(), 0U));
            expect(9, std::ranges::min(in));
            expect(10, std::ranges::max(in) - 50);
            expect(11, std::accumulate(in.begin(), in.end(), 0U, std::bit_xor<U>()));
        }
    }
}

void barriers(void **) {
    for (const char *target : kTargets) {
        Device device(compiled(target));
        int *out = device.zeroed<int>(128);
        device.run("named_barriers", {1}, {128}, Arguments(out));
        for (int t = 0; t < 128; ++t)
            assert_int_equal(out[t], (t < 64 ? 5 : t < 96 ? 1 : 2) + 10 * 64 + 10000 + 20000);
        int *early = device.zeroed<int>(100);
        device.run("exits_before_barrier", {1}, {100}, Arguments(early));
        assert_int_equal(early[39], 9);
        assert_int_equal(early[40], 0);
        const Fault fault =
            device.fault_of(device.launch("half_barrier", {1}, {64}, Arguments(out)), FaultKind::deadlock);
        expect_contains(fault.text, "kernel half_barrier, block (0,0,0)");
        expect_contains(fault.text, "it waits for threads that never come");
        // Of the whole grid.
        constexpr int n = 5 * 64;
        int *x = device.zeroed<int>(n);
        int *sum = device.zeroed<int>(n);
        Launch launch = device.launch("grid_sums", {5}, {64}, Arguments(x, sum, 4));
        assert_true(device.program->info(launch.function).uses_grid_barrier);
        launch.cooperative = true;
        device.run(launch);
        for (int i = 0; i < n; ++i)
            assert_int_equal(sum[i], 4 * ((i + 33) % n) + 6);
    }
}

// The same bits with any number of threads, and block order where it is seen.
void determinism(void **) {
    for (const char *target : kTargets) {
        std::vector<std::vector<U>> results;
        std::mt19937 random(7);
        std::vector<U> in(10000);
        std::ranges::generate(in, random);
        for (const unsigned threads : {1U, 2U, 4U}) {
            Device device(compiled(target), threads);
            std::vector<U> all;
            U *bins = device.zeroed<U>(64);
            device.run("histogram", {13}, {128},
                       Arguments(bins, device.upload(in), static_cast<U>(in.size())));
            U *next = device.zeroed<U>(1);
            U *order = device.zeroed<U>(50);
            float *sum = device.zeroed<float>(1);
            device.run("tickets", {50}, {96}, Arguments(next, order, sum));
            for (U i = 0; i < 50; ++i)
                assert_int_equal(order[i], i);
            std::copy_n(bins, 64, std::back_inserter(all));
            all.push_back(std::bit_cast<U>(*sum));
            results.push_back(std::move(all));
            assert_true(device.program->blocks_independent(device.function("histogram")));
            assert_false(device.program->blocks_independent(device.function("tickets")));
            assert_false(device.program->blocks_independent(device.function("spin_lock")));
            assert_true(device.program->blocks_independent(device.function("nested")));
            // How long something takes is what it always takes.
            long long *times = device.zeroed<long long>(32);
            device.run("times", {1}, {32}, Arguments(times));
            assert_in_range(times[0], 1, 5000);
            results.back().push_back(static_cast<U>(times[0]));
        }
        std::vector<U> bins(64);
        for (const U v : in)
            ++bins[v & 63U];
        for (const auto &result : results)
            expect_all(copy_of(result.data(), 64), bins, "histogram");
        assert_true(results[0] == results[1] && results[0] == results[2]);
    }
}

void output(void **) {
    for (const char *target : kTargets)
        for (const unsigned threads : {1U, 3U}) {
            Device device(compiled(target), threads);
            std::vector<std::string> lines;
            Launch launch = device.launch("prints", {7}, {2}, Arguments(3));
            launch.print = [&](std::string_view text) { lines.emplace_back(text); };
            device.run(launch);
            assert_int_equal(lines.size(), 14);
            for (std::size_t i = 0; i < lines.size(); ++i)
                expect_equal(lines[i], fmt::format("block {} thread {}:  4.50 text abcdef0123 z|3   |%\n",
                                                   i / 2, i % 2));
        }
}

void faults(void **) {
    for (const char *target : kTargets) {
        Device device(compiled(target), 2);
        int *p = device.zeroed<int>(64);
        // The first block and lane that goes wrong is named, whoever runs first.
        for (int repeat = 0; repeat < 5; ++repeat) {
            const Fault fault = device.fault_of(
                device.launch("out_of_bounds", {20}, {8, 4}, Arguments(p, 64)), FaultKind::illegal_address);
            expect_contains(fault.text, "kernel out_of_bounds, block (0,0,0), thread (1,0,0), PTX line ");
            expect_contains(fault.text, "st.global.u32: write of 4 bytes at global address ");
        }
        assert_int_equal(p[0], 0); // nothing of an instruction that fails is done
        const Fault unaligned = device.fault_of(device.launch("misaligned", {1}, {2}, Arguments(p)),
                                                FaultKind::misaligned_address);
        expect_contains(unaligned.text, "thread (1,0,0)");
        const Fault shared = device.fault_of(device.launch("shared_overrun", {1}, {32}, Arguments(p, 4000)),
                                             FaultKind::illegal_address);
        expect_contains(shared.text, "shared");
        const std::uint64_t constant = device.reserve(256, false);
        device.fault_of(device.launch("out_of_bounds", {1}, {1}, Arguments(constant, 1)),
                        FaultKind::illegal_address);
        const Fault asserted = device.fault_of(
            device.launch("asserts", {1}, {4}, Arguments(device.upload(std::vector<int>{1, 2, -3, 4}))),
            FaultKind::assertion);
        expect_contains(asserted.text, "block: [0,0,0], thread: [2,0,0] Assertion `");
        expect_contains(asserted.text, "behaviour.cu:");
        Launch deep = device.launch("deep", {1}, {1}, Arguments(device.zeroed<U>(2)));
        deep.stack_limit = 1 << 16;
        const Fault overflow = device.fault_of(deep, FaultKind::stack_overflow);
        expect_contains(overflow.text, "endless_recursion");
        // Limits of a launch.
        device.fault_of(device.launch("tickets", {1}, {1025}, Arguments(p, p, p)), FaultKind::invalid_launch);
        device.fault_of(device.launch("tickets", {0}, {1}, Arguments(p, p, p)), FaultKind::invalid_launch);
        device.fault_of(device.launch("tickets", {1}, {1}, Arguments(p)), FaultKind::invalid_launch);
        Launch shared_limit = device.launch("tickets", {1}, {1}, Arguments(p, p, p));
        shared_limit.dynamic_shared = 300 * 1024;
        device.fault_of(shared_limit, FaultKind::out_of_resources);
    }
}

void unknown_instructions(void **) {
    const std::string text = R"(.version 9.0
.target sm_90
.address_size 64
.global .u32 touched;
.func inner() { .reg .b32 %r<4>; tex.2d.v4.s32.f32 {%r0,%r1,%r2,%r3}, [touched, {%r0, %r1}]; ret; }
.func outer() { call inner, (); ret; }
.visible .entry bad() { .reg .b32 %r<2>; mov.u32 %r1, 1; st.global.u32 [touched], %r1; call outer, (); ret; }
.visible .entry good() { .reg .b32 %r<2>; mov.u32 %r1, 2; st.global.u32 [touched], %r1; ret; }
)";
    Device device(text);
    const Fault fault =
        device.fault_of(device.launch("bad", {1}, {1}, Arguments()), FaultKind::not_supported);
    expect_contains(fault.text, "textures and surfaces are known by their objects only");
    expect_contains(device.program->info(device.function("bad")).unsupported, "tex.");
    device.run("good", {1}, {1}, Arguments());
    assert_int_equal(*reinterpret_cast<int *>(device.ranges.front().begin), 2);
}

void heap(void **) {
    Device device(compiled("behaviour.90.ptx"));
    const std::uint64_t pool = device.reserve(1 << 16);
    std::uint64_t next = pool;
    int freed = 0;
    int *out = device.zeroed<int>(64);
    Launch launch = device.launch("uses_heap", {1}, {64}, Arguments(out));
    launch.device_malloc = [&](std::uint64_t bytes) {
        return std::exchange(next, next + (bytes + 15) / 16 * 16);
    };
    launch.device_free = [&](std::uint64_t address) { freed += address >= pool && address < next ? 1 : 0; };
    device.run(launch);
    for (int t = 0; t < 64; ++t)
        assert_int_equal(out[t], 120 * t);
    assert_int_equal(freed, 64);
}

void cancelled(void **) {
    for (const char *name : {"loops_for_ever", "counts_for_ever"}) {
        Device device(compiled("behaviour.90.ptx"), 2);
        int *p = device.zeroed<int>(16);
        Launch launch = device.launch(name, {4}, {64}, Arguments(p, 1));
        std::atomic<bool> stop = false;
        std::atomic<bool> ended = false;
        launch.cancel = &stop;
        FaultKind kind = FaultKind::trap;
        std::thread runner([&] {
            const auto result = device.try_run(launch);
            kind = result ? FaultKind::trap : result.error().kind;
            ended = true;
            ended.notify_all();
        });
        stop = true;
        const auto start = std::chrono::steady_clock::now();
        runner.join();
        assert_true(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
        assert_true(ended);
        assert_int_equal(kind, FaultKind::cancelled);
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(locks),       cmocka_unit_test(divergence),
                                cmocka_unit_test(collectives), cmocka_unit_test(barriers),
                                cmocka_unit_test(determinism), cmocka_unit_test(output),
                                cmocka_unit_test(faults),      cmocka_unit_test(unknown_instructions),
                                cmocka_unit_test(heap),        cmocka_unit_test(cancelled)};
    return cmocka_run_group_tests_name("softgpu-engine-behaviour", tests, nullptr, nullptr);
}
