// SPDX-License-Identifier: GPL-2.0-or-later
// The host side of NCCL's device API (nccl_device/core.h of 2.28 to 2.30). What only device communicators use
// is declared and not known: its layout differs from version to version.
#pragma once

#include "proxy/nccl/abi.hpp"

#include <cstddef>
#include <cstdint>

namespace singularity::nccl {

// ncclTeam_t: ranks of a communicator at equal distances.
struct Team {
    int ranks;
    int rank;
    int stride;
};
static_assert(sizeof(Team) == 12);

// ncclMultimemHandle_t
struct MultimemHandle {
    void *base;
};

// ncclGinType_t: how kernels reach the network.
enum class GinType : int { // NOLINT(performance-enum-size): an int of the C interface
    none = 0,
};

// ncclCommProperties_t. Later versions add members at the end.
inline constexpr std::uint32_t kPropertiesMagic = kConfigMagic; // NCCL_API_MAGIC
inline constexpr std::uint32_t kFirstProperties = 22900;        // the first version that has it
struct Properties {
    std::size_t size;
    std::uint32_t magic;
    std::uint32_t version; // of the header that the program was built with
    int rank;
    int ranks;
    int cuda_device;
    int nvml_device;
    bool device_api;
    bool multimem;
    GinType gin;
    // Since 2.29.7:
    int lsa_teams;
    bool host_rma;
    GinType railed_gin;
};
inline constexpr std::size_t kFirstPropertiesSize = 40;
static_assert(offsetof(Properties, lsa_teams) == kFirstPropertiesSize && sizeof(Properties) == 56);

struct DeviceCommunicator;             // ncclDevComm_t
struct DeviceCommunicatorRequirements; // ncclDevCommRequirements_t
struct ResourceRequirements;           // ncclDevResourceRequirements_t
struct ResourceHandle;                 // ncclLLA2AHandle_t, ncclLsaBarrierHandle_t, ...
struct SignalDescription;              // ncclWaitSignalDesc_t
struct Parameter;                      // what an ncclParamHandle_t is a pointer to

} // namespace singularity::nccl
