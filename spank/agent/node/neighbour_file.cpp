// SPDX-License-Identifier: GPL-2.0-or-later
#include "neighbour_file.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL // before glibc 2.38
#define MFD_NOEXEC_SEAL 8U
#endif

namespace singularity::agent {

namespace {

constexpr off_t kBytes = off_t{256} << 10; // Neighbours::kBytes of proxy/daemon
constexpr const char *kName = "singularity-neighbours";

} // namespace

// Its mode lets the job's user open it again by way of a descriptor, which is what its proxies do.
Expected<UniqueFd> make_neighbour_file() {
    constexpr const char *kWhat = "the file that a job's device proxies share";
    UniqueFd file(memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
    if (!file && errno == EINVAL) // an older kernel
        file = UniqueFd(memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file || ftruncate(file.get(), kBytes) != 0 ||
        fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return std::unexpected(errno_error("make", kWhat));
    return file;
}

} // namespace singularity::agent
