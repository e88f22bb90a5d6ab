// SPDX-License-Identifier: GPL-2.0-or-later
// NCCL's interface (nccl.h of 2.28): its header is no part of the CUDA Toolkit, so names, numbers and layouts
// are here; where the header is installed, tests/unit compares them. Enumerations come from C: any int may
// arrive.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace singularity::nccl {

inline constexpr int kVersion = 22809; // 2.28.9

// ncclResult_t
enum class Result : int { // NOLINT(performance-enum-size): an int of the C interface
    success = 0,
    unhandled_cuda_error = 1,
    system_error = 2,
    internal_error = 3,
    invalid_argument = 4,
    invalid_usage = 5,
    remote_error = 6,
    in_progress = 7,
};

// ncclDataType_t
enum class DataType : int { // NOLINT(performance-enum-size): an int of the C interface
    int8 = 0,
    uint8,
    int32,
    uint32,
    int64,
    uint64,
    float16,
    float32,
    float64,
    bfloat16,
    float8e4m3,
    float8e5m2,
    end,
};

// ncclRedOp_t; what ncclRedOpCreatePreMulSum gives begins with first_own.
enum class Reduction : int { // NOLINT(performance-enum-size): an int of the C interface
    sum = 0,
    prod = 1,
    max = 2,
    min = 3,
    avg = 4,
    first_own = 5,
    last = INT_MAX,
};

// ncclScalarResidence_t
enum class Residence : int { // NOLINT(performance-enum-size): an int of the C interface
    device = 0,
    host = 1,
};

// ncclUniqueId; its bytes: unique_id.hpp
struct UniqueId {
    std::array<char, 128> internal;
};
static_assert(sizeof(UniqueId) == 128);

inline constexpr int kUndefined = INT_MIN; // NCCL_CONFIG_UNDEF_INT
inline constexpr std::uint32_t kConfigMagic = 0xcafebeef;

// ncclConfig_t, as NCCL_CONFIG_INITIALIZER makes it
inline constexpr std::size_t kConfigSize = 80;
struct Config {
    std::size_t size = kConfigSize;
    std::uint32_t magic = kConfigMagic;
    std::uint32_t version = kVersion; // of the header that the program was built with
    int blocking = kUndefined;
    int cga_cluster_size = kUndefined;
    int min_ctas = kUndefined;
    int max_ctas = kUndefined;
    const char *net_name = nullptr;
    int split_share = kUndefined;
    int traffic_class = kUndefined;
    const char *comm_name = nullptr;
    int collnet_enable = kUndefined;
    int cta_policy = kUndefined;
    int shrink_share = kUndefined;
    int nvls_ctas = kUndefined;
    int channels_per_net_peer = kUndefined;
    int nvlink_centric_sched = kUndefined;
};
static_assert(sizeof(Config) == kConfigSize);

inline constexpr std::uint32_t kSimulationMagic = 0x74685283;

// ncclSimInfo_t
struct Simulation {
    std::size_t size;
    std::uint32_t magic;
    std::uint32_t version;
    float estimated_time; // microseconds; -1: nothing was simulated
};
static_assert(sizeof(Simulation) == 24);

inline constexpr int kNoColor = -1;
inline constexpr int kShrinkAbort = 1;
inline constexpr int kRevokeDefault = 0;
inline constexpr int kKeepsRank = -1; // to ncclCommGrow

// Since 2.29: NCCL_SUSPEND_MEM, ncclCommMemStat_t.
inline constexpr int kSuspendMemory = 1;
enum class MemoryStatistic : int { // NOLINT(performance-enum-size): an int of the C interface
    can_be_suspended = 0,
    is_suspended = 1,
    persistent = 2,
    total = 3,
};

struct Communicator;
struct Window;
using CommunicatorHandle = Communicator *; // ncclComm_t: only compared, never followed before it is known
using WindowHandle = Window *;
using Stream = CUstream_st *; // cudaStream_t

} // namespace singularity::nccl
