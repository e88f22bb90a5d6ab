// SPDX-License-Identifier: GPL-2.0-or-later
#include "task_log.hpp"

#include "agent/limits/budget.hpp"
#include "common/write_all.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::agent {

namespace {

// What a file of two may have where its user has no more room.
constexpr std::uint64_t kLeastOfFile = KeptOutput::kLeast / 2;

// Gives its memory back at once: somebody whom the file was lent to may still have it open.
Expected<void> empty_file(const std::filesystem::path &path) {
    if (truncate(path.c_str(), 0) != 0 && errno != ENOENT)
        return std::unexpected(errno_error("empty", path.native()));
    return {};
}

// To its last bytes. fd: for reading and appending. How many those are.
Expected<std::uint64_t> shorten(int fd, std::uint64_t size, const std::filesystem::path &path) {
    std::string end(kLeastOfFile, '\0');
    const ssize_t got = pread(fd, end.data(), end.size(), static_cast<off_t>(size - end.size()));
    if (got < 0)
        return std::unexpected(errno_error("read", path.native()));
    end.resize(static_cast<std::size_t>(got));
    if (ftruncate(fd, 0) != 0)
        return std::unexpected(errno_error("empty", path.native()));
    if (auto written = write_all(fd, end, path.native()); !written)
        return propagate(written);
    return end.size();
}

} // namespace

Expected<TaskLog> TaskLog::open(std::filesystem::path path, UniqueFd pipe, Keep keep, std::uint32_t uid) {
    if (keep == Keep::unread) {
        auto spool = Spool::open(path, uid);
        if (!spool)
            return propagate(spool);
        return TaskLog(std::move(*spool), std::move(pipe));
    }
    auto file = open_file(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
    if (!file)
        return propagate(file);
    TaskLog out(std::move(path), std::move(*file), keep == Keep::newest ? kFileLimit : kProxyFileLimit,
                std::move(pipe), uid);
    if (auto found = out.find_sizes(); !found)
        return propagate(found);
    if (auto shrunk = out.shrink(); !shrunk)
        return propagate(shrunk);
    return out;
}

Expected<void> TaskLog::remove(const std::filesystem::path &path) {
    for (const auto &one : {older(path), path}) {
        if (auto emptied = empty_file(one); !emptied)
            return emptied;
        if (unlink(one.c_str()) != 0 && errno != ENOENT)
            return std::unexpected(errno_error("remove", one.native()));
    }
    return {};
}

Expected<void> TaskLog::find_sizes() {
    struct stat about{};
    if (fstat(file_.get(), &about) != 0)
        return std::unexpected(errno_error("look at", path_.native()));
    size_ = static_cast<std::uint64_t>(about.st_size);
    if (lstat(older(path_).c_str(), &about) == 0)
        older_size_ = static_cast<std::uint64_t>(about.st_size);
    else if (errno != ENOENT)
        return std::unexpected(errno_error("look at", older(path_).native()));
    set_kept();
    return {};
}

// A restored node brings its logs, whatever its user has here.
Expected<void> TaskLog::shrink() {
    if (!kept_.over())
        return {};
    kept_.tell(0);
    if (auto dropped = drop_older(); !dropped)
        return dropped;
    if (size_ <= kLeastOfFile)
        return {};
    auto shortened = shorten(file_.get(), size_, path_);
    if (!shortened)
        return propagate(shortened);
    size_ = *shortened;
    set_kept();
    return {};
}

std::uint64_t TaskLog::room(const Spool &spool) const {
    const auto used = spool.kept().bytes();
    return used < limit_ ? std::min(limit_ - used, spool.kept().room()) : 0;
}

bool TaskLog::drained() const {
    if (!pipe_)
        return true;
    pollfd readable{.fd = pipe_.get(), .events = POLLIN, .revents = 0};
    return poll(&readable, 1, 0) == 0;
}

Expected<void> TaskLog::drain() {
    constexpr int kParts = 16; // others want to be served as well
    for (int part = 0; part < kParts && pipe_; ++part) {
        std::array<char, kLeastOfFile> buffer; // NOLINT(cppcoreguidelines-pro-type-member-init): read into
        const auto most = spool_ ? std::min<std::uint64_t>(room(*spool_), buffer.size()) : buffer.size();
        if (most == 0) {
            if (spool_ && spool_->kept().bytes() < limit_)
                spool_->kept().tell(1);
            return {};
        }
        const ssize_t got = read(pipe_.get(), buffer.data(), most);
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

// text: at most kLeastOfFile.
Expected<void> TaskLog::keep(std::string_view text) {
    if (spool_)
        return spool_->append(text);
    const bool scarce = kept_.left() < text.size();
    if (scarce)
        kept_.tell(text.size());
    const bool begins = size_ + text.size() > (scarce ? std::min(limit_, kLeastOfFile) : limit_);
    if (begins)
        if (auto begun = begin_file(); !begun)
            return begun;
    for (const auto make_room : {&TaskLog::shorten_older, &TaskLog::drop_older})
        if (kept_.room() < text.size())
            if (auto made = (this->*make_room)(); !made)
                return made;
    if (kept_.room() < text.size())
        return {};
    if (begins && scarce && limit_ > kLeastOfFile && !std::exchange(told_, true))
        if (auto said = write_all(fmt::format(
                "singularity: only the end of this output is kept: per_user.{} in singularity.yaml is what "
                "the programs of a user may have together on this host\n",
                name_of(Budget::output_bytes)));
            !said)
            return said;
    return write_all(text);
}

// To its end.
Expected<void> TaskLog::shorten_older() {
    if (older_size_ <= kLeastOfFile)
        return {};
    auto file = open_file(older(path_), O_RDWR | O_APPEND | O_NOFOLLOW);
    if (!file)
        return propagate(file);
    auto shortened = shorten(file->get(), older_size_, older(path_));
    if (!shortened)
        return propagate(shortened);
    older_size_ = *shortened;
    set_kept();
    return {};
}

Expected<void> TaskLog::drop_older() {
    if (auto emptied = empty_file(older(path_)); !emptied)
        return emptied;
    older_size_ = 0;
    set_kept();
    return {};
}

Expected<void> TaskLog::begin_file() {
    if (auto dropped = drop_older(); !dropped)
        return dropped;
    if (rename(path_.c_str(), older(path_).c_str()) != 0)
        return std::unexpected(errno_error("put aside", path_.native()));
    auto file = open_file(path_, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
    if (!file)
        return propagate(file);
    file_ = std::move(*file);
    older_size_ = std::exchange(size_, 0);
    set_kept();
    return {};
}

Expected<void> TaskLog::write_all(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = write(file_.get(), text.data(), text.size());
        if (written < 0 && errno != EINTR)
            return std::unexpected(errno_error("write", path_.native()));
        const auto done = written < 0 ? 0 : static_cast<std::size_t>(written);
        text.remove_prefix(done);
        size_ += done;
        set_kept();
    }
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
