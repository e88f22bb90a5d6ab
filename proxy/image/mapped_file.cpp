// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/image/mapped_file.hpp"

#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::image {

Expected<MappedFile> MappedFile::make(int fd, std::uint64_t most) {
    const auto room = static_cast<std::size_t>((most + kStep - 1) / kStep * kStep);
    if (!fits(fd))
        return failure("write", "the device image", "its file is not an empty one that can be mapped",
                       EINVAL);
    void *base = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return std::unexpected(errno_error("reserve addresses for", "the device image"));
    return MappedFile(fd, static_cast<std::byte *>(base), room);
}

bool MappedFile::fits(int fd) {
    struct stat about{};
    return fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size == 0 &&
           (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
}

MappedFile::~MappedFile() {
    if (base_ != nullptr)
        munmap(base_, room_);
}

Expected<void> MappedFile::grow(std::size_t bytes) {
    if (room_ - size_ < bytes)
        return failure("write", "the device image",
                       fmt::format("it would be larger than the {} bytes that were foreseen", room_), EFBIG);
    const auto more = (bytes + kStep - 1) / kStep * kStep;
    const auto at = static_cast<off_t>(size_);
    // Memory of a file that has no pages ends whoever writes to it.
    if (const int error = posix_fallocate(fd_, at, static_cast<off_t>(more)); error != 0)
        return std::unexpected(errno_error("make room for", "the device image", error));
    auto *const added = base_ + size_;
    if (mmap(added, more, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_, at) == MAP_FAILED)
        return std::unexpected(errno_error("map", "the device image"));
    // Where the kernel is older than Linux 5.14 they come one by one.
    static_cast<void>(madvise(added, more, MADV_POPULATE_WRITE));
    size_ += more;
    return {};
}

// NOLINTNEXTLINE(readability-make-member-function-const): it changes the file
Expected<void> MappedFile::end_at(std::size_t size) {
    if (ftruncate(fd_, static_cast<off_t>(size)) != 0)
        return std::unexpected(errno_error("end", "the device image"));
    return {};
}

} // namespace singularity::image
