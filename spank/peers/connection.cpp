// SPDX-License-Identifier: GPL-2.0-or-later
#include "connection.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>

namespace singularity::peers {

namespace {

constexpr std::size_t kComeLimit = 64; // messages that nobody has taken yet: the peer waits
constexpr int kReadsAtOnce = 16;       // others want to be served as well

} // namespace

Connection::Connection(UniqueFd socket, const Endpoint &peer, Handshake handshake)
    : socket_(std::move(socket)), endpoint_(peer), handshake_(std::move(handshake)),
      patience_(Deadline::after(kHandshakePatience)), connecting_(handshake_.is_caller()) {
    output_ = handshake_.output();
}

std::string Connection::name() const {
    const auto address = text_of(endpoint_);
    return peer().empty() ? address : fmt::format("{} ({})", peer(), address);
}

void Connection::watch(std::vector<pollfd> &fds) const {
    const bool writes = connecting_ || !output_.empty();
    const bool reads = !connecting_ && (established() || handshake_.listens());
    const auto events = (writes ? POLLOUT : 0) | (reads ? POLLIN : 0);
    fds.push_back({.fd = socket_.get(), .events = static_cast<short>(events), .revents = 0});
    if (handshake_.fd() >= 0)
        fds.push_back({.fd = handshake_.fd(), .events = POLLIN, .revents = 0});
}

std::optional<Deadline> Connection::next_deadline() const {
    if (established())
        return std::nullopt;
    const auto subprocess = handshake_.deadline();
    return subprocess && subprocess->when() < patience_.when() ? *subprocess : patience_;
}

Expected<void> Connection::connect() {
    pollfd ready{.fd = socket_.get(), .events = POLLOUT, .revents = 0};
    if (poll(&ready, 1, 0) != 1)
        return {};
    if (const int code = call_result(socket_.get()); code != 0)
        return std::unexpected(errno_error("reach the agent of", name(), code));
    connecting_ = false;
    return {};
}

Expected<void> Connection::handle() {
    if (!established() && patience_.expired())
        return std::unexpected(timeout_error(
            patience_, fmt::format("{} to {}", name(), connecting_ ? "answer at all" : "prove itself")));
    if (connecting_) {
        if (auto connected = connect(); !connected || connecting_)
            return connected;
    }
    if (auto stepped = handshake_.step(); !stepped)
        return stepped;
    for (int count = 0; count < kReadsAtOnce; ++count) {
        if (auto taken = take_frames(); !taken) {
            // What is left to say is for the other side to know why.
            output_ += handshake_.output();
            static_cast<void>(write());
            return taken;
        }
        auto more = read();
        if (!more)
            return propagate(more);
        if (!*more)
            break;
    }
    output_ += handshake_.output();
    return write();
}

bool Connection::may_come() const { return come_.size() < kComeLimit && come_bytes_ < kMessageLimit; }

Expected<bool> Connection::read() {
    if (!established() && !handshake_.listens())
        return false;
    const std::size_t room = may_come() ? reader_.room() : 0;
    if (room == 0)
        return false;
    std::array<char, 65536> part; // NOLINT(cppcoreguidelines-pro-type-member-init): read into
    ssize_t got = 0;
    do
        got = recv(socket_.get(), part.data(), std::min(part.size(), room), MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN)
        return false;
    if (got == 0 || (got < 0 && errno == ECONNRESET))
        return std::unexpected(closed());
    if (got < 0)
        return std::unexpected(errno_error("hear from", name()));
    reader_.add({part.data(), static_cast<std::size_t>(got)});
    return true;
}

Error Connection::closed() const {
    // An agent of version 1 says nothing to a caller of another version.
    constexpr std::string_view kUnheard = "it has closed the connection before the handshake was over: its "
                                          "agent's log says why, for example that "
                                          "it is of another release and one of the two must be upgraded";
    return {.doing = "hear from",
            .on = name(),
            .why = std::string(established() || !handshake_.is_caller() ? "it has closed the connection"
                                                                        : kUnheard),
            .code = ECONNRESET};
}

Expected<void> Connection::take_frames() {
    while (may_come()) {
        if (!established() && handshake_.done()) {
            auto keys = handshake_.keys();
            if (!keys)
                return propagate(keys);
            const bool caller = handshake_.is_caller();
            sealer_.emplace(caller ? keys->from_caller : keys->from_called);
            opener_.emplace(caller ? keys->from_called : keys->from_caller);
            reader_.set_limit(kMessageLimit + kSealedLimitOver);
        }
        if (!established() && !handshake_.listens())
            return {};
        auto frame = reader_.next();
        if (!frame)
            return propagate(frame);
        if (!*frame)
            return {};
        if (!established()) {
            if (auto taken = handshake_.take(**frame); !taken)
                return taken;
            continue;
        }
        auto message = opener_->open(**frame);
        if (!message)
            return propagate(message);
        wire::Envelope envelope;
        if (!envelope.ParseFromString(*message) || envelope.token() == 0)
            return failure("understand", name(), "its message is none", EBADMSG);
        come_bytes_ += message->size();
        come_.push_back(std::move(envelope));
    }
    return {};
}

std::optional<wire::Envelope> Connection::next() {
    if (come_.empty())
        return std::nullopt;
    auto out = std::move(come_.front());
    come_.pop_front();
    if (come_.empty())
        come_bytes_ = 0;
    return out;
}

Expected<void> Connection::send(const wire::Envelope &envelope) {
    const auto message = envelope.SerializeAsString();
    if (message.size() > kMessageLimit)
        return failure(
            "tell", name(),
            fmt::format("{} bytes are more than a message may have, {}", message.size(), kMessageLimit),
            E2BIG);
    if (!established())
        return failure("tell", name(), "it has not proved itself yet", ENOTCONN);
    if (output_.size() > kOutputLimit)
        return failure("tell", name(), fmt::format("it has not read {} bytes", output_.size()), ENOBUFS);
    auto sealed = sealer_->seal(message);
    if (!sealed)
        return propagate(sealed);
    output_ += framed(*sealed);
    return write();
}

Expected<void> Connection::write() {
    std::size_t done = 0;
    while (done < output_.size()) {
        const ssize_t sent =
            ::send(socket_.get(), output_.data() + done, output_.size() - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0)
            return std::unexpected(errno_error("tell", name()));
        done += static_cast<std::size_t>(sent);
    }
    output_.erase(0, done);
    return {};
}

} // namespace singularity::peers
