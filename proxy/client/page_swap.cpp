// SPDX-License-Identifier: GPL-2.0-or-later
#include "page_swap.hpp"

#include "common/unique_fd.hpp"
#include "proxy/protocol/memory.hpp"

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::client {

namespace {

void *pointer_to(std::uint64_t address) { return std::bit_cast<void *>(address); }

UniqueFd open_userfaultfd() {
    UniqueFd fd(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC)));
    if (!fd)
        fd = UniqueFd(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)));
    uffdio_api api{.api = UFFD_API,
                   .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM |
                               UFFD_FEATURE_WP_UNPOPULATED,
                   .ioctls = 0};
    if (fd && ioctl(fd.get(), UFFDIO_API, &api) != 0)
        fd.reset();
    return fd;
}

// While one lives, threads that write to the pages wait. They go on with whatever is mapped there then.
class HeldBack {
  public:
    explicit HeldBack(Range pages) {
        const int code = errno;
        fd_ = open_userfaultfd();
        uffdio_register registration{.range = {.start = pages.address, .len = pages.size},
                                     .mode = UFFDIO_REGISTER_MODE_WP,
                                     .ioctls = 0};
        uffdio_writeprotect protection{.range = {.start = pages.address, .len = pages.size},
                                       .mode = UFFDIO_WRITEPROTECT_MODE_WP};
        if (fd_ && (ioctl(fd_.get(), UFFDIO_REGISTER, &registration) != 0 ||
                    ioctl(fd_.get(), UFFDIO_WRITEPROTECT, &protection) != 0))
            fd_.reset();
        errno = code;
    }
    // Closing lets all that wait go on.

  private:
    UniqueFd fd_;
};

} // namespace

bool share_pages(Range pages, std::uint64_t alias, int file) {
    const HeldBack held(pages);
    const auto replace = [&](std::uint64_t offset, std::uint64_t size) {
        std::memcpy(pointer_to(alias + offset), pointer_to(pages.address + offset), size);
        return mmap(pointer_to(pages.address + offset), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                    file, static_cast<off_t>(offset)) != MAP_FAILED;
    };
    // The first and the last page, where other data of the program may lie, each by itself: where nothing is
    // held back, their moment is short.
    const auto page = protocol::kPage;
    if (pages.size <= 2 * page)
        return replace(0, pages.size);
    return replace(page, pages.size - 2 * page) && replace(0, page) && replace(pages.size - page, page);
}

bool unshare_pages(Range pages, std::uint64_t alias) {
    void *const copy = mmap(nullptr, pages.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return false;
    const HeldBack held(pages);
    std::memcpy(copy, pointer_to(alias), pages.size);
    if (mremap(copy, pages.size, pages.size, MREMAP_MAYMOVE | MREMAP_FIXED, pointer_to(pages.address)) !=
        MAP_FAILED)
        return true;
    const int code = errno;
    munmap(copy, pages.size);
    errno = code;
    return false;
}

bool holds_writes_back() { return static_cast<bool>(open_userfaultfd()); }

} // namespace singularity::client
