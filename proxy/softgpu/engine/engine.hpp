// SPDX-License-Identifier: GPL-2.0-or-later
// The engine: runs the functions of a PTX module, lane by lane as a GPU would. It knows memory as ranges of
// addresses of this process, and nothing of contexts, streams or the driver API.
//
// Addresses: global and constant memory are ordinary addresses of this process. The shared and local windows
// begin at addresses that no process has (bits above the 47th are set), so a generic address says its space.
// Determinism: the same launch on the same memory gives the same bits, with any number of host threads.
// Blocks run side by side only where their order cannot be seen; a kernel whose result can hang on it
// (atomics that return or add floats, volatile or ordered accesses) runs its blocks in one fixed
// interleaving.
#pragma once

#include "common/error.hpp"
#include "engine/texture.hpp"
#include "ptx/ir.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::softgpu {

struct Dim3 {
    std::uint32_t x = 1;
    std::uint32_t y = 1;
    std::uint32_t z = 1;
};

// Memory that a kernel may touch: [begin, end).
struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    bool writable = true;
};

// What one launch may touch; never changes. Whoever unmaps memory first waits for the launches that hold it.
class Ranges {
  public:
    // In any order; must not overlap.
    explicit Ranges(std::vector<Range> ranges);
    // The range that holds the address; nullptr: none.
    [[nodiscard]] const Range *find(std::uint64_t address) const;
    // These and one more.
    [[nodiscard]] std::vector<Range> with(const Range &more) const;

  private:
    std::vector<Range> ranges_; // by begin
};

// How a launch ended badly. The driver makes a CUresult of the kind.
enum class FaultKind : std::uint8_t {
    illegal_address,       // CUDA_ERROR_ILLEGAL_ADDRESS
    misaligned_address,    // CUDA_ERROR_MISALIGNED_ADDRESS
    invalid_address_space, // CUDA_ERROR_INVALID_ADDRESS_SPACE
    invalid_pc,            // CUDA_ERROR_INVALID_PC: an indirect call to what is no function
    illegal_instruction,   // CUDA_ERROR_ILLEGAL_INSTRUCTION
    assertion,             // CUDA_ERROR_ASSERT: __assertfail; the text is the message
    trap,                  // CUDA_ERROR_LAUNCH_FAILED
    stack_overflow,        // CUDA_ERROR_HARDWARE_STACK_ERROR
    deadlock, // CUDA_ERROR_LAUNCH_FAILED: no lane of the grid can go on (a barrier that some never reach)
    not_supported,    // CUDA_ERROR_NOT_SUPPORTED: names the instruction; found before anything ran
    out_of_resources, // CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    invalid_launch,   // CUDA_ERROR_INVALID_VALUE
    cancelled,        // the token said so
};

struct Fault {
    FaultKind kind = FaultKind::trap;
    std::string text; // kernel, block, thread, PTX line and instruction, address
};

// The host threads that run blocks; shared by all launches of a process.
class Workers {
  public:
    // threads: 0 = as many as the process may run on.
    explicit Workers(unsigned threads);
    ~Workers();
    Workers(const Workers &) = delete;
    Workers &operator=(const Workers &) = delete;
    Workers(Workers &&) = delete;
    Workers &operator=(Workers &&) = delete;

    [[nodiscard]] unsigned size() const;

    struct Impl;
    [[nodiscard]] Impl &impl() { return *impl_; }

  private:
    std::unique_ptr<Impl> impl_;
};

// What a kernel needs, for attributes, occupancy and parameter buffers. Bytes.
struct KernelInfo {
    std::string name;
    std::vector<ptx::Parameter> parameters; // with offsets and sizes
    std::uint64_t parameter_size = 0;
    std::uint64_t static_shared = 0;
    std::uint64_t constant = 0;                      // of the module's .const variables
    std::uint64_t local = 0;                         // of one thread
    std::uint32_t registers = 0;                     // an estimate for occupancy: 1..255
    std::uint32_t max_threads = 1024;                // .maxntid/.reqntid or the limit of the device
    std::array<std::uint32_t, 3> required_threads{}; // .reqntid; 0: any
    std::array<std::uint32_t, 3> cluster{};          // .reqnctapercluster; 0: none
    bool uses_grid_barrier = false;
    std::string unsupported; // empty, or why it cannot be launched
};

// One loaded module: its functions ready to be run. Safe for use by any number of threads. Functions are
// compiled when they are first launched, asked for or called.
class Program {
  public:
    // variable_addresses: where each of module->variables that is global or constant lives (0 for others),
    // by index. External variables and functions must have been linked before.
    [[nodiscard]] static Expected<std::shared_ptr<Program>>
    load(std::shared_ptr<const ptx::Module> module, std::vector<std::uint64_t> variable_addresses);
    virtual ~Program() = default;

    // The content a global or constant variable starts with, addresses filled in; `size` bytes.
    [[nodiscard]] virtual std::vector<std::byte> initial_content(std::uint32_t variable) const = 0;
    [[nodiscard]] virtual const ptx::Module &module() const = 0;
    // Indices into module().functions of the kernels.
    [[nodiscard]] virtual const std::vector<std::uint32_t> &kernels() const = 0;
    [[nodiscard]] virtual KernelInfo info(std::uint32_t function) = 0;
    // Whether its blocks may run side by side; see the head of this file.
    [[nodiscard]] virtual bool blocks_independent(std::uint32_t function) = 0;
};

// Who executes kernels. Results are the same to the bit.
enum class CompilerMode : std::uint8_t {
    interpreter, // nothing is compiled
    compiler,    // everything is, before it first runs (for tests)
    both,        // what is executed often, in the background
};
struct CompilerOptions {
    CompilerMode mode = CompilerMode::interpreter;
    std::function<void(const std::string &)> report; // told once why nothing can be compiled
    std::string library; // path of the one that compiles; loaded when something is to be compiled
};
// By its name; nothing: there is no such mode.
[[nodiscard]] std::optional<CompilerMode> compiler_mode(std::string_view name);
// For functions that are launched for the first time from now on.
void set_compiler(const CompilerOptions &options);

struct CompilerStatistics {
    std::uint64_t compiled = 0; // places where native code begins
    std::uint64_t left = 0;     // to the interpreter, though they were hot
    std::uint64_t bytes = 0;    // of native code made in this process
    bool idle = true;           // nothing is waiting to be compiled
    std::string problem;        // why nothing is compiled; empty: nothing is wrong
};
[[nodiscard]] CompilerStatistics compiler_statistics();

struct Launch {
    std::shared_ptr<Program> program;
    std::uint32_t function = 0; // index into program->module().functions
    Dim3 grid;
    Dim3 block;
    std::uint64_t dynamic_shared = 0;
    std::vector<std::byte> parameters; // the parameter buffer, parameter_size bytes
    std::shared_ptr<const Ranges> memory;
    std::shared_ptr<const TextureObjects> textures; // nullptr: there are none
    bool cooperative = false;                       // all blocks are resident together; grid barriers work
    // Limits of the device and context.
    std::uint32_t warp_limit_threads = 1024; // threads of a block
    std::uint64_t shared_limit = 227 * 1024;
    std::uint64_t stack_limit = 1024 * 1024;
    std::uint32_t sm_count = 16; // %nsmid
    std::uint32_t device = 0;
    // malloc() of kernels: memory of the device, in 16-byte units; nullptr: malloc returns NULL.
    std::function<std::uint64_t(std::uint64_t bytes)> device_malloc;
    std::function<void(std::uint64_t address)> device_free;
    // cudaGraphSetConditional() of kernels; false: there is no such handle in the graph that runs.
    std::function<bool(std::uint64_t handle, std::uint32_t value)> set_conditional;
    // What printf of a kernel prints, as whole lines of one call each. In deterministic order: called after
    // the launch (or when much has come together), by the thread that called run().
    std::function<void(std::string_view)> print;
    // Set by whoever wants the launch to end early; looked at now and then. May be nullptr.
    const std::atomic<bool> *cancel = nullptr;
};

// Runs it to its end. Thread instructions executed on success (for benches).
struct RunResult {
    std::uint64_t thread_instructions = 0;
};
[[nodiscard]] std::expected<RunResult, Fault> run(const Launch &launch, Workers &workers);

} // namespace singularity::softgpu
