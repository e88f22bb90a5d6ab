// SPDX-License-Identifier: GPL-2.0-or-later
#include "spool.hpp"

#include <algorithm>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::agent {

namespace {

constexpr std::uint64_t kBlock = 65536; // no file system's is larger

} // namespace

Expected<Spool> Spool::open(const std::filesystem::path &path, std::uint32_t uid) {
    auto file = open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
    if (!file)
        return propagate(file);
    struct stat about{};
    if (fstat(file->get(), &about) != 0)
        return std::unexpected(errno_error("look at", path.native()));
    const auto data = lseek(file->get(), 0, SEEK_DATA);
    if (data < 0 && errno != ENXIO) // nothing but what was given back
        return std::unexpected(errno_error("look into", path.native()));
    const auto end = static_cast<std::uint64_t>(about.st_size);
    return Spool(std::move(*file), data < 0 ? end / kBlock * kBlock : static_cast<std::uint64_t>(data), end,
                 uid);
}

Expected<void> Spool::append(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = pwrite(file_.get(), text.data(), text.size(), static_cast<off_t>(end_));
        if (written < 0 && errno != EINTR)
            return std::unexpected(errno_error("write", "the output of a task"));
        const auto done = written < 0 ? 0 : static_cast<std::size_t>(written);
        text.remove_prefix(done);
        end_ += done;
        kept_.set(end_ - begin_);
    }
    return {};
}

Expected<Spool::Piece> Spool::read(std::uint64_t offset, std::size_t most) const {
    Piece out{.offset = std::clamp(offset, begin_, end_), .text = {}};
    out.text.resize(std::min<std::uint64_t>(most, end_ - out.offset));
    for (std::size_t done = 0; done < out.text.size();) {
        const ssize_t got = pread(file_.get(), out.text.data() + done, out.text.size() - done,
                                  static_cast<off_t>(out.offset + done));
        if (got == 0 || (got < 0 && errno != EINTR))
            return std::unexpected(errno_error("read", "the output of a task", got == 0 ? EIO : errno));
        done += got < 0 ? 0 : static_cast<std::size_t>(got);
    }
    return out;
}

Expected<void> Spool::release(std::uint64_t offset) {
    const auto from = std::min(offset, end_) / kBlock * kBlock;
    if (from <= begin_)
        return {};
    if (fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(from)) != 0)
        return std::unexpected(errno_error("give back", "output that has been read"));
    begin_ = from;
    kept_.set(end_ - begin_);
    return {};
}

} // namespace singularity::agent
