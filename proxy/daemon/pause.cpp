// SPDX-License-Identifier: GPL-2.0-or-later
#include "pause.hpp"

#include <cerrno>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::proxyd {

namespace {

// Allocations that do not touch each other; a program with more of them has other worries.
constexpr std::uint64_t kMostRanges = std::uint64_t{4} << 20;

std::unexpected<Error> broken(std::string why) {
    return failure("take", "a client's list of its device memory", std::move(why), EPROTO);
}

// The client may change the file while it is read: what was read is what counts.
Expected<std::vector<channel::AddressRange>> read_ranges(int fd, std::uint64_t count) {
    if (count > kMostRanges)
        return broken(fmt::format("it has {} ranges; {} are allowed", count, kMostRanges));
    const auto size = count * sizeof(channel::AddressRange);
    struct stat about{};
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || std::cmp_less(about.st_size, size))
        return broken("it is shorter than the client says");
    std::vector<channel::AddressRange> ranges(count);
    auto *const bytes = static_cast<char *>(static_cast<void *>(ranges.data()));
    for (std::uint64_t at = 0; at < size;) {
        const ssize_t got = pread(fd, bytes + at, size - at, static_cast<off_t>(at));
        if (got <= 0)
            return broken("it ends before its end");
        at += static_cast<std::uint64_t>(got);
    }
    std::uint64_t end = 0;
    for (const auto &range : ranges) {
        if (range.size == 0 || range.address < end || range.address + range.size < range.address)
            return broken(
                fmt::format("{:#x}+{:#x} is empty, out of order or overlaps", range.address, range.size));
        end = range.address + range.size;
    }
    return ranges;
}

} // namespace

std::uint64_t Pause::ask() {
    const std::scoped_lock lock(lock_);
    answer_.reset();
    waiting_ = true;
    return ++asked_;
}

Expected<PausedClient> Pause::wait(const Deadline &deadline) {
    std::unique_lock lock(lock_);
    auto waited = wait_until(
        lock, changed_, [this] { return closed_ || answer_.has_value(); }, deadline,
        "the client to stop in front of its next call");
    waiting_ = false;
    if (!waited)
        return propagate(waited);
    if (!answer_)
        return failure("stop", "the client", "its session has ended", ECONNRESET);
    return *std::exchange(answer_, std::nullopt);
}

Expected<void> Pause::answered(const channel::Packet &packet) {
    auto said = channel::struct_of<channel::Paused>(packet);
    if (!said)
        return propagate(said);
    said->problem.back() = '\0';
    if (packet.descriptors.size() != (said->problem[0] == '\0' ? 1U : 0U))
        return broken(fmt::format("it comes with {} descriptors", packet.descriptors.size()));
    PausedClient client{.said = *said, .ranges = {}};
    if (!packet.descriptors.empty()) {
        auto ranges = read_ranges(packet.descriptors.front().get(), said->ranges);
        if (!ranges)
            return propagate(ranges);
        client.ranges = std::move(*ranges);
    }
    const std::scoped_lock lock(lock_);
    // An answer to a question that nobody asks any more comes late, which is no rule broken.
    if (!waiting_ || packet.ticket != asked_)
        return {};
    answer_ = std::move(client);
    changed_.notify_all();
    return {};
}

void Pause::close() {
    const std::scoped_lock lock(lock_);
    closed_ = true;
    changed_.notify_all();
}

} // namespace singularity::proxyd
