// SPDX-License-Identifier: GPL-2.0-or-later
// The program's own pages become pages of a file, and its own again, while its threads go on.
//
// Between the copy of a page and the exchange no other thread may write to it. userfaultfd(2) holds such
// writes back until the exchange is done. Where the kernel does not grant that (no userfaultfd, a seccomp
// filter, private mappings of files), a write at that moment is lost. Where it grants it for user mode only
// (vm.unprivileged_userfaultfd = 0, no CAP_SYS_PTRACE), a system call that writes to the memory at that
// moment fails with EFAULT instead of waiting.
#pragma once

#include "ranges.hpp"

#include <cstdint>

namespace singularity::client {

// Copies the pages to the file, which is also mapped at `alias`, and maps it in their place. false: errno
// says why; the pages may be shared already, but have their content.
[[nodiscard]] bool share_pages(Range pages, std::uint64_t alias, int file);
// The other way round: private pages with the file's content.
[[nodiscard]] bool unshare_pages(Range pages, std::uint64_t alias);

// Whether writes of other threads are held back, so that none is lost.
[[nodiscard]] bool holds_writes_back();

} // namespace singularity::client
