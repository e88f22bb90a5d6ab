// SPDX-License-Identifier: GPL-2.0-or-later
// Very many launches of a kernel that does almost nothing: what one costs is almost all there is to measure.
// Argument: launches.
#include "workload.cuh"

__global__ void step(unsigned *state, unsigned addend) {
    state[threadIdx.x] = state[threadIdx.x] * 1664525U + addend;
}

int main(int argc, char **argv) {
    const std::size_t launches = workload::size_argument(argc, argv, 20000);
    workload::Report report;
    workload::Buffer<unsigned> state(32);
    state.clear();
    for (std::size_t i = 0; i < launches; ++i)
        step<<<1, 32>>>(state.data(), static_cast<unsigned>(i));
    CHECK_LAUNCH();
    unsigned expected = 0;
    for (std::size_t i = 0; i < launches; ++i)
        expected = expected * 1664525U + static_cast<unsigned>(i);
    report.value("launches", launches);
    report.equal("state", state.read(), std::vector<unsigned>(32, expected));
    return report.finish();
}
