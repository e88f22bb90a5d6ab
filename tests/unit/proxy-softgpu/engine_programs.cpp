// SPDX-License-Identifier: GPL-2.0-or-later
// What nvcc makes of the sources beside this file, run on the engine and checked against the host.
#include "engine_fixture.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>

namespace {

using namespace singularity::softgpu;
using namespace singularity::softgpu::test;

std::string compiled(const std::string &name) {
    return read_file(std::filesystem::path(SINGULARITY_SOFTGPU_COMPILED) / name);
}

constexpr std::array kTargets = {"75", "90", "120"};

std::vector<float> random_floats(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> values(-2, 2);
    std::vector<float> list(count);
    std::ranges::generate(list, [&] { return values(random); });
    return list;
}

void matrix_product(void **) {
    for (const char *target : kTargets) {
        Device device(compiled(fmt::format("algorithms.{}.ptx", target)));
        constexpr int n = 48;
        const auto a = random_floats(n * n, 1);
        const auto b = random_floats(n * n, 2);
        float *c = device.zeroed<float>(n * n);
        device.run("_Z14matrix_productILi16EEvPfPKfS2_i", {n / 16, n / 16}, {16, 16},
                   Arguments(c, device.upload(a), device.upload(b), n));
        for (int row = 0; row < n; ++row)
            for (int column = 0; column < n; ++column) {
                float sum = 0;
                for (int k = 0; k < n; ++k)
                    sum = std::fmaf(a[row * n + k], b[k * n + column], sum);
                if (c[row * n + column] != sum)
                    fail(fmt::format("sm_{}: element {},{} is {}, not {}", target, row, column,
                                     c[row * n + column], sum));
            }
    }
}

void reduction(void **) {
    for (const char *target : kTargets) {
        Device device(compiled(fmt::format("algorithms.{}.ptx", target)));
        constexpr std::size_t n = 5000;
        const auto in = random_floats(n, 3);
        constexpr unsigned blocks = 3;
        constexpr unsigned threads = 128;
        float *out = device.zeroed<float>(blocks);
        Launch launch = device.launch("_Z9reductionIfEvPT_PKS0_m", {blocks}, {threads},
                                      Arguments(out, device.upload(in), n));
        launch.dynamic_shared = threads * sizeof(float);
        device.run(launch);
        for (unsigned block = 0; block < blocks; ++block) {
            std::vector<float> part(threads);
            for (unsigned t = 0; t < threads; ++t)
                for (std::size_t i = block * threads + t; i < n; i += blocks * threads)
                    part[t] += in[i];
            for (unsigned half = threads / 2; half > 0; half /= 2)
                for (unsigned t = 0; t < half; ++t)
                    part[t] += part[t + half];
            if (out[block] != part[0])
                fail(fmt::format("block {} adds up to {}, not {}", block, out[block], part[0]));
        }
        assert_int_equal(launch.grid.x, blocks);
    }
}

void gelu_and_bitonic(void **) {
    Device device(compiled("algorithms.90.ptx"));
    constexpr int n = 1000;
    const auto x = random_floats(n, 4);
    float *y = device.zeroed<float>(n);
    device.run("gelu", {(n + 255) / 256}, {256}, Arguments(y, device.upload(x), n));
    for (int i = 0; i < n; ++i) {
        const double v = x[i];
        const double expected = 0.5 * v * (1 + std::tanh(0.7978845608 * (v + 0.044715 * v * v * v)));
        if (std::fabs(y[i] - expected) > 1e-6)
            fail(fmt::format("gelu({}) = {}, not {}", v, y[i], expected));
    }
    std::mt19937 random(5);
    std::vector<int> data(1024);
    std::ranges::generate(data, [&] { return static_cast<int>(random() % 5000); });
    int *sorted = device.upload(data);
    for (int k = 2; k <= 1024; k *= 2)
        for (int j = k / 2; j > 0; j /= 2)
            device.run("bitonic", {4}, {256}, Arguments(sorted, j, k));
    std::ranges::sort(data);
    assert_true(std::equal(data.begin(), data.end(), sorted));
}

void divergence(void **) {
    for (const char *target : {"control.75.ptx", "control.90.ptx", "control.120.ptx", "control.debug.ptx"}) {
        Device device(compiled(target));
        std::vector<unsigned> in(97);
        std::iota(in.begin(), in.end(), 1U);
        for (const unsigned threads : {1U, 32U, 50U, 97U}) {
            unsigned *out = device.upload(std::vector<unsigned>(threads, 77));
            device.run("loops", {1}, {threads},
                       Arguments(out, device.upload(in), static_cast<unsigned>(in.size())));
            for (unsigned t = 0; t < threads; ++t) {
                unsigned sum = 0;
                bool returned = false;
                for (unsigned i = t; i < in.size() && !returned; i += threads) {
                    unsigned x = in[i];
                    while (x != 1) {
                        x = (x & 1U) != 0 ? 3 * x + 1 : x / 2;
                        if (++sum > 1000)
                            break;
                        if (x == 17) {
                            returned = true;
                            break;
                        }
                    }
                    if (returned || in[i] == 5)
                        continue;
                    sum ^= x;
                }
                const unsigned expected = returned ? 77 : sum;
                if (out[t] != expected)
                    fail(
                        fmt::format("{}: thread {} of {}: {}, not {}", target, t, threads, out[t], expected));
            }
        }
        for (unsigned v = 0; v < 4; ++v) {
            int *out = device.zeroed<int>(4);
            device.run("table", {1}, {1}, Arguments(out, v));
            const std::array expected = {5, 6, 7, 6};
            assert_int_equal(out[v], expected[v]);
        }
        std::vector<int> choice(64);
        for (std::size_t i = 0; i < choice.size(); ++i)
            choice[i] = static_cast<int>(i % 13) - 1;
        std::vector<int> start(64);
        std::iota(start.begin(), start.end(), 100);
        int *out = device.upload(start);
        device.run("choose", {1}, {32}, Arguments(out, device.upload(choice)));
        assert_int_equal(out[1], start[1] * 3); // thread 1 chose 0
        assert_int_equal(out[0], -1);
    }
}

void calls(void **) {
    for (const char *target :
         {"functions.75.ptx", "functions.90.ptx", "functions.120.ptx", "functions.lines.ptx"}) {
        Device device(compiled(target));
        for (int which = 0; which < 3; ++which) {
            int *out = device.zeroed<int>(3);
            device.run("calls", {1}, {1},
                       Arguments(out, device.upload(std::vector<int>{3, 4, which, 7, 12})));
            assert_int_equal(out[0], 4 + 3 + 12);
            const std::array expected = {14, 49, -7};
            assert_int_equal(out[1], expected[static_cast<std::size_t>(which)]);
            assert_int_equal(out[2], 144);
        }
        // Both arms of a virtual call in one warp.
        float *out = device.upload(std::vector<float>{3, 2, 0});
        device.run("dispatch", {1}, {32}, Arguments(out, 0));
        assert_true(out[2] == 3.14F * 2 * 2); // the last lane's
    }
}

// cp.async, then the other half of the block reads what came.
void asynchronous_copies(void **) {
    Device device(compiled("cooperative.90.ptx"));
    const auto in = random_floats(256, 6);
    float *out = device.zeroed<float>(256);
    device.run("pipeline", {1}, {64}, Arguments(out, device.upload(in)));
    for (std::size_t i = 0; i < 256; ++i)
        assert_true(out[i] == in[(63 - i / 4) * 4 + i % 4]);
}

// Constants, globals with addresses in them, shared memory of both kinds, local arrays, generic addresses.
void memory(void **) {
    for (const char *target : kTargets) {
        Device device(compiled(fmt::format("memory.{}.ptx", target)));
        int *list = device.upload(std::vector<int>{0, 2, 1});
        device.run("lists", {1}, {1}, Arguments(list));
        assert_int_equal(list[0], 1 + 'f' + 2 + 's' + 3 + 3 + 2); // *middle, bytes[2], halves[1]
        std::vector<int> values(40);
        std::iota(values.begin(), values.end(), 500);
        int *out = device.zeroed<int>(32);
        device.run("local_array", {1}, {32}, Arguments(out, device.upload(values), 57));
        auto stack = values;
        for (int i = 0; i < 57; ++i)
            std::swap(stack[(stack[i % 40] & 0x7fffffff) % 40], stack[i % 40]);
        assert_int_equal(out[5], stack[57 % 40]);
        std::vector<float> square(32 * 32);
        std::iota(square.begin(), square.end(), 0.F);
        float *tile = device.upload(square);
        Launch launch = device.launch("spaces", {1}, {32, 32}, Arguments(tile, 2));
        launch.dynamic_shared = 32 * sizeof(float);
        device.run(launch);
        // Of dynamic[x] the last warp's value stays.
        const auto table = [](int i) { return i == 0 ? 1.F : i == 1 ? 2.5F : i == 2 ? -3.F : 0.F; };
        for (int y = 0; y < 32; ++y)
            for (int x = 0; x < 32; ++x) {
                const float expected = square[x * 32 + y] + square[31 * 32 + 31 - x] * table(31 - x) +
                                       static_cast<float>(0 + 3 + 7) + 3.141592653589793F;
                if (tile[x * 32 + y] != expected)
                    fail(fmt::format("sm_{}: {},{}: {}, not {}", target, x, y, tile[x * 32 + y], expected));
            }
        int *spaces =
            device.upload(std::vector<int>{0, 40, 1, 0}); // the choice is shared memory, at its start
        device.run("address_spaces", {1}, {1}, Arguments(spaces, spaces));
        assert_int_equal(spaces[0], 1 + 2 + 40 + 0 + 5);
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(matrix_product), cmocka_unit_test(reduction), cmocka_unit_test(gelu_and_bitonic),
        cmocka_unit_test(divergence),     cmocka_unit_test(calls),     cmocka_unit_test(asynchronous_copies),
        cmocka_unit_test(memory)};
    return cmocka_run_group_tests_name("softgpu-engine-programs", tests, nullptr, nullptr);
}
