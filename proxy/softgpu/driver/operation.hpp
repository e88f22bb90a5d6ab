// SPDX-License-Identifier: GPL-2.0-or-later
// Everything that streams and graph nodes can do, as values: a stream runs one once, a graph keeps it.
#pragma once

#include "driver/result.hpp"
#include "engine/engine.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

namespace singularity::softgpu::driver {

class Context;
class Stream;
class Event;
class Function;
class Mapping;
class Pool;

struct KernelOperation {
    std::shared_ptr<Function> function;
    CUfunction handle = nullptr; // as the program named it: may be a CUkernel
    Dim3 grid;
    Dim3 block;
    std::uint64_t dynamic_shared = 0;
    std::vector<std::byte> parameters;
    bool cooperative = false;
    int priority = 0;
    // As it was when the kernel was launched; of graphs, whose launches come later: nullptr.
    std::shared_ptr<const TextureObjects> textures;
    std::vector<CUlaunchAttribute> attributes; // as the program gave them
};

// Memory that an operation uses, held while it waits and runs.
using Holds = std::vector<std::shared_ptr<const void>>;

// The shape of every copy: rows of bytes. `resolved`: source and target are addresses that were checked.
struct CopyOperation {
    CUDA_MEMCPY3D description{};
    CUcontext copy_context = nullptr; // of graph nodes, to be given back
    bool resolved = false;
    std::uint64_t source = 0;
    std::uint64_t target = 0;
    std::uint64_t source_pitch = 0;
    std::uint64_t target_pitch = 0;
    std::uint64_t source_slice = 0;
    std::uint64_t target_slice = 0;
    Holds holds;
};

struct FillOperation {
    CUDA_MEMSET_NODE_PARAMS description{}; // width in elements
    bool resolved = false;
    CUcontext context = nullptr;
    Holds holds;
};

struct HostOperation {
    CUhostFn function = nullptr;
    void *data = nullptr;
};

struct CallbackOperation {
    CUstream stream = nullptr;
    CUstreamCallback function = nullptr;
    void *data = nullptr;
};

struct MemoryOperations {
    std::vector<CUstreamBatchMemOpParams> operations;
    unsigned flags = 0;
    CUcontext context = nullptr;
    Holds holds;
};

struct EventRecord {
    std::shared_ptr<Event> event;
    CUevent handle = nullptr;
    bool in_graph = false; // else whoever submitted it has tied the event to its completion
};

struct EventWait {
    std::shared_ptr<Event> event;
    CUevent handle = nullptr;
};

// Memory of a graph: its address is fixed when the node is made.
struct AllocationOperation {
    std::uint64_t address = 0;
    CUDA_MEM_ALLOC_NODE_PARAMS description{};
    std::vector<CUmemAccessDesc> access;
    std::shared_ptr<Mapping> mapping;
};
struct FreeOperation {
    std::uint64_t address = 0;
    std::uint64_t id = 0;       // of the allocation; 0: whatever is there when it runs
    std::shared_ptr<Pool> pool; // stream-ordered free; nullptr: of a graph's memory
};

struct EmptyOperation {};

struct OperationList;

// Runs bodies as long as, or if, or which of them, the value of a handle says.
struct ConditionalOperation {
    std::uint64_t handle = 0;
    CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
    std::vector<std::shared_ptr<const OperationList>> bodies;
};

struct ListOperation {
    std::shared_ptr<const OperationList> list; // a launched graph
};

using Operation = std::variant<EmptyOperation, KernelOperation, CopyOperation, FillOperation, HostOperation,
                               CallbackOperation, MemoryOperations, EventRecord, EventWait,
                               AllocationOperation, FreeOperation, ConditionalOperation, ListOperation>;

struct OperationList {
    std::vector<Operation> operations; // in an order that their dependencies allow
    std::shared_ptr<const void> holds; // what must live as long
    std::vector<std::pair<std::uint64_t, std::uint32_t>>
        conditionals; // of a whole graph: handles and their defaults
};

// Runs it in the calling thread, which is the stream's worker or, for short ones, the program's own.
// An error is that of the work, which its context keeps.
[[nodiscard]] CUresult execute(const Operation &operation, Context &context, Stream &stream);

// Whether the calling thread is inside of a host function or stream callback: it may not call the driver.
[[nodiscard]] bool in_host_function();

} // namespace singularity::softgpu::driver
