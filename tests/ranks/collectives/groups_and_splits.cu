// SPDX-License-Identifier: GPL-2.0-or-later
// What a program of several ranks can put together: groups, several streams and communicators, splits,
// shrinking, several unique ids, configurations that do not block, memory and errors. For 2 ranks or more.
#include "members.cuh"

#include <chrono>

namespace {

using members::Member;
using workload::Buffer;

int value_of(int rank, int index) { return rank * 1000 + index * 7 + 1; }

std::vector<int> values_of(int rank, std::size_t count) {
    std::vector<int> out(count);
    for (std::size_t i = 0; i < count; ++i)
        out[i] = value_of(rank, static_cast<int>(i));
    return out;
}

void groups(const Member &member, ncclComm_t all) {
    const members::Stream stream;
    constexpr std::size_t count = 1000;
    const auto ranks = static_cast<std::size_t>(member.size);
    Buffer<int> mine(values_of(member.rank, count));
    Buffer<int> sum(count);
    Buffer<int> every(count * ranks);
    Buffer<int> received(count * ranks);
    // Sums, copies, and everybody to everybody, as one; an inner group is a part of the outer one.
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(mine.data(), sum.data(), count, ncclInt, ncclSum, all, stream));
    CHECK_NCCL(ncclGroupStart());
    for (int peer = 0; peer < member.size; ++peer) {
        CHECK_NCCL(ncclSend(mine.data(), count, ncclInt, peer, all, stream));
        CHECK_NCCL(ncclRecv(received.data() + static_cast<std::size_t>(peer) * count, count, ncclInt, peer,
                            all, stream));
    }
    CHECK_NCCL(ncclGroupEnd());
    CHECK_NCCL(ncclAllGather(mine.data(), every.data(), count, ncclInt, all, stream));
    CHECK_NCCL(ncclGroupEnd());
    CHECK(cudaStreamSynchronize(stream));
    std::vector<int> expected_sum(count, 0);
    std::vector<int> expected_all;
    for (int rank = 0; rank < member.size; ++rank)
        for (std::size_t i = 0; i < count; ++i) {
            expected_sum[i] += value_of(rank, static_cast<int>(i));
            expected_all.push_back(value_of(rank, static_cast<int>(i)));
        }
    EXPECT(sum.read() == expected_sum, "rank %d", member.rank);
    EXPECT(every.read() == expected_all, "rank %d", member.rank);
    EXPECT(received.read() == expected_all, "rank %d", member.rank);

    // Very many in one group: several messages for one pair come in the order in which they were sent.
    constexpr int many = 1500;
    const int next = (member.rank + 1) % member.size;
    const int before = (member.rank + member.size - 1) % member.size;
    Buffer<int> ring(many);
    CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < many; ++i) {
        CHECK_NCCL(ncclSend(mine.data() + i % static_cast<int>(count), 1, ncclInt, next, all, stream));
        CHECK_NCCL(ncclRecv(ring.data() + i, 1, ncclInt, before, all, stream));
    }
    CHECK_NCCL(ncclGroupEnd());
    CHECK(cudaStreamSynchronize(stream));
    const auto found = ring.read();
    for (int i = 0; i < many; ++i)
        EXPECT(found[static_cast<std::size_t>(i)] == value_of(before, i % static_cast<int>(count)),
               "message %d", i);

    // Operations of one group on two streams: each stream waits for both.
    const members::Stream other;
    Buffer<int> first(std::vector<int>{member.rank + 1});
    Buffer<int> second(std::vector<int>{member.rank + 2});
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(first.data(), first.data(), 1, ncclInt, ncclMax, all, stream));
    CHECK_NCCL(ncclAllReduce(second.data(), second.data(), 1, ncclInt, ncclMax, all, other));
    CHECK_NCCL(ncclGroupEnd());
    CHECK(cudaStreamSynchronize(other));
    EXPECT(first.read()[0] == member.size && second.read()[0] == member.size + 1, "two streams");

    ncclSimInfo_t simulation = NCCL_SIM_INFO_INITIALIZER;
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(mine.data(), sum.data(), count, ncclInt, ncclSum, all, stream));
    CHECK_NCCL(ncclGroupSimulateEnd(&simulation));
    EXPECT(simulation.estimatedTime > 0.0F, "%f", static_cast<double>(simulation.estimatedTime));
}

int sum_of_ranks(ncclComm_t communicator, int mine, cudaStream_t stream) {
    Buffer<int> one(std::vector<int>{mine});
    CHECK_NCCL(ncclAllReduce(one.data(), one.data(), 1, ncclInt, ncclSum, communicator, stream));
    CHECK(cudaStreamSynchronize(stream));
    return one.read()[0];
}

void splits(const Member &member, ncclComm_t all) {
    const members::Stream stream;
    // Even and odd ranks, backwards.
    ncclComm_t half = nullptr;
    const int color = member.rank % 2;
    CHECK_NCCL(ncclCommSplit(all, color, -member.rank, &half, nullptr));
    int size = 0;
    int rank = -1;
    CHECK_NCCL(ncclCommCount(half, &size));
    CHECK_NCCL(ncclCommUserRank(half, &rank));
    EXPECT(size == (member.size + 1 - color) / 2, "%d", size);
    EXPECT(rank == size - 1 - member.rank / 2, "%d", rank);
    int expected = 0;
    for (int other = color; other < member.size; other += 2)
        expected += other;
    EXPECT(sum_of_ranks(half, member.rank, stream) == expected, "of the half");
    EXPECT(sum_of_ranks(all, 1, stream) == member.size, "of all, behind a split");

    // A split of a split, and one that the last rank has no part in.
    ncclComm_t alone = nullptr;
    CHECK_NCCL(ncclCommSplit(half, rank, 0, &alone, nullptr));
    EXPECT(sum_of_ranks(alone, member.rank, stream) == member.rank, "of one");
    ncclComm_t rest = nullptr;
    const bool last = member.rank == member.size - 1;
    CHECK_NCCL(ncclCommSplit(all, last ? NCCL_SPLIT_NOCOLOR : 5, 0, &rest, nullptr));
    EXPECT((rest == nullptr) == last, "no color");

    // The same without the last rank by shrinking, twice.
    const int excluded = member.size - 1;
    for (int times = 0; times < 2 && !last; ++times) {
        ncclComm_t shrunk = nullptr;
        int list = excluded;
        CHECK_NCCL(ncclCommShrink(all, &list, 1, &shrunk, nullptr, NCCL_SHRINK_DEFAULT));
        EXPECT(sum_of_ranks(shrunk, 1, stream) == member.size - 1, "of a shrunk communicator");
        CHECK_NCCL(ncclCommDestroy(shrunk));
    }
    // Several communicators in one group.
    Buffer<int> one(std::vector<int>{1});
    Buffer<int> two(std::vector<int>{1});
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(one.data(), one.data(), 1, ncclInt, ncclSum, all, stream));
    CHECK_NCCL(ncclAllReduce(two.data(), two.data(), 1, ncclInt, ncclSum, half, stream));
    CHECK_NCCL(ncclGroupEnd());
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(one.read()[0] == member.size && two.read()[0] == size, "two communicators");
    for (const auto each : {half, alone, rest})
        CHECK_NCCL(ncclCommDestroy(each));
}

ncclResult_t await(ncclComm_t communicator) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    ncclResult_t now = ncclInProgress;
    while (now == ncclInProgress && std::chrono::steady_clock::now() < until) {
        CHECK_NCCL(ncclCommGetAsyncError(communicator, &now));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return now;
}

void without_waiting(const Member &member, ncclComm_t all) {
    const members::Stream stream;
    ncclUniqueId ids[2];
    if (member.rank == 0)
        for (auto &one : ids)
            CHECK_NCCL(ncclGetUniqueId(&one));
    Buffer<char> bytes(sizeof(ids));
    CHECK(cudaMemcpy(bytes.data(), ids, sizeof(ids), cudaMemcpyHostToDevice));
    CHECK_NCCL(ncclBroadcast(bytes.data(), bytes.data(), sizeof(ids), ncclChar, 0, all, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(ids, bytes.data(), sizeof(ids), cudaMemcpyDeviceToHost));

    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t made = nullptr;
    const auto begun = ncclCommInitRankScalable(&made, member.size, member.rank, 2, ids, &config);
    EXPECT(begun == ncclSuccess || begun == ncclInProgress, "%d", begun);
    EXPECT_RESULT(await(made), ncclSuccess);
    EXPECT(sum_of_ranks(made, 1, stream) == member.size, "of a communicator that does not block");
    ncclComm_t child = nullptr;
    const auto split = ncclCommSplit(made, 0, member.rank, &child, nullptr);
    EXPECT(split == ncclSuccess || split == ncclInProgress, "%d", split);
    EXPECT_RESULT(await(made), ncclSuccess);
    EXPECT_RESULT(await(child), ncclSuccess);
    EXPECT(sum_of_ranks(child, 1, stream) == member.size, "of its split");
    for (const auto one : {child, made}) {
        const auto ended = ncclCommFinalize(one);
        EXPECT(ended == ncclSuccess || ended == ncclInProgress, "%d", ended);
        EXPECT_RESULT(await(one), ncclSuccess);
        CHECK_NCCL(ncclCommDestroy(one));
    }
}

void memory(const Member &member, ncclComm_t all) {
    const members::Stream stream;
    int *shared = nullptr;
    CHECK_NCCL(ncclMemAlloc(reinterpret_cast<void **>(&shared), 4096));
    void *handle = nullptr;
    CHECK_NCCL(ncclCommRegister(all, shared, 4096, &handle));
    // Pinned and managed memory are good, too; the program's own is not.
    int *pinned = nullptr;
    int *managed = nullptr;
    CHECK(cudaMallocHost(reinterpret_cast<void **>(&pinned), sizeof(int)));
    CHECK(cudaMallocManaged(reinterpret_cast<void **>(&managed), sizeof(int)));
    *pinned = member.rank;
    *managed = member.rank * 2;
    CHECK_NCCL(ncclAllReduce(pinned, shared, 1, ncclInt, ncclSum, all, stream));
    CHECK_NCCL(ncclAllReduce(managed, shared + 1, 1, ncclInt, ncclSum, all, stream));
    int found[2] = {};
    CHECK(cudaMemcpyAsync(found, shared, sizeof(found), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    const int sum = member.size * (member.size - 1) / 2;
    EXPECT(found[0] == sum && found[1] == 2 * sum, "%d %d", found[0], found[1]);
    CHECK_NCCL(ncclCommDeregister(all, handle));
    EXPECT_RESULT(ncclCommDeregister(all, handle), ncclInvalidUsage);
    EXPECT_RESULT(ncclAllReduce(found, shared, 1, ncclInt, ncclSum, all, stream), ncclInvalidArgument);
    EXPECT_RESULT(ncclAllReduce(shared, shared, 1024 * 1024, ncclInt, ncclSum, all, stream),
                  ncclInvalidArgument);
    ncclWindow_t window = nullptr;
    CHECK_NCCL(ncclCommWindowRegister(all, shared, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    EXPECT(window == nullptr, "there is no symmetric memory");
    CHECK_NCCL(ncclCommWindowDeregister(all, window));
    CHECK_NCCL(ncclMemFree(shared));
    // Pinned and managed memory stay: freeing them waits for all devices of the process, and so for ranks
    // that wait for this one in their next collective.
}

void errors(const Member &member, ncclComm_t all) {
    const members::Stream stream;
    Buffer<float> data(8);
    const auto sum = [&](std::size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t communicator) {
        return ncclAllReduce(data.data(), data.data(), count, type, op, communicator, stream);
    };
    EXPECT_RESULT(sum(1, ncclFloat, ncclSum, nullptr), ncclInvalidArgument);
    EXPECT_RESULT(sum(1, static_cast<ncclDataType_t>(12), ncclSum, all), ncclInvalidArgument);
    EXPECT_RESULT(sum(1, ncclFloat, static_cast<ncclRedOp_t>(77), all), ncclInvalidArgument);
    EXPECT_RESULT(ncclBroadcast(data.data(), data.data(), 1, ncclFloat, member.size, all, stream),
                  ncclInvalidArgument);
    EXPECT(std::strstr(ncclGetLastError(all), "invalid root") != nullptr, "the last error");
    EXPECT_RESULT(ncclSend(data.data(), 1, ncclFloat, -1, all, stream), ncclInvalidArgument);
    EXPECT_RESULT(ncclGroupEnd(), ncclInvalidUsage);
    CHECK_NCCL(ncclGroupStart());
    EXPECT_RESULT(sum(1, ncclFloat, static_cast<ncclRedOp_t>(-1), all), ncclInvalidArgument);
    CHECK_NCCL(sum(1, ncclFloat, ncclSum, all));
    EXPECT_RESULT(ncclGroupEnd(), ncclInvalidArgument);
    // Nothing of that group was issued: the next one is the same on all ranks.
    EXPECT(sum_of_ranks(all, 1, stream) == member.size, "behind errors");

    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 3;
    ncclComm_t none = nullptr;
    EXPECT_RESULT(ncclCommInitRankConfig(&none, member.size, member.id, member.rank, &config),
                  ncclInvalidArgument);
    ncclUniqueId foreign{};
    EXPECT_RESULT(ncclCommInitRank(&none, 1, foreign, 0), ncclInvalidArgument);
    int version = 0;
    CHECK_NCCL(ncclGetVersion(&version));
    EXPECT(version == NCCL_VERSION_CODE, "%d", version);
    int device = -1;
    int current = -2;
    CHECK_NCCL(ncclCommCuDevice(all, &device));
    CHECK(cudaGetDevice(&current));
    EXPECT(device == current, "%d", device);
}

} // namespace

int main(int argc, char **argv) {
    return members::run(argc, argv, [](const Member &member) {
        const ncclComm_t all = members::join(member);
        groups(member, all);
        splits(member, all);
        without_waiting(member, all);
        memory(member, all);
        errors(member, all);
        // The legacy default stream, too.
        members::meet(all, nullptr);
        CHECK_NCCL(ncclCommFinalize(all));
        EXPECT_RESULT(ncclCommFinalize(all), ncclInvalidArgument);
        CHECK_NCCL(ncclCommDestroy(all));
    });
}
