// SPDX-License-Identifier: GPL-2.0-or-later
// Contexts and memory. All addresses are in the session's window, all ranges multiples of kSlabUnit, unless
// it is said otherwise; the context is the one of the record.
#pragma once

#include "proxy/protocol/message.hpp"

namespace singularity::protocol {

// What slabs, host memory and reserved addresses are made of.
inline constexpr std::uint64_t kSlabUnit = std::uint64_t{2} << 20;
inline constexpr std::uint64_t kPage = 4096;

namespace detail {
[[nodiscard]] constexpr const char *wrong_range(std::uint64_t address, std::uint64_t size,
                                                std::uint64_t unit) {
    if (size == 0 || size % unit != 0 || address % unit != 0)
        return "the range is empty or not made of whole units";
    if (address + size < address)
        return "the range leaves the address space";
    return nullptr;
}
} // namespace detail

enum class ContextOrigin : std::uint32_t {
    primary = 0,
    created = 1
}; // NOLINT(performance-enum-size): as on the wire

// Makes a real context of the session's own (a primary one too). It does not become current: records say for
// which context they are. After destroy_context the handle of a primary context may be created anew.
struct CreateContext {
    static constexpr Id kId = Id::create_context;
    static constexpr const char *kName = "CreateContext";
    // affinity: CUexecAffinityParam[]
    static constexpr std::array<Buffer, 1> kBuffers{{{"affinity", 8, Nullable::yes}}};
    using Reply = Nothing;
    std::uint64_t context = 0; // the new handle, kind "context"
    std::uint32_t flags = 0;   // CUctx_flags
    std::uint32_t origin = 0;  // ContextOrigin
    [[nodiscard]] const char *wrong(const std::array<View, 1> & /*buffers*/) const {
        return origin > 1 ? "there is no such origin" : nullptr;
    }
};

// Ends the context's streams, events, modules, slabs: all that was made in it.
struct DestroyContext {
    static constexpr Id kId = Id::destroy_context;
    static constexpr const char *kName = "DestroyContext";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t context = 0;
};

// Device memory at a fixed address. Result: the driver's; OUT_OF_MEMORY where the driver grants another
// address.
struct MapSlab {
    static constexpr Id kId = Id::map_slab;
    static constexpr const char *kName = "MapSlab";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return detail::wrong_range(address, size, kSlabUnit);
    }
};

// Exactly a range of map_slab. The client has waited for the work that uses it.
struct UnmapSlab {
    static constexpr Id kId = Id::unmap_slab;
    static constexpr const char *kName = "UnmapSlab";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return detail::wrong_range(address, size, kSlabUnit);
    }
};

// cuMemAddressReserve at an address that the client has chosen; cuMemMap and the others follow as themselves.
struct ReserveAddress {
    static constexpr Id kId = Id::reserve_address;
    static constexpr const char *kName = "ReserveAddress";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return detail::wrong_range(address, size, kSlabUnit);
    }
};

// Exactly a range of reserve_address.
struct FreeAddress {
    static constexpr Id kId = Id::free_address;
    static constexpr const char *kName = "FreeAddress";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return detail::wrong_range(address, size, kSlabUnit);
    }
};

// The client's memfd that came as channel::PacketType::descriptor with this number as its ticket (before this
// record was committed), mapped in the daemon at the same address and registered with the driver. Its size is
// exactly `size`, it is sealed against shrinking and growing.
struct MapHostMemory {
    static constexpr Id kId = Id::map_host_memory;
    static constexpr const char *kName = "MapHostMemory";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t descriptor = 0;
    std::uint64_t address = 0; // in the host part of the window
    std::uint64_t size = 0;    // whole pages
    std::uint64_t flags = 0;   // CU_MEMHOSTREGISTER_*
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return detail::wrong_range(address, size, kPage);
    }
};

struct UnmapHostMemory {
    static constexpr Id kId = Id::unmap_host_memory;
    static constexpr const char *kName = "UnmapHostMemory";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return detail::wrong_range(address, size, kPage);
    }
};

struct MemoryInfoReply {
    static constexpr std::array<Buffer, 0> kBuffers{};
    std::uint64_t free = 0;
    std::uint64_t total = 0;
};

struct MemoryInfo {
    static constexpr Id kId = Id::memory_info;
    static constexpr const char *kName = "MemoryInfo";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = MemoryInfoReply;
};

// cuMemRetainAllocationHandle
struct RetainAllocation {
    static constexpr Id kId = Id::retain_allocation;
    static constexpr const char *kName = "RetainAllocation";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t allocation = 0; // the new handle, kind "allocation"
    std::uint64_t address = 0;    // mapped by cuMemMap
};

struct ShareSlabReply {
    static constexpr std::array<Buffer, 0> kBuffers{};
    std::array<std::uint64_t, 2> key{};
    std::uint64_t number = 0;
};

// Exactly a range of map_slab, and an allocation in it, which other sessions may open from now on: who knows
// the slab's key and the allocation's number. Both are the same each time.
struct ShareSlab {
    static constexpr Id kId = Id::share_slab;
    static constexpr const char *kName = "ShareSlab";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = ShareSlabReply;
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t offset = 0; // of the allocation in the slab
    std::uint64_t length = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        if (length == 0 || offset > size || length > size - offset)
            return "the allocation does not lie in the slab";
        return detail::wrong_range(address, size, kSlabUnit);
    }
};

// The allocation is freed: nobody can open it any more. Who has opened it keeps the slab.
struct EndExport {
    static constexpr Id kId = Id::end_export;
    static constexpr const char *kName = "EndExport";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t address = 0; // of the slab
    std::uint64_t offset = 0;
};

// A slab of another session of the same device's, at addresses of this session's: it becomes a slab of this
// one, which unmap_slab ends. Where it is opened already only the allocation is looked for. INVALID_VALUE:
// there is no such slab or allocation.
struct OpenSlab {
    static constexpr Id kId = Id::open_slab;
    static constexpr const char *kName = "OpenSlab";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::array<std::uint64_t, 2> key{};
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::uint64_t number = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return detail::wrong_range(address, size, kSlabUnit);
    }
};

// The first of a session that goes on after its image was restored, when the client has shared its host
// memory again: what needs it (graphs that copy from or to it) is made now.
struct FinishRestore {
    static constexpr Id kId = Id::finish_restore;
    static constexpr const char *kName = "FinishRestore";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
};

} // namespace singularity::protocol
