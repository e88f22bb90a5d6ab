// SPDX-License-Identifier: GPL-2.0-or-later
// A TCP connection to another agent: first the handshake, then encrypted messages. Nothing blocks. Whatever
// is not as it must be is an Error, after which the connection is to be dropped.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "frames.hpp"
#include "handshake.hpp"
#include "peers/peer_messages.pb.h"
#include "session.hpp"
#include "tcp.hpp"

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

namespace singularity::peers {

class Connection {
  public:
    // From the first byte to the last of the handshake.
    static constexpr std::chrono::seconds kHandshakePatience{15};
    // What waits to be sent, at most; a peer that does not read so much is given up.
    static constexpr std::size_t kOutputLimit = 2 * kMessageLimit;

    Connection(UniqueFd socket, const Endpoint &peer, Handshake handshake);

    void watch(std::vector<pollfd> &fds) const;
    [[nodiscard]] std::optional<Deadline> next_deadline() const;
    // Does what can be done now.
    [[nodiscard]] Expected<void> handle();

    [[nodiscard]] bool established() const { return sealer_.has_value(); }
    // What has come, in order.
    [[nodiscard]] std::optional<wire::Envelope> next();
    [[nodiscard]] Expected<void> send(const wire::Envelope &envelope);

    [[nodiscard]] const Endpoint &endpoint() const { return endpoint_; }
    [[nodiscard]] const std::string &peer() const { return handshake_.peer(); }
    [[nodiscard]] std::string name() const; // for messages
    [[nodiscard]] int socket() const { return socket_.get(); }

  private:
    [[nodiscard]] Expected<void> connect();
    [[nodiscard]] bool may_come() const; // another message
    [[nodiscard]] Expected<bool> read(); // whether there was anything
    [[nodiscard]] Error closed() const;
    [[nodiscard]] Expected<void> take_frames();
    [[nodiscard]] Expected<void> write();

    UniqueFd socket_;
    Endpoint endpoint_;
    Handshake handshake_;
    Deadline patience_;
    bool connecting_;
    FrameReader reader_{kHandshakeLimit};
    std::string output_;
    std::optional<Sealer> sealer_;
    std::optional<Opener> opener_;
    std::deque<wire::Envelope> come_;
    std::size_t come_bytes_ = 0; // of them, as they came
};

} // namespace singularity::peers
