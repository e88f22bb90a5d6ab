// SPDX-License-Identifier: GPL-2.0-or-later
// cuDNN: starts, describes tensors and a convolution, allocates and copies, and applies an activation where
// it has a kernel for the device. On a device that runs only PTX it has none: the program says so.
#include "workload.cuh"

#include <algorithm>

#include <cudnn.h>

inline void check(cudnnStatus_t status, int line, const char *what) {
    if (status != CUDNN_STATUS_SUCCESS)
        workload::stop(__FILE__, line, what, cudnnGetErrorString(status));
}
#define CUDNN(call) check((call), __LINE__, #call)

int main() {
    workload::Report report;
    report.expect(cudnnGetVersion() / 10000 >= 9, "version of cuDNN");
    cudnnHandle_t handle = nullptr;
    CUDNN(cudnnCreate(&handle));
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreate(&stream));
    CUDNN(cudnnSetStream(handle, stream));
    cudaStream_t set = nullptr;
    CUDNN(cudnnGetStream(handle, &set));
    report.expect(set == stream, "stream");

    cudnnTensorDescriptor_t images = nullptr;
    cudnnFilterDescriptor_t filters = nullptr;
    cudnnConvolutionDescriptor_t convolution = nullptr;
    CUDNN(cudnnCreateTensorDescriptor(&images));
    CUDNN(cudnnCreateFilterDescriptor(&filters));
    CUDNN(cudnnCreateConvolutionDescriptor(&convolution));
    CUDNN(cudnnSetTensor4dDescriptor(images, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 3, 16, 20));
    CUDNN(cudnnSetFilter4dDescriptor(filters, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 8, 3, 5, 3));
    CUDNN(cudnnSetConvolution2dDescriptor(convolution, 2, 1, 2, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                          CUDNN_DATA_FLOAT));
    int shape[4] = {};
    CUDNN(cudnnGetConvolution2dForwardOutputDim(convolution, images, filters, &shape[0], &shape[1], &shape[2],
                                                &shape[3]));
    std::printf("convolution gives %d %d %d %d\n", shape[0], shape[1], shape[2], shape[3]);
    report.expect(shape[0] == 2 && shape[1] == 8 && shape[2] == 8 && shape[3] == 20,
                  "shape of a convolution");
    std::size_t size = 0;
    CUDNN(cudnnGetTensorSizeInBytes(images, &size));
    std::vector<float> values(size / sizeof(float));
    report.value("values", values.size());
    workload::Random random(163);
    for (float &value : values)
        value = random.between(-1.0F, 1.0F);
    workload::Buffer<float> in(values);
    workload::Buffer<float> out(values.size());
    CHECK(cudaMemcpyAsync(out.data(), in.data(), size, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
    report.equal("copied", out.read(), values);

    cudnnActivationDescriptor_t activation = nullptr;
    CUDNN(cudnnCreateActivationDescriptor(&activation));
    CUDNN(cudnnSetActivationDescriptor(activation, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0.0));
    const float one = 1.0F;
    const float zero = 0.0F;
    const cudnnStatus_t status =
        cudnnActivationForward(handle, activation, &one, images, in.data(), &zero, images, out.data());
    report.text("activation", cudnnGetErrorString(status));
    if (status == CUDNN_STATUS_SUCCESS) {
        CHECK(cudaStreamSynchronize(stream));
        std::transform(values.begin(), values.end(), values.begin(),
                       [](float value) { return std::max(value, 0.0F); });
        report.equal("activation", out.read(), values);
    } else {
        report.text("activation", "skipped: cuDNN has no kernel that this device runs");
    }
    CUDNN(cudnnDestroyActivationDescriptor(activation));
    CUDNN(cudnnDestroyConvolutionDescriptor(convolution));
    CUDNN(cudnnDestroyFilterDescriptor(filters));
    CUDNN(cudnnDestroyTensorDescriptor(images));
    CUDNN(cudnnDestroy(handle));
    CHECK(cudaStreamDestroy(stream));
    return report.finish();
}
