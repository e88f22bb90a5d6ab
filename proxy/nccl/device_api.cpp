// SPDX-License-Identifier: GPL-2.0-or-later
#include "device_api.hpp"

#include "group.hpp"
#include "membership.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace singularity::nccl {

namespace {

constexpr std::string_view kNoReach =
    "kernels of a program that runs through a device proxy cannot reach the memory of other ranks";

// Its rank and size are known, and stay so when it fails.
Outcome<CommunicatorPointer> placed(Library &library, CommunicatorHandle handle, const char *call) {
    auto communicator = known(library, handle, call);
    if (communicator && (*communicator)->state == Result::in_progress)
        return std::unexpected(ready(library, **communicator));
    return communicator;
}

// answer(communicator)
template <class Value, class Answer>
Result tell(Library &library, CommunicatorHandle handle, const char *call, Value *out, Answer answer) {
    const auto communicator = placed(library, handle, call);
    if (!communicator)
        return communicator.error();
    *out = answer(**communicator);
    return Result::success;
}

// The caller has the rank `self` there, and the rank team.rank in the team.
int translated(int self, const Team &team, int rank) {
    const auto steps = std::int64_t{rank} - team.rank;
    return static_cast<int>(self + (steps * team.stride));
}

} // namespace

Result world_team(Library &library, CommunicatorHandle handle, Team *out) {
    return tell(library, handle, "ncclTeamWorld", out, [](const Communicator &one) {
        return Team{.ranks = static_cast<int>(one.size), .rank = static_cast<int>(one.rank), .stride = 1};
    });
}

Result lsa_team(Library &library, CommunicatorHandle handle, Team *out) {
    return tell(library, handle, "ncclTeamLsa", out,
                [](const Communicator & /*unused*/) { return Team{.ranks = 1, .rank = 0, .stride = 1}; });
}

Result rail_team(Library &library, CommunicatorHandle handle, Team *out) {
    return tell(library, handle, "ncclTeamRail", out, [](const Communicator &one) {
        return Team{.ranks = static_cast<int>(one.size), .rank = static_cast<int>(one.rank), .stride = 1};
    });
}

Result rank_in_world(Library &library, CommunicatorHandle handle, Team team, int rank, int *out) {
    return tell(library, handle, "ncclTeamRankToWorld", out,
                [&](const Communicator &one) { return translated(static_cast<int>(one.rank), team, rank); });
}

Result rank_in_lsa(Library &library, CommunicatorHandle handle, Team team, int rank, int *out) {
    return tell(library, handle, "ncclTeamRankToLsa", out,
                [&](const Communicator & /*unused*/) { return translated(0, team, rank); });
}

Result query_properties(Library &library, CommunicatorHandle handle, Properties *properties) {
    constexpr const char *kName = "ncclCommQueryProperties";
    const auto communicator = known(library, handle, kName);
    if (!communicator)
        return communicator.error();
    if (const auto bad = given(properties, kName, "props"); bad != Result::success)
        return bad;
    if (const auto bad = ready(library, **communicator); bad != Result::success)
        return bad;
    Properties told{};
    constexpr auto kHeader = offsetof(Properties, rank);
    std::memcpy(&told, properties, kHeader);
    if (told.magic != kPropertiesMagic)
        return refuse(Result::invalid_usage,
                      "Cannot get communicator properties: ncclCommProperties_t argument must be initialized "
                      "via NCCL_COMM_PROPERTIES_INITIALIZER");
    if (told.version < kFirstProperties || told.size < kFirstPropertiesSize)
        return refuse(Result::invalid_usage, "{} : there are no properties of version {} and {} bytes", kName,
                      told.version, told.size);
    const auto &one = **communicator;
    told.rank = static_cast<int>(one.rank);
    told.ranks = static_cast<int>(one.size);
    told.cuda_device = one.place.device;
    told.nvml_device =
        one.place.device; // libnvidia-ml.so.1 has the same order, and does not know CUDA_VISIBLE_DEVICES
    told.lsa_teams = told.ranks;
    std::memcpy(reinterpret_cast<std::byte *>(properties) + kHeader,
                reinterpret_cast<const std::byte *>(&told) + kHeader,
                std::min(told.size, sizeof(told)) - kHeader);
    return Result::success;
}

Result create_device_communicator(Library &library, CommunicatorHandle handle,
                                  const DeviceCommunicatorRequirements *requirements,
                                  const DeviceCommunicator *out) {
    constexpr const char *kName = "ncclDevCommCreate";
    const auto refusal = [&] {
        if (const auto communicator = known(library, handle, kName); !communicator)
            return communicator.error();
        if (const auto bad = given(requirements, kName, "reqs"); bad != Result::success)
            return bad;
        if (const auto bad = given(out, kName, "outDevComm"); bad != Result::success)
            return bad;
        return refuse(Result::invalid_usage, "{} : there are no device communicators: {}", kName, kNoReach);
    };
    return Group::mine().note_if_open(refusal());
}

Result destroy_device_communicator(Library &library, CommunicatorHandle handle,
                                   const DeviceCommunicator *one) {
    constexpr const char *kName = "ncclDevCommDestroy";
    if (const auto communicator = known(library, handle, kName); !communicator)
        return communicator.error();
    if (const auto bad = given(one, kName, "devComm"); bad != Result::success)
        return bad;
    return refuse(Result::invalid_usage, "{} : there are no device communicators: {}", kName, kNoReach);
}

int slots(int elements, int element_size) {
    constexpr std::int64_t kSlot = 8;
    return static_cast<int>(elements * ((element_size + kSlot - 1) / kSlot));
}

Result create_requirement(const char *call, const ResourceHandle *handle, const ResourceRequirements *out) {
    if (const auto bad = given(handle, call, "outHandle"); bad != Result::success)
        return bad;
    if (const auto bad = given(out, call, "outReq"); bad != Result::success)
        return bad;
    return refuse(Result::invalid_usage, "{} : there are no device communicators: {}", call, kNoReach);
}

Result one_sided(Library &library, const char *call, CommunicatorHandle handle) {
    const auto refusal = [&] {
        const auto communicator = known(library, handle, call);
        if (!communicator)
            return communicator.error();
        if ((*communicator)->revoked)
            return refuse(Result::invalid_usage, "{}: communicator was revoked", call);
        if (const auto bad = ready(library, **communicator); bad != Result::success)
            return bad;
        return refuse(Result::invalid_argument,
                      "{} : One sided RMA: host RMA is not supported in this communicator: there are no "
                      "windows on the memory of other ranks",
                      call);
    };
    return Group::mine().note_if_open(refusal());
}

Result window_pointer(const char *call, WindowHandle window, void *const *out) {
    if (const auto bad = given(window, call, "window"); bad != Result::success)
        return bad;
    if (const auto bad = given(out, call, "outPtr"); bad != Result::success)
        return bad;
    return refuse(Result::invalid_argument, "{} : there is no such window: {}", call, kNoReach);
}

Result window_memory(Library &library, CommunicatorHandle handle, void **out) {
    constexpr const char *kName = "ncclWinGetUserPtr";
    if (const auto communicator = known(library, handle, kName); !communicator)
        return communicator.error();
    if (const auto bad = given(out, kName, "outUserPtr"); bad != Result::success)
        return bad;
    *out = nullptr;
    return Result::success;
}

} // namespace singularity::nccl
