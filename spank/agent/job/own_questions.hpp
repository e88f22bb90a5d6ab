// SPDX-License-Identifier: GPL-2.0-or-later
// What an agent asks itself, as if it were that of another host: each question is answered once, and an
// answer that comes too late is none.
#pragma once

#include "common/deadline.hpp"
#include "peers/peers.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace singularity::agent {

class OwnQuestions {
  public:
    // host: its own, for messages.
    explicit OwnQuestions(std::string host) : host_(std::move(host)) {}

    // The number by which it is answered.
    [[nodiscard]] std::uint64_t ask(std::chrono::milliseconds patience, peers::Peers::OnReply on_reply);
    void answer(std::uint64_t number, Expected<peers::wire::Envelope> reply);
    // Answers those that have waited too long (ETIMEDOUT).
    void handle();
    [[nodiscard]] std::optional<Deadline> next_deadline() const;

  private:
    struct Question {
        peers::Peers::OnReply on_reply;
        Deadline until;
    };
    std::string host_;
    std::map<std::uint64_t, Question> open_;
    std::uint64_t last_ = 0;
};

} // namespace singularity::agent
