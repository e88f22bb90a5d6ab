// SPDX-License-Identifier: GPL-2.0-or-later
// cuInit and questions about devices.
#include "driver/api/entry.hpp"
#include "driver/pool.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <span>

namespace singularity::softgpu::driver {

namespace {

CUresult get_name(const Device &device, char *name, int size) {
    if (name == nullptr || size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(name, static_cast<std::size_t>(size), "%s", device.name().c_str());
    return CUDA_SUCCESS;
}

CUresult get_attribute(const Device &device, CUdevice_attribute attribute, int *value) {
    const auto found = device.attribute(attribute);
    if (value == nullptr || !found)
        return CUDA_ERROR_INVALID_VALUE;
    *value = *found;
    return CUDA_SUCCESS;
}

CUresult get_properties(const Device &device, CUdevprop *out) {
    if (out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto value = [&](CUdevice_attribute attribute) { return device.attribute(attribute).value_or(0); };
    *out = {};
    out->maxThreadsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    out->maxThreadsDim[0] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
    out->maxThreadsDim[1] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
    out->maxThreadsDim[2] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
    out->maxGridSize[0] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
    out->maxGridSize[1] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
    out->maxGridSize[2] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
    out->sharedMemPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    out->totalConstantMemory = value(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    out->SIMDWidth = value(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    out->memPitch = value(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    out->regsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    out->clockRate = value(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    out->textureAlign = value(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    return CUDA_SUCCESS;
}

CUresult find_by_pci(CUdevice *out, const char *text) {
    if (out == nullptr || text == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned domain = 0;
    unsigned bus = 0;
    unsigned device = 0;
    // [domain:]bus:device[.function]
    if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &device) != 3) {
        domain = 0;
        if (std::sscanf(text, "%x:%x", &bus, &device) != 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (const auto &one : platform().devices())
        if (one->pci().domain == static_cast<int>(domain) && one->pci().bus == static_cast<int>(bus) &&
            one->pci().device == static_cast<int>(device)) {
            *out = static_cast<CUdevice>(one->ordinal());
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult peer_attribute(int *value, CUdevice_P2PAttribute attribute, const Device &source,
                        const Device &target) {
    if (value == nullptr || &source == &target)
        return &source == &target ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

// All atomics are those of the host's processor, which any other device's are as well.
CUresult atomics(unsigned *capabilities, const CUatomicOperation *operations, unsigned count) {
    if (capabilities == nullptr || operations == nullptr || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned at = 0; at < count; ++at) {
        if (operations[at] >= CU_ATOMIC_OPERATION_MAX)
            return CUDA_ERROR_INVALID_VALUE;
        capabilities[at] = CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED |
                           CU_ATOMIC_CAPABILITY_REDUCTION | CU_ATOMIC_CAPABILITY_SCALAR_32 |
                           CU_ATOMIC_CAPABILITY_SCALAR_64;
    }
    return CUDA_SUCCESS;
}

CUresult graph_memory_attribute(Device &device, CUgraphMem_attribute attribute, void *value) {
    if (value == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    auto *const out = static_cast<cuuint64_t *>(value);
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *out = device.graph_memory().used;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *out = device.graph_memory().used_high;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult set_graph_memory_attribute(Device &device, CUgraphMem_attribute attribute, const void *value) {
    const bool high =
        attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    if (value == nullptr || !high || *static_cast<const cuuint64_t *>(value) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    device.graph_memory().used_high = device.graph_memory().used.load();
    return CUDA_SUCCESS;
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuInit(unsigned int Flags) {
    return guarded([&] { return initialize(Flags); });
}
CUresult cuDeviceGetCount(int *count) {
    return with_driver([&] { return give(count, static_cast<int>(platform().devices().size())); });
}
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    return with_device(ordinal, [&](Device &) { return give(device, ordinal); });
}
CUresult cuDeviceGetName(char *name, int len, CUdevice dev) {
    return with_device(dev, [&](Device &device) { return get_name(device, name, len); });
}
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev) {
    return with_device(dev, [&](Device &device) { return give(uuid, device.uuid()); });
}
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
    return with_device(dev, [&](Device &device) { return give(uuid, device.uuid()); });
}
// Locally unique identifiers are Windows'.
CUresult cuDeviceGetLuid(char * /*luid*/, unsigned int * /*deviceNodeMask*/, CUdevice dev) {
    return with_device(dev, [](Device &) { return CUDA_ERROR_NOT_SUPPORTED; });
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    return with_device(dev, [&](Device &device) { return give(bytes, std::size_t{device.memory().size()}); });
}
CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev) {
    return with_device(dev, [&](Device &device) { return get_attribute(device, attrib, pi); });
}
CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev) {
    return with_device(dev, [&](Device &device) { return get_properties(device, prop); });
}
CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev) {
    return with_device(dev, [&](Device &device) {
        const CUresult first = get_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, major);
        return first != CUDA_SUCCESS
                   ? first
                   : get_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, minor);
    });
}
CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId) {
    return with_driver([&] { return find_by_pci(dev, pciBusId); });
}
CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev) {
    return with_device(dev, [&](Device &device) {
        if (pciBusId == nullptr || len < 13)
            return CUDA_ERROR_INVALID_VALUE;
        // With a domain of four digits, as NVIDIA's driver writes it.
        std::snprintf(pciBusId, static_cast<std::size_t>(len), "%04x:%02x:%02x.0",
                      static_cast<unsigned>(device.pci().domain), static_cast<unsigned>(device.pci().bus),
                      static_cast<unsigned>(device.pci().device));
        return CUDA_SUCCESS;
    });
}
CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev) {
    return with_device(dev, [&](Device &one) {
        return with_device(peerDev,
                           [&](Device &other) { return give(canAccessPeer, &one == &other ? 0 : 1); });
    });
}
CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice) {
    return with_device(srcDevice, [&](Device &source) {
        return with_device(dstDevice,
                           [&](Device &target) { return peer_attribute(value, attrib, source, target); });
    });
}
CUresult cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev) {
    return with_device(dev, [&](Device &) {
        return type >= CU_EXEC_AFFINITY_TYPE_MAX ? CUDA_ERROR_INVALID_VALUE : give(pi, 0);
    });
}
CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *maxWidthInElements, CUarray_format /*format*/,
                                            unsigned /*numChannels*/, CUdevice dev) {
    return with_device(dev, [&](Device &) { return give(maxWidthInElements, std::size_t{1} << 28U); });
}
CUresult cuDeviceGetHostAtomicCapabilities(unsigned int *capabilities, const CUatomicOperation *operations,
                                           unsigned int count, CUdevice dev) {
    return with_device(dev, [&](Device &) { return atomics(capabilities, operations, count); });
}
CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities, const CUatomicOperation *operations,
                                          unsigned int count, CUdevice srcDevice, CUdevice dstDevice) {
    return with_device(srcDevice, [&](Device &) {
        return with_device(dstDevice, [&](Device &) { return atomics(capabilities, operations, count); });
    });
}
// Memory of graphs is given back as soon as it is free.
CUresult cuDeviceGraphMemTrim(CUdevice device) {
    return with_device(device, [](Device &) { return CUDA_SUCCESS; });
}
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value) {
    return with_device(device, [&](Device &one) { return graph_memory_attribute(one, attr, value); });
}
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value) {
    return with_device(device, [&](Device &one) { return set_graph_memory_attribute(one, attr, value); });
}
// Nothing writes past the processor's caches.
CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget /*target*/,
                                    CUflushGPUDirectRDMAWritesScope /*scope*/) {
    return with_context([](Context &) { return CUDA_SUCCESS; });
}

} // extern "C"
