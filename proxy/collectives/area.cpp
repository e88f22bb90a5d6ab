// SPDX-License-Identifier: GPL-2.0-or-later
#include "area.hpp"

#include "proxy/channel/futex.hpp"

#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::collectives {

namespace {
constexpr const char *kWhat = "memory of a communicator's member";
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
} // namespace

Area::Area(const Shape &shape, UniqueFd memory, std::byte *base)
    : shape_(shape), memory_(std::move(memory)), base_(base),
      head_(static_cast<Head *>(static_cast<void *>(base))),
      counters_(static_cast<std::atomic<std::uint64_t> *>(static_cast<void *>(base + shape.counters_at))) {
    static_assert(sizeof(Head) <= kLine && std::atomic<std::uint64_t>::is_always_lock_free &&
                  sizeof(std::atomic<std::uint64_t>) == sizeof(std::uint64_t));
}

Area::~Area() { munmap(base_, shape_.size); }

Expected<std::shared_ptr<Area>> Area::place(const Shape &shape, UniqueFd memory) {
    void *base = mmap(nullptr, shape.size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (base == MAP_FAILED)
        return std::unexpected(errno_error("map", kWhat));
    // The kernel's zeros are what the counters begin with.
    return std::shared_ptr<Area>(new Area(shape, std::move(memory), static_cast<std::byte *>(base)));
}

Expected<std::shared_ptr<Area>> Area::make(const Shape &shape) {
    UniqueFd memory(memfd_create("singularity-member", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!memory || ftruncate(memory.get(), static_cast<off_t>(shape.size)) != 0 ||
        fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0)
        return std::unexpected(errno_error("make", kWhat));
    return place(shape, std::move(memory));
}

Expected<std::shared_ptr<Area>> Area::map(const Shape &shape, UniqueFd memory) {
    struct stat about{};
    const int seals = fcntl(memory.get(), F_GET_SEALS);
    if (fstat(memory.get(), &about) != 0 || seals < 0)
        return std::unexpected(errno_error("look at", kWhat));
    if (!std::cmp_equal(about.st_size, shape.size) || (seals & kSeals) != kSeals)
        return failure("map", kWhat,
                       fmt::format("it has {} bytes and seals {:#x}, {} bytes of a fixed size are needed",
                                   about.st_size, seals, shape.size),
                       EPROTO);
    return place(shape, std::move(memory));
}

// Who rings writes its counter before it looks at `sleeping`; who sleeps sets that before it looks at
// counters, all of it in one order: one of the two sees the other.
std::uint32_t Area::about_to_sleep() {
    const auto seen = head_->bell.load(std::memory_order_seq_cst);
    head_->sleeping.store(1, std::memory_order_seq_cst);
    return seen;
}

void Area::sleep(std::uint32_t seen, std::chrono::nanoseconds limit) {
    channel::futex_wait(head_->bell, seen, limit);
    awake();
}

void Area::ring() {
    if (head_->sleeping.load(std::memory_order_seq_cst) == 0)
        return;
    head_->bell.fetch_add(1, std::memory_order_seq_cst);
    channel::futex_wake(head_->bell);
}

} // namespace singularity::collectives
