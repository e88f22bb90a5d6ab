// SPDX-License-Identifier: GPL-2.0-or-later
// What a program learns of its devices before it uses them: names, identities, capabilities, limits. All of
// it has to be the same whether or not somebody stands between the program and the device.
#include "workload.cuh"

__global__ void report_shape(unsigned *out) {
    unsigned lane = 0;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    if (threadIdx.x == warpSize + 5 && blockIdx.x == 2) {
        out[0] = warpSize;
        out[1] = lane;
        out[2] = gridDim.x * 1000000 + blockDim.x * 1000 + gridDim.y * 10 + blockDim.z;
    }
}

struct Attribute {
    const char *name;
    cudaDeviceAttr attribute;
};
constexpr Attribute attributes[] = {
    {"threads of a block", cudaDevAttrMaxThreadsPerBlock},
    {"block x", cudaDevAttrMaxBlockDimX},
    {"block y", cudaDevAttrMaxBlockDimY},
    {"block z", cudaDevAttrMaxBlockDimZ},
    {"grid x", cudaDevAttrMaxGridDimX},
    {"grid y", cudaDevAttrMaxGridDimY},
    {"grid z", cudaDevAttrMaxGridDimZ},
    {"warp", cudaDevAttrWarpSize},
    {"shared bytes of a block", cudaDevAttrMaxSharedMemoryPerBlock},
    {"shared bytes when asked for", cudaDevAttrMaxSharedMemoryPerBlockOptin},
    {"shared bytes of a multiprocessor", cudaDevAttrMaxSharedMemoryPerMultiprocessor},
    {"constant bytes", cudaDevAttrTotalConstantMemory},
    {"registers of a block", cudaDevAttrMaxRegistersPerBlock},
    {"multiprocessors", cudaDevAttrMultiProcessorCount},
    {"threads of a multiprocessor", cudaDevAttrMaxThreadsPerMultiProcessor},
    {"major", cudaDevAttrComputeCapabilityMajor},
    {"minor", cudaDevAttrComputeCapabilityMinor},
    {"PCI bus", cudaDevAttrPciBusId},
    {"PCI device", cudaDevAttrPciDeviceId},
    {"PCI domain", cudaDevAttrPciDomainId},
    {"unified addressing", cudaDevAttrUnifiedAddressing},
    {"mapped host memory", cudaDevAttrCanMapHostMemory},
    {"concurrent kernels", cudaDevAttrConcurrentKernels},
    {"stream priorities", cudaDevAttrStreamPrioritiesSupported},
    {"managed memory", cudaDevAttrManagedMemory},
    {"cooperative launch", cudaDevAttrCooperativeLaunch},
    {"memory pools", cudaDevAttrMemoryPoolsSupported},
    {"memory bus", cudaDevAttrGlobalMemoryBusWidth},
    {"second-level cache", cudaDevAttrL2CacheSize},
    {"compute mode", cudaDevAttrComputeMode},
};

int main() {
    workload::Report report;
    int driver = 0;
    int runtime = 0;
    CHECK(cudaDriverGetVersion(&driver));
    CHECK(cudaRuntimeGetVersion(&runtime));
    report.value("driver", driver);
    report.expect(driver >= runtime, "the driver is as new as the runtime");
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    report.value("devices", devices);
    for (int device = 0; device < devices; ++device) {
        cudaDeviceProp properties{};
        CHECK(cudaGetDeviceProperties(&properties, device));
        report.text("name", properties.name);
        std::printf("uuid ");
        for (const char byte : properties.uuid.bytes)
            std::printf("%02x", static_cast<unsigned char>(byte));
        std::printf("\nmemory %zu\n", properties.totalGlobalMem);
        bool same = properties.totalGlobalMem > 0;
        for (const Attribute &one : attributes) {
            int value = 0;
            CHECK(cudaDeviceGetAttribute(&value, one.attribute, device));
            report.value(one.name, value);
            if (one.attribute == cudaDevAttrMultiProcessorCount)
                same = same && value == properties.multiProcessorCount && value > 0;
            if (one.attribute == cudaDevAttrComputeCapabilityMajor)
                same = same && value == properties.major && value >= 7;
            if (one.attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin)
                same = same && static_cast<std::size_t>(value) == properties.sharedMemPerBlockOptin;
        }
        report.expect(same, "attributes and properties agree");
        char place[32] = "";
        CHECK(cudaDeviceGetPCIBusId(place, sizeof place, device));
        int found = -1;
        CHECK(cudaDeviceGetByPCIBusId(&found, place));
        report.text("place", place);
        report.expect(found == device, "a device by its place");
        CHECK(cudaSetDevice(device));
        int least = 0;
        int greatest = 0;
        CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
        std::printf("priorities %d to %d\n", least, greatest);
        for (const cudaLimit limit : {cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize}) {
            std::size_t value = 0;
            CHECK(cudaDeviceGetLimit(&value, limit));
            report.value("limit", value);
        }
        CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 4096));
        std::size_t stack = 0;
        CHECK(cudaDeviceGetLimit(&stack, cudaLimitStackSize));
        report.expect(stack == 4096, "a limit that was set");
        workload::Buffer<unsigned> out(3);
        report_shape<<<dim3(3, 4), dim3(96, 1, 2)>>>(out.data());
        CHECK_LAUNCH();
        report.equal("shape", out.read(), {32U, 5U, 3096042U});
    }
    int wanted = -1;
    cudaDeviceProp wish{};
    wish.major = 7;
    CHECK(cudaChooseDevice(&wanted, &wish));
    report.expect(wanted >= 0 && wanted < devices, "a device by its properties");
    return report.finish();
}
