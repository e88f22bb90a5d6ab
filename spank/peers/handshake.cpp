// SPDX-License-Identifier: GPL-2.0-or-later
#include "handshake.hpp"

#include "common/text.hpp"
#include "credential.hpp"
#include "faults.hpp"
#include "frames.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

namespace singularity::peers {

namespace {

using namespace std::chrono_literals;

constexpr auto kMungePatience = 8s; // munged may be restarted meanwhile
constexpr std::size_t kNameLimit = 64;

Expected<void> refuse(std::string why, int code = EBADMSG) {
    return failure("accept", "a connection of an agent", std::move(why), code);
}

std::string shown(std::string_view text) { return quote(text.substr(0, kNameLimit)); }

// What a pledge says.
struct Terms {
    bool answer = false;
    std::string from;
    std::string to;
    std::string caller_share;
    std::string called_share;
};

wire::Pledge pledge_of(const Terms &terms) {
    wire::Pledge out;
    out.set_version(kProtocolVersion);
    out.set_answer(terms.answer);
    out.set_from(terms.from);
    out.set_to(terms.to);
    out.set_caller_share(terms.caller_share);
    out.set_called_share(terms.called_share);
    return out;
}

Expected<void> check(const wire::Pledge &pledge, const Terms &terms) {
    if (pledge.version() != kProtocolVersion || pledge.answer() != terms.answer)
        return refuse("its credential is one of another release, or of the other side");
    if (pledge.from() != terms.from || pledge.to() != terms.to)
        return refuse(fmt::format("its credential is from {} to {}, and not from {} to {}",
                                  shown(pledge.from()), shown(pledge.to()), terms.from, terms.to));
    if (pledge.caller_share() != terms.caller_share || pledge.called_share() != terms.called_share)
        return refuse("its credential was made for another connection");
    return {};
}

std::string other_version(const wire::Hello &hello, const std::string &own) {
    const auto theirs = shown(hello.from());
    return fmt::format("{} speaks version {} of the agents' protocol and {} speaks version {}: upgrade "
                       "slurm-singularity on {}",
                       theirs, hello.version(), own, kProtocolVersion,
                       hello.version() < kProtocolVersion ? theirs : own);
}

// In the other process: reads the credential if there is one, makes one if it is wanted.
Expected<wire::Findings> ask_munge(const std::string &credential, const Terms &theirs, bool reply,
                                   const Terms &ours, const std::filesystem::path &munge) {
    wire::Findings out;
    if (!credential.empty()) {
        auto pledge = read_credential(credential, munge);
        if (!pledge)
            return propagate(pledge);
        if (auto checked = check(*pledge, theirs); !checked)
            return propagate(checked);
        out.set_believed(true);
    }
    if (reply) {
        auto made = make_credential(pledge_of(ours), munge);
        if (!made)
            return propagate(made);
        out.set_credential(*made);
    }
    return out;
}

} // namespace

std::string short_name(std::string_view host) { return std::string(host.substr(0, host.find('.'))); }

bool is_host_name(std::string_view text) {
    return !text.empty() && text.size() <= kNameLimit && std::ranges::all_of(text, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
               c == '_';
    });
}

Expected<Handshake> Handshake::call(Sides sides, std::filesystem::path munge) {
    Handshake out(true, std::move(sides), std::move(munge));
    if (auto said = out.say_hello(); !said)
        return propagate(said);
    return out;
}

Expected<Handshake> Handshake::answer(std::string own, std::filesystem::path munge) {
    return Handshake(false, {.own = std::move(own), .peer = {}}, std::move(munge));
}

std::optional<Deadline> Handshake::deadline() const {
    return subprocess_ ? std::optional(subprocess_->deadline()) : std::nullopt;
}

void Handshake::say(const std::string &frame) {
    const auto text = framed(frame);
    transcript_ += text;
    output_ += text;
}

Expected<void> Handshake::say_hello() {
    auto exchange = Exchange::begin();
    if (!exchange)
        return propagate(exchange);
    exchange_ = std::move(*exchange);
    wire::Hello hello;
    hello.set_version(kProtocolVersion);
    hello.set_from(sides_.own);
    hello.set_to(sides_.peer);
    hello.set_share(exchange_->share());
    say(hello.SerializeAsString());
    return {};
}

Expected<void> Handshake::take(std::string_view frame) {
    transcript_ += framed(frame);
    return step_ == Step::hello ? take_hello(frame) : take_proof(frame);
}

Expected<void> Handshake::take_hello(std::string_view frame) {
    wire::Hello hello;
    if (!hello.ParseFromArray(frame.data(), static_cast<int>(frame.size())))
        return refuse("its first message is none");
    if (hello.version() != kProtocolVersion) {
        // So that whoever waits for an answer there hears why there is none.
        if (!caller_)
            if (auto said = say_hello(); !said)
                return said;
        return refuse(other_version(hello, sides_.own), EPROTONOSUPPORT);
    }
    if (!is_host_name(hello.from()) || hello.share().size() != kShareSize)
        return refuse("its first message has no host name and share of a key as they must be");
    if (hello.to() != sides_.own)
        return refuse(fmt::format("it is for {}, and this is {}", shown(hello.to()), sides_.own),
                      EHOSTUNREACH);
    if (!sides_.peer.empty() && hello.from() != sides_.peer)
        return refuse(fmt::format("{} answers in place of {}", shown(hello.from()), sides_.peer),
                      EHOSTUNREACH);
    sides_.peer = hello.from();
    peer_share_ = hello.share();
    step_ = Step::proof;
    if (!caller_)
        return say_hello();
    return start_subprocess("make a credential for " + sides_.peer, {}, true);
}

Expected<void> Handshake::take_proof(std::string_view frame) {
    wire::Proof proof;
    // munge_decode takes a text that ends with a zero.
    if (!proof.ParseFromArray(frame.data(), static_cast<int>(frame.size())) || proof.credential().empty() ||
        proof.credential().find('\0') != std::string::npos)
        return refuse("its second message has no credential");
    return start_subprocess("look at the credential of " + sides_.peer, proof.credential(), !caller_);
}

Expected<void> Handshake::start_subprocess(std::string name, std::string credential, bool reply) {
    const auto &own_share = exchange_->share();
    const Terms ours{.answer = !caller_,
                     .from = sides_.own,
                     .to = sides_.peer,
                     .caller_share = caller_ ? own_share : peer_share_,
                     .called_share = caller_ ? peer_share_ : own_share};
    Terms theirs = ours;
    theirs.answer = caller_;
    std::swap(theirs.from, theirs.to);
    auto subprocess = Subprocess::start(
        std::move(name),
        [=, munge = munge_] { return findings_text(ask_munge(credential, theirs, reply, ours, munge)); },
        Deadline::after(kMungePatience));
    if (!subprocess)
        return propagate(subprocess);
    subprocess_ = std::move(*subprocess);
    return {};
}

Expected<void> Handshake::step() {
    if (!subprocess_)
        return {};
    auto text = subprocess_->take();
    if (!text)
        return propagate(text);
    if (!*text)
        return {};
    subprocess_.reset();
    auto found = findings_of(**text);
    if (!found)
        return propagate(found);
    if (!found->credential().empty()) {
        wire::Proof proof;
        proof.set_credential(found->credential());
        say(proof.SerializeAsString());
    }
    if (found->believed())
        step_ = Step::done;
    return {};
}

Expected<SessionKeys> Handshake::keys() {
    if (!done() || !exchange_)
        return failure("derive", "the keys of a connection", "its handshake is not done, or has given them",
                       EINVAL);
    const auto exchange = std::exchange(exchange_, std::nullopt);
    return exchange->keys(peer_share_, std::exchange(transcript_, {}));
}

} // namespace singularity::peers
