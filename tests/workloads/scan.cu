// SPDX-License-Identifier: GPL-2.0-or-later
// Inclusive prefix sum in several passes: within blocks (Blelloch's tree in shared memory), over the blocks'
// sums, and added back. Also a stable compaction made of it. Argument: elements.
#include "workload.cuh"

constexpr unsigned block_items = 512;

// Exclusive scan of one block's items; the block's sum goes to sums[].
__global__ void scan_blocks(const unsigned *in, unsigned *out, unsigned *sums, unsigned count) {
    __shared__ unsigned items[block_items];
    const unsigned base = blockIdx.x * block_items;
    for (unsigned i = threadIdx.x; i < block_items; i += blockDim.x)
        items[i] = base + i < count ? in[base + i] : 0;
    unsigned offset = 1;
    for (unsigned active = block_items / 2; active > 0; active /= 2) {
        __syncthreads();
        if (threadIdx.x < active)
            items[offset * (2 * threadIdx.x + 2) - 1] += items[offset * (2 * threadIdx.x + 1) - 1];
        offset *= 2;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = items[block_items - 1];
        items[block_items - 1] = 0;
    }
    for (unsigned active = 1; active < block_items; active *= 2) {
        offset /= 2;
        __syncthreads();
        if (threadIdx.x < active) {
            const unsigned low = offset * (2 * threadIdx.x + 1) - 1;
            const unsigned high = offset * (2 * threadIdx.x + 2) - 1;
            const unsigned moved = items[low];
            items[low] = items[high];
            items[high] += moved;
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < block_items; i += blockDim.x)
        if (base + i < count)
            out[base + i] = items[i];
}

__global__ void add_block_sums(unsigned *out, const unsigned *sums, unsigned count) {
    const unsigned i = blockIdx.x * block_items + threadIdx.x;
    if (i < count)
        out[i] += sums[blockIdx.x];
}

void exclusive_scan(const unsigned *in, unsigned *out, unsigned count) {
    const unsigned blocks = workload::blocks_for(count, block_items);
    workload::Buffer<unsigned> sums(blocks);
    scan_blocks<<<blocks, block_items / 2>>>(in, out, sums.data(), count);
    CHECK_LAUNCH();
    if (blocks > 1) {
        workload::Buffer<unsigned> scanned(blocks);
        exclusive_scan(sums.data(), scanned.data(), blocks);
        add_block_sums<<<blocks, block_items>>>(out, scanned.data(), count);
        CHECK_LAUNCH();
    }
}

__global__ void to_inclusive(const unsigned *in, unsigned *out, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        out[i] += in[i];
}

__global__ void mark_odd(const unsigned *in, unsigned *marks, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        marks[i] = in[i] & 1U;
}

__global__ void compact(const unsigned *in, const unsigned *marks, const unsigned *places, unsigned *out,
                        unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && marks[i] != 0)
        out[places[i]] = in[i];
}

int main(int argc, char **argv) {
    const auto count = static_cast<unsigned>(workload::size_argument(argc, argv, 300001));
    workload::Random random(5);
    std::vector<unsigned> values(count);
    std::vector<unsigned> expected(count);
    std::vector<unsigned> odd;
    unsigned sum = 0;
    for (unsigned i = 0; i < count; ++i) {
        values[i] = random.below(100000);
        expected[i] = sum += values[i];
        if (values[i] % 2 != 0)
            odd.push_back(values[i]);
    }

    workload::Report report;
    const unsigned blocks = workload::blocks_for(count, 256);
    workload::Buffer<unsigned> in(values);
    workload::Buffer<unsigned> out(count);
    exclusive_scan(in.data(), out.data(), count);
    to_inclusive<<<blocks, 256>>>(in.data(), out.data(), count);
    CHECK_LAUNCH();
    report.equal("inclusive scan", out.read(), expected);

    workload::Buffer<unsigned> marks(count);
    workload::Buffer<unsigned> packed(odd.size());
    mark_odd<<<blocks, 256>>>(in.data(), marks.data(), count);
    exclusive_scan(marks.data(), out.data(), count);
    compact<<<blocks, 256>>>(in.data(), marks.data(), out.data(), packed.data(), count);
    CHECK_LAUNCH();
    report.equal("compaction", packed.read(), odd);
    return report.finish();
}
