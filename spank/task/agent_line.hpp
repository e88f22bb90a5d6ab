// SPDX-License-Identifier: GPL-2.0-or-later
// The rank's connection to the agent, as its companions use it: its owner sees to its end.
#pragma once

#include "agent/protocol/client.hpp"
#include "common/error.hpp"

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace singularity::task {

// Of a request that has not been answered.
using Asked = std::optional<std::uint32_t>;

class AgentLine {
  public:
    void connect(std::shared_ptr<agent::Client> client) { client_ = std::move(client); }

    // Nothing: there is no connection.
    template <class Request>
    Asked ask(const Request &request) {
        auto asked = client_ ? client_->send(request) : failure("ask", "the node agent", "not yet", EPIPE);
        return asked ? Asked(*asked) : std::nullopt;
    }

    // The answer, once; nothing as long as there is none; or the agent's refusal. After both, and when the
    // connection is lost, `asked` is empty.
    template <class Reply>
    Expected<std::optional<agent::Answered<Reply>>> take(Asked &asked) {
        if (!client_ || !asked)
            return std::nullopt;
        auto answer = client_->take<Reply>(*asked);
        if (!answer || *answer)
            asked.reset();
        if (!answer && answer.error().code == EPIPE)
            return std::nullopt;
        return answer;
    }

  private:
    std::shared_ptr<agent::Client> client_;
};

} // namespace singularity::task
