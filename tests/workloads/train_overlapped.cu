// SPDX-License-Identifier: GPL-2.0-or-later
// Training with collectives behind the computation: 8 ranks in a grid of 2 x 4 add up the gradients of each
// block while those of the next one are computed, in three steps over two overlapping communicators:
// reduce-scatter along a row, all-reduce along a column, all-gather along the row, each communicator with a
// stream of its own. Argument: steps.
#include "parallel_training.cuh"

using namespace training;

namespace {

constexpr int rows = 2;
constexpr int columns = 4;
constexpr int ranks = rows * columns;
constexpr int share = batch / ranks;
constexpr int bucket = 2 * width * hidden; // one block's parameters
constexpr int part = bucket / columns;

class Event {
  public:
    Event() { CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;
    ~Event() { cudaEventDestroy(event_); }
    // What `later` does from now on waits for what `earlier` has.
    void order(cudaStream_t earlier, cudaStream_t later) {
        CHECK(cudaEventRecord(event_, earlier));
        CHECK(cudaStreamWaitEvent(later, event_, 0));
    }

  private:
    cudaEvent_t event_ = nullptr;
};

class Rank {
  public:
    Rank(const workload::World &world, ncclComm_t all) : all_(all), rank_(world.rank) {
        for (auto *const stream : {&on_.stream, &row_stream_, &column_stream_})
            CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
        // Both from one group: each rank is in two of the six at once.
        CHECK_NCCL(ncclGroupStart());
        CHECK_NCCL(ncclCommSplit(all, rank_ / columns, rank_, &row_, nullptr));
        CHECK_NCCL(ncclCommSplit(all, rank_ % columns, rank_, &column_, nullptr));
        CHECK_NCCL(ncclGroupEnd());
        std::vector<float> values;
        for (int block = 0; block < blocks; ++block)
            for (const auto &one : {initial_a(block), initial_b(block)})
                values.insert(values.end(), one.begin(), one.end());
        const auto head = initial_head();
        values.insert(values.end(), head.begin(), head.end());
        parameters_.write(values);
    }
    Rank(const Rank &) = delete;
    Rank &operator=(const Rank &) = delete;
    ~Rank() {
        CHECK_NCCL(ncclCommDestroy(row_));
        CHECK_NCCL(ncclCommDestroy(column_));
        for (const auto stream : {on_.stream, row_stream_, column_stream_})
            cudaStreamDestroy(stream);
    }

    float step(const Digits &digits, const std::vector<int> &images) {
        std::vector<float> values;
        std::vector<int> labels;
        for (int image = rank_ * share; image < (rank_ + 1) * share; ++image) {
            const float *const from = &digits.images[static_cast<std::size_t>(images[image]) * pixels];
            values.insert(values.end(), from, from + pixels);
            labels.push_back(digits.labels[images[image]]);
        }
        inputs_.write(values);
        labels_.write(labels);
        for (int block = 0; block < blocks; ++block) {
            on_.multiply(inside(block), input(block), a(parameters_, block), share, hidden, width);
            on_.relu(inside(block), inside(block), share * hidden);
            on_.multiply(input(block + 1), inside(block), b(parameters_, block), share, width, hidden);
            on_.add(input(block + 1), input(block), share * width);
        }
        float *const head_gradients = a(gradients_, blocks);
        on_.multiply(outputs_.data(), input(blocks), a(parameters_, blocks), share, classes, width);
        on_.classify(outputs_.data(), labels_.data(), deltas_.data(), losses_.data(), share);
        on_.multiply(head_gradients, input(blocks), deltas_.data(), width, classes, share, true);
        on_.multiply(flow_.data(), deltas_.data(), a(parameters_, blocks), share, width, classes, false,
                     true);
        computed_[blocks].order(on_.stream, column_stream_);
        CHECK_NCCL(ncclAllReduce(head_gradients, head_gradients, width * classes, ncclFloat, ncclSum, all_,
                                 column_stream_));
        CHECK_NCCL(ncclAllGather(losses_.data(), all_losses_.data(), share, ncclFloat, all_, column_stream_));
        for (int block = blocks - 1; block >= 0; --block) {
            on_.multiply(inside_.data(), flow_.data(), b(parameters_, block), share, hidden, width, false,
                         true);
            on_.relu(inside_.data(), inside(block), share * hidden);
            on_.multiply(b(gradients_, block), inside(block), flow_.data(), hidden, width, share, true);
            on_.multiply(a(gradients_, block), input(block), inside_.data(), width, hidden, share, true);
            computed_[block].order(on_.stream, row_stream_);
            add_up(block);
            on_.multiply(below_.data(), inside_.data(), a(parameters_, block), share, width, hidden, false,
                         true);
            on_.add(flow_.data(), below_.data(), share * width);
        }
        for (const auto stream : {row_stream_, column_stream_})
            ready_.order(stream, on_.stream);
        on_.step(parameters_.data(), gradients_.data(), static_cast<int>(gradients_.size()));
        CHECK(cudaStreamSynchronize(on_.stream));
        float sum = 0.0F;
        for (const float loss : all_losses_.read())
            sum += loss;
        return sum / batch;
    }

    [[nodiscard]] std::uint64_t parameters() const {
        const auto values = parameters_.read();
        return workload::checksum(values.data(), values.size() * sizeof(float));
    }

  private:
    float *a(workload::Buffer<float> &of, int block) { return of.data() + block * bucket; }
    float *b(workload::Buffer<float> &of, int block) { return a(of, block) + width * hidden; }
    float *input(int block) { return inputs_.data() + block * share * width; }
    float *inside(int block) { return insides_.data() + block * share * hidden; }

    // On the communicators' own streams, behind the block's gradients.
    void add_up(int block) {
        float *const all = a(gradients_, block);
        float *const mine = parts_.data() + block * part;
        CHECK_NCCL(ncclReduceScatter(all, mine, part, ncclFloat, ncclSum, row_, row_stream_));
        along_row_[block].order(row_stream_, column_stream_);
        CHECK_NCCL(ncclAllReduce(mine, mine, part, ncclFloat, ncclSum, column_, column_stream_));
        along_column_[block].order(column_stream_, row_stream_);
        CHECK_NCCL(ncclAllGather(mine, all, part, ncclFloat, row_, row_stream_));
    }

    ncclComm_t all_;
    int rank_;
    OnDevice on_;
    cudaStream_t row_stream_ = nullptr, column_stream_ = nullptr;
    ncclComm_t row_ = nullptr, column_ = nullptr;
    workload::Buffer<float> parameters_{blocks * bucket + width * classes},
        gradients_{blocks * bucket + width * classes};
    workload::Buffer<float> parts_{blocks * part};
    workload::Buffer<float> inputs_{(blocks + 1) * share * width}, insides_{blocks * share * hidden};
    workload::Buffer<float> flow_{share * width}, below_{share * width}, inside_{share * hidden};
    workload::Buffer<float> outputs_{share * classes}, deltas_{share * classes}, losses_{share},
        all_losses_{batch};
    workload::Buffer<int> labels_{share};
    Event computed_[blocks + 1], along_row_[blocks], along_column_[blocks], ready_;
};

} // namespace

int main(int argc, char **argv) {
    const int steps = static_cast<int>(workload::size_argument(argc, argv, 8, 100000));
    const auto digits = read_digits(examples);
    const auto world = workload::world_of_environment();
    if (world.size != ranks)
        workload::stop(argv[0], 0, "ranks", "there have to be 8");
    workload::use_device(world);
    const ncclComm_t all = workload::meet(world);
    std::vector<float> losses;
    std::vector<std::uint64_t> parameters;
    {
        Rank rank(world, all);
        for (int step = 0; step < steps; ++step) {
            losses.push_back(rank.step(digits, batch_of(step)));
            if (world.rank == 0)
                std::printf("step %d loss %a\n", step, static_cast<double>(losses.back()));
            std::fflush(stdout);
        }
        parameters = workload::gather_checksums(rank.parameters(), all, ranks);
    }
    CHECK_NCCL(ncclCommDestroy(all));
    if (world.rank != 0)
        return 0;
    workload::Report report;
    std::printf("parameters %016llx\n", static_cast<unsigned long long>(parameters.front()));
    report.expect(std::count(parameters.begin(), parameters.end(), parameters.front()) == ranks,
                  "all ranks have the same parameters");
    // Sums in another order differ in their last bits, and such differences grow.
    const auto compared = std::min<std::size_t>(losses.size(), 8);
    report.near("losses", std::vector<float>(losses.begin(), losses.begin() + static_cast<long>(compared)),
                losses_of_one(digits, static_cast<int>(compared), examples), 1e-3);
    return report.finish();
}
