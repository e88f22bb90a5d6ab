// SPDX-License-Identifier: GPL-2.0-or-later
// Two agents prove themselves to each other:
//
//     caller -> called   Hello(from, to, nonce)
//     called -> caller   Hello(from, to, nonce)
//     caller -> called   Proof: a credential around Pledge(from, to, both nonces, key)
//     called -> caller   Proof: the same the other way round, with answer set
//
// The nonces make each pledge good for one connection only, the names for one host only; the keys, which root
// alone can read, make it this connection. Nothing blocks: what asks munge is sent on an errand, and the side
// that was called asks it nothing before a whole credential has come.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "errand.hpp"
#include "session.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace singularity::peers {

inline constexpr std::uint32_t kProtocolVersion = 1;

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
    [[nodiscard]] bool listens() const { return !errand_ && step_ != Step::done; }
    // -1, or readable when step() has something to do.
    [[nodiscard]] int fd() const { return errand_ ? errand_->fd() : -1; }
    [[nodiscard]] std::optional<Deadline> deadline() const;
    [[nodiscard]] Expected<void> step();

    // Frames to send, since the last call.
    [[nodiscard]] std::string output() { return std::exchange(output_, {}); }
    [[nodiscard]] bool done() const { return step_ == Step::done; }
    // Before that: as the other side calls itself, which nothing proves yet; may be empty.
    [[nodiscard]] const std::string &peer() const { return sides_.peer; }
    [[nodiscard]] bool is_caller() const { return caller_; }
    // When it is done.
    [[nodiscard]] Expected<SessionKey> key(bool outgoing) const {
        return key_of(agreement_, outgoing == caller_);
    }

  private:
    enum class Step : std::uint8_t { hello, proof, done };
    Handshake(bool caller, Sides sides, std::filesystem::path munge)
        : caller_(caller), sides_(std::move(sides)), munge_(std::move(munge)) {}

    [[nodiscard]] Expected<void> say_hello();
    [[nodiscard]] Expected<void> take_hello(std::string_view frame);
    [[nodiscard]] Expected<void> take_proof(std::string_view frame);
    [[nodiscard]] Expected<void> send_errand(std::string name, std::string credential, bool reply);

    bool caller_;
    Sides sides_;
    std::filesystem::path munge_;
    Step step_ = Step::hello;
    Agreement agreement_;
    std::optional<Errand> errand_;
    std::string output_;
};

// "n1" of "n1.cluster": what hosts are called here.
[[nodiscard]] std::string short_name(std::string_view host);
// Letters, digits, '-' and '_', 1 to 64 of them.
[[nodiscard]] bool is_host_name(std::string_view text);

} // namespace singularity::peers
