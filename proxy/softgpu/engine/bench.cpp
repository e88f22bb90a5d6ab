// SPDX-License-Identifier: GPL-2.0-or-later
// Thread-instructions per second of the engine on one host thread, interpreted and compiled:
// singularity-softgpu-bench IMAGE [--json]
// IMAGE: PTX or a fatbin with the kernels of tests/unit/proxy-softgpu/algorithms.cu.
#include "engine/engine.hpp"
#include "ptx/fatbin.hpp"
#include "ptx/parser.hpp"

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <fmt/core.h>

namespace {

using namespace singularity;
using namespace singularity::softgpu;

struct Measured {
    std::string_view name;
    double instructions = 0; // of threads
    double seconds = 0;      // interpreted
    double compiled = 0;     // seconds, by native code
};

Expected<ptx::Module> read_module(const std::filesystem::path &path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (!file)
        return failure("read", path.string(), "it cannot be opened");
    const auto image = ptx::read_image(std::as_bytes(std::span(bytes)));
    if (!image)
        return std::unexpected(image.error());
    const ptx::FatbinEntry *entry = ptx::select_ptx(*image, 120);
    if (entry == nullptr)
        return failure("read", path.string(), "it holds no PTX");
    const auto text = ptx::ptx_text(*entry);
    if (!text)
        return std::unexpected(text.error());
    return ptx::parse_module(*text);
}

class Arguments {
  public:
    template <class... T>
    explicit Arguments(T... values) {
        (add(values), ...);
    }
    std::vector<std::byte> bytes;

  private:
    template <class T>
    void add(T value) {
        bytes.resize((bytes.size() + sizeof(T) - 1) / sizeof(T) * sizeof(T) + sizeof(T));
        std::memcpy(bytes.data() + bytes.size() - sizeof(T), &value, sizeof(T));
    }
};

class Bench {
  public:
    Bench(std::shared_ptr<Program> interpreted, std::shared_ptr<Program> compiled)
        : interpreted_(std::move(interpreted)), compiled_(std::move(compiled)) {}

    // The best of several runs, the first of which compiles.
    Expected<Measured> measure(std::string_view name, Dim3 grid, Dim3 block, std::uint64_t shared,
                               const Arguments &arguments, const std::vector<Range> &memory) {
        Launch launch;
        launch.program = interpreted_;
        const auto &functions = interpreted_->module().functions;
        const auto found = std::ranges::find_if(functions, [&](const ptx::Function &function) {
            return function.kernel && function.name.find(name) != std::string::npos;
        });
        if (found == functions.end())
            return failure("measure", std::string(name), "the image has no such kernel");
        launch.function = static_cast<std::uint32_t>(found - functions.begin());
        launch.grid = grid;
        launch.block = block;
        launch.dynamic_shared = shared;
        launch.parameters = arguments.bytes;
        launch.memory = std::make_shared<Ranges>(memory);
        Measured best{name};
        set_compiler({});
        const auto interpreted = best_time(launch);
        if (!interpreted)
            return failure("measure", std::string(name), interpreted.error().text);
        best.instructions = interpreted->first;
        best.seconds = interpreted->second;
        launch.program = compiled_;
        set_compiler({CompilerMode::both, {}, SINGULARITY_SOFTGPU_COMPILER_LIBRARY});
        // Warm when nothing is left to be compiled.
        for (int i = 0; i < kMostWarmUps && (i < 3 || !compiler_statistics().idle); ++i)
            if (const auto warm = best_time(launch); !warm)
                return failure("measure", std::string(name), warm.error().text);
        const auto compiled = best_time(launch);
        if (!compiled)
            return failure("measure", std::string(name), compiled.error().text);
        if (compiled->first != interpreted->first)
            return failure("measure", std::string(name),
                           "compiled it executes another number of instructions");
        best.compiled = compiled->second;
        return best;
    }

  private:
    static constexpr int kMostWarmUps = 200;

    // Instructions and seconds; the best of several runs, the first of which makes code of the PTX.
    std::expected<std::pair<double, double>, Fault> best_time(const Launch &launch) {
        std::pair<double, double> best{0, 1e9};
        for (int i = 0; i < 5; ++i) {
            const auto start = std::chrono::steady_clock::now();
            const auto result = run(launch, workers_);
            const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
            if (!result)
                return std::unexpected(result.error());
            best.first = static_cast<double>(result->thread_instructions);
            best.second = std::min(best.second, time.count());
        }
        return best;
    }

    std::shared_ptr<Program> interpreted_;
    std::shared_ptr<Program> compiled_;
    Workers workers_{1};
};

template <class T>
std::uint64_t address(std::vector<T> &values) {
    return reinterpret_cast<std::uintptr_t>(values.data());
}
template <class T>
Range range(std::vector<T> &values) {
    return {address(values), address(values) + values.size() * sizeof(T), true};
}

Expected<std::vector<Measured>> measure_all(const std::filesystem::path &path) {
    auto parsed = read_module(path);
    if (!parsed)
        return std::unexpected(parsed.error());
    auto module = std::make_shared<ptx::Module>(std::move(*parsed));
    const std::size_t variables = module->variables.size();
    auto interpreted = Program::load(module, std::vector<std::uint64_t>(variables));
    if (!interpreted)
        return std::unexpected(interpreted.error());
    auto compiled = Program::load(std::move(module), std::vector<std::uint64_t>(variables));
    if (!compiled)
        return std::unexpected(compiled.error());
    Bench bench(*interpreted, *compiled);
    constexpr int n = 256;
    constexpr std::uint32_t count = 1U << 20U;
    std::vector<float> a(n * n, 1.5F);
    std::vector<float> b(n * n, 0.5F);
    std::vector<float> c(n * n);
    std::vector<float> in(count, 0.25F);
    std::vector<float> out(count);
    std::vector<Measured> results;
    const auto keep = [&](Expected<Measured> one) -> Expected<void> {
        if (!one)
            return std::unexpected(one.error());
        results.push_back(*one);
        return {};
    };
    const auto all =
        keep(bench.measure("matrix_product", {n / 16, n / 16}, {16, 16}, 0,
                           Arguments(address(c), address(a), address(b), n), {range(a), range(b), range(c)}))
            .and_then([&] {
                return keep(bench.measure("reductionIf", {64}, {256}, 256 * sizeof(float),
                                          Arguments(address(out), address(in), std::uint64_t{count}),
                                          {range(in), range(out)}));
            })
            .and_then([&] {
                return keep(bench.measure("gelu", {count / 256}, {256}, 0,
                                          Arguments(address(out), address(in), count),
                                          {range(in), range(out)}));
            });
    if (!all)
        return std::unexpected(all.error());
    return results;
}

} // namespace

int main(int argc, char **argv) {
    const std::span<char *> arguments(argv, static_cast<std::size_t>(argc));
    if (argc < 2 || argc > 3 || (argc == 3 && std::string_view(arguments[2]) != "--json")) {
        fmt::print(stderr, "usage: {} IMAGE [--json]\n", arguments[0]);
        return 2;
    }
    const auto results = measure_all(arguments[1]);
    if (!results) {
        fmt::print(stderr, "{}\n", results.error().message());
        return 1;
    }
    std::string json;
    if (const std::string problem = compiler_statistics().problem; !problem.empty())
        fmt::print(stderr, "{}\n", problem);
    for (const Measured &each : *results) {
        const double rate = each.instructions / each.seconds;
        if (argc == 3)
            json += fmt::format("{}\"{}\": {:.4g}, \"{}_compiled\": {:.4g}", json.empty() ? "" : ", ",
                                each.name, rate, each.name, each.instructions / each.compiled);
        else
            fmt::print("{:16} {:12.0f} thread-instructions  {:8.2f} ms  {:.3g} per second; compiled {:8.2f} "
                       "ms  {:.3g}\n",
                       each.name, each.instructions, each.seconds * 1e3, rate, each.compiled * 1e3,
                       each.instructions / each.compiled);
    }
    if (argc == 3)
        fmt::print("{{{}}}\n", json);
    return 0;
}
