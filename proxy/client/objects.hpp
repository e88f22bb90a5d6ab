// SPDX-License-Identifier: GPL-2.0-or-later
// What the client keeps of each kind of object, for the questions that it answers itself.
#pragma once

#include "context.hpp"
#include "handles.hpp"
#include "proxy/client/forward.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace singularity::client {

struct StreamObject : Object {
    unsigned flags = 0;
    int priority = 0;
    std::uint64_t id = 0;
};

struct EventObject : Object {
    unsigned flags = 0;
    // Of one that other processes may open, or that is another's: its name in the daemon; zeros: none.
    std::array<std::uint64_t, 2> key{};
    bool opened = false;
};

// How a kernel's parameters lie in its parameter buffer, and what a launch is checked against.
struct KernelLayout {
    struct Parameter {
        std::uint32_t offset;
        std::uint32_t size;
    };
    std::vector<Parameter> parameters;
    std::uint32_t size = 0; // of the buffer
    int most_threads = 0;   // of a block
    int static_shared = 0;
    std::atomic<int> most_dynamic_shared = 0;
};

// A library's image, kept for devices that will need it later.
struct LibrarySource {
    std::vector<std::byte> copy; // where the program's memory does not stay
    std::span<const std::byte> image;
    std::vector<std::byte> options; // of the message, encoded
    std::vector<std::byte> library_options;
};

// Libraries, kernels, modules' functions.
struct CodeObject : Object {
    std::string name;                           // kernels, functions
    std::atomic<const KernelLayout *> layout{}; // asked for at the first launch; owned by layout_owner
    std::unique_ptr<KernelLayout> layout_owner;
    std::unique_ptr<LibrarySource> source; // libraries
    std::mutex lock;
    std::atomic<std::uint64_t> present = 0; // bit n: device n has it (libraries, kernels)
};

// Nodes of graphs (graph.hpp).
struct NodeObject : Object {
    // What the program is told where the node is not what it looks like; -1: ask the daemon.
    int shown_type = -1;
    CUDA_MEM_ALLOC_NODE_PARAMS_v1 allocation{};
    CUdeviceptr freed = 0;
    // Of a copy through a StagedBox: the other node. The one the program knows is what later nodes must wait
    // for.
    std::uint64_t partner = 0;
    std::uint64_t shown_as = 0; // the partner's own: which node the program knows
    bool to_program = false;
    bool alone = false; // see StagedBox
    // What ...GetParams has pointed the program to.
    std::vector<std::byte> parameters;
    std::vector<void *> pointers;
    std::vector<CUstreamBatchMemOpParams> operations;
};

// nullptr: there is no such object. Those that the daemon has named are taken in when they are first seen.
[[nodiscard]] Object *find_object(unsigned kind, std::uint64_t handle);
template <class T>
[[nodiscard]] T *find_as(unsigned kind, std::uint64_t handle) {
    return static_cast<T *>(find_object(kind, handle));
}

// User objects (cuUserObjectCreate) that graphs hold: a copy of a graph, executable ones included, holds what
// the graph holds, until it ends.
void share_user_objects(std::uint64_t from, std::uint64_t to);
void release_user_objects(std::uint64_t graph);

// Sees to it that a device has the library or kernel.
[[nodiscard]] CUresult ensure_code(Object &object, Session &session);

// The layout of a function or kernel, asked for when it is first needed.
[[nodiscard]] CUresult layout_of(CodeObject &code, const Route &route, const KernelLayout *&layout);
// What a program can change of it, asked again.
void renew_limits(CodeObject &code, const Route &route);

} // namespace singularity::client
