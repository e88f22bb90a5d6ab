// SPDX-License-Identifier: GPL-2.0-or-later
// What the others see when a rank is gone. Argument: what to do; rank 0 does not come back from it.
//   killed    all go on adding up; whoever runs this kills rank 0 when it says "ready PID"
//   aborted   rank 0 aborts the communicator
//   shrunk    as aborted, and the others go on without it
#include "members.cuh"

#include <chrono>

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds patience{60};

// Goes on until a call says that something has failed or, where it is asked, the communicator does. The
// stream may wait for a rank that is gone: nobody waits for the stream.
ncclResult_t go_on(ncclComm_t all, float *data, cudaStream_t stream, bool ask) {
    const auto until = Clock::now() + patience;
    while (Clock::now() < until) {
        if (const auto issued = ncclAllReduce(data, data, 1, ncclFloat, ncclSum, all, stream);
            issued != ncclSuccess)
            return issued;
        ncclResult_t now = ncclSuccess;
        if (ask)
            CHECK_NCCL(ncclCommGetAsyncError(all, &now));
        if (now != ncclSuccess)
            return now;
        std::this_thread::sleep_for(std::chrono::milliseconds(5)); // not more than 12000 of them
    }
    return ncclSuccess;
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    const std::string what = argv[1];
    const auto world = workload::world_of_environment();
    workload::use_device(world);
    const ncclComm_t all = workload::meet(world);
    const members::Stream stream;
    workload::Buffer<float> data(std::vector<float>{1.0F});
    members::meet(all, stream);
    if (world.rank == 0) {
        if (what == "killed") {
            std::printf("ready %d\n", static_cast<int>(getpid()));
            std::fflush(stdout);
            go_on(all, data.data(), stream, true);
            return 1; // nobody has killed it
        }
        // What is complete here may not be with the others, and nobody can tell when it is: they would wait
        // for it without asking, as with NCCL.
        std::this_thread::sleep_for(std::chrono::seconds(1));
        CHECK_NCCL(ncclCommAbort(all));
        std::printf("PASSED\n");
        return 0;
    }
    EXPECT_RESULT(go_on(all, data.data(), stream, world.rank % 2 == 1), ncclRemoteError);
    ncclResult_t now = ncclSuccess;
    CHECK_NCCL(ncclCommGetAsyncError(all, &now));
    EXPECT_RESULT(now, ncclRemoteError);
    EXPECT_RESULT(ncclAllReduce(data.data(), data.data(), 1, ncclFloat, ncclSum, all, stream),
                  ncclRemoteError);
    if (what == "shrunk") {
        ncclComm_t rest = nullptr;
        int gone = 0;
        CHECK_NCCL(ncclCommShrink(all, &gone, 1, &rest, nullptr, NCCL_SHRINK_ABORT));
        const members::Stream other;
        workload::Buffer<int> one(std::vector<int>{1});
        CHECK_NCCL(ncclAllReduce(one.data(), one.data(), 1, ncclInt, ncclSum, rest, other));
        CHECK(cudaStreamSynchronize(other));
        EXPECT(one.read()[0] == world.size - 1, "those that are left");
        CHECK_NCCL(ncclCommDestroy(rest));
    }
    CHECK_NCCL(ncclCommAbort(all));
    std::printf("PASSED\n");
    return 0;
}
