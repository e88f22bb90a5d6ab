// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/mount.hpp"

#include "common/log.hpp"

#include <fmt/format.h>
#include <sys/mount.h>

namespace singularity {
namespace {

constexpr log::Channel kMountLog("mount");

void unmount_or_log(Mount &mount) noexcept {
    if (mount.target().empty())
        return;
    try {
        if (const auto done = mount.unmount(); !done)
            kMountLog.error("{}", done.error().message());
    } catch (const std::exception &failure) {
        kMountLog.error("cannot report on unmounting {}: {}", mount.target().native(), failure.what());
    }
}

} // namespace

Expected<Mount> Mount::make(const MountRequest &request) {
    const char *const type = request.type.empty() ? nullptr : request.type.c_str();
    const char *const options = request.options.empty() ? nullptr : request.options.c_str();
    if (::mount(request.source.c_str(), request.target.c_str(), type, request.flags, options) != 0) {
        const int code = errno;
        return std::unexpected(
            errno_error(fmt::format("mount {} on", request.type.empty() ? request.source : request.type),
                        request.target.native(), code));
    }
    return Mount(request.target);
}

Mount &Mount::operator=(Mount &&other) noexcept {
    if (this != &other) {
        unmount_or_log(*this);
        target_ = std::exchange(other.target_, {});
    }
    return *this;
}

Mount::~Mount() { unmount_or_log(*this); }

Expected<void> Mount::unmount() {
    const auto target = std::exchange(target_, {});
    if (::umount2(target.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0)
        return std::unexpected(errno_error("unmount", target.native()));
    return {};
}

} // namespace singularity
