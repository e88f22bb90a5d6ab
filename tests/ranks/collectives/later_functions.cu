// SPDX-License-Identifier: GPL-2.0-or-later
// What came with NCCL 2.28 and later: teams, properties, communicators that grow or are suspended, and the answers
// of what there is not. For 2 ranks or more. Functions that the header does not have are looked up by name, with
// the prototypes of NCCL 2.30.
#include "members.cuh"

#include <cstdint>
#include <cstring>
#include <iterator>

#include <dlfcn.h>
#include <nccl_device/core.h>

namespace {

using members::Member;
using workload::Buffer;

struct Properties {
    std::size_t size = sizeof(Properties);
    unsigned magic = 0xcafebeef;
    unsigned version = NCCL_VERSION(2, 30, 7);
    int rank = -1, ranks = -1, cuda_device = -1, nvml_device = -1;
    bool device_api = true, multimem = true;
    int gin = -1, lsa_teams = -1;
    bool host_rma = true;
    int railed_gin = -1;
};

template <class... Parameters>
auto later(const char *name) {
    const auto function = reinterpret_cast<ncclResult_t (*)(Parameters...)>(dlsym(RTLD_DEFAULT, name));
    EXPECT(function != nullptr, "%s", name);
    return function;
}

int sum_of_ranks(ncclComm_t communicator, int mine, cudaStream_t stream) {
    Buffer<int> value(std::vector<int>{mine});
    CHECK_NCCL(ncclAllReduce(value.data(), value.data(), 1, ncclInt, ncclSum, communicator, stream));
    CHECK(cudaStreamSynchronize(stream));
    return value.read()[0];
}

void teams(const Member &member, ncclComm_t all) {
    const auto is = [](const ncclTeam_t &team, int ranks, int rank) {
        return team.nRanks == ranks && team.rank == rank && team.stride == 1;
    };
    const auto world = ncclTeamWorld(all);
    EXPECT(is(world, member.size, member.rank), "the world");
    EXPECT(is(ncclTeamLsa(all), 1, 0), "the LSA team");
    EXPECT(is(ncclTeamRail(all), member.size, member.rank), "the rail");
    EXPECT(ncclTeamRankToWorld(all, world, 1) == 1, "rank 1");
    EXPECT(ncclTeamRankToLsa(all, world, member.rank) == 0, "the own rank");
    EXPECT(ncclTeamWorld(nullptr).nRanks == 0 && ncclTeamRankToWorld(nullptr, world, 1) == -1, "of none");
    Properties properties;
    CHECK_NCCL((later<ncclComm_t, Properties *>("ncclCommQueryProperties")(all, &properties)));
    EXPECT(properties.rank == member.rank && properties.ranks == member.size, "rank %d", properties.rank);
    EXPECT(!properties.device_api && !properties.multimem && properties.gin == 0, "no device API");
    EXPECT(properties.lsa_teams == member.size && !properties.host_rma, "alone");
}

void refusals(ncclComm_t all, cudaStream_t stream) {
    const ncclDevCommRequirements_t wishes{};
    alignas(64) std::byte space[4096]{};
    auto *const device = reinterpret_cast<ncclDevComm_t *>(space);
    EXPECT_RESULT(ncclDevCommCreate(all, &wishes, device), ncclInvalidUsage);
    EXPECT(std::strstr(ncclGetLastError(all), "cannot reach the memory of other ranks") != nullptr, "why");
    EXPECT_RESULT(ncclDevCommDestroy(all, device), ncclInvalidUsage);
    EXPECT_RESULT(ncclDevCommDestroy(nullptr, device), ncclInvalidArgument);
    EXPECT_RESULT((later<int, int, int, unsigned, ncclComm_t, cudaStream_t>("ncclSignal")(0, 0, 0, 0, all, stream)),
                  ncclInvalidArgument);
    Buffer<int> data(4);
    EXPECT_RESULT((later<const void *, std::size_t, ncclDataType_t, int, ncclWindow_t, std::size_t, int, int,
                         unsigned, ncclComm_t, cudaStream_t>("ncclPutSignal")(data.data(), 1, ncclInt, 0, nullptr, 0,
                                                                              0, 0, 0, all, stream)),
                  ncclInvalidArgument);
    EXPECT(std::strstr(ncclGetLastError(all), "host RMA is not supported") != nullptr, "why");
    void *handle = nullptr;
    EXPECT_RESULT((later<void **, const char *>("ncclParamBind")(&handle, "NCCL_IB_HCA")), ncclInvalidArgument);
}

void suspended(const Member &member, ncclComm_t all, cudaStream_t stream) {
    CHECK_NCCL((later<ncclComm_t, int>("ncclCommSuspend")(all, 1)));
    Buffer<int> value(1);
    EXPECT_RESULT(ncclAllReduce(value.data(), value.data(), 1, ncclInt, ncclSum, all, stream), ncclInvalidUsage);
    std::uint64_t is = 0;
    CHECK_NCCL((later<ncclComm_t, int, std::uint64_t *>("ncclCommMemStats")(all, 1, &is)));
    EXPECT(is == 1, "%llu", static_cast<unsigned long long>(is));
    CHECK_NCCL((later<ncclComm_t>("ncclCommResume")(all)));
    EXPECT(sum_of_ranks(all, 1, stream) == member.size, "as before");
}

// All but the last rank are one communicator, and take the last one in.
void grown(const Member &member, ncclComm_t all, cudaStream_t stream) {
    const bool joins = member.rank == member.size - 1;
    ncclComm_t before = nullptr;
    CHECK_NCCL(ncclCommSplit(all, joins ? NCCL_SPLIT_NOCOLOR : 0, member.rank, &before, nullptr));
    ncclUniqueId id{};
    if (member.rank == 0)
        CHECK_NCCL((later<ncclComm_t, ncclUniqueId *>("ncclCommGetUniqueId")(before, &id)));
    Buffer<char> bytes(std::vector<char>(std::begin(id.internal), std::end(id.internal)));
    CHECK_NCCL(ncclBroadcast(bytes.data(), bytes.data(), sizeof(id), ncclChar, 0, all, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::memcpy(&id, bytes.read().data(), sizeof(id));
    ncclComm_t after = nullptr;
    CHECK_NCCL((later<ncclComm_t, int, const ncclUniqueId *, int, ncclComm_t *, ncclConfig_t *>("ncclCommGrow")(
        before, member.size, joins || member.rank == 0 ? &id : nullptr, joins ? member.rank : -1, &after,
        nullptr)));
    int rank = -1;
    CHECK_NCCL(ncclCommUserRank(after, &rank));
    EXPECT(rank == member.rank, "%d", rank);
    EXPECT(sum_of_ranks(after, member.rank, stream) == member.size * (member.size - 1) / 2, "of all ranks");
    if (before != nullptr)
        CHECK_NCCL(ncclCommDestroy(before));
    EXPECT(sum_of_ranks(after, 1, stream) == member.size, "without what it came from");
    CHECK_NCCL(ncclCommDestroy(after));
}

} // namespace

int main(int argc, char **argv) {
    return members::run(argc, argv, [](const Member &member) {
        const ncclComm_t all = members::join(member);
        const members::Stream stream;
        teams(member, all);
        refusals(all, stream);
        suspended(member, all, stream);
        grown(member, all, stream);
        CHECK_NCCL(ncclCommDestroy(all));
    });
}
