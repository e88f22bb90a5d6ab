// SPDX-License-Identifier: GPL-2.0-or-later
#include "host_shares.hpp"

#include <memory>

namespace singularity::proxyd {

HostShares &HostShares::all() {
    // Threads that are left behind in the driver may still come here.
    static auto &instance = *std::make_unique<HostShares>().release();
    return instance;
}

CUresult HostShares::add(std::uint64_t address, std::uint64_t size, dev_t device, ino_t inode,
                         const std::function<CUresult()> &map) {
    const std::scoped_lock lock(lock_);
    const auto found = shares_.find(address);
    if (found != shares_.end()) {
        auto &share = found->second;
        if (share.size != size || share.device != device || share.inode != inode)
            return CUDA_ERROR_ALREADY_MAPPED;
        ++share.sessions;
        return CUDA_SUCCESS;
    }
    const auto result = map();
    if (result == CUDA_SUCCESS)
        shares_[address] = {.size = size, .device = device, .inode = inode, .sessions = 1};
    return result;
}

void HostShares::remove(std::uint64_t address, const std::function<void()> &unmap) {
    const std::scoped_lock lock(lock_);
    const auto found = shares_.find(address);
    if (found == shares_.end() || --found->second.sessions != 0)
        return;
    shares_.erase(found);
    unmap();
}

} // namespace singularity::proxyd
