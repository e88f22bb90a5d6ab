// SPDX-License-Identifier: GPL-2.0-or-later
// The slabs of a context, which its daemon maps.
#include "context.hpp"
#include "log.hpp"
#include "proxy/client/forward.hpp"
#include "proxy/protocol/memory.hpp"

#include <algorithm>
#include <utility>

namespace singularity::client {

template <class Message>
std::expected<std::uint64_t, int> ContextSlabs::map_by(Message message, std::uint64_t alignment) {
    auto &session = *context_->session;
    const auto size = message.size;
    std::optional<std::uint64_t> address;
    {
        const std::scoped_lock lock(session.addresses_lock);
        address = session.addresses.allocate(size, alignment);
    }
    if (!address)
        return std::unexpected(static_cast<int>(CUDA_ERROR_OUT_OF_MEMORY));
    message.address = *address;
    const auto result =
        ask(Route{.session = &session, .context = context_}, protocol::Message<Message>{.fixed = message});
    if (result != CUDA_SUCCESS) {
        const std::scoped_lock lock(session.addresses_lock);
        session.addresses.release({.address = *address, .size = size});
        return std::unexpected(static_cast<int>(result));
    }
    const std::scoped_lock lock(lock_);
    mapped_.push_back({.address = *address, .size = size});
    return *address;
}

std::expected<std::uint64_t, int> ContextSlabs::map(std::uint64_t size, std::uint64_t alignment) {
    return map_by(protocol::MapSlab{.size = size}, alignment);
}

std::expected<std::uint64_t, int> ContextSlabs::open(const protocol::OpenSlab &message) {
    return map_by(message, SlabAllocator::kUnit);
}

std::optional<Range> ContextSlabs::around(std::uint64_t address) {
    const std::scoped_lock lock(lock_);
    const auto found = std::ranges::find_if(
        mapped_, [&](const Range &range) { return address - range.address < range.size; });
    return found == mapped_.end() ? std::nullopt : std::optional(*found);
}

void ContextSlabs::unmap(Range slab) {
    auto &session = *context_->session;
    const auto result =
        ask(Route{.session = &session, .context = context_},
            protocol::Message<protocol::UnmapSlab>{.fixed = {.address = slab.address, .size = slab.size}});
    {
        const std::scoped_lock lock(lock_);
        std::erase_if(mapped_, [&](const Range &range) { return range.address == slab.address; });
    }
    // Where it could not be unmapped its addresses must not be used again.
    if (result != CUDA_SUCCESS)
        return;
    const std::scoped_lock lock(session.addresses_lock);
    session.addresses.release(slab);
}

void ContextSlabs::forget() {
    std::vector<Range> mapped;
    {
        const std::scoped_lock lock(lock_);
        mapped = std::exchange(mapped_, {});
    }
    const std::scoped_lock lock(context_->session->addresses_lock);
    for (const auto &range : mapped)
        context_->session->addresses.release(range);
}

void ContextSlabs::end_export(std::uint64_t address) {
    const auto slab = around(address);
    if (!slab)
        return;
    const auto result = ask(Route{.session = context_->session, .context = context_},
                            protocol::Message<protocol::EndExport>{
                                .fixed = {.address = slab->address, .offset = address - slab->address}});
    if (result != CUDA_SUCCESS)
        kLog.debug("memory at {:#x} is exported no more: CUresult {}", address, static_cast<int>(result));
}

} // namespace singularity::client
