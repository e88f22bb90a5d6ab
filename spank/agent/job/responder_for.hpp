// SPDX-License-Identifier: GPL-2.0-or-later
// Asking a node within the agent.
#pragma once

#include "agent/node/live_node.hpp"
#include "agent/protocol/agent_messages.hpp"

#include <cerrno>
#include <functional>
#include <span>
#include <string>
#include <utility>

namespace singularity::agent {

// Of a reply of a node's: an answer to who has asked it.
template <class Reply>
Responder responder_for(std::function<void(Expected<Reply>)> then) {
    return {.token = 1,
            .answer = [then = std::move(then)](const std::string &packet, std::span<const int> /*fds*/) {
                if (auto reply = node::decode<Reply>(packet))
                    return then(std::move(*reply));
                if (node::decode<Progress>(packet)) // nobody looks at
                    return;
                auto failed = node::decode<Failed>(packet);
                then(failed ? Expected<Reply>(std::unexpected(
                                  Error{failed->doing, failed->on, failed->why, failed->code}))
                            : failure("understand", "a virtual node", "its answer has another form", EPROTO));
            }};
}

} // namespace singularity::agent
