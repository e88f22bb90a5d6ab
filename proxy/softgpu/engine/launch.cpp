// SPDX-License-Identifier: GPL-2.0-or-later
// A launch: its limits, and its blocks on the host's threads.
#include "engine/block.hpp"
#include "engine/program.hpp"
#include "engine/workers.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/core.h>

namespace singularity::softgpu {

namespace engine {

namespace {

// Operations of a warp between looks at the rest of the world.
constexpr std::int64_t kTurn = 20'000;
constexpr std::int64_t kLongTurn = 100'000; // of blocks that nobody waits for
// Blocks that are resident side by side where one may wait for another (and the launch is not cooperative).
constexpr std::size_t kMaxResident = 256;
// Turns after which a block that does not seem to wait lets others run all the same.
constexpr unsigned kTurnsBeforeOthers = 500;
constexpr std::uint64_t kMaxBlocks = std::uint64_t{1} << 62U;
constexpr std::uint64_t kWorkspaceBytes = 4096;

using Outcome = std::expected<RunResult, Fault>;

std::unexpected<Fault> refuse(FaultKind kind, const Launch &launch, const std::string &why) {
    const auto &name = launch.program->module().functions[launch.function].name;
    return std::unexpected(Fault{kind, fmt::format("kernel {}: {}", name, why)});
}

std::uint64_t volume(const Dim3 &size) { return std::uint64_t{size.x} * size.y * size.z; }

// What the launch asks for against what there is; nothing when it can run.
std::expected<void, Fault> check(const Launch &launch, const Kernel &kernel) {
    const ptx::Function &function = launch.program->module().functions[launch.function];
    if (!kernel.unsupported.empty())
        return refuse(FaultKind::not_supported, launch, kernel.unsupported);
    if (!function.kernel)
        return refuse(FaultKind::invalid_launch, launch, "not a kernel");
    const Dim3 &block = launch.block;
    const Dim3 &grid = launch.grid;
    if (volume(block) == 0 || volume(grid) == 0)
        return refuse(FaultKind::invalid_launch, launch, "a grid or block without threads");
    if (block.x > 1024 || block.y > 1024 || block.z > 64 ||
        volume(block) > std::min(launch.warp_limit_threads, 1024U))
        return refuse(FaultKind::invalid_launch, launch,
                      fmt::format("blocks of {} x {} x {} threads; the limit is {}", block.x, block.y,
                                  block.z, std::min(launch.warp_limit_threads, 1024U)));
    if (grid.x > 0x7FFFFFFFU || grid.y > 0xFFFFU || grid.z > 0xFFFFU)
        return refuse(FaultKind::invalid_launch, launch,
                      fmt::format("a grid of {} x {} x {} blocks", grid.x, grid.y, grid.z));
    const auto &required = function.limits.required_threads;
    if (required[0] != 0 && (block.x != required[0] || block.y != std::max(required[1], 1U) ||
                             block.z != std::max(required[2], 1U)))
        return refuse(FaultKind::invalid_launch, launch,
                      fmt::format("it must have blocks of {} x {} x {} threads", required[0], required[1],
                                  required[2]));
    const auto &most = function.limits.max_threads;
    if (most[0] != 0 &&
        volume(block) > std::uint64_t{most[0]} * std::max(most[1], 1U) * std::max(most[2], 1U))
        return refuse(FaultKind::invalid_launch, launch,
                      fmt::format("{} threads per block; it was compiled for {}", volume(block),
                                  std::uint64_t{most[0]} * std::max(most[1], 1U) * std::max(most[2], 1U)));
    const auto &cluster = function.limits.cluster;
    if (std::uint64_t{std::max(cluster[0], 1U)} * std::max(cluster[1], 1U) * std::max(cluster[2], 1U) > 1)
        return refuse(FaultKind::not_supported, launch, "clusters of more than one block");
    if (launch.parameters.size() < function.parameter_size)
        return refuse(FaultKind::invalid_launch, launch,
                      fmt::format("{} bytes of parameters; it has {}", launch.parameters.size(),
                                  function.parameter_size));
    const std::uint64_t shared = (kernel.static_shared + 15) / 16 * 16 + launch.dynamic_shared;
    if (launch.dynamic_shared > launch.shared_limit || shared > launch.shared_limit)
        return refuse(FaultKind::out_of_resources, launch,
                      fmt::format("{} bytes of shared memory and {} dynamic ones; the limit is {}",
                                  kernel.static_shared, launch.dynamic_shared, launch.shared_limit));
    // Registers of a block are host memory.
    const std::uint64_t warps = (volume(block) + kLanes - 1) / kLanes;
    if (warps * (kernel.entry->rows + kernel.entry->frame * kLanes) > (std::uint64_t{2} << 30U))
        return refuse(FaultKind::out_of_resources, launch,
                      "its registers and local memory need more than 2 GiB per block");
    if (launch.memory == nullptr)
        return refuse(FaultKind::invalid_launch, launch, "no memory was given");
    return {};
}

class Runner {
  public:
    Runner(const Launch &launch, const Kernel &kernel) : launch_(launch), blocks_(volume(launch.grid)) {
        run_.launch = &launch;
        run_.kernel = &kernel;
        run_.memory = launch.memory.get();
        run_.threads = volume(launch.block);
        run_.shared_size = launch.dynamic_shared == 0
                               ? kernel.static_shared
                               : (kernel.static_shared + 15) / 16 * 16 + launch.dynamic_shared;
        // A buffer that parameters may be read from past their end of is not wanted.
        parameters_ = AlignedBytes(launch.parameters.size());
        std::ranges::copy(launch.parameters, parameters_.bytes.get());
        if (launch.cooperative) {
            workspace_ = AlignedBytes(kWorkspaceBytes);
            const auto at = reinterpret_cast<std::uintptr_t>(workspace_.bytes.get());
            run_.grid_workspace = at;
            workspace_memory_ = with_workspace(*launch.memory, at);
            if (workspace_memory_ != nullptr)
                run_.memory = workspace_memory_.get();
        }
    }

    Outcome run(Workers &workers) {
        if (run_.kernel->independent && !launch_.cooperative) {
            const auto threads = static_cast<unsigned>(std::min<std::uint64_t>(workers.size(), blocks_));
            workers.impl().run(threads, [this] { parallel(); });
        } else {
            serial();
        }
        flush_printed();
        if (fault_)
            return std::unexpected(std::move(fault_->second));
        return RunResult{thread_instructions_.load()};
    }

  private:
    static std::unique_ptr<Ranges> with_workspace(const Ranges &memory, std::uint64_t at) {
        return std::make_unique<Ranges>(memory.with({at, at + kWorkspaceBytes, true}));
    }

    [[nodiscard]] Context context() const {
        Context context;
        context.parameters = parameters_.bytes.get();
        context.parameters_size = parameters_.size;
        context.memory = run_.memory;
        context.textures = launch_.textures.get();
        return context;
    }

    [[nodiscard]] bool cancelled() const {
        return launch_.cancel != nullptr && launch_.cancel->load(std::memory_order_relaxed);
    }

    // The fault of the lowest block is the launch's, whoever came first.
    void record(std::uint64_t block, Fault fault) {
        const std::scoped_lock guard(lock_);
        if (!fault_ || block < fault_->first) {
            fault_.emplace(block, std::move(fault));
            std::uint64_t limit = limit_.load();
            while (block < limit && !limit_.compare_exchange_weak(limit, block))
                ;
        }
    }

    // Ends of blocks come in any order; what they printed goes out in the order of blocks.
    void finished(BlockRun &block) {
        std::uint64_t executed = 0;
        for (unsigned i = 0; i < block.warp_count; ++i)
            executed += std::exchange(block.warps[i].thread_instructions, 0);
        thread_instructions_ += executed;
        if (block.printed.empty())
            return;
        const std::scoped_lock guard(lock_);
        printed_.emplace(block.linear, std::pair(std::move(block.printed), std::move(block.printed_ends)));
        block.printed = {};
        block.printed_ends = {};
    }
    void flush_printed() {
        for (const auto &[block, text] : printed_) {
            std::size_t begin = 0;
            for (const std::size_t end : text.second) {
                if (launch_.print)
                    launch_.print(std::string_view(text.first).substr(begin, end - begin));
                begin = end;
            }
        }
        printed_.clear();
    }

    // One turn of one block; what went wrong is recorded.
    BlockRun::Turn turn(BlockRun &block, Context &context, std::int64_t budget) {
        try {
            if (cancelled()) {
                record(block.linear, {FaultKind::cancelled, "the launch was cancelled"});
                return BlockRun::Turn::finished;
            }
            return block.turn(context, budget);
        } catch (const LaneFault &fault) {
            record(block.linear, describe(fault, context));
        } catch (const std::bad_alloc &) {
            record(block.linear, {FaultKind::out_of_resources, "the host has no memory left for the block"});
        }
        return BlockRun::Turn::finished;
    }

    void parallel() {
        Context its = context();
        BlockRun block;
        for (;;) {
            const std::uint64_t index = next_.fetch_add(1);
            if (index >= blocks_ || index >= limit_.load())
                return;
            block.start(run_, index);
            while (turn(block, its, kLongTurn) != BlockRun::Turn::finished && index < limit_.load())
                ;
            finished(block);
        }
    }

    // One after the other, as long as none waits for another; then side by side in a fixed order.
    void serial() {
        Context its = context();
        std::vector<std::unique_ptr<BlockRun>> resident;
        std::vector<std::unique_ptr<BlockRun>> spare;
        const std::uint64_t most = launch_.cooperative ? blocks_ : kMaxResident;
        std::uint64_t started = 0;
        std::size_t at = 0;
        const auto admit = [&] {
            if (started == blocks_ || resident.size() >= most)
                return false;
            if (spare.empty())
                spare.push_back(std::make_unique<BlockRun>());
            resident.push_back(std::move(spare.back()));
            spare.pop_back();
            resident.back()->start(run_, started++);
            return true;
        };
        admit();
        while (!resident.empty() && !fault_) {
            BlockRun &block = *resident[at];
            BlockRun::Turn result = BlockRun::Turn::progress;
            for (unsigned turns = 0; result == BlockRun::Turn::progress && turns < kTurnsBeforeOthers;
                 ++turns)
                result = turn(block, its, kTurn);
            if (result == BlockRun::Turn::finished) {
                finished(block);
                spare.push_back(std::move(resident[at]));
                resident.erase(resident.begin() + static_cast<std::ptrdiff_t>(at));
                if (resident.empty())
                    admit();
            } else {
                ++at;
            }
            if (at >= resident.size()) {
                // All that are here have had their turn: one more joins them.
                if (!resident.empty() && result != BlockRun::Turn::finished && admit())
                    continue;
                at = 0;
            }
        }
        for (const auto &block : resident)
            finished(*block);
    }

    const Launch &launch_;
    LaunchRun run_;
    std::uint64_t blocks_;
    AlignedBytes parameters_;
    AlignedBytes workspace_;
    std::unique_ptr<Ranges> workspace_memory_;
    std::atomic<std::uint64_t> next_ = 0;
    std::atomic<std::uint64_t> limit_ = kMaxBlocks; // blocks from here on are not wanted any more
    std::atomic<std::uint64_t> thread_instructions_ = 0;
    std::mutex lock_;
    std::optional<std::pair<std::uint64_t, Fault>> fault_;
    std::map<std::uint64_t, std::pair<std::string, std::vector<std::size_t>>> printed_;
};

} // namespace

} // namespace engine

std::expected<RunResult, Fault> run(const Launch &launch, Workers &workers) {
    if (launch.program == nullptr)
        return std::unexpected(Fault{FaultKind::invalid_launch, "there is no program"});
    if (launch.function >= launch.program->module().functions.size())
        return std::unexpected(Fault{FaultKind::invalid_launch, "there is no such function"});
    auto *program = dynamic_cast<engine::LoadedProgram *>(launch.program.get());
    if (program == nullptr)
        return std::unexpected(Fault{FaultKind::invalid_launch, "the program was not loaded by this engine"});
    const engine::Kernel &kernel = program->kernel(launch.function);
    if (auto refused = engine::check(launch, kernel); !refused)
        return std::unexpected(std::move(refused.error()));
    return engine::Runner(launch, kernel).run(workers);
}

} // namespace singularity::softgpu
