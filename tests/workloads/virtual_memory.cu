// SPDX-License-Identifier: GPL-2.0-or-later
// The virtual memory API: an array that grows in place in a reserved range, memory mapped at two addresses at
// once, access rights, and a range that is given back and taken again. Argument: chunks.
#include "workload.cuh"

#include <cuda.h>

inline void check(CUresult status, int line, const char *what) {
    if (status == CUDA_SUCCESS)
        return;
    const char *name = nullptr;
    cuGetErrorName(status, &name);
    workload::stop(__FILE__, line, what, name == nullptr ? "unknown error" : name);
}
#define DRIVER(call) check((call), __LINE__, #call)

constexpr unsigned threads = 256;
constexpr std::size_t touched = 4096; // words of each chunk that are written

__global__ void fill(std::uint32_t *data, std::size_t words_per_chunk, std::uint32_t salt) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    // Words at both ends of the chunk.
    std::uint32_t *chunk = data + blockIdx.y * words_per_chunk;
    const std::size_t at = i < touched / 2 ? i : words_per_chunk - touched + i;
    chunk[at] = (i + blockIdx.y * 131071U) * 2654435761U + salt;
}

__global__ void sum(const std::uint32_t *data, std::size_t words_per_chunk, unsigned long long *result) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const std::size_t at = i < touched / 2 ? i : words_per_chunk - touched + i;
    unsigned long long own = data[blockIdx.y * words_per_chunk + at];
    for (int offset = 16; offset > 0; offset /= 2)
        own += __shfl_down_sync(0xffffffffU, own, offset);
    if (threadIdx.x % 32 == 0)
        atomicAdd(result, own);
}

unsigned long long expected_sum(unsigned chunks, std::uint32_t salt) {
    unsigned long long total = 0;
    for (unsigned chunk = 0; chunk < chunks; ++chunk)
        for (unsigned i = 0; i < touched; ++i)
            total += static_cast<std::uint32_t>((i + chunk * 131071U) * 2654435761U + salt);
    return total;
}

// A range of addresses, of which the first part has memory.
class GrowingArray {
  public:
    GrowingArray(std::size_t most) {
        properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
        DRIVER(cuMemGetAllocationGranularity(&chunk_, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        reserved_ = most * chunk_;
        DRIVER(cuMemAddressReserve(&address_, reserved_, 0, 0, 0));
    }
    GrowingArray(const GrowingArray &) = delete;
    GrowingArray &operator=(const GrowingArray &) = delete;
    ~GrowingArray() {
        cuMemUnmap(address_, chunks_.size() * chunk_);
        for (const CUmemGenericAllocationHandle handle : chunks_)
            cuMemRelease(handle);
        cuMemAddressFree(address_, reserved_);
    }
    void grow() {
        CUmemGenericAllocationHandle handle = 0;
        DRIVER(cuMemCreate(&handle, chunk_, &properties_, 0));
        const CUdeviceptr at = address_ + chunks_.size() * chunk_;
        DRIVER(cuMemMap(at, chunk_, 0, handle, 0));
        allow(at, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        chunks_.push_back(handle);
    }
    void allow(CUdeviceptr at, CUmemAccess_flags flags) const {
        const CUmemAccessDesc access{properties_.location, flags};
        DRIVER(cuMemSetAccess(at, chunk_, &access, 1));
    }
    [[nodiscard]] std::uint32_t *data() const { return reinterpret_cast<std::uint32_t *>(address_); }
    [[nodiscard]] CUdeviceptr address() const { return address_; }
    [[nodiscard]] unsigned chunks() const { return static_cast<unsigned>(chunks_.size()); }
    [[nodiscard]] std::size_t chunk_bytes() const { return chunk_; }
    [[nodiscard]] std::size_t chunk_words() const { return chunk_ / sizeof(std::uint32_t); }
    [[nodiscard]] CUmemGenericAllocationHandle handle(unsigned chunk) const { return chunks_[chunk]; }

  private:
    CUmemAllocationProp properties_{};
    std::size_t chunk_ = 0;
    std::size_t reserved_ = 0;
    CUdeviceptr address_ = 0;
    std::vector<CUmemGenericAllocationHandle> chunks_;
};

void compare_sum(workload::Report &report, const char *name, const std::uint32_t *data, unsigned chunks,
                 std::size_t words_per_chunk, unsigned long long expected) {
    workload::Buffer<unsigned long long> result(1);
    result.clear();
    sum<<<dim3(touched / threads, chunks), threads>>>(data, words_per_chunk, result.data());
    CHECK_LAUNCH();
    report.value(name, result.read()[0]);
    report.expect(result.read()[0] == expected, name);
}

int main(int argc, char **argv) {
    const auto most = static_cast<unsigned>(workload::size_argument(argc, argv, 5, 512));
    workload::Report report;
    CHECK(cudaFree(nullptr)); // makes the primary context current
    int supported = 0;
    DRIVER(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    report.expect(supported == 1, "the virtual memory API is supported");
    GrowingArray array(most);
    report.value("granularity", array.chunk_bytes());
    std::uint32_t *const begin = array.data();
    for (unsigned chunks = 1; chunks <= most; ++chunks) {
        array.grow();
        // Each time over all chunks: what was written before stays in the same place.
        if (chunks > 1)
            compare_sum(report, "before growing", array.data(), chunks - 1, array.chunk_words(),
                        expected_sum(chunks - 1, chunks - 1));
        fill<<<dim3(touched / threads, chunks), threads>>>(array.data(), array.chunk_words(), chunks);
        CHECK_LAUNCH();
    }
    report.expect(array.data() == begin, "the array did not move");
    compare_sum(report, "whole", array.data(), most, array.chunk_words(), expected_sum(most, most));

    // The first chunk at a second address: written there, read here; a copy across the border of two chunks.
    CUdeviceptr alias = 0;
    DRIVER(cuMemAddressReserve(&alias, array.chunk_bytes(), 0, 0, 0));
    DRIVER(cuMemMap(alias, array.chunk_bytes(), 0, array.handle(0), 0));
    array.allow(alias, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    std::vector<std::uint32_t> words(1000);
    for (std::uint32_t i = 0; i < words.size(); ++i)
        words[i] = i * i;
    DRIVER(cuMemcpyHtoD(alias + array.chunk_bytes() - 2000, words.data(), 2000));
    if (most > 1)
        DRIVER(cuMemcpyHtoD(array.address() + array.chunk_bytes(), words.data() + 500, 2000));
    std::vector<std::uint32_t> found(most > 1 ? 1000 : 500);
    words.resize(found.size());
    DRIVER(cuMemcpyDtoH(found.data(), array.address() + array.chunk_bytes() - 2000, found.size() * 4));
    report.equal("second address", found, words);
    unsigned long long access = 0;
    CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
    DRIVER(cuMemGetAccess(&access, &location, alias));
    report.expect(access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "access");
    CUmemGenericAllocationHandle same = 0;
    DRIVER(cuMemRetainAllocationHandle(&same, reinterpret_cast<void *>(alias)));
    CUmemAllocationProp properties{};
    DRIVER(cuMemGetAllocationPropertiesFromHandle(&properties, same));
    report.expect(properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE && properties.location.id == 0,
                  "properties of an allocation");
    DRIVER(cuMemRelease(same));
    DRIVER(cuMemUnmap(alias, array.chunk_bytes()));
    // Nothing is there now; the memory itself still is, at its first address.
    std::uint32_t word = 0;
    report.expect(cuMemcpyDtoH(&word, alias, sizeof word) != CUDA_SUCCESS, "an unmapped address is refused");
    DRIVER(cuMemcpyDtoH(&word, array.address() + array.chunk_bytes() - 2000 + 4 * 9, sizeof word));
    report.expect(word == 81, "memory outlives one of its mappings");
    DRIVER(cuMemAddressFree(alias, array.chunk_bytes()));

    // The address just freed, asked for by name.
    CUdeviceptr again = 0;
    DRIVER(cuMemAddressReserve(&again, array.chunk_bytes(), 0, alias, 0));
    report.expect(again == alias, "a free address is granted");
    CUdeviceptr taken = 0;
    const CUresult status = cuMemAddressReserve(&taken, array.chunk_bytes(), 0, array.address(), 0);
    report.expect(status != CUDA_SUCCESS || taken != array.address(), "a taken address is not granted");
    if (status == CUDA_SUCCESS)
        DRIVER(cuMemAddressFree(taken, array.chunk_bytes()));
    DRIVER(cuMemAddressFree(again, array.chunk_bytes()));
    return report.finish();
}
