// SPDX-License-Identifier: GPL-2.0-or-later
// The virtual memory API: addresses are of the window, physical memory is the daemon's. A range belongs to
// one device.
#include "memory.hpp"
#include "proxy/protocol/memory.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

using namespace singularity;
using namespace singularity::client;

namespace {

struct Reservation {
    Range range; // as taken from the window
    Session *session;
};

struct Reservations {
    std::mutex lock;
    RangeMap<Reservation> ranges;
};

Reservations &reservations() {
    static auto &instance = *std::make_unique<Reservations>().release(); // see process()
    return instance;
}

// The device in whose slice an address lies.
CUresult session_at(std::uint64_t address, Session *&session) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    const auto location = locate(address);
    if (location.where != Where::device)
        return CUDA_ERROR_INVALID_VALUE;
    session = location.session;
    return CUDA_SUCCESS;
}

// Calls about addresses need no context.
Route route_on(Session &session) {
    Route route;
    if (route_to(session, route) != CUDA_SUCCESS)
        route = {.session = &session, .context = nullptr};
    return route;
}

// In the daemon the device has another number.
CUresult translated(const CUmemLocation &location, Session *&session, CUmemLocation &out) {
    out = location;
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED; // host memory under the virtual memory API
    session = process().session(location.id);
    if (session == nullptr)
        return CUDA_ERROR_INVALID_DEVICE;
    out.id = session->device().ordinal;
    return CUDA_SUCCESS;
}

CUresult translated(const CUmemAllocationProp *prop, Session *&session, CUmemAllocationProp &out) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (prop == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED; // memory of other processes
    out = *prop;
    out.win32HandleMetaData = nullptr;
    return translated(prop->location, session, out.location);
}

// A generated message on a route of our own; `finish` as in send_sync.
template <class Request, class Decode, class Finish>
CUresult send_on(const Route &route, Request &request, Decode decode, Finish finish) {
    const auto outputs = output_size(request);
    if (!outputs)
        return CUDA_ERROR_INVALID_VALUE;
    const Encoded encoded([&](std::span<std::byte> storage) { return encode(request, storage); });
    const Exchange exchange(route, encoded.bytes(), static_cast<std::size_t>(*outputs) + kReplyOverhead);
    if (exchange.failure() != CUDA_SUCCESS)
        return exchange.failure();
    const auto reply = decode(exchange.reply());
    if (!reply)
        return broken(route, reply.error());
    note_result(route.context, static_cast<CUresult>(reply->driver_result));
    if (reply->driver_result == CUDA_SUCCESS)
        finish(*reply);
    return static_cast<CUresult>(reply->driver_result);
}

std::unique_ptr<Object> object_on(Session &session) {
    auto object = std::make_unique<Object>();
    object->session = &session;
    return object;
}

} // namespace

extern "C" {

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (ptr == nullptr || size == 0 || size % protocol::kSlabUnit != 0 || flags != 0 ||
        (alignment & (alignment - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    auto *session = current_context != nullptr ? current_context->session : process().sessions.front().get();
    // A wish inside the window says which device it is for; any other is only a hint and not followed.
    const bool wished = addr != 0 && addr % protocol::kSlabUnit == 0 && locate(addr).where == Where::device;
    if (wished)
        session = locate(addr).session;
    std::uint64_t address = addr;
    {
        const std::scoped_lock lock(session->addresses_lock);
        if (!wished || !session->addresses.allocate_at({.address = addr, .size = size})) {
            const auto taken =
                session->addresses.allocate(size, std::max<std::uint64_t>(alignment, protocol::kSlabUnit));
            if (!taken)
                return CUDA_ERROR_OUT_OF_MEMORY;
            address = *taken;
        }
    }
    const auto result =
        ask(route_on(*session),
            protocol::Message<protocol::ReserveAddress>{.fixed = {.address = address, .size = size}});
    if (result != CUDA_SUCCESS) {
        const std::scoped_lock lock(session->addresses_lock);
        session->addresses.release({.address = address, .size = size});
        return result;
    }
    const std::scoped_lock lock(reservations().lock);
    reservations().ranges.add({.address = address, .size = size},
                              {.range = {.address = address, .size = size}, .session = session});
    *ptr = address;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
    Session *session = nullptr;
    if (const auto bad = session_at(ptr, session); bad != CUDA_SUCCESS)
        return bad;
    {
        const std::scoped_lock lock(reservations().lock);
        const auto *found = reservations().ranges.find_exact(ptr);
        if (found == nullptr || found->range.size != size)
            return CUDA_ERROR_INVALID_VALUE;
    }
    const auto result =
        ask(route_on(*session),
            protocol::Message<protocol::FreeAddress>{.fixed = {.address = ptr, .size = size}});
    if (result != CUDA_SUCCESS)
        return result;
    {
        const std::scoped_lock lock(reservations().lock);
        reservations().ranges.remove(ptr);
    }
    const std::scoped_lock lock(session->addresses_lock);
    session->addresses.release({.address = ptr, .size = size});
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
    Session *session = nullptr;
    CUmemAllocationProp mine{};
    if (const auto bad = translated(prop, session, mine); bad != CUDA_SUCCESS)
        return bad;
    const auto chosen = new_handle(driver_api::kHandleAllocation);
    auto request = driver_api::MemCreateCall::request(ApiId::kMemCreate, chosen, handle, size, &mine, flags);
    if (!request)
        return refused(request.error());
    const auto result = send_on(
        route_on(*session), *request,
        [&](std::span<const std::byte> bytes) { return driver_api::decode_MemCreateReply(*request, bytes); },
        [&](const auto &reply) { driver_api::MemCreateCall::finish(*request, reply, handle); });
    if (result == CUDA_SUCCESS)
        process().table(driver_api::kHandleAllocation).add(chosen, object_on(*session));
    return result;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    Session *session = nullptr;
    if (const auto bad = session_at(ptr, session); bad != CUDA_SUCCESS)
        return bad;
    const auto *const allocation = find_object(driver_api::kHandleAllocation, handle);
    if (allocation == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (allocation->session != session)
        return CUDA_ERROR_NOT_SUPPORTED; // memory of one device at addresses of another
    auto request = driver_api::MemMapCall::request(ApiId::kMemMap, ptr, size, offset, handle, flags);
    if (!request)
        return refused(request.error());
    const auto route = route_on(*session);
    const auto result = send_on(
        route, *request,
        [&](std::span<const std::byte> bytes) { return driver_api::decode_MemMapReply(*request, bytes); },
        [](const auto & /*reply*/) {});
    if (result == CUDA_SUCCESS)
        note_mapping({.range = {.address = ptr, .size = size}, .session = session, .context = route.context});
    return result;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
    Session *session = nullptr;
    if (const auto bad = session_at(ptr, session); bad != CUDA_SUCCESS)
        return bad;
    auto request = driver_api::MemUnmapCall::request(ApiId::kMemUnmap, ptr, size);
    if (!request)
        return refused(request.error());
    const auto result = send_on(
        route_on(*session), *request,
        [&](std::span<const std::byte> bytes) { return driver_api::decode_MemUnmapReply(*request, bytes); },
        [](const auto & /*reply*/) {});
    if (result == CUDA_SUCCESS)
        for (std::uint64_t at = ptr; at < ptr + size;) {
            const auto mapping = find_mapping(at);
            if (!mapping)
                break;
            forget_mapping(mapping->range.address);
            at = mapping->range.end();
        }
    return result;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
    Session *session = nullptr;
    if (const auto bad = session_at(ptr, session); bad != CUDA_SUCCESS)
        return bad;
    if (desc == nullptr || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUmemAccessDesc> mine;
    for (size_t index = 0; index < count; ++index) {
        Session *whose = nullptr;
        auto one = desc[index];
        if (const auto bad = translated(desc[index].location, whose, one.location); bad != CUDA_SUCCESS)
            return bad;
        if (whose == session)
            mine.push_back(one);
        else if (one.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            return CUDA_ERROR_INVALID_DEVICE; // no device reaches another's memory
    }
    if (mine.empty())
        return CUDA_SUCCESS;
    auto request =
        driver_api::MemSetAccessCall::request(ApiId::kMemSetAccess, ptr, size, mine.data(), mine.size());
    if (!request)
        return refused(request.error());
    return send_on(
        route_on(*session), *request,
        [&](std::span<const std::byte> bytes) {
            return driver_api::decode_MemSetAccessReply(*request, bytes);
        },
        [](const auto & /*reply*/) {});
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr) {
    Session *session = nullptr;
    if (const auto bad = session_at(ptr, session); bad != CUDA_SUCCESS)
        return bad;
    if (flags == nullptr || location == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    Session *whose = nullptr;
    CUmemLocation mine{};
    if (const auto bad = translated(*location, whose, mine); bad != CUDA_SUCCESS)
        return bad;
    if (whose != session) {
        *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    }
    auto request = driver_api::MemGetAccessCall::request(ApiId::kMemGetAccess, flags, &mine, ptr);
    if (!request)
        return refused(request.error());
    return send_on(
        route_on(*session), *request,
        [&](std::span<const std::byte> bytes) {
            return driver_api::decode_MemGetAccessReply(*request, bytes);
        },
        [&](const auto &reply) { driver_api::MemGetAccessCall::finish(*request, reply, flags); });
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option) {
    Session *session = nullptr;
    CUmemAllocationProp mine{};
    if (const auto bad = translated(prop, session, mine); bad != CUDA_SUCCESS)
        return bad;
    if (granularity == nullptr ||
        (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    const auto &device = session->device();
    *granularity =
        std::max<std::uint64_t>(protocol::kSlabUnit, option == CU_MEM_ALLOC_GRANULARITY_MINIMUM
                                                         ? device.allocation_granularity
                                                         : device.allocation_granularity_recommended);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    const auto *const allocation = find_object(driver_api::kHandleAllocation, handle);
    if (prop == nullptr || allocation == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    auto request = driver_api::MemGetAllocationPropertiesFromHandleCall::request(
        ApiId::kMemGetAllocationPropertiesFromHandle, prop, handle);
    if (!request)
        return refused(request.error());
    return send_on(
        route_on(*allocation->session), *request,
        [&](std::span<const std::byte> bytes) {
            return driver_api::decode_MemGetAllocationPropertiesFromHandleReply(*request, bytes);
        },
        [&](const auto &reply) {
            driver_api::MemGetAllocationPropertiesFromHandleCall::finish(*request, reply, prop);
            prop->location.id = allocation->session->ordinal();
        });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
    const auto address = std::bit_cast<std::uint64_t>(addr);
    Session *session = nullptr;
    if (const auto bad = session_at(address, session); bad != CUDA_SUCCESS)
        return bad;
    if (handle == nullptr || !find_mapping(address))
        return CUDA_ERROR_INVALID_VALUE;
    const auto chosen = new_handle(driver_api::kHandleAllocation);
    const auto result = ask(route_on(*session), protocol::Message<protocol::RetainAllocation>{
                                                    .fixed = {.allocation = chosen, .address = address}});
    if (result != CUDA_SUCCESS)
        return result;
    process().table(driver_api::kHandleAllocation).add(chosen, object_on(*session));
    *handle = chosen;
    return CUDA_SUCCESS;
}

} // extern "C"
