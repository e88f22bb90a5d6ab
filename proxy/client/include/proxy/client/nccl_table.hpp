// SPDX-License-Identifier: GPL-2.0-or-later
// What the client's libcuda.so.1 offers to its libnccl.so.2, which finds it with cuGetExportTable under a
// UUID of this project: two libraries of one installation, which need not have the same C++ library in them.
#pragma once

#include "proxy/barrier/lines.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace singularity::client {

inline constexpr std::array<unsigned char, 16> kNcclTable{0x5b, 0x1e, 0x8a, 0x0f, 0x43, 0xd7, 0x4c, 0x2e,
                                                          0x9d, 0x61, 0x27, 0xc4, 0x70, 0xb3, 0xfe, 0x19};
// Counts up when the table or the messages change: both libraries have to be of the same release.
inline constexpr std::uint64_t kNcclTableVersion = 4;

// Where messages go: a device's daemon, and a context there. Good as long as the process.
struct NcclTarget {
    void *session;
    void *context;
    int device; // ordinal
};

// Operations that each launch of a graph carries out. Words live until many others have followed.
struct NcclCaptured {
    void *part;
    // Why they cannot be carried out; nullptr: they can.
    const char *(*unusable)(void *part);
    // Puts them on a stream; nullptr: they are there.
    const char *(*issue)(void *part, void *stream);
    void (*release)(void *part); // no graph has them any more
};

// Functions return CUresult. They may be called by any thread.
struct NcclTable {
    std::size_t size; // bytes, as in every export table
    std::uint64_t version;
    // context: CUcontext.
    int (*target)(void *context, NcclTarget *out);
    // A CUstream, the default ones included, as it travels; INVALID_CONTEXT: it is of another context.
    // capturing: 1 where its work is being captured.
    int (*stream)(const NcclTarget *target, void *stream, std::uint64_t *wire, int *capturing);
    // Records operations in the graph that is captured on the stream, behind what it has there. Success: they
    // are the graph's, and of all that is made of it.
    int (*capture)(const NcclTarget *target, void *stream, const NcclCaptured *what);
    // Memory as the target's daemon knows it. INVALID_VALUE: [address, address + size) is not allocated, or
    // out of the daemons' reach; INVALID_DEVICE: it is another device's.
    int (*memory)(const NcclTarget *target, const void *address, std::size_t size, std::uint64_t *wire);
    // A message, encoded; without and with a reply. take(taker, reply, size) is called once where a reply has
    // come.
    int (*post)(const NcclTarget *target, const void *message, std::size_t size);
    int (*ask)(const NcclTarget *target, const void *message, std::size_t size, std::size_t reply_limit,
               void (*take)(void *taker, const void *reply, std::size_t size), void *taker);
    // Tells the daemon, past all messages on their way, that a communicator is aborted. The message follows.
    int (*abort)(const NcclTarget *target, std::uint64_t communicator);
    // The process's gate (proxy/barrier): every group enters it before it is issued, and exits when it has
    // been, on the same thread.
    void (*join)(const barrier::Member *member);
    void (*leave)(const barrier::Member *member);
    void (*enter)(const barrier::Line *lines, std::size_t count);
    void (*exit)();
};

} // namespace singularity::client
