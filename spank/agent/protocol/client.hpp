// SPDX-License-Identifier: GPL-2.0-or-later
// A connection to the node agent, for programs that ask one thing after another.
#pragma once

#include "agent_messages.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "node/seqpacket.hpp"

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace singularity::agent {

// Longer than any of the agent's own deadlines.
inline constexpr std::chrono::seconds kCallPatience{90};
// Between two news of what takes long: a disk may stand still for a while.
inline constexpr std::chrono::seconds kFollowPatience{1800};

template <class Reply>
struct Answered {
    Reply reply;
    std::vector<UniqueFd> descriptors;
};

class Client {
  public:
    [[nodiscard]] static Expected<Client> connect(const std::filesystem::path &socket);

    // The answer, or the agent's refusal, as an Error with its code.
    template <class Reply, class Request>
    [[nodiscard]] Expected<Answered<Reply>> call(const Request &request,
                                                 std::span<const int> descriptors = {}) {
        auto token = send(request, descriptors);
        if (!token)
            return propagate(token);
        auto packet = await(*token, Deadline::after(kCallPatience));
        if (!packet)
            return propagate(packet);
        return read<Reply>(*packet);
    }

    // The same for what takes long and tells how far it is.
    template <class Reply, class News, class Request, class OnNews>
    [[nodiscard]] Expected<Answered<Reply>> follow(const Request &request, OnNews on_news,
                                                   std::span<const int> descriptors = {}) {
        auto token = send(request, descriptors);
        if (!token)
            return propagate(token);
        for (;;) {
            auto packet = await(*token, Deadline::after(kFollowPatience));
            if (!packet)
                return propagate(packet);
            if (const auto news = node::decode<News>(packet->bytes))
                on_news(*news);
            else
                return read<Reply>(*packet);
        }
    }

    // For answers that may take as long as they like: poll fd(), then take().
    template <class Request>
    [[nodiscard]] Expected<std::uint32_t> send(const Request &request,
                                               std::span<const int> descriptors = {}) {
        const auto token = ++last_token_;
        auto sent = send_bytes(node::encode(request, token), descriptors);
        if (!sent)
            return propagate(sent);
        return token;
    }
    template <class Reply>
    [[nodiscard]] Expected<std::optional<Answered<Reply>>> take(std::uint32_t token) {
        auto packet = look(token);
        if (!packet)
            return propagate(packet);
        auto &there = *packet;
        if (!there)
            return std::nullopt;
        auto out = read<Reply>(*there);
        if (!out)
            return propagate(out);
        return std::optional(std::move(*out));
    }
    [[nodiscard]] int fd() const { return socket_.get(); }
    // Packets so far, of whatever request.
    [[nodiscard]] std::uint64_t received() const { return received_; }

  private:
    explicit Client(UniqueFd socket) : socket_(std::move(socket)) {}
    [[nodiscard]] Expected<void> send_bytes(const std::string &bytes, std::span<const int> descriptors);
    [[nodiscard]] Expected<std::optional<node::Packet>> look(std::uint32_t token);
    [[nodiscard]] Expected<node::Packet> await(std::uint32_t token, const Deadline &deadline);

    template <class Reply>
    [[nodiscard]] static Expected<Answered<Reply>> read(node::Packet &packet) {
        if (auto failed = node::decode<Failed>(packet.bytes))
            return std::unexpected(
                Error{std::move(failed->doing), std::move(failed->on), std::move(failed->why), failed->code});
        auto reply = node::decode<Reply>(packet.bytes);
        if (!reply)
            return failure("understand", "the node agent",
                           "its answer has another form: is it of another release?", EPROTO);
        Answered<Reply> out{.reply = std::move(*reply), .descriptors = {}};
        for (std::size_t i = 0; i < packet.descriptors.size(); ++i)
            out.descriptors.emplace_back(packet.descriptors.take(i));
        return out;
    }

    UniqueFd socket_;
    std::uint32_t last_token_ = 0;
    std::uint64_t received_ = 0;
    std::map<std::uint32_t, node::Packet> early_; // answers that came while another was waited for
};

} // namespace singularity::agent
