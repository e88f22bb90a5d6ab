// SPDX-License-Identifier: GPL-2.0-or-later
// A device as far as the engine needs one: memory and a loaded program.
#pragma once

#include "cmocka.hpp"
#include "engine/engine.hpp"
#include "ptx/parser.hpp"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/core.h>

namespace singularity::softgpu::test {

using singularity::test::expect_contains;
using singularity::test::expect_equal;
using singularity::test::fail;

inline std::string read_file(const std::filesystem::path &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file)
        fail("cannot open " + path.string());
    return {std::istreambuf_iterator<char>(file), {}};
}

// The bytes of kernel arguments, each aligned to its size as PTX aligns parameters.
class Arguments {
  public:
    template <class... T>
    explicit Arguments(T... values) {
        (add(values), ...);
    }
    template <class T>
    void add(T value) {
        static_assert(std::is_trivially_copyable_v<T>);
        bytes_.resize((bytes_.size() + alignof(T) - 1) / alignof(T) * alignof(T));
        const std::size_t at = bytes_.size();
        bytes_.resize(at + sizeof(T));
        std::memcpy(bytes_.data() + at, &value, sizeof(T));
    }
    [[nodiscard]] const std::vector<std::byte> &bytes() const { return bytes_; }

  private:
    std::vector<std::byte> bytes_;
};

class Device {
  public:
    explicit Device(const std::string &ptx, unsigned threads = 1) : workers(threads) {
        if (const char *mode = std::getenv("SINGULARITY_SOFTGPU_COMPILER"); mode != nullptr)
            set_compiler({compiler_mode(mode).value(), {}, SINGULARITY_SOFTGPU_COMPILER_LIBRARY});
        auto parsed = ptx::parse_module(ptx);
        if (!parsed)
            fail(parsed.error().message());
        auto module = std::make_shared<ptx::Module>(std::move(*parsed));
        std::vector<std::uint64_t> addresses;
        for (const ptx::Variable &variable : module->variables)
            addresses.push_back(variable.space == ptx::Space::global || variable.space == ptx::Space::constant
                                    ? reserve(variable.size, variable.space == ptx::Space::global)
                                    : 0);
        auto loaded = Program::load(module, addresses);
        if (!loaded)
            fail(loaded.error().message());
        program = *loaded;
        for (std::uint32_t i = 0; i < addresses.size(); ++i)
            if (addresses[i] != 0) {
                const auto content = program->initial_content(i);
                std::ranges::copy(content, reinterpret_cast<std::byte *>(addresses[i]));
            }
    }

    // Device memory with room behind it that belongs to nobody.
    std::uint64_t reserve(std::uint64_t bytes, bool writable = true) {
        constexpr std::uint64_t alignment = 256;
        auto &block = blocks_.emplace_back(bytes + 2 * alignment);
        const auto at =
            (reinterpret_cast<std::uintptr_t>(block.data()) + alignment - 1) / alignment * alignment;
        ranges.push_back({at, at + bytes, writable});
        return at;
    }
    template <class T>
    T *upload(const std::vector<T> &values) {
        T *at = reinterpret_cast<T *>(reserve(values.size() * sizeof(T)));
        std::ranges::copy(values, at);
        return at;
    }
    template <class T>
    T *zeroed(std::size_t count) {
        return upload(std::vector<T>(count));
    }

    [[nodiscard]] std::uint32_t function(const std::string &name) const {
        const ptx::Function *found = program->module().function(name);
        if (found == nullptr)
            fail("no function " + name);
        return static_cast<std::uint32_t>(found - program->module().functions.data());
    }
    [[nodiscard]] Launch launch(const std::string &name, Dim3 grid, Dim3 block,
                                const Arguments &arguments) const {
        Launch launch;
        launch.program = program;
        launch.function = function(name);
        launch.grid = grid;
        launch.block = block;
        launch.parameters = arguments.bytes();
        launch.memory = std::make_shared<Ranges>(ranges);
        return launch;
    }
    std::expected<RunResult, Fault> try_run(const Launch &launch) { return softgpu::run(launch, workers); }
    std::uint64_t run(const Launch &launch) {
        const auto result = try_run(launch);
        if (!result)
            fail(result.error().text);
        return result->thread_instructions;
    }
    std::uint64_t run(const std::string &name, Dim3 grid, Dim3 block, const Arguments &arguments) {
        return run(launch(name, grid, block, arguments));
    }
    Fault fault_of(const Launch &launch, FaultKind kind) {
        auto result = try_run(launch);
        if (result)
            fail("the launch succeeded");
        if (result.error().kind != kind)
            fail(fmt::format("another fault than expected: {} {}", static_cast<int>(result.error().kind),
                             result.error().text));
        return std::move(result.error());
    }

    Workers workers;
    std::shared_ptr<Program> program;
    std::vector<Range> ranges;

  private:
    std::vector<std::vector<std::byte>> blocks_;
};

// A kernel `k` with parameters out, a, b, c (u64 each) and n (u32), whose thread i has its index in %i and
// the addresses of element i of each array of `width`-byte elements in %out, %a, %b, %c. `body` does the
// rest.
inline std::string elementwise(const std::string &body, unsigned out = 4, unsigned in = 4) {
    return fmt::format(R"(.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3, .param .u32 p4) {{
.reg .pred %p<8>;
.reg .b16 %h<16>;
.reg .b32 %r<32>;
.reg .f32 %f<16>;
.reg .b64 %rd<32>;
.reg .f64 %fd<16>;
.reg .b32 %i, %n, %t1, %t2, %t3;
.reg .b64 %out, %a, %b, %c, %w;
ld.param.u64 %out, [p0]; ld.param.u64 %a, [p1]; ld.param.u64 %b, [p2]; ld.param.u64 %c, [p3];
ld.param.u32 %n, [p4];
mov.u32 %t1, %ctaid.x; mov.u32 %t2, %ntid.x; mov.u32 %t3, %tid.x;
mad.lo.s32 %i, %t1, %t2, %t3;
setp.ge.u32 %p7, %i, %n;
@%p7 exit;
mul.wide.u32 %w, %i, {};
add.s64 %out, %out, %w;
mul.wide.u32 %w, %i, {};
add.s64 %a, %a, %w; add.s64 %b, %b, %w; add.s64 %c, %c, %w;
{}
ret;
}}
)",
                       out, in, body);
}

// Runs `body` on all elements; with the newer and the older instruction set of the host this must be the
// same.
template <class Out, class In>
std::vector<Out> evaluate(const std::string &body, const std::vector<In> &a, const std::vector<In> &b = {},
                          const std::vector<In> &c = {}) {
    Device device(elementwise(body, sizeof(Out), sizeof(In)));
    const In *da = device.upload(a);
    const In *db = b.empty() ? da : device.upload(b);
    const In *dc = c.empty() ? da : device.upload(c);
    Out *out = device.zeroed<Out>(a.size());
    const auto n = static_cast<std::uint32_t>(a.size());
    device.run("k", {(n + 127) / 128, 1, 1}, {128, 1, 1}, Arguments(out, da, db, dc, n));
    return {out, out + a.size()};
}

} // namespace singularity::softgpu::test
