// SPDX-License-Identifier: GPL-2.0-or-later
// Host memory of clients in this process. Two devices of one client can be one here: both sessions then share
// the same memfd at the same address, which is mapped and registered once.
#pragma once

#include "proxy/libcuda/cuda.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include <sys/types.h>

namespace singularity::proxyd {

class HostShares {
  public:
    [[nodiscard]] static HostShares &all();

    // map() is called for the first session that has the memory; others must mean the same file.
    [[nodiscard]] CUresult add(std::uint64_t address, std::uint64_t size, dev_t device, ino_t inode,
                               const std::function<CUresult()> &map);
    // unmap() is called for the last one.
    void remove(std::uint64_t address, const std::function<void()> &unmap);

  private:
    struct Share {
        std::uint64_t size = 0;
        dev_t device = 0;
        ino_t inode = 0;
        unsigned sessions = 0;
    };
    std::mutex lock_;
    std::map<std::uint64_t, Share> shares_; // by address
};

} // namespace singularity::proxyd
