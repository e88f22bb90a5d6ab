// SPDX-License-Identifier: GPL-2.0-or-later
#include "task_log.hpp"

#include <array>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::agent {

Expected<TaskLog> TaskLog::open(std::filesystem::path path, UniqueFd pipe, Keep keep) {
    if (keep == Keep::unread) {
        auto spool = Spool::open(path);
        if (!spool)
            return propagate(spool);
        return TaskLog(std::move(*spool), std::move(pipe));
    }
    auto file = open_file(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
    if (!file)
        return propagate(file);
    struct stat about{};
    if (fstat(file->get(), &about) != 0)
        return std::unexpected(errno_error("look at", path.native()));
    return TaskLog(std::move(path), std::move(*file), static_cast<std::uint64_t>(about.st_size),
                   keep == Keep::newest ? kFileLimit : kProxyFileLimit, std::move(pipe));
}

bool TaskLog::drained() const {
    if (!pipe_)
        return true;
    pollfd readable{.fd = pipe_.get(), .events = POLLIN, .revents = 0};
    return poll(&readable, 1, 0) == 0;
}

Expected<void> TaskLog::drain() {
    constexpr int kParts = 16; // others want to be served as well
    for (int part = 0; part < kParts && pipe_ && !full(); ++part) {
        std::array<char, 65536> buffer; // NOLINT(cppcoreguidelines-pro-type-member-init): read into
        const ssize_t got = read(pipe_.get(), buffer.data(), buffer.size());
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return {};
        if (got <= 0) {
            pipe_.reset();
            return {};
        }
        if (auto kept = keep({buffer.data(), static_cast<std::size_t>(got)}); !kept)
            return kept;
    }
    return {};
}

Expected<void> TaskLog::keep(std::string_view text) {
    if (spool_)
        return spool_->append(text);
    if (size_ + text.size() > limit_) {
        if (rename(path_.c_str(), older(path_).c_str()) != 0)
            return std::unexpected(errno_error("put aside", path_.native()));
        auto file = open_file(path_, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
        if (!file)
            return propagate(file);
        file_ = std::move(*file);
        size_ = 0;
    }
    for (std::string_view left = text; !left.empty();) {
        const ssize_t written = write(file_.get(), left.data(), left.size());
        if (written < 0 && errno != EINTR)
            return std::unexpected(errno_error("write", path_.native()));
        left.remove_prefix(written < 0 ? 0 : static_cast<std::size_t>(written));
    }
    size_ += text.size();
    return {};
}

Expected<UniqueFd> open_lent_pipe(int lent) {
    const auto place = fmt::format("/proc/self/fd/{}", lent);
    std::array<char, 64> name{};
    const auto length = readlink(place.c_str(), name.data(), name.size());
    // That of a file begins with a slash.
    if (length < 0 || !std::string_view(name.data(), static_cast<std::size_t>(length)).starts_with("pipe:["))
        return failure("read", "the output of a task", "what its node has lent for it is no pipe", EINVAL);
    return open_file(place, O_RDONLY | O_NONBLOCK);
}

} // namespace singularity::agent
