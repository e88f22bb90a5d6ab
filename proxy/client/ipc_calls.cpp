// SPDX-License-Identifier: GPL-2.0-or-later
// cuIpc*: device memory and events that several processes of a virtual node have.
#include "capture_modes.hpp"
#include "graph_memory.hpp"
#include "opened_memory.hpp"
#include "proxy/protocol/launch.hpp"

#include <array>
#include <cstring>
#include <random>

using namespace singularity;
using namespace singularity::client;

namespace {

// What a CUipcEventHandle holds. Whoever gives it to this process may have written anything into it.
struct EventHandle {
    static constexpr std::uint64_t kMagic = 0x316e'7665'6370'4953; // which this version makes
    std::uint64_t magic = kMagic;
    std::uint64_t place = 0; // see this_place()
    std::array<std::uint64_t, 2> key{};
    std::uint64_t process = 0; // whose it is
    std::array<std::uint64_t, 3> nothing{};
};
static_assert(sizeof(EventHandle) == CU_IPC_HANDLE_SIZE);

std::uint64_t random_word() {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
}

} // namespace

extern "C" {

CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    auto *const object = find_as<EventObject>(driver_api::kHandleEvent, std::bit_cast<std::uint64_t>(event));
    if (object == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    constexpr unsigned kNeeded = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    if (pHandle == nullptr || (object->flags & kNeeded) != kNeeded || object->opened)
        return CUDA_ERROR_INVALID_VALUE;
    static auto &lock = *std::make_unique<std::mutex>().release(); // see process()
    const std::scoped_lock guard(lock);
    if (object->key == std::array<std::uint64_t, 2>{}) {
        const std::array<std::uint64_t, 2> key{random_word(), random_word()};
        if (const auto bad =
                ask(Route{.session = object->session, .context = object->context},
                    protocol::Message<protocol::ShareEvent>{.fixed = {.event = object->handle, .key = key}});
            bad != CUDA_SUCCESS)
            return bad;
        object->key = key;
    }
    const EventHandle handle{
        .place = this_place(), .key = object->key, .process = process().key[0], .nothing = {}};
    std::memcpy(pHandle->reserved, &handle, sizeof(handle));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    EventHandle wanted;
    std::memcpy(&wanted, handle.reserved, sizeof(wanted));
    if (phEvent == nullptr || wanted.magic != EventHandle::kMagic || wanted.place != this_place())
        return CUDA_ERROR_INVALID_VALUE;
    if (wanted.process == process().key[0])
        return CUDA_ERROR_INVALID_CONTEXT;
    auto &table = process().table(driver_api::kHandleEvent);
    const auto chosen = table.reserve();
    if (const auto bad =
            ask(Route{.session = context->session, .context = context},
                protocol::Message<protocol::OpenEvent>{.fixed = {.event = chosen, .key = wanted.key}});
        bad != CUDA_SUCCESS)
        return bad;
    auto object = std::make_unique<EventObject>();
    object->session = context->session;
    object->context = context;
    object->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    object->key = wanted.key;
    object->opened = true;
    table.add(chosen, std::move(object));
    *phEvent = std::bit_cast<CUevent>(chosen);
    return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    const auto allocation = find_device(dptr);
    // Of pools, of graphs, of others: as the driver, no.
    if (pHandle == nullptr || !allocation || allocation->pool != 0 || allocation->shared == Shared::opened ||
        graph_memory_at(allocation->range.address))
        return CUDA_ERROR_INVALID_VALUE;
    MemoryHandle handle;
    if (const auto bad = export_memory(*allocation, handle); bad != CUDA_SUCCESS)
        return bad;
    std::memcpy(pHandle->reserved, &handle, sizeof(handle));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (pdptr == nullptr || (Flags & ~unsigned{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS}) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (const auto bad = unsafe_call(); bad != CUDA_SUCCESS)
        return bad;
    MemoryHandle wanted;
    std::memcpy(&wanted, handle.reserved, sizeof(wanted));
    std::uint64_t address = 0;
    const auto result = open_memory(*context, wanted, address);
    if (result == CUDA_SUCCESS)
        *pdptr = address;
    return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
    return cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = unsafe_call(); bad != CUDA_SUCCESS)
        return bad;
    return close_memory(dptr);
}

} // extern "C"
