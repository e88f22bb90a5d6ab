// SPDX-License-Identifier: GPL-2.0-or-later
// NVIDIA's libnccl.so.2, or one with its interface: what links need of it.
#pragma once

#include "common/error.hpp"
#include "proxy/nccl/abi.hpp"

#include <filesystem>
#include <memory>
#include <string>

namespace singularity::proxyd {

struct NcclLibrary {
    nccl::Result (*ncclGetVersion)(int *) = nullptr;
    nccl::Result (*ncclGetUniqueId)(nccl::UniqueId *) = nullptr;
    nccl::Result (*ncclCommInitRankConfig)(nccl::CommunicatorHandle *, int ranks, nccl::UniqueId, int rank,
                                           nccl::Config *) = nullptr;
    nccl::Result (*ncclCommGetAsyncError)(nccl::CommunicatorHandle, nccl::Result *) = nullptr;
    nccl::Result (*ncclCommFinalize)(nccl::CommunicatorHandle) = nullptr;
    nccl::Result (*ncclCommDestroy)(nccl::CommunicatorHandle) = nullptr;
    nccl::Result (*ncclCommAbort)(nccl::CommunicatorHandle) = nullptr;
    nccl::Result (*ncclGroupStart)() = nullptr;
    nccl::Result (*ncclGroupEnd)() = nullptr;
    nccl::Result (*ncclSend)(const void *, std::size_t count, nccl::DataType, int peer,
                             nccl::CommunicatorHandle, nccl::Stream) = nullptr;
    nccl::Result (*ncclRecv)(void *, std::size_t count, nccl::DataType, int peer, nccl::CommunicatorHandle,
                             nccl::Stream) = nullptr;
    const char *(*ncclGetErrorString)(nccl::Result) = nullptr;
    const char *(*ncclGetLastError)(nccl::CommunicatorHandle) = nullptr;
    int version = 0;

    // It is never closed: its threads live on. An error: it is not there, or too old.
    [[nodiscard]] static Expected<std::shared_ptr<const NcclLibrary>> open(const std::filesystem::path &path);
};

} // namespace singularity::proxyd
