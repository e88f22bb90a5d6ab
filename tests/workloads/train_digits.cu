// SPDX-License-Identifier: GPL-2.0-or-later
// Trains a network (64 pixels, a hidden layer with ReLU, 10 classes with softmax) by Adam on handwritten
// digits, batches uploaded from pinned memory one by one. The CPU trains the same network by the same
// arithmetic in the same order; only expf and logf may differ in the last bit, so that losses agree within a
// bound. Argument: epochs.
#include "digits.cuh"

#include <numeric>

constexpr int hidden = 32;
constexpr int batch = 50;
constexpr int training = 1500;
constexpr unsigned threads = 64;

// All parameters in one array, in this order.
constexpr int weights1 = 0;
constexpr int bias1 = weights1 + pixels * hidden;
constexpr int weights2 = bias1 + hidden;
constexpr int bias2 = weights2 + hidden * classes;
constexpr int parameters = bias2 + classes;

// What one step works on; on the device or on the host.
struct Network {
    float *parameters, *gradients, *first_moments, *second_moments;
    float *images;      // batch x pixels
    int *labels;        // batch
    float *activations; // batch x hidden
    float *deltas;      // batch x classes
    float *hidden_deltas;
    float *losses; // batch
    int *right;    // batch: 1 where the largest output is the label
};

__host__ __device__ inline void activate(const Network &n, int image, int unit) {
    float sum = n.parameters[bias1 + unit];
    for (int pixel = 0; pixel < pixels; ++pixel)
        sum = fmaf(n.images[image * pixels + pixel], n.parameters[weights1 + pixel * hidden + unit], sum);
    n.activations[image * hidden + unit] = fmaxf(sum, 0.0F);
}

__host__ __device__ inline void classify(const Network &n, int image) {
    float outputs[classes];
    int largest = 0;
    for (int c = 0; c < classes; ++c) {
        float sum = n.parameters[bias2 + c];
        for (int unit = 0; unit < hidden; ++unit)
            sum =
                fmaf(n.activations[image * hidden + unit], n.parameters[weights2 + unit * classes + c], sum);
        outputs[c] = sum;
        largest = sum > outputs[largest] ? c : largest;
    }
    const int label = n.labels[image];
    const float top = outputs[largest];
    const float own = outputs[label];
    float total = 0.0F;
    for (float &output : outputs) {
        output = expf(output - top);
        total += output;
    }
    n.losses[image] = logf(total) + (top - own);
    n.right[image] = largest == label ? 1 : 0;
    for (int c = 0; c < classes; ++c)
        n.deltas[image * classes + c] = (outputs[c] / total - (c == label ? 1.0F : 0.0F)) / batch;
}

__host__ __device__ inline void propagate(const Network &n, int image, int unit) {
    float sum = 0.0F;
    for (int c = 0; c < classes; ++c)
        sum = fmaf(n.deltas[image * classes + c], n.parameters[weights2 + unit * classes + c], sum);
    n.hidden_deltas[image * hidden + unit] = n.activations[image * hidden + unit] > 0.0F ? sum : 0.0F;
}

// Gradient of one parameter over the batch, and Adam's step for it.
__host__ __device__ inline void learn(const Network &n, int which, float correction1, float correction2) {
    const float *left = nullptr; // nothing for a bias
    const float *right = n.hidden_deltas;
    int left_stride = 0;
    int right_stride = hidden;
    if (which < bias1) {
        left = n.images + which / hidden;
        left_stride = pixels;
        right += which % hidden;
    } else if (which < weights2) {
        right += which - bias1;
    } else {
        right_stride = classes;
        if (which < bias2) {
            left = n.activations + (which - weights2) / classes;
            left_stride = hidden;
            right = n.deltas + (which - weights2) % classes;
        } else {
            right = n.deltas + (which - bias2);
        }
    }
    float gradient = 0.0F;
    if (left != nullptr)
        for (int image = 0; image < batch; ++image)
            gradient = fmaf(left[image * left_stride], right[image * right_stride], gradient);
    else
        for (int image = 0; image < batch; ++image)
            gradient += right[image * right_stride];
    const float first = fmaf(0.9F, n.first_moments[which], 0.1F * gradient);
    const float second = fmaf(0.999F, n.second_moments[which], 0.001F * gradient * gradient);
    n.first_moments[which] = first;
    n.second_moments[which] = second;
    const float step = 0.01F * (first * correction1) / (sqrtf(second * correction2) + 1e-8F);
    n.gradients[which] = gradient;
    n.parameters[which] = n.parameters[which] - step;
}

__global__ void activate_all(Network n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < batch * hidden)
        activate(n, i / hidden, i % hidden);
}
__global__ void classify_all(Network n, float *epoch_loss, int *epoch_right) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < batch)
        classify(n, i);
    __syncthreads();
    if (i == 0)
        for (int image = 0; image < batch; ++image) { // one order, as on the CPU
            *epoch_loss += n.losses[image];
            *epoch_right += n.right[image];
        }
}
__global__ void propagate_all(Network n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < batch * hidden)
        propagate(n, i / hidden, i % hidden);
}
__global__ void learn_all(Network n, float correction1, float correction2) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < parameters)
        learn(n, i, correction1, correction2);
}

// What differs between the two machines.
class Device {
  public:
    explicit Device(const std::vector<float> &start)
        : parameters_(start), gradients_(parameters), first_(parameters), second_(parameters),
          images_(batch * pixels), labels_(batch), activations_(batch * hidden), deltas_(batch * classes),
          hidden_deltas_(batch * hidden), losses_(batch), right_(batch), epoch_loss_(1), epoch_right_(1),
          network_{parameters_.data(),    gradients_.data(), first_.data(),       second_.data(),
                   images_.data(),        labels_.data(),    activations_.data(), deltas_.data(),
                   hidden_deltas_.data(), losses_.data(),    right_.data()} {
        first_.clear();
        second_.clear();
        CHECK(cudaStreamCreate(&stream_));
        CHECK(cudaMallocHost(&staged_images_, batch * pixels * sizeof(float)));
        CHECK(cudaMallocHost(&staged_labels_, batch * sizeof(int)));
    }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;
    ~Device() {
        cudaFreeHost(staged_images_);
        cudaFreeHost(staged_labels_);
        cudaStreamDestroy(stream_);
    }
    void begin_epoch() {
        CHECK(cudaMemsetAsync(epoch_loss_.data(), 0, sizeof(float), stream_));
        CHECK(cudaMemsetAsync(epoch_right_.data(), 0, sizeof(int), stream_));
    }
    void upload(const Digits &digits, const int *chosen) {
        CHECK(cudaStreamSynchronize(stream_)); // the last batch has left the pinned memory
        for (int image = 0; image < batch; ++image) {
            std::copy_n(&digits.images[static_cast<std::size_t>(chosen[image]) * pixels], pixels,
                        staged_images_ + image * pixels);
            staged_labels_[image] = digits.labels[chosen[image]];
        }
        CHECK(cudaMemcpyAsync(network_.images, staged_images_, batch * pixels * sizeof(float),
                              cudaMemcpyHostToDevice, stream_));
        CHECK(cudaMemcpyAsync(network_.labels, staged_labels_, batch * sizeof(int), cudaMemcpyHostToDevice,
                              stream_));
    }
    void forward() {
        activate_all<<<workload::blocks_for(batch * hidden, threads), threads, 0, stream_>>>(network_);
        classify_all<<<1, 64, 0, stream_>>>(network_, epoch_loss_.data(), epoch_right_.data());
        CHECK_LAUNCH();
    }
    void backward(float correction1, float correction2) {
        propagate_all<<<workload::blocks_for(batch * hidden, threads), threads, 0, stream_>>>(network_);
        learn_all<<<workload::blocks_for(parameters, threads), threads, 0, stream_>>>(network_, correction1,
                                                                                      correction2);
        CHECK_LAUNCH();
    }
    float loss() {
        CHECK(cudaStreamSynchronize(stream_));
        return epoch_loss_.read()[0];
    }
    int right() {
        CHECK(cudaStreamSynchronize(stream_));
        return epoch_right_.read()[0];
    }
    std::vector<float> values() { return parameters_.read(); }

  private:
    workload::Buffer<float> parameters_, gradients_, first_, second_, images_;
    workload::Buffer<int> labels_;
    workload::Buffer<float> activations_, deltas_, hidden_deltas_, losses_;
    workload::Buffer<int> right_;
    workload::Buffer<float> epoch_loss_;
    workload::Buffer<int> epoch_right_;
    Network network_;
    cudaStream_t stream_ = nullptr;
    float *staged_images_ = nullptr;
    int *staged_labels_ = nullptr;
};

class Host {
  public:
    explicit Host(const std::vector<float> &start)
        : parameters_(start), gradients_(parameters), first_(parameters, 0.0F), second_(parameters, 0.0F),
          images_(batch * pixels), activations_(batch * hidden), deltas_(batch * classes),
          hidden_deltas_(batch * hidden), losses_(batch), labels_(batch), right_(batch),
          network_{parameters_.data(),    gradients_.data(), first_.data(),       second_.data(),
                   images_.data(),        labels_.data(),    activations_.data(), deltas_.data(),
                   hidden_deltas_.data(), losses_.data(),    right_.data()} {}
    void begin_epoch() {
        loss_ = 0.0F;
        right_count_ = 0;
    }
    void upload(const Digits &digits, const int *chosen) {
        for (int image = 0; image < batch; ++image) {
            std::copy_n(&digits.images[static_cast<std::size_t>(chosen[image]) * pixels], pixels,
                        &images_[static_cast<std::size_t>(image) * pixels]);
            labels_[image] = digits.labels[chosen[image]];
        }
    }
    void forward() {
        for (int i = 0; i < batch * hidden; ++i)
            activate(network_, i / hidden, i % hidden);
        for (int image = 0; image < batch; ++image)
            classify(network_, image);
        for (int image = 0; image < batch; ++image) {
            loss_ += losses_[image];
            right_count_ += right_[image];
        }
    }
    void backward(float correction1, float correction2) {
        for (int i = 0; i < batch * hidden; ++i)
            propagate(network_, i / hidden, i % hidden);
        for (int i = 0; i < parameters; ++i)
            learn(network_, i, correction1, correction2);
    }
    [[nodiscard]] float loss() const { return loss_; }
    [[nodiscard]] int right() const { return right_count_; }

  private:
    std::vector<float> parameters_, gradients_, first_, second_, images_, activations_, deltas_,
        hidden_deltas_, losses_;
    std::vector<int> labels_, right_;
    Network network_;
    float loss_ = 0.0F;
    int right_count_ = 0;
};

struct History {
    std::vector<float> losses; // means over the training digits, by epoch
    int right = 0;             // of the digits that were not trained on
    int tested = 0;
};

template <typename Machine>
History train(Machine &machine, const Digits &digits, int epochs) {
    History history;
    std::vector<int> order(training);
    std::iota(order.begin(), order.end(), 0);
    workload::Random random(167);
    double decay1 = 1.0;
    double decay2 = 1.0;
    for (int epoch = 0; epoch < epochs; ++epoch) {
        for (std::size_t i = order.size() - 1; i > 0; --i)
            std::swap(order[i], order[random.below(static_cast<unsigned>(i) + 1)]);
        machine.begin_epoch();
        for (int start = 0; start < training; start += batch) {
            decay1 *= 0.9;
            decay2 *= 0.999;
            machine.upload(digits, &order[start]);
            machine.forward();
            machine.backward(static_cast<float>(1.0 / (1.0 - decay1)),
                             static_cast<float>(1.0 / (1.0 - decay2)));
        }
        history.losses.push_back(machine.loss() / training);
    }
    // The rest is for testing, in whole batches.
    machine.begin_epoch();
    for (int start = training; start + batch <= static_cast<int>(digits.labels.size()); start += batch) {
        std::vector<int> chosen(batch);
        std::iota(chosen.begin(), chosen.end(), start);
        machine.upload(digits, chosen.data());
        machine.forward();
        history.tested += batch;
    }
    history.right = machine.right();
    return history;
}

int main(int argc, char **argv) {
    const int epochs = static_cast<int>(workload::size_argument(argc, argv, 5, 100000));
    const Digits digits = read_digits(training + batch);
    std::vector<float> start(parameters, 0.0F);
    workload::Random random(173);
    for (int i = 0; i < bias1; ++i)
        start[i] = random.between(-0.25F, 0.25F);
    for (int i = weights2; i < bias2; ++i)
        start[i] = random.between(-0.3F, 0.3F);

    workload::Report report;
    Device device(start);
    const History found = train(device, digits, epochs);
    for (int epoch = 0; epoch < epochs; ++epoch)
        std::printf("epoch %d loss %a\n", epoch, static_cast<double>(found.losses[epoch]));
    report.bits("parameters", device.values());
    report.value("right", found.right);
    report.value("of", found.tested);
    // Rounding differences grow with the steps: the reference is for the first epochs.
    const int compared = std::min(epochs, 5);
    Host host(start);
    const History expected = train(host, digits, compared);
    report.near("losses", std::vector<float>(found.losses.begin(), found.losses.begin() + compared),
                expected.losses, 1e-3);
    report.expect(epochs < 5 || found.right * 100 >= found.tested * 90,
                  "nine of ten unseen digits are right");
    return report.finish();
}
