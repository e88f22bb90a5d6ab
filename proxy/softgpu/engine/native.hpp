// SPDX-License-Identifier: GPL-2.0-or-later
// Native code: what the engine and the library that makes it (../compiler) say to each other, and where in a
// function native code may begin. The library is loaded when the first function is hot. Native code works on
// the same warp as the interpreter and counts the same operations, so at any operation either can go on.
#pragma once

#include "engine/code.hpp"
#include "engine/context.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace singularity::softgpu::engine {

// What native code did. It is only ever entered with the operation it begins with already paid for.
enum class NativeEnd : std::uint32_t {
    nothing = 0, // the interpreter must execute the operation
    moved = 1,   // the context is at the operation that comes next
    differs = 2, // likewise nothing: what is the same in all lanes is not what it was made for
};
using NativeRun = NativeEnd (*)(Context *);

inline constexpr std::uint32_t kNativeVersion = 1;

struct NativeAccess {
    std::uint8_t part = 4; // bytes of an element in memory
    std::uint8_t count = 1;
    bool is_signed = false;
    bool write = false;
};

// How the lanes of a row that may be an address lie: each half of the warp at one place, or one right after
// the other in steps of `stride`.
enum class NativePattern : std::uint8_t { halves_uniform = 0, halves_contiguous = 1, irregular = 2 };
struct NativeRow {
    bool uniform = false; // the same in all lanes
    NativePattern pattern = NativePattern::irregular;
    std::uint64_t stride = 0;
    bool operator==(const NativeRow &) const = default;
};

// What native code calls. None of these throws.
struct NativeHost {
    // find_range().
    const Range *(*find_range)(Context *, const Op *, std::uint64_t first, std::uint64_t last);
    // Host addresses of what the lanes of `mask` access; false: not all may, and nothing was done.
    bool (*resolve)(Context *, const Op *, std::uint32_t mask, const std::uint64_t *addresses,
                    std::uint64_t *hosts, std::uint64_t bytes, bool write);
    // Does the access. Values are rows, one after the other, by element of the tuple.
    bool (*access)(Context *, const Op *, std::uint32_t mask, const std::uint64_t *addresses,
                   std::byte *values, NativeAccess how);
    // Whether lanes of the group stop at this operation of kind `meet`.
    bool (*meets)(Context *, const Op *);
};

struct NativeJob {
    const Code *code = nullptr;
    std::uint32_t head = 0;      // the operation
    bool full = true;            // all lanes execute
    std::vector<NativeRow> rows; // of the row_list, whenever it is entered
};

struct NativeCompiled {
    NativeRun run = nullptr; // nullptr: not worth it
    void *handle = nullptr;
    std::uint64_t bytes = 0;
};

struct NativeLibrary {
    std::uint32_t version = kNativeVersion;
    std::uint32_t op_size = sizeof(Op);
    std::uint32_t context_size = sizeof(Context);
    // An empty text, or why it cannot work here. Called once, before the others.
    std::string (*start)(const NativeHost &host) = nullptr;
    NativeCompiled (*compile)(const NativeJob &job) = nullptr; // by one thread at a time
    void (*release)(void *handle) = nullptr;                   // likewise
};
inline constexpr const char *kNativeEntry = "singularity_softgpu_native";
using NativeEntry = const NativeLibrary *(*)();

enum class NativeState : std::uint8_t { idle, queued, done };

// An operation at which native code may begin. Of each array the second is for when all lanes execute.
struct NativeSite {
    Handler original = nullptr;
    std::array<std::atomic<NativeRun>, 2> run{};
    std::array<std::atomic<NativeState>, 2> state{};
    std::array<std::atomic<std::uint32_t>, 2> differs{};
    std::array<std::vector<NativeRow>, 2> rows; // what the newest was made for
    std::atomic<std::uint32_t> count{0};
    std::array<std::atomic<std::uint8_t>, 2> made{};
};

struct NativeCode {
    const Code *code = nullptr;
    std::vector<std::uint32_t> site_of; // by operation
    std::unique_ptr<NativeSite[]> sites;
    std::vector<void *> handles;

    [[nodiscard]] Handler original(std::uint32_t op) const {
        return site_of[op] == ptx::kNone ? code->ops[op].run : sites[site_of[op]].original;
    }
};

// Native code may begin where it can come to by a branch or where the interpreter has been alone.
void native_sites(Code &code);

} // namespace singularity::softgpu::engine
