// SPDX-License-Identifier: GPL-2.0-or-later
#include "device_output.hpp"

#include "log.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace singularity::proxyd {

namespace {
constexpr int kPipeSize = 1 << 20;
// Text that no client has fetched. The device's own buffer for printf is 1 MiB by default.
constexpr std::size_t kMostText = std::size_t{64} << 20;
} // namespace

Expected<std::unique_ptr<DeviceOutput>> DeviceOutput::capture() {
    int ends[2] = {-1, -1};
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return std::unexpected(errno_error("make", "a pipe for the device's output"));
    UniqueFd reader(ends[0]);
    const UniqueFd writer(ends[1]);
    // The driver expects a file that takes everything: only the reader must not block.
    if (fcntl(writer.get(), F_SETFL, 0) != 0)
        return std::unexpected(errno_error("set up", "a pipe for the device's output"));
    // Larger is better; the default does.
    static_cast<void>(fcntl(writer.get(), F_SETPIPE_SZ, kPipeSize));
    UniqueFd before(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
    if (!before)
        before = UniqueFd(open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (dup2(writer.get(), STDOUT_FILENO) < 0)
        return std::unexpected(errno_error("replace", "standard output"));
    std::unique_ptr<DeviceOutput> output(new DeviceOutput(std::move(reader), std::move(before)));
    output->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
    if (!output->stop_)
        return std::unexpected(errno_error("make", "an event for the device's output"));
    output->watcher_ = std::thread([raw = output.get()] { raw->watch(); });
    return output;
}

DeviceOutput::~DeviceOutput() {
    if (before_)
        static_cast<void>(dup2(before_.get(), STDOUT_FILENO));
    if (watcher_.joinable()) {
        const std::uint64_t one = 1;
        if (write(stop_.get(), &one, sizeof(one)) != sizeof(one))
            kLog.error("cannot stop the reader of the device's output: {}",
                       errno_error("write to", "its event").message());
        watcher_.join();
    }
}

void DeviceOutput::drain() {
    std::array<char, 16384> buffer{};
    for (;;) {
        const ssize_t got = read(reader_.get(), buffer.data(), buffer.size());
        if (got <= 0)
            return;
        if (text_.size() + static_cast<std::size_t>(got) > kMostText) {
            if (!std::exchange(overflown_, true))
                kLog.warning("the device prints more than any client fetches: text is lost");
            continue;
        }
        text_.append(buffer.data(), static_cast<std::size_t>(got));
    }
}

std::string DeviceOutput::collect() {
    // A driver that prints through stdio.
    static_cast<void>(std::fflush(stdout));
    const std::scoped_lock lock(lock_);
    drain();
    overflown_ = false;
    return std::exchange(text_, {});
}

void DeviceOutput::watch() {
    for (;;) {
        std::array<pollfd, 2> waiting{{{.fd = reader_.get(), .events = POLLIN, .revents = 0},
                                       {.fd = stop_.get(), .events = POLLIN, .revents = 0}}};
        if (poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR)
            return;
        if (waiting[1].revents != 0)
            return;
        const std::scoped_lock lock(lock_);
        drain();
    }
}

} // namespace singularity::proxyd
