// SPDX-License-Identifier: GPL-2.0-or-later
// A session's memory in the driver: slabs, mappings of the program, shared host memory, and whose memory it
// is.
#include "host_shares.hpp"
#include "log.hpp"
#include "session.hpp"
#include "trace.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include <sys/mman.h>

namespace singularity::proxyd {

// All of it at once: NVIDIA's driver grants a wanted address only from 32 MiB on, at a multiple of that.
CUresult Session::hold_slice() {
    const std::scoped_lock lock(slice_lock_);
    if (slice_held_)
        return CUDA_SUCCESS;
    const auto slice = place_.device_slice();
    CUdeviceptr address = 0;
    if (const auto result = driver().cuMemAddressReserve(&address, slice.size, 0, slice.address, 0);
        result != CUDA_SUCCESS)
        return result;
    // A fixed address is only a hint to the driver.
    if (address != slice.address) {
        kLog.error("{}: the driver does not grant {:#x}+{:#x} but {:#x}: something else is there; "
                   "--window-area moves the windows",
                   who(), slice.address, slice.size, address);
        static_cast<void>(driver().cuMemAddressFree(address, slice.size));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    slice_held_ = true;
    return CUDA_SUCCESS;
}

CUresult Session::map_slab(const Range &slab) {
    if (const auto result = hold_slice(); result != CUDA_SUCCESS)
        return result;
    const auto result = slabs_.map(slab.address, slab.size, slab.context, false);
    if (result != CUDA_ERROR_OUT_OF_MEMORY || residency_ == nullptr || taken_by_others() == 0 ||
        slabs_.bytes() + slab.size > residency_->room_for_one())
        return result;
    // What waits here may leave the device meanwhile, and comes back before it has more.
    gate_.leave();
    const auto asked = residency_->ask(gate_, [this, slab](bool on_host) {
        const auto back = bring_in(on_host);
        return back == CUDA_SUCCESS ? slabs_.map(slab.address, slab.size, slab.context, on_host) : back;
    });
    if (asked != CUDA_SUCCESS)
        static_cast<void>(enter());
    return asked == CUDA_ERROR_NOT_READY ? CUDA_ERROR_OUT_OF_MEMORY : asked;
}

void Session::unmap_slab(const Range &slab) {
    if (!addresses_.remove(slab))
        return;
    slabs_.unmap(slab.address, slab.size);
    if (crowded())
        residency_->look();
}

void Session::unmap_slabs_of(std::uint64_t context) {
    for (const auto &range : addresses_.all())
        if (range.kind == RangeKind::slab && range.context == context)
            unmap_slab(range);
}

void Session::unmap_host(const Range &memory) {
    if (!addresses_.remove(memory))
        return;
    HostShares::all().remove(memory.address, [&] {
        // Without a context there is nothing left to unregister: registrations end with theirs.
        if (driver().cuMemHostUnregister != nullptr)
            static_cast<void>(driver().cuMemHostUnregister(std::bit_cast<void *>(memory.address)));
        if (munmap(std::bit_cast<void *>(memory.address), memory.size) != 0)
            kLog.error("{}: {}", who(), errno_error("unmap", "shared host memory").message());
    });
}

void Session::mapped(std::uint64_t address, const MappingOf &mapping) {
    trace_made(mapping_mark(address));
    if (const auto range = addresses_.around(address, mapping.size))
        trace_used(reservation_mark(range->address));
    const std::scoped_lock lock(mappings_lock_);
    mappings_[address] = mapping;
}

void Session::unmapped(std::uint64_t address, std::uint64_t size) {
    const std::scoped_lock lock(mappings_lock_);
    std::erase_if(mappings_, [&](const auto &mapping) {
        const bool inside = mapping.first >= address && mapping.first - address < size;
        if (inside)
            trace_gone(mapping_mark(mapping.first));
        return inside;
    });
}

std::map<std::uint64_t, Session::MappingOf> Session::mappings() {
    const std::scoped_lock lock(mappings_lock_);
    return mappings_;
}

std::optional<std::uint64_t> Session::mapping_at(std::uint64_t address) {
    const std::scoped_lock lock(mappings_lock_);
    const auto after = mappings_.upper_bound(address);
    if (after == mappings_.begin())
        return std::nullopt;
    const auto &[begin, mapping] = *std::prev(after);
    return address - begin < mapping.size ? std::optional(begin) : std::nullopt;
}

bool Session::has_mappings(const Range &reservation) {
    const std::scoped_lock lock(mappings_lock_);
    const auto first = mappings_.lower_bound(reservation.address);
    return first != mappings_.end() && first->first - reservation.address < reservation.size;
}

std::map<std::uint64_t, std::uint64_t> Session::allocations() {
    const std::scoped_lock lock(mappings_lock_);
    return allocations_;
}

void Session::allocated(std::uint64_t allocation, std::uint64_t size) {
    const std::scoped_lock lock(mappings_lock_);
    allocations_[allocation] = size;
}

void Session::released(std::uint64_t allocation) {
    const std::scoped_lock lock(mappings_lock_);
    allocations_.erase(allocation);
}

bool Session::reaches(std::uint64_t address, std::uint64_t size) {
    if (addresses_.reaches(address, size))
        return true;
    // In a window it is this session's or nobody's.
    if (addresses_.in_window(address, 0))
        return false;
    // Variables of modules lie where the driver has put them. Host memory of this process, or another
    // session's memory, is what it must not be.
    const auto &calls = driver();
    if (calls.cuPointerGetAttribute == nullptr)
        return false;
    CUcontext context = nullptr;
    unsigned type = 0;
    CUdeviceptr start = 0;
    std::size_t length = 0;
    const auto ask = [&](void *value, CUpointer_attribute attribute) {
        return calls.cuPointerGetAttribute(value, attribute, address) == CUDA_SUCCESS;
    };
    if (!ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) || type != CU_MEMORYTYPE_DEVICE ||
        !ask(&context, CU_POINTER_ATTRIBUTE_CONTEXT) || !ask(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) ||
        !ask(&length, CU_POINTER_ATTRIBUTE_RANGE_SIZE))
        return false;
    const auto mine = objects_.all(driver_api::kHandleContext);
    if (std::ranges::find(mine, std::bit_cast<std::uint64_t>(context)) == mine.end())
        return false;
    addresses_.remember_foreign(start, length);
    return addresses_.knows_foreign(address, size);
}

void Session::capture_began(std::uint64_t stream) {
    const std::scoped_lock lock(captures_lock_);
    captured_streams_.insert(stream);
    captures_.store(captured_streams_.size(), std::memory_order_relaxed);
}

void Session::recount_captures() {
    if (!captures())
        return;
    const Tracing unseen(nullptr); // no part of the call that it follows
    const std::scoped_lock lock(captures_lock_);
    std::erase_if(captured_streams_, [this](std::uint64_t stream) {
        const auto real = objects_.real(driver_api::kHandleStream, stream);
        return !real || !capturing(std::bit_cast<CUstream>(*real));
    });
    captures_.store(captured_streams_.size(), std::memory_order_relaxed);
}

bool Session::capturing(CUstream stream) {
    if (captures_.load(std::memory_order_relaxed) == 0 || driver().cuStreamIsCapturing == nullptr)
        return false;
    auto status = CU_STREAM_CAPTURE_STATUS_NONE;
    return driver().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

} // namespace singularity::proxyd
