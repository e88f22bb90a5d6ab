// SPDX-License-Identifier: GPL-2.0-or-later
// proxy/nccl/abi.hpp and device_abi.hpp against the nccl.h that is installed.
#include "proxy/nccl/abi.hpp"

#include "cmocka.hpp"
#include "proxy/nccl/device_abi.hpp"

#include <cstddef>

#include <nccl.h>
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#include <nccl_device/core.h>
#endif

namespace ours = singularity::nccl;

namespace {

template <class Ours, class Theirs>
constexpr bool same(Ours one, Theirs other) {
    return static_cast<long long>(one) == static_cast<long long>(other);
}

static_assert(same(ours::Result::success, ncclSuccess) &&
              same(ours::Result::unhandled_cuda_error, ncclUnhandledCudaError) &&
              same(ours::Result::system_error, ncclSystemError) &&
              same(ours::Result::internal_error, ncclInternalError) &&
              same(ours::Result::invalid_argument, ncclInvalidArgument) &&
              same(ours::Result::invalid_usage, ncclInvalidUsage) &&
              same(ours::Result::remote_error, ncclRemoteError) &&
              same(ours::Result::in_progress, ncclInProgress));
static_assert(same(ours::DataType::int8, ncclInt8) && same(ours::DataType::uint8, ncclUint8) &&
              same(ours::DataType::int32, ncclInt32) && same(ours::DataType::uint32, ncclUint32) &&
              same(ours::DataType::int64, ncclInt64) && same(ours::DataType::uint64, ncclUint64) &&
              same(ours::DataType::float16, ncclFloat16) && same(ours::DataType::float32, ncclFloat32) &&
              same(ours::DataType::float64, ncclFloat64) && same(ours::DataType::bfloat16, ncclBfloat16));
static_assert(same(ours::Reduction::sum, ncclSum) && same(ours::Reduction::prod, ncclProd) &&
              same(ours::Reduction::max, ncclMax) && same(ours::Reduction::min, ncclMin) &&
              same(ours::Reduction::avg, ncclAvg) && same(ours::Reduction::first_own, ncclNumOps) &&
              same(ours::Reduction::last, ncclMaxRedOp));
static_assert(same(ours::Residence::device, ncclScalarDevice) &&
              same(ours::Residence::host, ncclScalarHostImmediate));
static_assert(sizeof(ours::UniqueId) == sizeof(ncclUniqueId) &&
              alignof(ours::UniqueId) == alignof(ncclUniqueId));
static_assert(ours::kUndefined == NCCL_CONFIG_UNDEF_INT && ours::kNoColor == NCCL_SPLIT_NOCOLOR);

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
static_assert(same(ours::DataType::float8e4m3, ncclFloat8e4m3) &&
              same(ours::DataType::float8e5m2, ncclFloat8e5m2) && same(ours::DataType::end, ncclNumTypes));
static_assert(ours::kShrinkAbort == NCCL_SHRINK_ABORT);
static_assert(sizeof(ours::Team) == sizeof(ncclTeam_t) &&
              offsetof(ours::Team, ranks) == offsetof(ncclTeam_t, nRanks) &&
              offsetof(ours::Team, rank) == offsetof(ncclTeam_t, rank) &&
              offsetof(ours::Team, stride) == offsetof(ncclTeam_t, stride));
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 7)
#define SAME_PROPERTY(member, name)                                                                          \
    static_assert(offsetof(ours::Properties, member) == offsetof(ncclCommProperties_t, name))
SAME_PROPERTY(magic, magic);
SAME_PROPERTY(version, version);
SAME_PROPERTY(rank, rank);
SAME_PROPERTY(ranks, nRanks);
SAME_PROPERTY(cuda_device, cudaDev);
SAME_PROPERTY(nvml_device, nvmlDev);
SAME_PROPERTY(device_api, deviceApiSupport);
SAME_PROPERTY(multimem, multimemSupport);
SAME_PROPERTY(gin, ginType);
SAME_PROPERTY(lsa_teams, nLsaTeams);
SAME_PROPERTY(host_rma, hostRmaSupport);
SAME_PROPERTY(railed_gin, railedGinType);
static_assert(sizeof(ours::Properties) == sizeof(ncclCommProperties_t) &&
              ours::kPropertiesMagic == NCCL_API_MAGIC && same(ours::GinType::none, NCCL_GIN_TYPE_NONE));
static_assert(ours::kSuspendMemory == NCCL_SUSPEND_MEM &&
              same(ours::MemoryStatistic::can_be_suspended, ncclStatGpuMemSuspend) &&
              same(ours::MemoryStatistic::is_suspended, ncclStatGpuMemSuspended) &&
              same(ours::MemoryStatistic::persistent, ncclStatGpuMemPersist) &&
              same(ours::MemoryStatistic::total, ncclStatGpuMemTotal));
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0) && NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 0)
static_assert(ours::kRevokeDefault == NCCL_REVOKE_DEFAULT);
static_assert(sizeof(ours::Config) == sizeof(ncclConfig_t) &&
              sizeof(ours::Simulation) == sizeof(ncclSimInfo_t));

#define SAME_PLACE(member, name) static_assert(offsetof(ours::Config, member) == offsetof(ncclConfig_t, name))
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cga_cluster_size, cgaClusterSize);
SAME_PLACE(min_ctas, minCTAs);
SAME_PLACE(max_ctas, maxCTAs);
SAME_PLACE(net_name, netName);
SAME_PLACE(split_share, splitShare);
SAME_PLACE(traffic_class, trafficClass);
SAME_PLACE(comm_name, commName);
SAME_PLACE(collnet_enable, collnetEnable);
SAME_PLACE(cta_policy, CTAPolicy);
SAME_PLACE(shrink_share, shrinkShare);
SAME_PLACE(nvls_ctas, nvlsCTAs);
SAME_PLACE(channels_per_net_peer, nChannelsPerNetPeer);
SAME_PLACE(nvlink_centric_sched, nvlinkCentricSched);
#endif

void initializers_are_known(void ** /*state*/) {
    const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    assert_int_equal(config.magic, ours::kConfigMagic);
    const ncclSimInfo_t simulation = NCCL_SIM_INFO_INITIALIZER;
    assert_int_equal(simulation.magic, ours::kSimulationMagic);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(initializers_are_known)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
