// SPDX-License-Identifier: GPL-2.0-or-later
// Collectives within a captured graph: kernels, a sum over all ranks beside a kernel that does not need it, a
// ring of sends and receives, reduce-scatter and all-gather, all in one graph that is launched many times,
// ten launches at once. Whole numbers, so the host's own calculation for all ranks has the same. Any number
// of ranks; argument: tens of launches.
#include "ranks.cuh"

#include <cstdint>
#include <numeric>

namespace {

constexpr int per_rank = 64;
constexpr int at_once = 10;

using Values = std::vector<std::uint32_t>;

__host__ __device__ std::uint32_t advanced(std::uint32_t value, int rank, int index) {
    return value * 1664525U + 1013904223U + static_cast<std::uint32_t>(rank * 7 + index);
}
__host__ __device__ std::uint32_t mixed(std::uint32_t sum, std::uint32_t own, int rank) {
    return (sum >> 3) ^ (own * 2654435761U) ^ static_cast<std::uint32_t>(rank);
}

__global__ void advance(std::uint32_t *values, int rank, int count) {
    const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (index < count)
        values[index] = advanced(values[index], rank, index);
}
__global__ void count_up(std::uint32_t *launches) { ++*launches; }
__global__ void mix(std::uint32_t *out, const std::uint32_t *sums, const std::uint32_t *own, int rank,
                    int count) {
    const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (index < count)
        out[index] = mixed(sums[index], own[index], rank);
}

// What all ranks have, calculated by one.
class Reference {
  public:
    explicit Reference(int ranks) : ranks_(ranks), count_(ranks * per_rank) {
        for (int rank = 0; rank < ranks; ++rank) {
            values_.emplace_back(count_);
            std::iota(values_.back().begin(), values_.back().end(), static_cast<std::uint32_t>(rank * 1000));
        }
    }
    void launch() {
        for (int rank = 0; rank < ranks_; ++rank)
            for (int index = 0; index < count_; ++index)
                values_[rank][index] = advanced(values_[rank][index], rank, index);
        const auto sums = sum();
        for (int rank = 0; rank < ranks_; ++rank)
            for (int index = 0; index < count_; ++index)
                values_[rank][index] = mixed(sums[index], values_[rank][index], rank);
        const auto before = values_;
        for (int rank = 0; rank < ranks_; ++rank)
            for (int index = 0; index < count_; ++index)
                values_[rank][index] =
                    mixed(before[(rank + ranks_ - 1) % ranks_][index], before[rank][index], rank);
        const auto shares = sum();
        for (int rank = 0; rank < ranks_; ++rank)
            for (int index = 0; index < count_; ++index)
                values_[rank][index] = mixed(shares[index], values_[rank][index], rank);
    }
    [[nodiscard]] const Values &of(int rank) const { return values_[rank]; }

  private:
    [[nodiscard]] Values sum() const {
        Values out(count_);
        for (const auto &one : values_)
            for (int index = 0; index < count_; ++index)
                out[index] += one[index];
        return out;
    }
    int ranks_, count_;
    std::vector<Values> values_;
};

class Rank {
  public:
    Rank(const workload::World &world, ncclComm_t all)
        : world_(world), all_(all), count_(world.size * per_rank), values_(count_), sums_(count_),
          ring_(count_), share_(per_rank), launches_(Values{0}) {
        for (auto *const stream : {&compute_, &beside_})
            CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
        for (auto *const event : {&forked_, &joined_})
            CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
        values_.write(Reference(world.size).of(world.rank));
        CHECK(cudaDeviceSynchronize()); // the streams do not wait for the default one
        capture();
    }
    Rank(const Rank &) = delete;
    Rank &operator=(const Rank &) = delete;
    ~Rank() {
        CHECK(cudaGraphExecDestroy(graph_));
        for (const auto event : {forked_, joined_})
            cudaEventDestroy(event);
        for (const auto stream : {compute_, beside_})
            cudaStreamDestroy(stream);
    }

    void launch(int times) {
        for (int one = 0; one < times; ++one)
            CHECK(cudaGraphLaunch(graph_, compute_));
        CHECK(cudaStreamSynchronize(compute_));
    }
    [[nodiscard]] Values values() const { return values_.read(); }
    [[nodiscard]] std::uint32_t launches() const { return launches_.read().front(); }

  private:
    void capture() {
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamBeginCapture(compute_, cudaStreamCaptureModeGlobal));
        record();
        CHECK(cudaStreamEndCapture(compute_, &graph));
        CHECK(cudaGraphInstantiate(&graph_, graph, 0));
        CHECK(cudaGraphDestroy(graph));
    }

    void record() {
        const int blocks = (count_ + 127) / 128;
        const int next = (world_.rank + 1) % world_.size;
        const int last = (world_.rank + world_.size - 1) % world_.size;
        advance<<<blocks, 128, 0, compute_>>>(values_.data(), world_.rank, count_);
        CHECK(cudaEventRecord(forked_, compute_));
        CHECK(cudaStreamWaitEvent(beside_, forked_, 0));
        CHECK_NCCL(ncclAllReduce(values_.data(), sums_.data(), count_, ncclUint32, ncclSum, all_, beside_));
        CHECK(cudaEventRecord(joined_, beside_));
        count_up<<<1, 1, 0, compute_>>>(launches_.data());
        CHECK(cudaStreamWaitEvent(compute_, joined_, 0));
        mix<<<blocks, 128, 0, compute_>>>(values_.data(), sums_.data(), values_.data(), world_.rank, count_);
        CHECK_NCCL(ncclGroupStart());
        CHECK_NCCL(ncclSend(values_.data(), count_, ncclUint32, next, all_, compute_));
        CHECK_NCCL(ncclRecv(ring_.data(), count_, ncclUint32, last, all_, compute_));
        CHECK_NCCL(ncclGroupEnd());
        mix<<<blocks, 128, 0, compute_>>>(values_.data(), ring_.data(), values_.data(), world_.rank, count_);
        CHECK_NCCL(
            ncclReduceScatter(values_.data(), share_.data(), per_rank, ncclUint32, ncclSum, all_, compute_));
        CHECK_NCCL(ncclAllGather(share_.data(), sums_.data(), per_rank, ncclUint32, all_, compute_));
        mix<<<blocks, 128, 0, compute_>>>(values_.data(), sums_.data(), values_.data(), world_.rank, count_);
    }

    workload::World world_;
    ncclComm_t all_;
    int count_;
    workload::Buffer<std::uint32_t> values_, sums_, ring_, share_, launches_;
    cudaStream_t compute_ = nullptr, beside_ = nullptr;
    cudaEvent_t forked_ = nullptr, joined_ = nullptr;
    cudaGraphExec_t graph_ = nullptr;
};

} // namespace

int main(int argc, char **argv) {
    const int tens = static_cast<int>(workload::size_argument(argc, argv, 20, 100000));
    const auto world = workload::world_of_environment();
    workload::use_device(world);
    const ncclComm_t all = workload::meet(world);
    Reference reference(world.size);
    bool right = true;
    {
        Rank rank(world, all);
        for (int ten = 0; ten < tens && right; ++ten) {
            rank.launch(at_once);
            for (int one = 0; one < at_once; ++one)
                reference.launch();
            const auto values = rank.values();
            right = values == reference.of(world.rank) &&
                    rank.launches() == static_cast<unsigned>((ten + 1) * at_once);
            if (world.rank == 0)
                std::printf("launches %d values %016llx\n", (ten + 1) * at_once,
                            static_cast<unsigned long long>(
                                workload::checksum(values.data(), values.size() * sizeof(values[0]))));
            std::fflush(stdout);
        }
    }
    if (!right) // the others may wait for this one
        workload::stop(argv[0], 0, "values", "they are not those of a calculation on the host");
    CHECK_NCCL(ncclCommDestroy(all));
    if (world.rank != 0)
        return 0;
    workload::Report report;
    report.expect(right, "the values of each ten of launches");
    return report.finish();
}
