// SPDX-License-Identifier: GPL-2.0-or-later
// Launches, host functions, and streams.
#pragma once

#include "proxy/protocol/message.hpp"

namespace singularity::protocol {

// CUlaunchAttribute as it is. Events in it (launch completion, programmatic event) are handles; attributes
// that hold pointers to the caller's memory or device nodes do not travel.
struct LaunchAttribute {
    std::uint32_t id = 0;
    std::uint32_t reserved = 0;
    std::array<std::byte, 64> value{};
};

// What is launched; also the body of a kernel node (graph.hpp).
struct LaunchShape {
    std::uint64_t function = 0; // a handle of kind "function" or "kernel"
    std::array<std::uint32_t, 3> grid{};
    std::array<std::uint32_t, 3> block{};
    std::uint32_t shared_bytes = 0;
    std::uint32_t flags = 0; // LaunchFlag
};

inline constexpr std::uint32_t kLaunchCooperative = 1; // cuLaunchCooperativeKernel
inline constexpr std::uint32_t kLaunchWithConfig = 2;  // cuLaunchKernelEx, even without attributes
inline constexpr std::uint32_t kKnownLaunchFlags = 3;

// parameters: the kernel's parameter buffer as the device sees it (layout: function_layout, or the `extra`
// form of the program), for CU_LAUNCH_PARAM_BUFFER_POINTER.
struct LaunchKernel {
    static constexpr Id kId = Id::launch_kernel;
    static constexpr const char *kName = "LaunchKernel";
    static constexpr std::array<Buffer, 2> kBuffers{
        {{"parameters"}, {"attributes", sizeof(LaunchAttribute), Nullable::yes}}};
    using Reply = NoReply;
    LaunchShape shape{};
    std::uint64_t stream = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 2> &buffers) const {
        if (buffers[0].bytes.size() > kMostParameters)
            return "more parameters than a kernel can have";
        if (buffers[1].bytes.size() > kMostLaunchAttributes * sizeof(LaunchAttribute))
            return "more attributes than there are";
        return (shape.flags & ~kKnownLaunchFlags) != 0 ? "unknown flags" : nullptr;
    }
};

// cuLaunchHostFunc and cuStreamAddCallback. The daemon's callback sends a channel::Callback with these
// numbers and waits for its acknowledgement. Captured into a graph, it is called each time that the graph
// runs.
struct LaunchHostFunction {
    static constexpr Id kId = Id::launch_host_function;
    static constexpr const char *kName = "LaunchHostFunction";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = NoReply;
    std::uint64_t stream = 0;
    std::uint64_t function = 0; // the client's own numbers: the daemon never follows them
    std::uint64_t data = 0;
    std::uint32_t kind = 0;  // channel::CallbackKind
    std::uint32_t flags = 0; // of cuStreamAddCallback
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return kind != 1 && kind != 2 ? "there is no such kind" : nullptr;
    }
};

enum class ClusterQuestion : std::uint32_t { // NOLINT(performance-enum-size): as on the wire
    most_active_clusters = 0,                // cuOccupancyMaxActiveClusters
    potential_cluster_size = 1,              // cuOccupancyMaxPotentialClusterSize
    end
};

struct OccupancyReply {
    static constexpr std::array<Buffer, 0> kBuffers{};
    std::int32_t value = 0;
    std::uint32_t reserved = 0;
};

struct OccupancyOfClusters {
    static constexpr Id kId = Id::occupancy_of_clusters;
    static constexpr const char *kName = "OccupancyOfClusters";
    static constexpr std::array<Buffer, 1> kBuffers{{{"attributes", sizeof(LaunchAttribute), Nullable::yes}}};
    using Reply = OccupancyReply;
    LaunchShape shape{};
    std::uint32_t question = 0; // ClusterQuestion
    std::uint32_t reserved = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 1> & /*buffers*/) const {
        return question >= static_cast<std::uint32_t>(ClusterQuestion::end) ? "there is no such question"
                                                                            : nullptr;
    }
};

// Where pairs of multiprocessors lie, as the driver tells it to cuBLASLt: for each pair a byte with its group
// and one with its place in it.
inline constexpr std::size_t kMostProcessorPairs = 4096;

struct ProcessorPlacesReply {
    static constexpr std::array<Buffer, 2> kBuffers{
        {{"groups", 1, Nullable::yes}, {"positions", 1, Nullable::yes}}};
};

struct ProcessorPlaces {
    static constexpr Id kId = Id::processor_places;
    static constexpr const char *kName = "ProcessorPlaces";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = ProcessorPlacesReply;
};

// CUlaunchAttributeValue as it is.
struct AttributeValue {
    static constexpr std::array<Buffer, 0> kBuffers{};
    std::array<std::byte, 64> value{};
};

struct GetStreamAttribute {
    static constexpr Id kId = Id::get_stream_attribute;
    static constexpr const char *kName = "GetStreamAttribute";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = AttributeValue;
    std::uint64_t stream = 0;
    std::uint32_t attribute = 0;
    std::uint32_t reserved = 0;
};

struct SetStreamAttribute {
    static constexpr Id kId = Id::set_stream_attribute;
    static constexpr const char *kName = "SetStreamAttribute";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t stream = 0;
    std::uint32_t attribute = 0;
    std::uint32_t reserved = 0;
    std::array<std::byte, 64> value{};
};

struct CaptureInfoReply {
    // dependencies: handles of kind "graph_node"; edges: CUgraphEdgeData, as many or absent
    static constexpr std::array<Buffer, 2> kBuffers{
        {{"dependencies", 8, Nullable::yes}, {"edges", 8, Nullable::yes}}};
    std::uint32_t status = 0; // CUstreamCaptureStatus
    std::uint32_t reserved = 0;
    std::uint64_t id = 0;
    std::uint64_t graph = 0; // a handle; 0: not capturing
};

// cuStreamGetCaptureInfo, version 2 or 3.
struct CaptureInfo {
    static constexpr Id kId = Id::capture_info;
    static constexpr const char *kName = "CaptureInfo";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = CaptureInfoReply;
    std::uint64_t stream = 0;
};

// Other sessions of the same device's may open the event: who knows the key, random numbers that the client
// has made up. INVALID_VALUE: the event is shared already, or the key taken.
struct ShareEvent {
    static constexpr Id kId = Id::share_event;
    static constexpr const char *kName = "ShareEvent";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t event = 0;
    std::array<std::uint64_t, 2> key{};
};

// An event of the record's context that stands for another session's. INVALID_VALUE: nobody has one with this
// key.
struct OpenEvent {
    static constexpr Id kId = Id::open_event;
    static constexpr const char *kName = "OpenEvent";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t event = 0; // the new handle, kind "event"
    std::array<std::uint64_t, 2> key{};
};

} // namespace singularity::protocol
