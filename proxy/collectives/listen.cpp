// SPDX-License-Identifier: GPL-2.0-or-later
#include "core.hpp"
#include "log.hpp"

#include <array>
#include <memory>

#include <poll.h>

namespace singularity::collectives {

void Core::listen() {
    std::vector<pollfd> watched{{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    for (const auto &listener : listeners_)
        watched.push_back({.fd = listener.fd(), .events = POLLIN, .revents = 0});
    for (;;) {
        if (poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR)
            return kLog.error("{}", errno_error("wait for", "peers").message());
        if (watched.front().revents != 0)
            return;
        for (std::size_t at = 0; at < listeners_.size(); ++at) {
            if (watched[at + 1].revents == 0)
                continue;
            auto socket = listeners_[at].accept();
            if (!socket)
                continue; // it has gone again
            unproved_.add(*socket);
            const auto held = std::make_shared<Socket>(std::move(*socket));
            const bool distant = !listeners_[at].address().unix_socket;
            threads_.start([this, held, distant] { greet(std::move(*held), distant); });
        }
    }
}

} // namespace singularity::collectives
