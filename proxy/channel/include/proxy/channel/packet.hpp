// SPDX-License-Identifier: GPL-2.0-or-later
// What travels over the socket of a session: the handshake, descriptors, and the rare messages that the
// daemon starts. Everything else goes through the ring.
#pragma once

#include "common/unique_fd.hpp"
#include "proxy/channel/layout.hpp"

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace singularity::channel {

inline constexpr std::uint32_t kProtocolVersion = 4;
inline constexpr std::size_t kPacketLimit = 32U << 10; // body, in bytes
inline constexpr std::size_t kDescriptorLimit = 4;     // descriptors in one packet

enum class PacketType : std::uint32_t { // NOLINT(performance-enum-size): as on the wire
    // client -> daemon
    hello = 1,         // Hello
    descriptor = 2,    // one descriptor; a later record names it by the packet's ticket
    callback_done = 3, // the host function of the callback with this ticket has returned
    identify = 4,      // instead of hello: only tell what the device is; no session begins
    paused = 5,        // Paused and a descriptor, answer to pause, with its ticket
    detached = 6,      // the last, answer to detach: the client has let go of the session
    attach = 7,        // Attach, instead of hello: the session goes on that was left here, or restored
    reported = 8,      // Barrier and a descriptor with a barrier::Report, answer to barrier, with its ticket
    aborted = 9,       // the communicator with this number is: ahead of the record that says it, which may
                       // be behind others that wait for its collectives
    // daemon -> client
    welcome = 16,  // Welcome and the segment's descriptor
    refusal = 17,  // Refusal; the client may say hello again on the same connection
    callback = 18, // Callback: call a host function, then send callback_done with the same ticket
    output = 19,   // text that the device printed, for the client's standard output
    farewell = 20, // the reason in words why the daemon ends this session; the hang-up follows
    identity = 21, // Identity, answer to identify; the hang-up follows
    pause = 22,    // Pause: no more records until resume or detach
    resume = 23,   // records again
    detach = 24,   // the session's image is complete: let go of everything and say detached
    barrier = 25,  // Barrier and a descriptor with a barrier::Request, for the whole process
};

struct PacketHeader {
    std::uint32_t type; // PacketType
    std::uint32_t size; // of the body
    std::uint64_t ticket;
};
static_assert(sizeof(PacketHeader) == 16 && std::is_trivially_copyable_v<PacketHeader>);

struct Packet {
    PacketType type{};
    std::uint64_t ticket = 0;
    std::vector<std::byte> body;
    std::vector<UniqueFd> descriptors;
};

// Which client process and which of its devices, wherever its image goes: random numbers that the process has
// made up, and the device's ordinal in it.
struct ClientKey {
    std::array<std::uint64_t, 2> process{};
    std::uint64_t ordinal = 0;
    auto operator<=>(const ClientKey &) const = default;
};

// One of the virtual devices of a node, which a process may see under another number, or not at all.
struct NodeDevice {
    std::uint32_t number = 0;
    std::uint32_t of = 1; // so many the node has
};

struct Hello {
    std::uint32_t version = kProtocolVersion;
    std::uint32_t devices = 1; // of the process: its window has a slice for each
    std::uint64_t window = 0;  // address the client wants its window at; 0: the daemon chooses
    ClientKey client{};        // several devices of a process can be one here: they have one window
    NodeDevice device{};       // the one that this session is for
};
static_assert(sizeof(Hello) == 48 && std::is_trivially_copyable_v<Hello>);

enum class RefusalReason : std::uint32_t { // NOLINT(performance-enum-size): as on the wire
    version = 1,
    window_taken = 2,   // another client has it: wish for another one
    window_invalid = 3, // not a window of this daemon: see area and size
    not_permitted = 4,  // another user's daemon
    no_room = 5,        // as many clients as --max-clients allows
    failed = 6,         // the daemon could not set the session up; text says why
    not_here = 7,       // this client has left nothing here, and no image of it was restored (yet)
    moved = 8,          // what was here has been saved for another daemon, which will come: ask again
};

struct WindowArea {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t window_size = 0; // windows begin at begin + n * window_size

    [[nodiscard]] constexpr std::uint64_t windows() const {
        return window_size == 0 || end <= begin ? 0 : (end - begin) / window_size;
    }
};

// Processes whose devices are served by different proxies now may be served by one later, and no two of them
// can have the same window then. So a process takes its window from those of its first device, of which there
// are every so many: the n-th of them, where the count begins anew behind the last. 0: there is none.
[[nodiscard]] constexpr std::uint64_t window_of(const WindowArea &area, const NodeDevice &first,
                                                std::uint64_t n) {
    const auto all = area.windows();
    if (all == 0)
        return 0;
    const auto of = first.of == 0 || first.of > all ? all : first.of;
    const auto begin = first.number % of;
    const auto own = (all - begin + of - 1) / of; // at least one
    return area.begin + ((begin + (n % own * of)) * area.window_size);
}

// A window is cut into equal slices: the first is for shared host memory, and one for each device of the
// process follows, in the order of their ordinals. A slice is a multiple of 1 GiB, and at least that.
[[nodiscard]] constexpr std::uint64_t slice_size(std::uint64_t window_size, std::uint64_t devices) {
    constexpr std::uint64_t kUnit = std::uint64_t{1} << 30;
    const auto units = window_size / (devices + 1) / kUnit;
    return (units == 0 ? 1 : units) * kUnit;
}

struct Refusal {
    std::uint32_t reason = 0; // RefusalReason
    std::uint32_t version = kProtocolVersion;
    WindowArea area;
    std::array<char, 512> text{}; // ends at its NUL
};
static_assert(std::is_trivially_copyable_v<Refusal>);

inline constexpr std::size_t kAttributeLimit = 512; // device attributes are numbered from 1

// Everything about the device that never changes while the daemon lives.
struct DeviceIdentity {
    std::array<char, 256> name{}; // ends at its NUL
    std::array<std::uint8_t, 16> uuid{};
    std::array<char, 8> luid{};
    std::uint32_t luid_node_mask = 0;
    std::uint32_t luid_valid = 0;
    std::int32_t ordinal = 0; // the back end's number of the device: what CUmemLocation::id must say
    std::uint32_t reserved = 0;
    std::uint64_t total_memory = 0;
    std::int32_t driver_version = 0; // cuDriverGetVersion
    std::int32_t compute_major = 0;
    std::int32_t compute_minor = 0;
    std::int32_t stream_priority_least = 0;
    std::int32_t stream_priority_greatest = 0;
    std::int32_t exec_affinity_sm_count = 0;              // cuDeviceGetExecAffinitySupport
    std::uint64_t allocation_granularity = 0;             // cuMemGetAllocationGranularity, minimum
    std::uint64_t allocation_granularity_recommended = 0; // the same, recommended
    std::array<char, 32> pci_bus_id{};                    // ends at its NUL
    // attributes[n] is CUdevice_attribute n if bit n of attribute_known is set; else the driver does not know
    // it.
    std::array<std::uint64_t, kAttributeLimit / 64> attribute_known{};
    std::array<std::int32_t, kAttributeLimit> attributes{};

    [[nodiscard]] bool knows_attribute(std::size_t number) const {
        return number < kAttributeLimit && ((attribute_known[number / 64] >> (number % 64)) & 1U) != 0;
    }
};
static_assert(std::is_trivially_copyable_v<DeviceIdentity>);

struct Welcome {
    std::uint32_t version = kProtocolVersion;
    std::uint32_t session = 0; // number of the session in the daemon's log
    Geometry geometry;
    std::uint64_t window = 0; // [window, window + area.window_size) is this client's
    WindowArea area;
    DeviceIdentity device;
    std::uint32_t whole = 0; // 1: answers an attach to all that the client had, nothing is to be made anew
    std::uint32_t reserved = 0;
};
static_assert(std::is_trivially_copyable_v<Welcome> && sizeof(Welcome) <= kPacketLimit);

// For who only asks (libnvidia-ml.so.1): the answer to identify.
struct Identity {
    std::uint32_t version = kProtocolVersion;
    std::uint32_t reserved = 0;
    std::uint64_t free_memory = 0; // bytes, at the time of the answer
    DeviceIdentity device;
};
static_assert(std::is_trivially_copyable_v<Identity> && sizeof(Identity) <= kPacketLimit);

// The client's threads are to stop in front of the next record.
struct Pause {
    std::uint64_t within = 0; // milliseconds; later nobody wants the answer
};
static_assert(sizeof(Pause) == 8 && std::is_trivially_copyable_v<Pause>);

// No more records come. The descriptor: a memfd with `ranges` AddressRange, the device memory that is in use,
// by address.
struct Paused {
    std::uint64_t head = 0; // the ring's position behind the last record
    std::uint64_t ranges = 0;
    std::int32_t pid = 0;            // as the client itself sees it
    std::array<char, 116> problem{}; // why it could not stop; empty: it has
};
static_assert(std::is_trivially_copyable_v<Paused>);

// A message of the barrier's (proxy/barrier) from the beginning of the memfd that comes with this.
struct Barrier {
    std::uint64_t size = 0;   // bytes
    std::uint64_t within = 0; // milliseconds in which an answer is wanted, as things are then
};
static_assert(sizeof(Barrier) == 16 && std::is_trivially_copyable_v<Barrier>);

struct AddressRange {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
};

struct Attach {
    std::uint32_t version = kProtocolVersion;
    std::uint32_t reserved = 0;
    ClientKey client;
    std::uint64_t packets = 0; // received so far: the count goes on
};
static_assert(std::is_trivially_copyable_v<Attach>);

// Host function or stream callback. function and data are the client's own numbers: the daemon never follows
// them.
struct Callback {
    std::uint64_t function = 0;
    std::uint64_t data = 0;
    std::uint64_t stream = 0; // the client's handle; for cuStreamAddCallback
    std::uint32_t kind = 0;   // CallbackKind
    std::int32_t status = 0;  // CUresult for a stream callback
};
static_assert(sizeof(Callback) == 32 && std::is_trivially_copyable_v<Callback>);

enum class CallbackKind : std::uint32_t { // NOLINT(performance-enum-size): as on the wire
    host_function = 1,                    // CUhostFn(data)
    stream_callback = 2,                  // CUstreamCallback(stream, status, data)
};

} // namespace singularity::channel
