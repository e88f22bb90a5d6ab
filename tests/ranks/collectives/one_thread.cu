// SPDX-License-Identifier: GPL-2.0-or-later
// One thread that drives all devices: ncclCommInitAll, groups over several devices, splits in a group.
#include "members.cuh"

#include <memory>

int main() {
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    std::vector<ncclComm_t> all(static_cast<std::size_t>(devices));
    CHECK_NCCL(ncclCommInitAll(all.data(), devices, nullptr));
    struct Rank {
        workload::Buffer<int> data{std::vector<int>{1, 2, 3}};
        members::Stream stream;
    };
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int device = 0; device < devices; ++device) {
        CHECK(cudaSetDevice(device));
        ranks.push_back(std::make_unique<Rank>());
    }
    const auto add_up = [&](const std::vector<ncclComm_t> &communicators) {
        CHECK_NCCL(ncclGroupStart());
        for (std::size_t rank = 0; rank < ranks.size(); ++rank)
            CHECK_NCCL(ncclAllReduce(ranks[rank]->data.data(), ranks[rank]->data.data(), 3, ncclInt, ncclSum,
                                     communicators[rank], ranks[rank]->stream));
        CHECK_NCCL(ncclGroupEnd());
        for (const auto &rank : ranks)
            CHECK(cudaStreamSynchronize(rank->stream));
    };
    // The current device is the last one; each communicator uses its own.
    add_up(all);
    for (const auto &rank : ranks)
        EXPECT(rank->data.read() == (std::vector<int>{devices, 2 * devices, 3 * devices}), "the sums");
    std::vector<ncclComm_t> turned(all.size());
    CHECK_NCCL(ncclGroupStart());
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        CHECK_NCCL(ncclCommSplit(all[rank], 0, -static_cast<int>(rank), &turned[rank], nullptr));
    CHECK_NCCL(ncclGroupEnd());
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        int found = -1;
        CHECK_NCCL(ncclCommUserRank(turned[rank], &found));
        EXPECT(found == devices - 1 - static_cast<int>(rank), "%d", found);
    }
    add_up(turned);
    EXPECT(ranks.front()->data.read()[0] == devices * devices, "the sums of the split");
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        CHECK_NCCL(ncclCommDestroy(turned[rank]));
        CHECK_NCCL(ncclCommDestroy(all[rank]));
    }
    if (devices > 1) {
        // Memory of another device is out of a communicator's reach.
        CHECK(cudaSetDevice(0));
        ncclComm_t one = nullptr;
        CHECK_NCCL(ncclCommInitAll(&one, 1, nullptr));
        EXPECT_RESULT(
            ncclAllReduce(ranks[1]->data.data(), ranks[1]->data.data(), 1, ncclInt, ncclSum, one, nullptr),
            ncclInvalidArgument);
        EXPECT_RESULT(ncclAllReduce(ranks[0]->data.data(), ranks[0]->data.data(), 1, ncclInt, ncclSum, one,
                                    ranks[1]->stream),
                      ncclUnhandledCudaError);
        CHECK_NCCL(ncclCommDestroy(one));
    }
    for (int device = 0; device < devices; ++device) {
        CHECK(cudaSetDevice(device));
        ranks[static_cast<std::size_t>(device)].reset();
    }
    std::printf("PASSED\n");
    return 0;
}
