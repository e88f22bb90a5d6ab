// SPDX-License-Identifier: GPL-2.0-or-later
// Hash table with open addressing, filled by atomicCAS on 32-bit keys and counted by atomicAdd; then lookups,
// and a table of 64-bit entries with the largest value for each key. Argument: insertions.
#include "workload.cuh"

#include <algorithm>
#include <map>

constexpr unsigned empty = 0xffffffffU;

__host__ __device__ inline unsigned mix(unsigned key) {
    key ^= key >> 16;
    key *= 0x7feb352dU;
    key ^= key >> 15;
    key *= 0x846ca68bU;
    return key ^ (key >> 16);
}

__global__ void insert(const unsigned *keys, unsigned count, unsigned *slots, unsigned *counts,
                       unsigned mask) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    for (unsigned slot = mix(keys[i]) & mask;; slot = (slot + 1) & mask) {
        const unsigned before = atomicCAS(&slots[slot], empty, keys[i]);
        if (before == empty || before == keys[i]) {
            atomicAdd(&counts[slot], 1U);
            return;
        }
    }
}

__global__ void look_up(const unsigned *keys, unsigned count, const unsigned *slots, const unsigned *counts,
                        unsigned mask, unsigned *found) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    unsigned slot = mix(keys[i]) & mask;
    while (slots[slot] != empty && slots[slot] != keys[i])
        slot = (slot + 1) & mask;
    found[i] = slots[slot] == keys[i] ? counts[slot] : 0;
}

// Key above, value below; the key's largest value stays.
__global__ void insert_largest(const unsigned *keys, unsigned count, unsigned long long *entries,
                               unsigned mask) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    const unsigned long long entry = (static_cast<unsigned long long>(keys[i]) << 32) | mix(i);
    for (unsigned slot = mix(keys[i]) & mask;; slot = (slot + 1) & mask) {
        unsigned long long present = entries[slot];
        while (present == ~0ULL || (present >> 32 == keys[i] && present < entry)) {
            const unsigned long long before = atomicCAS(&entries[slot], present, entry);
            if (before == present)
                return;
            present = before;
        }
        if (present >> 32 == keys[i])
            return;
    }
}

int main(int argc, char **argv) {
    const auto count = static_cast<unsigned>(workload::size_argument(argc, argv, 60000, 1U << 26));
    unsigned size = 1;
    while (size < 2 * count)
        size *= 2;
    workload::Random random(83);
    std::vector<unsigned> keys(count);
    std::map<unsigned, unsigned> counted;
    std::map<unsigned, unsigned> largest;
    for (unsigned i = 0; i < count; ++i) {
        keys[i] = random.below(count) * 2654435761U;
        if (keys[i] == empty)
            keys[i] = 1;
        ++counted[keys[i]];
        largest[keys[i]] = std::max(largest[keys[i]], mix(i));
    }
    std::vector<unsigned> asked(keys.begin(), keys.begin() + count / 2);
    for (unsigned i = 0; i < count / 2; ++i)
        asked.push_back(static_cast<unsigned>(random.next()) & ~1U);
    std::vector<unsigned> expected;
    for (const unsigned key : asked) {
        const auto at = counted.find(key);
        expected.push_back(at == counted.end() ? 0 : at->second);
    }

    workload::Report report;
    const unsigned blocks = workload::blocks_for(count, 128);
    workload::Buffer<unsigned> device_keys(keys);
    workload::Buffer<unsigned> slots(size);
    workload::Buffer<unsigned> counts(size);
    CHECK(cudaMemset(slots.data(), 0xff, size * sizeof(unsigned)));
    counts.clear();
    insert<<<blocks, 128>>>(device_keys.data(), count, slots.data(), counts.data(), size - 1);
    CHECK_LAUNCH();
    workload::Buffer<unsigned> device_asked(asked);
    workload::Buffer<unsigned> found(asked.size());
    look_up<<<workload::blocks_for(asked.size(), 128), 128>>>(
        device_asked.data(), static_cast<unsigned>(asked.size()), slots.data(), counts.data(), size - 1,
        found.data());
    CHECK_LAUNCH();
    report.value("different keys", counted.size());
    report.equal("found", found.read(), expected);

    workload::Buffer<unsigned long long> entries(size);
    CHECK(cudaMemset(entries.data(), 0xff, size * sizeof(unsigned long long)));
    insert_largest<<<blocks, 128>>>(device_keys.data(), count, entries.data(), size - 1);
    CHECK_LAUNCH();
    // Where an entry is depends on the order of insertion: sorted by key, it does not.
    std::map<unsigned, unsigned> present;
    for (const unsigned long long entry : entries.read())
        if (entry != ~0ULL)
            present[static_cast<unsigned>(entry >> 32)] = static_cast<unsigned>(entry);
    std::vector<unsigned> device_flat;
    std::vector<unsigned> host_flat;
    for (const auto &[key, value] : present)
        device_flat.insert(device_flat.end(), {key, value});
    for (const auto &[key, value] : largest)
        host_flat.insert(host_flat.end(), {key, value});
    report.equal("largest", device_flat, host_flat);
    return report.finish();
}
