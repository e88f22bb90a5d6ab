// SPDX-License-Identifier: GPL-2.0-or-later
#include "fd.hpp"

#include <utility>

#include <unistd.h>

namespace singularity::init {

Fd &Fd::operator=(Fd &&other) noexcept {
    if (this != &other) {
        if (fd_ >= 0)
            close(fd_);
        fd_ = other.release();
    }
    return *this;
}

Fd::~Fd() {
    if (fd_ >= 0)
        close(fd_);
}

int Fd::release() { return std::exchange(fd_, -1); }

} // namespace singularity::init
