// SPDX-License-Identifier: GPL-2.0-or-later
// What steps in images need of a node.
#include "common/unique_fd.hpp"
#include "gather.hpp"
#include "node/image_server.hpp"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

namespace singularity::doctor {

Fact<ForImages> look_at_images(const Config::Containers &containers) {
    if (!containers.enabled)
        return not_seen(Unseen::kUnused, "containers.enabled in singularity.yaml is false");
    if (geteuid() != 0)
        return not_seen(Unseen::kNeedsRoot, "only root can make an overlay or open /dev/fuse");
    ForImages out;
    if (const UniqueFd overlay(fsopen("overlay", FSOPEN_CLOEXEC)); !overlay)
        out.overlay = errno_error("", "").why;
    if (const UniqueFd fuse(open("/dev/fuse", O_RDWR | O_CLOEXEC)); !fuse)
        out.fuse = errno_error("", "").why;
    out.server = node::image_server_program();
    return out;
}

} // namespace singularity::doctor
