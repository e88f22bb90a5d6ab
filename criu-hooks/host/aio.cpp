// SPDX-License-Identifier: GPL-2.0-or-later
#include "aio.hpp"

#include "maps.hpp"
#include "proc.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sys/uio.h>
#include <sys/vfs.h>

namespace singularity::host {
namespace {

constexpr std::chrono::milliseconds kMoment{50};
constexpr std::chrono::milliseconds kLook{5};
constexpr std::chrono::seconds kLongest{3};

} // namespace

bool is_aio_ring(pid_t pid, std::uint64_t begin, std::uint64_t end) {
    struct statfs on{};
    return statfs(fmt::format("/proc/{}/map_files/{:x}-{:x}", pid, begin, end).c_str(), &on) == 0 &&
           on.f_type == kAioRings;
}

Expected<std::uint32_t> AioRings::ended_in(const Ring &ring) {
    // The head of the kernel's struct aio_ring: id, nr, head, tail.
    std::array<std::uint32_t, 4> head{};
    const iovec local{.iov_base = head.data(), .iov_len = sizeof(head)};
    const iovec remote{.iov_base = reinterpret_cast<void *>(ring.at), // NOLINT(performance-no-int-to-ptr)
                       .iov_len = sizeof(head)};
    if (process_vm_readv(ring.pid, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(sizeof(head)))
        return std::unexpected(errno_error("read", "the asynchronous I/O of " + ring.process));
    return head[3];
}

Expected<AioRings> AioRings::of(pid_t init) {
    auto node = processes_of(init);
    if (!node)
        return propagate(node);
    AioRings out;
    for (const Process &process : *node) {
        auto mappings = mappings_of(process.pid);
        if (!mappings)
            continue; // it has ended
        for (const Mapping &each : *mappings) {
            if (!each.name.starts_with("/[aio]") || !is_aio_ring(process.pid, each.begin, each.end))
                continue;
            Ring ring{.pid = process.pid, .at = each.begin, .ended = 0, .process = process.title()};
            auto ended = ended_in(ring);
            if (!ended)
                return propagate(ended);
            ring.ended = *ended;
            out.rings_.push_back(std::move(ring));
        }
    }
    return out;
}

Expected<void> AioRings::settle(const std::function<Expected<void>()> &wait) {
    using Clock = std::chrono::steady_clock;
    if (rings_.empty())
        return {};
    const auto begun = Clock::now();
    auto changed = begun;
    while (Clock::now() - changed < kMoment && Clock::now() - begun < kLongest) {
        if (auto good = wait(); !good)
            return good;
        std::this_thread::sleep_for(kLook);
        for (Ring &ring : rings_) {
            auto ended = ended_in(ring);
            if (!ended)
                return propagate(ended);
            if (std::exchange(ring.ended, *ended) != *ended)
                changed = Clock::now();
        }
    }
    return {};
}

Expected<void> AioRings::check_unchanged() const {
    for (const Ring &ring : rings_) {
        auto ended = ended_in(ring);
        if (!ended)
            return propagate(ended);
        if (*ended != ring.ended)
            return failure("save", ring.process,
                           "asynchronous I/O (io_submit) that it had begun ended while it was being saved: a "
                           "later attempt succeeds",
                           EAGAIN);
    }
    return {};
}

} // namespace singularity::host
