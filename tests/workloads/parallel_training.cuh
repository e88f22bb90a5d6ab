// SPDX-License-Identifier: GPL-2.0-or-later
// Training of a classifier of handwritten digits by several ranks: data x stages x tensor. Its blocks
//     y = x + relu(x A) B
// are divided among the stages of a pipeline, each block's A by columns and B by rows among the ranks of a
// tensor group, and the images of a batch among the data groups. A head on the last stage gives 10 outputs.
// Every sum has its order, so losses and parameters depend on the layout and not on where ranks run.
#pragma once

#include "digits.cuh"
#include "ranks.cuh"

#include <algorithm>
#include <memory>
#include <numeric>

namespace training {

constexpr int width = pixels;
constexpr int hidden = 32;
constexpr int blocks = 4;
constexpr int batch = 32;
constexpr int pieces = 2; // of a rank's share of a batch, which go through the pipeline one after the other
constexpr int examples = 640; // to learn from, where nobody says otherwise
constexpr unsigned threads = 64;
constexpr float rate = 0.1F;

// out[i][j] = sum over k, in its order, of a[i][k] * b[k][j], where a and b may be stored transposed; on top
// of what is there if `add`.
__host__ __device__ inline void multiply_one(float *out, const float *a, const float *b, int rows,
                                             int columns, int depth, bool a_turned, bool b_turned, bool add,
                                             int which) {
    const int i = which / columns;
    const int j = which % columns;
    float sum = add ? out[which] : 0.0F;
    for (int k = 0; k < depth; ++k)
        sum = fmaf(a[a_turned ? k * rows + i : i * depth + k], b[b_turned ? j * depth + k : k * columns + j],
                   sum);
    out[which] = sum;
}

__host__ __device__ inline void classify_one(const float *outputs, int label, float *delta, float *loss) {
    float top = outputs[0];
    for (int c = 1; c < classes; ++c)
        top = fmaxf(top, outputs[c]);
    float total = 0.0F;
    for (int c = 0; c < classes; ++c)
        total += expf(outputs[c] - top);
    *loss = logf(total) + (top - outputs[label]);
    for (int c = 0; c < classes; ++c)
        delta[c] = (expf(outputs[c] - top) / total - (c == label ? 1.0F : 0.0F)) / batch;
}

// The same arithmetic on the device and, for a reference without ranks, on the host.
__global__ void multiply_kernel(float *out, const float *a, const float *b, int rows, int columns, int depth,
                                bool a_turned, bool b_turned, bool add) {
    const int which = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (which < rows * columns)
        multiply_one(out, a, b, rows, columns, depth, a_turned, b_turned, add, which);
}
__global__ void relu_kernel(float *values, const float *by, int count) {
    const int which = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (which < count)
        values[which] = by[which] > 0.0F ? values[which] : 0.0F;
}
__global__ void add_kernel(float *to, const float *what, int count) {
    const int which = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (which < count)
        to[which] += what[which];
}
__global__ void classify_kernel(const float *outputs, const int *labels, float *deltas, float *losses,
                                int images) {
    const int which = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (which < images)
        classify_one(outputs + which * classes, labels[which], deltas + which * classes, losses + which);
}
__global__ void step_kernel(float *parameters, const float *gradients, int count) {
    const int which = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (which < count)
        parameters[which] = fmaf(-rate, gradients[which], parameters[which]);
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), int count, cudaStream_t stream, Arguments... arguments) {
    kernel<<<workload::blocks_for(static_cast<std::size_t>(count), threads), threads, 0, stream>>>(
        arguments...);
    CHECK_LAUNCH();
}

struct OnDevice {
    cudaStream_t stream = nullptr;
    void multiply(float *out, const float *a, const float *b, int rows, int columns, int depth,
                  bool a_turned = false, bool b_turned = false, bool add = false) const {
        launch(multiply_kernel, rows * columns, stream, out, a, b, rows, columns, depth, a_turned, b_turned,
               add);
    }
    void relu(float *values, const float *by, int count) const {
        launch(relu_kernel, count, stream, values, by, count);
    }
    void add(float *to, const float *what, int count) const {
        launch(add_kernel, count, stream, to, what, count);
    }
    void classify(const float *outputs, const int *labels, float *deltas, float *losses, int images) const {
        launch(classify_kernel, images, stream, outputs, labels, deltas, losses, images);
    }
    void step(float *parameters, const float *gradients, int count) const {
        launch(step_kernel, count, stream, parameters, gradients, count);
    }
};

// Parameters as they all begin: of block `block` A (width x hidden), B (hidden x width); of the head (width x
// classes).
inline std::vector<float> initial(int which, std::size_t count, float scale) {
    workload::Random random(1000 + static_cast<std::uint64_t>(which));
    std::vector<float> values(count);
    for (auto &value : values)
        value = random.between(-scale, scale);
    return values;
}
inline std::vector<float> initial_a(int block) { return initial(2 * block, width * hidden, 0.15F); }
inline std::vector<float> initial_b(int block) { return initial(2 * block + 1, hidden * width, 0.15F); }
inline std::vector<float> initial_head() { return initial(2 * blocks, width * classes, 0.15F); }

// The images of a step, of `learned` to learn from, the same on all ranks.
inline std::vector<int> batch_of(int step, int learned = examples) {
    std::vector<int> order(static_cast<std::size_t>(learned));
    std::iota(order.begin(), order.end(), 0);
    workload::Random random(77 + static_cast<std::uint64_t>(step / (learned / batch)));
    for (std::size_t i = order.size() - 1; i > 0; --i)
        std::swap(order[i], order[random.below(static_cast<unsigned>(i) + 1)]);
    const auto begin = order.begin() + step % (learned / batch) * batch;
    return {begin, begin + batch};
}

// One rank, one batch at a time, nothing divided: what the losses must come close to.
inline std::vector<float> losses_of_one(const Digits &digits, int steps, int learned) {
    std::vector<std::vector<float>> a;
    std::vector<std::vector<float>> b;
    for (int block = 0; block < blocks; ++block) {
        a.push_back(initial_a(block));
        b.push_back(initial_b(block));
    }
    auto head = initial_head();
    const auto multiply = [](std::vector<float> &out, const std::vector<float> &x,
                             const std::vector<float> &y, int rows, int columns, int depth,
                             bool x_turned = false, bool y_turned = false) {
        out.assign(static_cast<std::size_t>(rows * columns), 0.0F);
        for (int which = 0; which < rows * columns; ++which)
            multiply_one(out.data(), x.data(), y.data(), rows, columns, depth, x_turned, y_turned, false,
                         which);
    };
    std::vector<float> losses;
    for (int step = 0; step < steps; ++step) {
        const auto images = batch_of(step, learned);
        std::vector<std::vector<float>> inputs(blocks + 1);
        std::vector<std::vector<float>> insides(blocks);
        for (const int image : images)
            inputs[0].insert(inputs[0].end(), &digits.images[static_cast<std::size_t>(image) * pixels],
                             &digits.images[static_cast<std::size_t>(image) * pixels] + pixels);
        for (int block = 0; block < blocks; ++block) {
            multiply(insides[block], inputs[block], a[block], batch, hidden, width);
            for (auto &value : insides[block])
                value = value > 0.0F ? value : 0.0F;
            multiply(inputs[block + 1], insides[block], b[block], batch, width, hidden);
            for (std::size_t i = 0; i < inputs[block].size(); ++i)
                inputs[block + 1][i] += inputs[block][i];
        }
        std::vector<float> outputs;
        multiply(outputs, inputs[blocks], head, batch, classes, width);
        std::vector<float> deltas(outputs.size());
        float sum = 0.0F;
        for (int image = 0; image < batch; ++image) {
            float loss = 0.0F;
            classify_one(&outputs[image * classes], digits.labels[images[image]], &deltas[image * classes],
                         &loss);
            sum += loss;
        }
        losses.push_back(sum / batch);
        const auto learn = [](std::vector<float> &parameters, const std::vector<float> &gradients) {
            for (std::size_t i = 0; i < parameters.size(); ++i)
                parameters[i] -= rate * gradients[i];
        };
        std::vector<float> gradients;
        std::vector<float> flow;
        multiply(flow, deltas, head, batch, width, classes, false, true);
        multiply(gradients, inputs[blocks], deltas, width, classes, batch, true);
        learn(head, gradients);
        for (int block = blocks - 1; block >= 0; --block) {
            std::vector<float> inside;
            std::vector<float> below;
            multiply(inside, flow, b[block], batch, hidden, width, false, true);
            for (std::size_t i = 0; i < inside.size(); ++i)
                inside[i] = insides[block][i] > 0.0F ? inside[i] : 0.0F;
            multiply(below, inside, a[block], batch, width, hidden, false, true);
            multiply(gradients, insides[block], flow, hidden, width, batch, true);
            learn(b[block], gradients);
            multiply(gradients, inputs[block], inside, width, hidden, batch, true);
            learn(a[block], gradients);
            for (std::size_t i = 0; i < flow.size(); ++i)
                flow[i] += below[i];
        }
    }
    return losses;
}

} // namespace training
