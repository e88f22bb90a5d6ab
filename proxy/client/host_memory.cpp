// SPDX-License-Identifier: GPL-2.0-or-later
// Host memory that daemons reach: memfds, mapped at the same address in this process and in every daemon.
//
// Memory of the program's own that is registered becomes such memory: its pages are replaced by a memfd's,
// which is also mapped in the window; daemons know it by that second address (and cuMemHostGetDevicePointer
// gives it). Limits: the memory must be private (a mapping that other processes share would no longer be
// shared with them) and not the calling thread's stack; a child made by fork shares it with its parent. What
// other threads write meanwhile: see page_swap.hpp.
//
// Drivers bind a registration to the context that was current, but it is valid for all (PORTABLE). When that
// context ends another one registers the memory again; work that uses it just then would find it gone.
#include "attachment.hpp"
#include "common/unique_fd.hpp"
#include "log.hpp"
#include "memory.hpp"
#include "page_swap.hpp"
#include "proxy/channel/packet.hpp"
#include "proxy/protocol/memory.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace singularity::client {

namespace {

constexpr std::chrono::seconds kShareSend{10};

void *host_pointer(std::uint64_t address) { return std::bit_cast<void *>(address); }

std::atomic<std::uint64_t> next_descriptor = 1;
std::atomic<std::uint64_t> next_host_id = std::uint64_t{1} << 40; // not those of device memory

CUresult of_errno(const char *doing) {
    const int code = errno;
    kLog.error("{}", errno_error(doing, "host memory for the device proxy", code).message());
    return code == ENOMEM || code == EMFILE || code == ENFILE ? CUDA_ERROR_OUT_OF_MEMORY
                                                              : CUDA_ERROR_OPERATING_SYSTEM;
}

// A memfd whose size never changes: the daemon must not be killed by touching what is no longer there.
CUresult make_file(std::uint64_t size, UniqueFd &file) {
    UniqueFd made(memfd_create("cuda-host-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!made || ftruncate(made.get(), static_cast<off_t>(size)) != 0 ||
        fcntl(made.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return of_errno("make");
    file = std::move(made);
    return CUDA_SUCCESS;
}

// One memfd that daemons have, or will have when they get a context.
struct SharedFile {
    Range range;
    UniqueFd file;
    std::vector<Context *> contexts; // by device: in which it is registered; nullptr: in none
};

struct SharedFiles {
    std::mutex lock;
    std::map<std::uint64_t, SharedFile> files; // by address
};

SharedFiles &shared_files() {
    static auto &instance = *std::make_unique<SharedFiles>().release(); // see process()
    return instance;
}

std::size_t index_of(const Session &session) { return static_cast<std::size_t>(session.ordinal()); }

// With the lock held.
CUresult map_in(SharedFile &shared, Context &context) {
    auto &session = *context.session;
    const auto number = next_descriptor.fetch_add(1);
    const int descriptors[] = {shared.file.get()};
    if (!session.end().link().send(channel::PacketType::descriptor, number, {}, descriptors,
                                   Deadline::after(kShareSend)))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    const auto result =
        ask(Route{.session = &session, .context = &context},
            protocol::Message<protocol::MapHostMemory>{
                .fixed = {.descriptor = number,
                          .address = shared.range.address,
                          .size = shared.range.size,
                          .flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP}});
    if (result == CUDA_SUCCESS)
        shared.contexts[index_of(session)] = &context;
    return result;
}

// With the lock held.
CUresult unmap_in(SharedFile &shared, Session &session) {
    auto *const context = std::exchange(shared.contexts[index_of(session)], nullptr);
    if (context == nullptr)
        return CUDA_SUCCESS;
    return ask(Route{.session = &session, .context = context->alive ? context : nullptr},
               protocol::Message<protocol::UnmapHostMemory>{
                   .fixed = {.address = shared.range.address, .size = shared.range.size}});
}

CUresult unmap_in_daemons(Range range) {
    const Undivided undivided;
    auto &all = shared_files();
    const std::scoped_lock lock(all.lock);
    const auto found = all.files.find(range.address);
    if (found == all.files.end())
        return CUDA_SUCCESS;
    CUresult first = CUDA_SUCCESS;
    for (const auto &session : process().sessions)
        if (const auto result = unmap_in(found->second, *session);
            result != CUDA_SUCCESS && first == CUDA_SUCCESS)
            first = result;
    all.files.erase(found);
    return first;
}

// Every daemon that has a context has it, or none. `context`: of whoever asks for the memory; may be nullptr.
CUresult map_in_daemons(UniqueFd file, Range range, Context *context) {
    const Undivided undivided;
    auto &all = shared_files();
    CUresult result = CUDA_SUCCESS;
    {
        const std::scoped_lock lock(all.lock);
        auto &shared = all.files[range.address];
        shared.range = range;
        shared.file = std::move(file);
        shared.contexts.assign(process().sessions.size(), nullptr);
        for (const auto &session : process().sessions) {
            Route route;
            if (context != nullptr && context->session == session.get())
                route = {.session = session.get(), .context = context};
            else if (route_to(*session, route) != CUDA_SUCCESS)
                continue; // when it gets a context
            result = map_in(shared, *route.context);
            if (result != CUDA_SUCCESS)
                break;
        }
    }
    if (result != CUDA_SUCCESS)
        static_cast<void>(unmap_in_daemons(range));
    return result;
}

std::optional<std::uint64_t> take_addresses(std::uint64_t size) {
    auto &mine = process();
    const std::scoped_lock lock(mine.host_addresses_lock);
    return mine.host_addresses.allocate(size, protocol::kSlabUnit);
}

// The window stays reserved where nothing is mapped.
void give_addresses_back(Range range) {
    mmap(host_pointer(range.address), range.size, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    auto &mine = process();
    const std::scoped_lock lock(mine.host_addresses_lock);
    mine.host_addresses.release(
        {.address = range.address, .size = round_up(range.size, protocol::kSlabUnit)});
}

class HostSlabs : public SlabSource {
  public:
    [[nodiscard]] std::expected<std::uint64_t, int> map(std::uint64_t size,
                                                        std::uint64_t /*alignment*/) override {
        const auto address = take_addresses(size);
        if (!address)
            return std::unexpected(static_cast<int>(CUDA_ERROR_OUT_OF_MEMORY));
        const Range range{.address = *address, .size = size};
        UniqueFd file;
        auto result = make_file(size, file);
        if (result == CUDA_SUCCESS && mmap(host_pointer(*address), size, PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_FIXED, file.get(), 0) == MAP_FAILED)
            result = of_errno("map");
        if (result == CUDA_SUCCESS)
            result = map_in_daemons(std::move(file), range, current_context);
        if (result != CUDA_SUCCESS) {
            give_addresses_back(range);
            return std::unexpected(static_cast<int>(result));
        }
        return *address;
    }
    void unmap(Range slab) override {
        if (unmap_in_daemons(slab) == CUDA_SUCCESS)
            give_addresses_back(slab);
    }
};

struct Hosts {
    HostSlabs slabs;
    SlabAllocator memory{slabs};
    std::shared_mutex lock;
    std::atomic<bool> any_registered = false;
    RangeMap<HostAllocation> allocations; // those in the window and those registered
};

Hosts &hosts() {
    static auto &instance = *std::make_unique<Hosts>().release(); // see process()
    return instance;
}

// --- Registration

struct Mapping {
    Range range;
    bool readable = false;
    bool writable = false;
    bool shared = false;
};

// The mappings of this process that touch the range, in order.
std::vector<Mapping> mappings_of(Range range) {
    std::vector<Mapping> found;
    std::ifstream maps("/proc/self/maps");
    std::string line;
    while (std::getline(maps, line)) {
        unsigned long long begin = 0;
        unsigned long long end = 0;
        char rights[5] = {};
        if (std::sscanf(line.c_str(), "%llx-%llx %4s", &begin, &end, rights) != 3)
            continue;
        if (begin < range.end() && end > range.address)
            found.push_back({.range = {.address = begin, .size = end - begin},
                             .readable = rights[0] == 'r',
                             .writable = rights[1] == 'w',
                             .shared = rights[3] == 's'});
    }
    return found;
}

// Why memory cannot be registered; nullptr: it can.
const char *unfit(Range pages, const std::vector<Mapping> &mappings) {
    std::uint64_t at = pages.address;
    for (const auto &mapping : mappings) {
        if (mapping.range.address > at)
            break;
        if (mapping.shared)
            return "it is shared with other processes";
        if (!mapping.readable || !mapping.writable)
            return "it is not readable and writable";
        at = mapping.range.end();
    }
    if (at < pages.end())
        return "part of it is not mapped";
    const auto here = std::bit_cast<std::uint64_t>(__builtin_frame_address(0));
    if (pages.contains(here))
        return "it is the calling thread's stack";
    return nullptr;
}

Range pages_of(std::uint64_t address, std::uint64_t size) {
    const auto begin = address / protocol::kPage * protocol::kPage;
    return {.address = begin, .size = round_up(address + size, protocol::kPage) - begin};
}

} // namespace

std::optional<HostAllocation> find_host(std::uint64_t address) {
    auto &mine = hosts();
    if (!mine.any_registered.load(std::memory_order_acquire) && !process().window.host().contains(address))
        return std::nullopt;
    const std::shared_lock lock(mine.lock);
    const auto *entry = mine.allocations.find(address);
    return entry == nullptr ? std::nullopt : std::optional(entry->thing);
}

std::optional<Range> find_host_wire(std::uint64_t wire) {
    auto &mine = hosts();
    const std::shared_lock lock(mine.lock);
    if (const auto *entry = mine.allocations.find(wire);
        entry != nullptr && entry->thing.wire == entry->range.address)
        return entry->thing.range;
    if (!mine.any_registered.load(std::memory_order_acquire))
        return std::nullopt;
    for (auto &[address, entry] : mine.allocations) {
        const Range alias{.address = entry.thing.wire, .size = entry.thing.range.size};
        if (entry.thing.kind == HostKind::registered && alias.contains(wire, 1))
            return alias;
    }
    return std::nullopt;
}

CUresult share_host_memory_again(Session &session) {
    auto &all = shared_files();
    const std::scoped_lock lock(all.lock);
    for (auto &[address, shared] : all.files)
        if (auto *const context = shared.contexts[index_of(session)]; context != nullptr)
            if (const auto result = map_in(shared, *context); result != CUDA_SUCCESS)
                return result;
    return CUDA_SUCCESS;
}

CUresult share_host_memory(Context &context) {
    const Undivided undivided;
    auto &all = shared_files();
    const std::scoped_lock lock(all.lock);
    for (auto &[address, shared] : all.files)
        if (shared.contexts[index_of(*context.session)] == nullptr)
            if (const auto result = map_in(shared, context); result != CUDA_SUCCESS)
                return result;
    return CUDA_SUCCESS;
}

void unshare_host_memory(Context &context) {
    const Undivided undivided;
    auto &all = shared_files();
    const std::scoped_lock lock(all.lock);
    for (auto &[address, shared] : all.files) {
        if (shared.contexts[index_of(*context.session)] != &context)
            continue;
        // What cannot be told to a dead daemon need not be told.
        static_cast<void>(unmap_in(shared, *context.session));
        Route route;
        if (route_to(*context.session, route) == CUDA_SUCCESS)
            static_cast<void>(map_in(shared, *route.context));
    }
}

CUresult allocate_host(std::uint64_t size, HostKind kind, unsigned flags, Context &context, void *&out) {
    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    auto &mine = hosts();
    // Whole pages: programs use such memory for O_DIRECT and the like.
    if (size > ~std::uint64_t{0} - protocol::kPage)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const auto address = mine.memory.allocate(round_up(size, protocol::kPage));
    if (!address)
        return static_cast<CUresult>(address.error());
    const Range range{.address = *address, .size = size};
    const std::unique_lock lock(mine.lock);
    mine.allocations.add(range, {.range = range,
                                 .wire = *address,
                                 .kind = kind,
                                 .flags = flags,
                                 .context = &context,
                                 .id = next_host_id.fetch_add(1)});
    out = host_pointer(*address);
    return CUDA_SUCCESS;
}

CUresult release_host(std::uint64_t address, HostKind kind) {
    auto &mine = hosts();
    {
        const std::shared_lock lock(mine.lock);
        const auto *entry = mine.allocations.find_exact(address);
        if (entry == nullptr || entry->thing.kind != kind)
            return CUDA_ERROR_INVALID_VALUE;
    }
    const auto result = synchronize_all();
    {
        const std::unique_lock lock(mine.lock);
        mine.allocations.remove(address);
    }
    static_cast<void>(mine.memory.release(address));
    return result;
}

CUresult register_host(void *memory, std::uint64_t size, unsigned flags, Context &context) {
    auto &mine = hosts();
    const auto address = std::bit_cast<std::uint64_t>(memory);
    if (memory == nullptr || size == 0 || address + size < address)
        return CUDA_ERROR_INVALID_VALUE;
    const auto pages = pages_of(address, size);
    const std::unique_lock lock(mine.lock);
    if (mine.allocations.overlaps(pages) || process().window.whole.contains(address))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (const char *why = unfit(pages, mappings_of(pages)); why != nullptr) {
        kLog.warning("cannot register {} bytes of host memory at {:#x}: {}", size, address, why);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const auto alias = take_addresses(round_up(pages.size, protocol::kSlabUnit));
    if (!alias)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const Range window{.address = *alias, .size = pages.size};
    UniqueFd file;
    auto result = make_file(pages.size, file);
    if (result == CUDA_SUCCESS && mmap(host_pointer(*alias), pages.size, PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_FIXED, file.get(), 0) == MAP_FAILED)
        result = of_errno("map");
    const int file_of_pages = file.get(); // stays open with the memory
    if (result == CUDA_SUCCESS)
        result = map_in_daemons(std::move(file), window, &context);
    if (result == CUDA_SUCCESS && !share_pages(pages, *alias, file_of_pages)) {
        result = of_errno("register");
        static_cast<void>(unmap_in_daemons(window));
    }
    if (result != CUDA_SUCCESS) {
        give_addresses_back(window);
        return result;
    }
    // Whole pages are taken, so that nothing else is registered on them.
    mine.allocations.add(pages, {.range = {.address = address, .size = size},
                                 .wire = *alias + (address - pages.address),
                                 .kind = HostKind::registered,
                                 .flags = flags,
                                 .context = &context,
                                 .id = next_host_id.fetch_add(1)});
    mine.any_registered.store(true, std::memory_order_release);
    return CUDA_SUCCESS;
}

CUresult unregister_host(const void *memory) {
    auto &mine = hosts();
    const auto address = std::bit_cast<std::uint64_t>(memory);
    if (const auto result = synchronize_all(); result == CUDA_ERROR_DEVICE_UNAVAILABLE)
        return result;
    const std::unique_lock lock(mine.lock);
    const auto *entry = mine.allocations.find(address);
    if (entry == nullptr || entry->thing.kind != HostKind::registered ||
        entry->thing.range.address != address)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    const auto pages = entry->range;
    const Range alias{.address = entry->thing.wire - (address - pages.address), .size = pages.size};
    if (!unshare_pages(pages, alias.address))
        return of_errno("unregister");
    mine.allocations.remove(pages.address);
    const auto result = unmap_in_daemons(alias);
    if (result == CUDA_SUCCESS)
        give_addresses_back(alias);
    return result;
}

} // namespace singularity::client
