// SPDX-License-Identifier: GPL-2.0-or-later
// What lies at an address, and the memory that the client shares with its daemons.
#pragma once

#include "context.hpp"
#include "objects.hpp"
#include "proxy/channel/packet.hpp"
#include "proxy/client/forward.hpp"
#include "ranges.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace singularity::client {

enum class Where : std::uint8_t {
    pageable,    // the program's own memory, out of the daemons' reach
    shared_host, // pinned, managed or registered: at the wire address in this process and in the daemons
    device,
};

struct Location {
    Where where = Where::pageable;
    Session *session = nullptr; // of device memory
    std::uint64_t wire = 0;     // the address as daemons know it; of pageable memory the program's
};
[[nodiscard]] Location locate(std::uint64_t address);
[[nodiscard]] inline Location locate(const void *address) {
    return locate(std::bit_cast<std::uint64_t>(address));
}

// --- Shared host memory

enum class HostKind : std::uint8_t { pinned, managed, registered };

struct HostAllocation {
    Range range;            // as the program sees it
    std::uint64_t wire = 0; // where range.address is for daemons
    HostKind kind = HostKind::pinned;
    unsigned flags = 0; // CU_MEMHOSTALLOC_*, CU_MEMHOSTREGISTER_*, CU_MEM_ATTACH_*
    Context *context = nullptr;
    std::uint64_t id = 0;
};

[[nodiscard]] CUresult allocate_host(std::uint64_t size, HostKind kind, unsigned flags, Context &context,
                                     void *&out);
// NOT a pinned allocation's begin: INVALID_VALUE.
[[nodiscard]] CUresult release_host(std::uint64_t address, HostKind kind);
[[nodiscard]] CUresult register_host(void *address, std::uint64_t size, unsigned flags, Context &context);
[[nodiscard]] CUresult unregister_host(const void *address);
[[nodiscard]] std::optional<HostAllocation> find_host(std::uint64_t address);
// By the address that daemons know: what of it is allocated.
[[nodiscard]] std::optional<Range> find_host_wire(std::uint64_t wire);

// A device's driver registers host memory in a context. The memory is one for all contexts, so the first
// context of a device does it, and when that ends the next one.
[[nodiscard]] CUresult share_host_memory(Context &context);
void unshare_host_memory(Context &context);

// --- Device memory that is in no slab: variables of modules, mappings of the virtual memory API

struct DeviceRange {
    Range range;
    Session *session = nullptr;
    Context *context = nullptr;
};
// Variables: addresses that the driver has chosen, anywhere.
void note_variable(const DeviceRange &variable);
[[nodiscard]] std::optional<DeviceRange> find_variable(std::uint64_t address);
void note_mapping(const DeviceRange &mapping);
void forget_mapping(std::uint64_t address);
[[nodiscard]] std::optional<DeviceRange> find_mapping(std::uint64_t address);

// --- Device memory in slabs

// Where memory that is freed in stream order is counted until it is used again.
inline constexpr std::uint64_t kFreedPool = 1;

// Of memory that several processes have (cuIpc*).
enum class Shared : std::uint8_t { no, exported, opened };

struct DeviceAllocation {
    Range range;
    Context *context = nullptr;
    std::uint64_t id = 0;
    std::uint64_t pool = 0; // handle; 0: cuMemAlloc
    Shared shared = Shared::no;
};
[[nodiscard]] CUresult allocate_device(Context &context, std::uint64_t size, std::uint64_t pool,
                                       std::uint64_t &address);
// The work that uses it is over. nothing: no allocation begins there.
[[nodiscard]] bool release_device(std::uint64_t address);
[[nodiscard]] std::optional<DeviceAllocation> find_device(std::uint64_t address);
// Memory that has been freed in stream order is used again as another allocation, not longer than it was.
void rename_device(std::uint64_t address, std::uint64_t size, std::uint64_t pool);
// Other processes may have it from now on; whether it is still there.
[[nodiscard]] bool export_device(std::uint64_t address);
// Memory of another process's, which is there already, as an allocation of this context's; and its end.
void note_opened(const Range &range, Context &context);
void forget_opened_device(std::uint64_t address);
// Allocated from a pool and not freed.
[[nodiscard]] std::uint64_t pool_bytes(std::uint64_t pool);
void forget_device_memory(const Context &context);
// What of a device's slabs is in use, by address, for its image; ranges side by side are one.
[[nodiscard]] std::vector<channel::AddressRange> device_memory_of(const Session &session);

// Whether all of a range is memory that somebody has allocated.
[[nodiscard]] bool is_allocated(const Location &location, std::uint64_t size);

// The context that memory of a device belongs to; nullptr: nobody's.
[[nodiscard]] Context *owner_of(std::uint64_t address);
// Which context a call about a device's memory may use: the current one if it is on that device, else the
// memory's own, else the primary one.
[[nodiscard]] CUresult route_to(Session &session, Route &route, Context *owner = nullptr);
// Waits for all work of all contexts' of all devices that have a primary context or are current here.
[[nodiscard]] CUresult synchronize_all();
[[nodiscard]] CUresult synchronize_context(const Route &route);

} // namespace singularity::client
