// SPDX-License-Identifier: GPL-2.0-or-later
#include "own_questions.hpp"

#include <vector>

#include <fmt/format.h>

namespace singularity::agent {

std::uint64_t OwnQuestions::ask(std::chrono::milliseconds patience, peers::Peers::OnReply on_reply) {
    open_.emplace(++last_, Question{.on_reply = std::move(on_reply), .until = Deadline::after(patience)});
    return last_;
}

void OwnQuestions::answer(std::uint64_t number, Expected<peers::wire::Envelope> reply) {
    if (auto asked = open_.extract(number); !asked.empty())
        asked.mapped().on_reply(std::move(reply));
}

// Whoever is answered may ask again at once.
void OwnQuestions::handle() {
    std::vector<std::pair<std::uint64_t, Deadline>> late;
    for (const auto &[number, asked] : open_)
        if (asked.until.expired())
            late.emplace_back(number, asked.until);
    for (const auto &[number, until] : late)
        answer(number, std::unexpected(timeout_error(until, fmt::format("the agent of {}", host_))));
}

std::optional<Deadline> OwnQuestions::next_deadline() const {
    std::optional<Deadline> out;
    for (const auto &[number, asked] : open_)
        if (!out || asked.until.when() < out->when())
            out = asked.until;
    return out;
}

} // namespace singularity::agent
