// SPDX-License-Identifier: GPL-2.0-or-later
// Data-parallel training: four ranks, each a thread with a device of its own (or shared, where there are
// fewer), hold the same softmax classifier of handwritten digits, compute the gradients of their quarters of
// a batch, and add them up in the order of the ranks; each then makes the same step. The losses do not depend
// on the number of devices. Argument: epochs.
#include "digits.cuh"

#include <barrier>
#include <numeric>
#include <thread>

constexpr int ranks = 4;
constexpr int batch = 60;
constexpr int own = batch / ranks;
constexpr int training = 1500;
constexpr int parameters = pixels * classes + classes;
constexpr unsigned threads = 64;

// One rank's, on the device or on the host.
struct Classifier {
    float *parameters, *moments, *gradients;
    float *images; // own x pixels
    int *labels;   // own
    float *deltas; // own x classes
    float *losses; // own
};

__host__ __device__ inline void classify(const Classifier &n, int image) {
    float outputs[classes];
    float top = -1e30F;
    for (int c = 0; c < classes; ++c) {
        float sum = n.parameters[pixels * classes + c];
        for (int pixel = 0; pixel < pixels; ++pixel)
            sum = fmaf(n.images[image * pixels + pixel], n.parameters[pixel * classes + c], sum);
        outputs[c] = sum;
        top = fmaxf(top, sum);
    }
    const int label = n.labels[image];
    const float mine = outputs[label];
    float total = 0.0F;
    for (float &output : outputs) {
        output = expf(output - top);
        total += output;
    }
    n.losses[image] = logf(total) + (top - mine);
    for (int c = 0; c < classes; ++c)
        n.deltas[image * classes + c] = (outputs[c] / total - (c == label ? 1.0F : 0.0F)) / batch;
}

__host__ __device__ inline void differentiate(const Classifier &n, int which) {
    const int c = which % classes;
    const int pixel = which / classes; // `pixels` for a bias
    float gradient = 0.0F;
    for (int image = 0; image < own; ++image)
        gradient = fmaf(pixel == pixels ? 1.0F : n.images[image * pixels + pixel],
                        n.deltas[image * classes + c], gradient);
    n.gradients[which] = gradient;
}

__host__ __device__ inline void step(const Classifier &n, int which) {
    n.moments[which] = fmaf(0.9F, n.moments[which], n.gradients[which]);
    n.parameters[which] = fmaf(-0.1F, n.moments[which], n.parameters[which]);
}

__global__ void classify_all(Classifier n) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < own)
        classify(n, i);
}
__global__ void differentiate_all(Classifier n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < parameters)
        differentiate(n, i);
}
__global__ void step_all(Classifier n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < parameters)
        step(n, i);
}

// The quarter of a batch that is a rank's.
struct Quarter {
    std::vector<float> images;
    std::vector<int> labels;
    Quarter(const Digits &digits, const int *chosen) {
        for (int image = 0; image < own; ++image) {
            const auto *const begin = &digits.images[static_cast<std::size_t>(chosen[image]) * pixels];
            images.insert(images.end(), begin, begin + pixels);
            labels.push_back(digits.labels[chosen[image]]);
        }
    }
};

class Device {
  public:
    explicit Device(int device) : device_(device) {
        CHECK(cudaSetDevice(device_));
        CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        const auto allocate = [](auto *&memory, std::size_t count) {
            CHECK(cudaMalloc(&memory, count * sizeof(*memory)));
            CHECK(cudaMemset(memory, 0, count * sizeof(*memory)));
        };
        for (float **memory : {&n_.parameters, &n_.moments, &n_.gradients})
            allocate(*memory, parameters);
        allocate(n_.images, own * pixels);
        allocate(n_.labels, own);
        allocate(n_.deltas, own * classes);
        allocate(n_.losses, own);
        CHECK(cudaDeviceSynchronize());
    }
    void compute(const Quarter &quarter, float *gradients, float *losses) {
        CHECK(cudaMemcpyAsync(n_.images, quarter.images.data(), quarter.images.size() * sizeof(float),
                              cudaMemcpyHostToDevice, stream_));
        CHECK(cudaMemcpyAsync(n_.labels, quarter.labels.data(), quarter.labels.size() * sizeof(int),
                              cudaMemcpyHostToDevice, stream_));
        classify_all<<<1, threads, 0, stream_>>>(n_);
        differentiate_all<<<workload::blocks_for(parameters, threads), threads, 0, stream_>>>(n_);
        CHECK_LAUNCH();
        CHECK(cudaMemcpyAsync(gradients, n_.gradients, parameters * sizeof(float), cudaMemcpyDeviceToHost,
                              stream_));
        CHECK(cudaMemcpyAsync(losses, n_.losses, own * sizeof(float), cudaMemcpyDeviceToHost, stream_));
        CHECK(cudaStreamSynchronize(stream_));
    }
    void learn(const float *gradients) {
        CHECK(cudaMemcpyAsync(n_.gradients, gradients, parameters * sizeof(float), cudaMemcpyHostToDevice,
                              stream_));
        step_all<<<workload::blocks_for(parameters, threads), threads, 0, stream_>>>(n_);
        CHECK_LAUNCH();
        CHECK(cudaStreamSynchronize(stream_));
    }
    std::vector<float> values() const {
        std::vector<float> out(parameters);
        CHECK(cudaMemcpy(out.data(), n_.parameters, parameters * sizeof(float), cudaMemcpyDeviceToHost));
        return out;
    }

  private:
    int device_;
    cudaStream_t stream_ = nullptr;
    Classifier n_{};
};

class Host {
  public:
    Host()
        : memory_(3 * parameters + own * (pixels + classes + 1), 0.0F), labels_(own),
          n_{memory_.data(),
             memory_.data() + parameters,
             memory_.data() + 2 * parameters,
             memory_.data() + 3 * parameters,
             labels_.data(),
             memory_.data() + 3 * parameters + own * pixels,
             memory_.data() + 3 * parameters + own * (pixels + classes)} {}
    void compute(const Quarter &quarter, float *gradients, float *losses) {
        std::copy(quarter.images.begin(), quarter.images.end(), n_.images);
        std::copy(quarter.labels.begin(), quarter.labels.end(), n_.labels);
        for (int image = 0; image < own; ++image)
            classify(n_, image);
        for (int which = 0; which < parameters; ++which)
            differentiate(n_, which);
        std::copy_n(n_.gradients, parameters, gradients);
        std::copy_n(n_.losses, own, losses);
    }
    void learn(const float *gradients) {
        std::copy_n(gradients, parameters, n_.gradients);
        for (int which = 0; which < parameters; ++which)
            step(n_, which);
    }
    std::vector<float> values() const { return {n_.parameters, n_.parameters + parameters}; }

  private:
    std::vector<float> memory_;
    std::vector<int> labels_;
    Classifier n_;
};

struct Result {
    std::vector<float> losses; // by epoch
    std::vector<float> values; // of the first rank
    bool same = true;          // all ranks have the same
};

// make(rank) is called by the rank's own thread.
template <typename Make>
Result train(Make make, const Digits &digits, int epochs) {
    Result result;
    std::vector<int> order(training);
    std::iota(order.begin(), order.end(), 0);
    workload::Random random(191);
    std::vector<std::vector<float>> gradients(ranks, std::vector<float>(parameters));
    std::vector<std::vector<float>> losses(ranks, std::vector<float>(own));
    std::vector<std::vector<float>> values(ranks);
    std::vector<float> sum(parameters);
    float epoch_loss = 0.0F;
    // In the order of the ranks, by whoever comes last.
    const auto add_up = [&]() noexcept {
        for (int which = 0; which < parameters; ++which) {
            float all = 0.0F;
            for (const auto &one : gradients)
                all += one[which];
            sum[which] = all;
        }
        for (const auto &one : losses)
            for (const float loss : one)
                epoch_loss += loss;
    };
    std::barrier computed(ranks, add_up);
    std::barrier learned(ranks);
    const auto rank_works = [&](int rank) {
        auto machine = make(rank);
        for (int epoch = 0; epoch < epochs; ++epoch) {
            if (rank == 0)
                for (std::size_t i = order.size() - 1; i > 0; --i)
                    std::swap(order[i], order[random.below(static_cast<unsigned>(i) + 1)]);
            learned.arrive_and_wait(); // the order is there
            for (int start = 0; start < training; start += batch) {
                machine.compute(Quarter(digits, &order[start + rank * own]), gradients[rank].data(),
                                losses[rank].data());
                computed.arrive_and_wait();
                machine.learn(sum.data());
                learned.arrive_and_wait();
            }
            if (rank == 0) {
                result.losses.push_back(epoch_loss / training);
                std::printf("epoch %d loss %a\n", epoch, static_cast<double>(result.losses.back()));
                std::fflush(stdout);
                epoch_loss = 0.0F;
            }
        }
        values[rank] = machine.values();
    };
    {
        std::vector<std::jthread> all;
        for (int rank = 0; rank < ranks; ++rank)
            all.emplace_back(rank_works, rank);
    }
    result.values = values.front();
    for (const auto &one : values)
        result.same = result.same && one == values.front();
    return result;
}

int main(int argc, char **argv) {
    const int epochs = static_cast<int>(workload::size_argument(argc, argv, 3, 100000));
    const Digits digits = read_digits(training);
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    workload::Report report;
    const Result found = train([devices](int rank) { return Device(rank % devices); }, digits, epochs);
    report.bits("parameters", found.values);
    report.expect(found.same, "all ranks have the same parameters");
    // expf and logf may differ in the last bit, and such differences grow: the reference is for the first
    // epochs.
    constexpr int compared = 3;
    std::printf("on the CPU:\n");
    const Result expected = train([](int) { return Host(); }, digits, std::min(epochs, compared));
    report.near("losses",
                std::vector<float>(found.losses.begin(),
                                   found.losses.begin() + static_cast<long>(expected.losses.size())),
                expected.losses, 1e-4);
    report.expect(found.losses.back() < 0.5F, "the classifier has learnt");
    return report.finish();
}
