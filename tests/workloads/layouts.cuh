// SPDX-License-Identifier: GPL-2.0-or-later
// The ranks of a parallel training (parallel_training.cuh), for any data x stages x tensor. A program is a
// layout; its argument: steps.
#pragma once

#include "parallel_training.cuh"

namespace training {

struct Layout {
    int data;
    int stages;
    int tensor;
    [[nodiscard]] constexpr int ranks() const { return data * stages * tensor; }
};

// A rank's part of everything; the rank's number counts tensor first, then stages, then data.
class Rank {
  public:
    Rank(const Layout &layout, const workload::World &world, ncclComm_t all)
        : layout_(layout), all_(all), tensor_(world.rank % layout.tensor),
          stage_(world.rank / layout.tensor % layout.stages),
          data_(world.rank / layout.tensor / layout.stages), own_(hidden / layout.tensor),
          share_(batch / layout.data / pieces), deep_(blocks / layout.stages), parameters_(count()),
          gradients_(count()), flow_(share_ * width), below_(share_ * width), inside_(share_ * own_),
          outputs_(share_ * classes), deltas_(share_ * classes), losses_(share_), labels_(share_), loss_(1) {
        CHECK(cudaStreamCreateWithFlags(&on_.stream, cudaStreamNonBlocking));
        CHECK_NCCL(ncclCommSplit(all, data_ * layout.stages + stage_, tensor_, &tensor_group_, nullptr));
        CHECK_NCCL(ncclCommSplit(all, data_ * layout.tensor + tensor_, stage_, &pipeline_, nullptr));
        CHECK_NCCL(ncclCommSplit(all, stage_ * layout.tensor + tensor_, data_, &data_group_, nullptr));
        for (int piece = 0; piece < pieces; ++piece) {
            for (int block = 0; block <= deep_; ++block)
                inputs_.push_back(std::make_unique<workload::Buffer<float>>(share_ * width));
            for (int block = 0; block < deep_; ++block)
                insides_.push_back(std::make_unique<workload::Buffer<float>>(share_ * own_));
        }
        std::vector<float> values;
        for (int block = stage_ * deep_; block < (stage_ + 1) * deep_; ++block) {
            const auto a = initial_a(block);
            const auto b = initial_b(block);
            for (int row = 0; row < width; ++row) // own columns of A
                values.insert(values.end(), &a[row * hidden + tensor_ * own_],
                              &a[row * hidden + tensor_ * own_] + own_);
            values.insert(values.end(), &b[tensor_ * own_ * width],
                          &b[tensor_ * own_ * width] + own_ * width);
        }
        if (last()) {
            const auto head = initial_head();
            values.insert(values.end(), head.begin(), head.end());
        }
        parameters_.write(values);
    }
    Rank(const Rank &) = delete;
    Rank &operator=(const Rank &) = delete;
    ~Rank() {
        for (const auto one : {tensor_group_, pipeline_, data_group_})
            CHECK_NCCL(ncclCommDestroy(one));
        cudaStreamDestroy(on_.stream);
    }

    // Of a batch of images; the mean loss on all ranks.
    float step(const Digits &digits, const std::vector<int> &images) {
        CHECK(cudaMemsetAsync(gradients_.data(), 0, gradients_.size() * sizeof(float), on_.stream));
        CHECK(cudaMemsetAsync(loss_.data(), 0, sizeof(float), on_.stream));
        for (int piece = 0; piece < pieces; ++piece)
            forward(digits, &images[(data_ * pieces + piece) * share_], piece);
        float sum = 0.0F;
        for (int piece = 0; piece < pieces; ++piece)
            sum += backward(digits, &images[(data_ * pieces + piece) * share_], piece);
        CHECK_NCCL(ncclAllReduce(gradients_.data(), gradients_.data(), gradients_.size(), ncclFloat, ncclSum,
                                 data_group_, on_.stream));
        on_.step(parameters_.data(), gradients_.data(), static_cast<int>(gradients_.size()));
        // The last stage knows the loss; rank 0 of the tensor groups there speaks for them.
        return sum_over_all(last() && tensor_ == 0 ? sum : 0.0F) / batch;
    }

    // How many of the images from `first` on are classified as they should be, on all ranks.
    int classified(const Digits &digits, int first) {
        const int count = static_cast<int>(digits.labels.size());
        float sum = 0.0F;
        for (; first < count; first += layout_.data * share_) {
            std::vector<int> images(share_);
            for (int image = 0; image < share_; ++image)
                images[image] = std::min(first + data_ * share_ + image, count - 1);
            forward(digits, images.data(), 0);
            if (last())
                on_.multiply(outputs_.data(), input(0, deep_), head(parameters_), share_, classes, width);
            CHECK(cudaStreamSynchronize(on_.stream));
            if (!last() || tensor_ != 0)
                continue;
            const auto outputs = outputs_.read();
            for (int image = 0; image < share_ && first + data_ * share_ + image < count; ++image) {
                const auto begin = outputs.begin() + image * classes;
                const auto top = std::max_element(begin, begin + classes) - begin;
                sum += top == digits.labels[images[image]] ? 1.0F : 0.0F;
            }
        }
        return static_cast<int>(sum_over_all(sum));
    }

    [[nodiscard]] std::uint64_t parameters() const {
        const auto values = parameters_.read();
        return workload::checksum(values.data(), values.size() * sizeof(float));
    }

  private:
    [[nodiscard]] bool last() const { return stage_ == layout_.stages - 1; }
    [[nodiscard]] std::size_t block_size() const { return static_cast<std::size_t>(2) * width * own_; }
    [[nodiscard]] std::size_t count() const { return deep_ * block_size() + (last() ? width * classes : 0); }
    float *a(workload::Buffer<float> &of, int block) { return of.data() + block * block_size(); }
    float *b(workload::Buffer<float> &of, int block) { return a(of, block) + width * own_; }
    float *head(workload::Buffer<float> &of) { return a(of, deep_); }
    float *input(int piece, int block) { return inputs_[piece * (deep_ + 1) + block]->data(); }
    float *inside(int piece, int block) { return insides_[piece * deep_ + block]->data(); }

    void sum_over_tensor_group(float *values) {
        CHECK_NCCL(
            ncclAllReduce(values, values, share_ * width, ncclFloat, ncclSum, tensor_group_, on_.stream));
    }

    float sum_over_all(float value) {
        CHECK(cudaMemcpyAsync(loss_.data(), &value, sizeof(value), cudaMemcpyHostToDevice, on_.stream));
        CHECK_NCCL(ncclAllReduce(loss_.data(), loss_.data(), 1, ncclFloat, ncclSum, all_, on_.stream));
        CHECK(cudaMemcpyAsync(&value, loss_.data(), sizeof(value), cudaMemcpyDeviceToHost, on_.stream));
        CHECK(cudaStreamSynchronize(on_.stream));
        return value;
    }

    void forward(const Digits &digits, const int *images, int piece) {
        if (stage_ == 0) {
            std::vector<float> values;
            for (int image = 0; image < share_; ++image) {
                const float *const from = &digits.images[static_cast<std::size_t>(images[image]) * pixels];
                values.insert(values.end(), from, from + pixels);
            }
            inputs_[piece * (deep_ + 1)]->write(values);
        } else {
            CHECK_NCCL(
                ncclRecv(input(piece, 0), share_ * width, ncclFloat, stage_ - 1, pipeline_, on_.stream));
        }
        for (int block = 0; block < deep_; ++block) {
            on_.multiply(inside(piece, block), input(piece, block), a(parameters_, block), share_, own_,
                         width);
            on_.relu(inside(piece, block), inside(piece, block), share_ * own_);
            on_.multiply(input(piece, block + 1), inside(piece, block), b(parameters_, block), share_, width,
                         own_);
            sum_over_tensor_group(input(piece, block + 1));
            on_.add(input(piece, block + 1), input(piece, block), share_ * width);
        }
        if (!last())
            CHECK_NCCL(
                ncclSend(input(piece, deep_), share_ * width, ncclFloat, stage_ + 1, pipeline_, on_.stream));
    }

    // The sum of the losses, where they are known.
    float backward(const Digits &digits, const int *images, int piece) {
        float sum = 0.0F;
        if (last()) {
            std::vector<int> labels;
            for (int image = 0; image < share_; ++image)
                labels.push_back(digits.labels[images[image]]);
            CHECK(cudaStreamSynchronize(on_.stream)); // the labels before are no longer needed
            labels_.write(labels);
            on_.multiply(outputs_.data(), input(piece, deep_), head(parameters_), share_, classes, width);
            on_.classify(outputs_.data(), labels_.data(), deltas_.data(), losses_.data(), share_);
            on_.multiply(head(gradients_), input(piece, deep_), deltas_.data(), width, classes, share_, true,
                         false, true);
            on_.multiply(flow_.data(), deltas_.data(), head(parameters_), share_, width, classes, false,
                         true);
            CHECK(cudaStreamSynchronize(on_.stream));
            for (const float loss : losses_.read())
                sum += loss;
        } else {
            CHECK_NCCL(ncclRecv(flow_.data(), share_ * width, ncclFloat, stage_ + 1, pipeline_, on_.stream));
        }
        for (int block = deep_ - 1; block >= 0; --block) {
            on_.multiply(b(gradients_, block), inside(piece, block), flow_.data(), own_, width, share_, true,
                         false, true);
            on_.multiply(inside_.data(), flow_.data(), b(parameters_, block), share_, own_, width, false,
                         true);
            on_.relu(inside_.data(), inside(piece, block), share_ * own_);
            on_.multiply(a(gradients_, block), input(piece, block), inside_.data(), width, own_, share_, true,
                         false, true);
            on_.multiply(below_.data(), inside_.data(), a(parameters_, block), share_, width, own_, false,
                         true);
            sum_over_tensor_group(below_.data());
            on_.add(flow_.data(), below_.data(), share_ * width);
        }
        if (stage_ > 0)
            CHECK_NCCL(ncclSend(flow_.data(), share_ * width, ncclFloat, stage_ - 1, pipeline_, on_.stream));
        return sum;
    }

    Layout layout_;
    ncclComm_t all_;
    int tensor_, stage_, data_;
    int own_;   // hidden values of each block
    int share_; // images of a piece
    int deep_;  // blocks
    OnDevice on_;
    ncclComm_t tensor_group_ = nullptr, pipeline_ = nullptr, data_group_ = nullptr;
    workload::Buffer<float> parameters_, gradients_, flow_, below_, inside_, outputs_, deltas_, losses_;
    workload::Buffer<int> labels_;
    workload::Buffer<float> loss_;
    std::vector<std::unique_ptr<workload::Buffer<float>>>
        inputs_; // by piece and block; behind the last the output
    std::vector<std::unique_ptr<workload::Buffer<float>>> insides_; // by piece and block
};

// From the first `learned` images; where it is `tested`, on the others.
inline int train(const Layout &layout, int argc, char **argv, int learned = examples, bool tested = false) {
    const int steps = static_cast<int>(workload::size_argument(argc, argv, 8, 100000));
    const auto digits = read_digits(static_cast<std::size_t>(learned));
    // What a step waits for its images, as where they come from slow disks.
    const std::chrono::milliseconds loading(std::stoi(workload::environment("LOADING_MS", nullptr, "0")));
    // A command of the shell's, as where a program looks before each step for how long it still has.
    const auto before_each = workload::environment("BEFORE_EACH_STEP", nullptr, "");
    const auto world = workload::world_of_environment();
    if (world.size != layout.ranks())
        workload::stop(argv[0], 0, "ranks", "there have to be " + std::to_string(layout.ranks()));
    workload::use_device(world);
    const ncclComm_t all = workload::meet(world);
    std::vector<float> losses;
    std::vector<std::uint64_t> parameters;
    int right = 0;
    {
        Rank rank(layout, world, all);
        for (int step = 0; step < steps; ++step) {
            std::this_thread::sleep_for(loading);
            if (!before_each.empty() && std::system(before_each.c_str()) != 0)
                workload::stop(argv[0], step, before_each, "the command has failed");
            losses.push_back(rank.step(digits, batch_of(step, learned)));
            if (world.rank == 0)
                std::printf("step %d loss %a\n", step, static_cast<double>(losses.back()));
            std::fflush(stdout);
        }
        if (tested)
            right = rank.classified(digits, learned);
        parameters = workload::gather_checksums(rank.parameters(), all, world.size);
    }
    CHECK_NCCL(ncclCommDestroy(all));
    if (world.rank != 0)
        return 0;
    if (tested)
        std::printf("accuracy %d of %d\n", right, static_cast<int>(digits.labels.size()) - learned);
    workload::Report report;
    for (const auto sum : parameters)
        std::printf("parameters %016llx\n", static_cast<unsigned long long>(sum));
    // Sums in another order differ in their last bits, and such differences grow.
    const auto compared = std::min<std::size_t>(losses.size(), 8);
    const auto expected = losses_of_one(digits, static_cast<int>(compared), learned);
    report.near("losses", std::vector<float>(losses.begin(), losses.begin() + static_cast<long>(compared)),
                expected, 1e-3);
    // Ranks of one tensor group hold different parts, those of one data group the same.
    const auto stride = static_cast<std::size_t>(layout.stages * layout.tensor);
    bool same = true;
    for (std::size_t rank = stride; rank < parameters.size(); ++rank)
        same = same && parameters[rank] == parameters[rank % stride];
    report.expect(same, "all data groups have the same parameters");
    return report.finish();
}

} // namespace training
