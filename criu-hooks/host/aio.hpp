// SPDX-License-Identifier: GPL-2.0-or-later
// Asynchronous I/O of a node's processes: the rings of io_setup(2), in which the kernel says what has ended.
// CRIU saves a ring as the memory that it is. It does not ask whether the kernel still works for it: a read
// that ends after its memory was saved would be lost, and so would the word that it has ended.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace singularity::host {

// The file system of rings: AIO_RING_MAGIC of the kernel's fs/aio.c.
inline constexpr long kAioRings = 0xa10a10a1;
// Of a mapping; false as well where nothing is there any more.
[[nodiscard]] bool is_aio_ring(pid_t pid, std::uint64_t begin, std::uint64_t end);

// Of processes that stand still, each ring with how many requests had ended.
class AioRings {
  public:
    [[nodiscard]] static Expected<AioRings> of(pid_t init);

    // Until no request has ended for a moment: what a disk still has to do for a process that stands still it
    // does in milliseconds. `wait` is asked again and again and may refuse.
    [[nodiscard]] Expected<void> settle(const std::function<Expected<void>()> &wait);
    // Fails if a request has ended since then: the image may not have what it has read.
    [[nodiscard]] Expected<void> check_unchanged() const;

  private:
    struct Ring {
        pid_t pid = 0;
        std::uint64_t at = 0;
        std::uint32_t ended = 0;
        std::string process; // its title
    };
    // How many requests have ended, modulo the ring's size.
    [[nodiscard]] static Expected<std::uint32_t> ended_in(const Ring &ring);

    std::vector<Ring> rings_;
};

} // namespace singularity::host
