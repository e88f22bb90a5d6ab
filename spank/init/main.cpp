// SPDX-License-Identifier: GPL-2.0-or-later
// singularity-init: process 1 of a virtual node. Started by the agent's child in the node, never by hand.
#include "init.hpp"

#include <cerrno>
#include <cstdlib>
#include <exception>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

namespace {

constexpr int kListener = 3;

} // namespace

int main(int count, char **arguments) {
    try {
        // Descriptor 3 alone would be closed in no task by itself.
        if (getpid() != 1 || fcntl(kListener, F_SETFD, FD_CLOEXEC) != 0)
            return EXIT_FAILURE;
        const bool in_image = count > 1 && std::string_view(arguments[1]) == singularity::node::kInitInImage;
        singularity::init::Init(kListener, in_image).serve();
        return errno;
    } catch (const std::exception &) { // there is nobody to tell; the agent sees the node's end
        return EXIT_FAILURE;
    }
}
