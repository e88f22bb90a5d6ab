// SPDX-License-Identifier: GPL-2.0-or-later
// Two agents prove themselves to each other:
//
//     caller -> called   Hello(from, to, share)
//     called -> caller   Hello(from, to, share)
//     caller -> called   Proof: a credential around Pledge(from, to, both shares)
//     called -> caller   Proof: the same the other way round, with answer set
//
// A share is one side's half of a key exchange (exchange.hpp), new for each connection. Each credential names
// both: so it is good for this connection only, and nobody between the two can put in a share of their own.
// All four frames go into the keys with which everything after them is encrypted. Nothing blocks: a
// subprocess asks munge, and the side that was called asks it nothing before a whole credential has come.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "exchange.hpp"
#include "session.hpp"
#include "subprocess.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace singularity::peers {

// 1: what was said after the handshake was authenticated, and not encrypted.
inline constexpr std::uint32_t kProtocolVersion = 2;

class Handshake {
  public:
    struct Sides {
        std::string own; // host names
        std::string peer;
    };
    // munge: munged's socket. output() has the first frame already.
    [[nodiscard]] static Expected<Handshake> call(Sides sides, std::filesystem::path munge);
    [[nodiscard]] static Expected<Handshake> answer(std::string own, std::filesystem::path munge);

    // A frame of the other side. An error ends the connection.
    [[nodiscard]] Expected<void> take(std::string_view frame);
    // Whether the next frame may be looked at.
    [[nodiscard]] bool listens() const { return !subprocess_ && step_ != Step::done; }
    // -1, or readable when step() has something to do.
    [[nodiscard]] int fd() const { return subprocess_ ? subprocess_->fd() : -1; }
    [[nodiscard]] std::optional<Deadline> deadline() const;
    [[nodiscard]] Expected<void> step();

    // Frames to send, since the last call.
    [[nodiscard]] std::string output() { return std::exchange(output_, {}); }
    [[nodiscard]] bool done() const { return step_ == Step::done; }
    // Before that: as the other side calls itself, which nothing proves yet; may be empty.
    [[nodiscard]] const std::string &peer() const { return sides_.peer; }
    [[nodiscard]] bool is_caller() const { return caller_; }
    // When it is done, and once: this side's half of the exchange is forgotten.
    [[nodiscard]] Expected<SessionKeys> keys();

  private:
    enum class Step : std::uint8_t { hello, proof, done };
    Handshake(bool caller, Sides sides, std::filesystem::path munge)
        : caller_(caller), sides_(std::move(sides)), munge_(std::move(munge)) {}

    void say(const std::string &frame);
    [[nodiscard]] Expected<void> say_hello();
    [[nodiscard]] Expected<void> take_hello(std::string_view frame);
    [[nodiscard]] Expected<void> take_proof(std::string_view frame);
    [[nodiscard]] Expected<void> start_subprocess(std::string name, std::string credential, bool reply);

    bool caller_;
    Sides sides_;
    std::filesystem::path munge_;
    Step step_ = Step::hello;
    std::optional<Exchange> exchange_;
    std::string peer_share_;
    std::string transcript_; // the frames of both sides, in their order
    std::optional<Subprocess> subprocess_;
    std::string output_;
};

// "n1" of "n1.cluster": what hosts are called here.
[[nodiscard]] std::string short_name(std::string_view host);
// Letters, digits, '-' and '_', 1 to 64 of them.
[[nodiscard]] bool is_host_name(std::string_view text);

} // namespace singularity::peers
