// SPDX-License-Identifier: GPL-2.0-or-later
// Allocations inside of slabs. Small ones share slabs of 2 MiB, large ones have one of their own; an empty
// slab is given back at once, except for as much as `keep` says.
#pragma once

#include "driver/mapping.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace singularity::softgpu::driver {

struct Block {
    std::uint64_t address = 0;
    std::uint64_t size = 0; // as asked for
    std::uint64_t room = 0; // of the block
    std::shared_ptr<Mapping> slab;
};

class Heap {
  public:
    using Grow = std::function<Result<std::shared_ptr<Mapping>>(std::uint64_t size)>;
    // one_slab: all blocks, of any size, are in the one slab that grow() gives.
    explicit Heap(Grow grow, bool one_slab = false)
        : grow_(std::move(grow)), one_slab_(one_slab), keep_(one_slab ? UINT64_MAX : 0) {}

    [[nodiscard]] Result<Block> allocate(std::uint64_t size);
    // False: no block begins there.
    bool free(std::uint64_t address);
    // Gives empty slabs back until no more than `keep` bytes are held.
    void trim(std::uint64_t keep);
    // Empty slabs are kept from now on as long as all slabs together have no more than this.
    void set_keep(std::uint64_t keep);
    [[nodiscard]] std::uint64_t held() const;
    [[nodiscard]] std::uint64_t used() const; // the rooms of all blocks

  private:
    struct Slab {
        std::shared_ptr<Mapping> mapping;
        std::uint64_t blocks = 0;
        std::map<std::uint64_t, std::uint64_t> free; // address -> size, neighbours joined
    };
    void trim_locked(std::uint64_t keep);

    mutable std::mutex mutex_;
    Grow grow_;
    bool one_slab_;
    std::map<std::uint64_t, Slab> slabs_;           // by address
    std::map<std::uint64_t, std::uint64_t> blocks_; // address -> room
    std::uint64_t held_ = 0;
    std::uint64_t used_ = 0;
    std::uint64_t keep_;
};

} // namespace singularity::softgpu::driver
