// SPDX-License-Identifier: GPL-2.0-or-later
#include "opened_memory.hpp"

#include "proxy/protocol/memory.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>

#include <sys/utsname.h>

namespace singularity::client {

namespace {

using Key = std::array<std::uint64_t, 2>;

struct OpenedSlab {
    Range range;
    Context *context = nullptr;
    std::map<std::uint64_t, unsigned> counts; // by address: how often it was opened
};

struct OpenedSlabs {
    std::mutex lock; // held while daemons are asked: a slab is opened once
    std::map<Key, OpenedSlab> slabs;
    std::set<Key> own; // that this process has exported
};

OpenedSlabs &opened() {
    static auto &instance = *std::make_unique<OpenedSlabs>().release(); // see process()
    return instance;
}

// FNV-1a
std::uint64_t digest_of(std::string_view text) {
    std::uint64_t sum = 0xcbf2'9ce4'8422'2325;
    for (const char one : text)
        sum = (sum ^ static_cast<unsigned char>(one)) * 0x100'0000'01b3;
    return sum;
}

} // namespace

std::uint64_t this_place() {
    struct utsname name{};
    return uname(&name) == 0 ? digest_of(name.nodename) : 0;
}

CUresult export_memory(const DeviceAllocation &allocation, MemoryHandle &handle) {
    auto &context = *allocation.context;
    const auto slab = context.slabs.around(allocation.range.address);
    if (!slab)
        return CUDA_ERROR_INVALID_VALUE;
    const protocol::ShareSlab message{.address = slab->address,
                                      .size = slab->size,
                                      .offset = allocation.range.address - slab->address,
                                      .length = allocation.range.size};
    auto &all = opened();
    const std::scoped_lock lock(all.lock);
    const auto result =
        ask(Route{.session = context.session, .context = &context},
            protocol::Message<protocol::ShareSlab>{.fixed = message}, 0, [&](const auto &reply) {
                handle = {.place = this_place(),
                          .key = reply.fixed.key,
                          .number = reply.fixed.number,
                          .offset = message.offset,
                          .length = message.length,
                          .slab = message.size};
                all.own.insert(reply.fixed.key);
            });
    if (result != CUDA_SUCCESS)
        return result;
    return export_device(allocation.range.address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult open_memory(Context &context, const MemoryHandle &handle, std::uint64_t &address) {
    const auto &slice = context.session->slice;
    if (handle.magic != MemoryHandle::kMagic || handle.place != this_place() || handle.slab == 0 ||
        handle.slab % protocol::kSlabUnit != 0 || handle.slab > slice.size || handle.length == 0 ||
        handle.offset > handle.slab || handle.length > handle.slab - handle.offset)
        return CUDA_ERROR_INVALID_VALUE;
    auto &all = opened();
    const std::scoped_lock lock(all.lock);
    // What the driver says of a process's own handle.
    if (all.own.contains(handle.key))
        return CUDA_ERROR_INVALID_CONTEXT;
    protocol::OpenSlab message{.size = handle.slab,
                               .key = handle.key,
                               .offset = handle.offset,
                               .length = handle.length,
                               .number = handle.number};
    auto known = all.slabs.find(handle.key);
    if (known == all.slabs.end()) {
        const auto begin = context.slabs.open(message);
        if (!begin)
            return static_cast<CUresult>(begin.error());
        known = all.slabs
                    .emplace(handle.key, OpenedSlab{.range = {.address = *begin, .size = handle.slab},
                                                    .context = &context,
                                                    .counts = {}})
                    .first;
    } else {
        // In one context of a process only (cuda.h, cuIpcOpenMemHandle).
        if (known->second.context != &context)
            return CUDA_ERROR_INVALID_CONTEXT;
        message.address = known->second.range.address;
        if (const auto bad = ask(Route{.session = context.session, .context = &context},
                                 protocol::Message<protocol::OpenSlab>{.fixed = message});
            bad != CUDA_SUCCESS)
            return bad;
    }
    address = known->second.range.address + handle.offset;
    ++known->second.counts[address];
    note_opened({.address = address, .size = handle.length}, context);
    return CUDA_SUCCESS;
}

CUresult close_memory(std::uint64_t address) {
    auto &all = opened();
    const std::scoped_lock lock(all.lock);
    for (auto slab = all.slabs.begin(); slab != all.slabs.end(); ++slab) {
        auto &[range, context, counts] = slab->second;
        const auto found = counts.find(address);
        if (found == counts.end())
            continue;
        if (--found->second != 0)
            return CUDA_SUCCESS;
        // As when memory is freed: what still uses it must be over.
        const auto result = synchronize_context({.session = context->session, .context = context});
        counts.erase(found);
        forget_opened_device(address);
        if (counts.empty()) {
            context->slabs.unmap(range);
            all.slabs.erase(slab);
        }
        return result;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

void forget_opened(const Context &context) {
    auto &all = opened();
    const std::scoped_lock lock(all.lock);
    std::erase_if(all.slabs, [&](const auto &entry) { return entry.second.context == &context; });
}

} // namespace singularity::client
