// SPDX-License-Identifier: GPL-2.0-or-later
// cuInit and the questions about devices: answered from what the daemons said in their Welcome.
#include "process.hpp"
#include "start.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

using namespace singularity::client;

namespace {

CUresult device_of(CUdevice device, Session *&session) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    session = process().session(device);
    return session == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

// Attributes whose answer depends on the proxy.
int answered(const Session &session, CUdevice_attribute attribute) {
    switch (attribute) {
    // Host memory that is registered lies elsewhere for the device.
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    // Memory of the program that is not shared is out of a device's reach.
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
    // No descriptors of device memory for other processes.
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return 0;
    // Shared host memory works as mapped memory; stream-ordered allocation is the client's own.
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
        return 1;
    default:
        return session.attribute(attribute);
    }
}

} // namespace

extern "C" {

CUresult cuInit(unsigned int Flags) {
    if (Flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return start_process();
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    Session *session = nullptr;
    if (const auto bad = device_of(ordinal, session); bad != CUDA_SUCCESS)
        return bad;
    if (device == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (count == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<int>(process().sessions.size());
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev) {
    Session *session = nullptr;
    if (const auto bad = device_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    if (name == nullptr || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(name, static_cast<std::size_t>(len), "%s", session->device().name.data());
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev) { return cuDeviceGetUuid_v2(uuid, dev); }

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
    Session *session = nullptr;
    if (const auto bad = device_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    if (uuid == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(uuid->bytes, session->device().uuid.data(), sizeof(uuid->bytes));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetLuid(char *luid, unsigned int *deviceNodeMask, CUdevice dev) {
    Session *session = nullptr;
    if (const auto bad = device_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    const auto &device = session->device();
    if (device.luid_valid == 0)
        return CUDA_ERROR_NOT_SUPPORTED; // there are LUIDs on Windows only
    if (luid == nullptr || deviceNodeMask == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(luid, device.luid.data(), device.luid.size());
    *deviceNodeMask = device.luid_node_mask;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    Session *session = nullptr;
    if (const auto bad = device_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    if (bytes == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = session->device().total_memory;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev) {
    Session *session = nullptr;
    if (const auto bad = device_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    if (pi == nullptr || attrib <= 0 || !session->device().knows_attribute(static_cast<std::size_t>(attrib)))
        return CUDA_ERROR_INVALID_VALUE;
    *pi = answered(*session, attrib);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev) {
    Session *session = nullptr;
    if (const auto bad = device_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    if (prop == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto get = [&](CUdevice_attribute attribute) { return session->attribute(attribute); };
    *prop = {};
    prop->maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    prop->maxThreadsDim[0] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
    prop->maxThreadsDim[1] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
    prop->maxThreadsDim[2] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
    prop->maxGridSize[0] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
    prop->maxGridSize[1] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
    prop->maxGridSize[2] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
    prop->sharedMemPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    prop->totalConstantMemory = get(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    prop->SIMDWidth = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    prop->memPitch = get(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    prop->regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    prop->clockRate = get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    prop->textureAlign = get(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev) {
    Session *session = nullptr;
    if (const auto bad = device_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    if (major == nullptr || minor == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *major = session->device().compute_major;
    *minor = session->device().compute_minor;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (dev == nullptr || pciBusId == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    // [domain]:[bus]:[device].[function], domain and function may be left out (cuda.h).
    unsigned domain = 0;
    unsigned bus = 0;
    unsigned device = 0;
    if (std::sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &device) != 3) {
        domain = 0;
        if (std::sscanf(pciBusId, "%x:%x", &bus, &device) != 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (const auto &session : process().sessions)
        if (session->attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID) == static_cast<int>(domain) &&
            session->attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) == static_cast<int>(bus) &&
            session->attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID) == static_cast<int>(device)) {
            *dev = session->ordinal();
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev) {
    Session *session = nullptr;
    if (const auto bad = device_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    if (pciBusId == nullptr || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(pciBusId, static_cast<std::size_t>(len), "%s", session->device().pci_bus_id.data());
    return CUDA_SUCCESS;
}

// Devices are different daemons', which do not reach each other's memory: copies between them work, access
// does not.
CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev) {
    Session *session = nullptr;
    if (const auto bad = device_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = device_of(peerDev, session); bad != CUDA_SUCCESS)
        return bad;
    if (canAccessPeer == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *canAccessPeer = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice) {
    Session *session = nullptr;
    if (const auto bad = device_of(srcDevice, session); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = device_of(dstDevice, session); bad != CUDA_SUCCESS)
        return bad;
    if (value == nullptr || srcDevice == dstDevice || attrib <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    *value = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev) {
    Session *session = nullptr;
    if (const auto bad = device_of(dev, session); bad != CUDA_SUCCESS)
        return bad;
    if (pi == nullptr || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    *pi = session->device().exec_affinity_sm_count;
    return CUDA_SUCCESS;
}

} // extern "C"
