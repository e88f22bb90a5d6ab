// SPDX-License-Identifier: GPL-2.0-or-later
#include "peers.hpp"

#include "common/crowd.hpp"
#include "common/text.hpp"
#include "faults.hpp"
#include "log.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace singularity::peers {

namespace {

using namespace std::chrono_literals;

constexpr int kBacklog = 64;
constexpr std::ptrdiff_t kProvenLimit = 1024;
constexpr std::ptrdiff_t kOfOneAddress = 8;
constexpr std::size_t kUnprovenLimit = 64; // each may have one process that asks munge
constexpr std::size_t kRequestsOfOne = 256;
constexpr std::size_t kPendingLimit = 256;
constexpr auto kAcceptPause = 100ms; // when descriptors have run out
constexpr auto kSearchPatience = 10s;
constexpr auto kIdle = 60s;

void consider(std::optional<Deadline> &first, const std::optional<Deadline> &other) {
    if (other && (!first || other->when() < first->when()))
        first = other;
}

wire::Findings search(const std::string &host) {
    wire::Findings out;
    if (auto address = resolve(host))
        out.set_address(*address);
    else
        *out.mutable_fault() = fault_of(address.error());
    return out;
}

} // namespace

Expected<std::unique_ptr<Peers>> Peers::open(PeersOptions options, OnRequest on_request) {
    if (!is_host_name(options.host))
        return failure("use the host name", quote(options.host),
                       "expected 1 to 64 letters, digits, '-' and '_'", EINVAL);
    std::unique_ptr<Peers> out(new Peers(std::move(options), std::move(on_request)));
    if (out->options_.bind.empty())
        return out;
    auto address = address_of(out->options_.bind);
    if (!address)
        return propagate(address);
    auto listener = listen_tcp({.address = *address, .port = out->options_.port}, kBacklog);
    if (!listener)
        return propagate(listener);
    out->listener_ = std::move(*listener);
    kLog.info("{} listens for other agents on {}:{}", out->options_.host, out->options_.bind,
              out->options_.port);
    return out;
}

void Peers::ask(const std::string &host, wire::Envelope request, std::chrono::milliseconds patience,
                OnReply on_reply) {
    auto &one = outgoing_[host];
    if (one.pending.size() >= kPendingLimit)
        return on_reply(failure("ask the agent of", quote(host), "too much is asked of it already", EBUSY));
    do
        ++one.last_token;
    while (one.last_token == 0 || one.pending.contains(one.last_token));
    request.set_token(one.last_token);
    one.pending.emplace(one.last_token, Pending{.request = std::move(request),
                                                .deadline = Deadline::after(patience),
                                                .on_reply = std::move(on_reply),
                                                .sent = false,
                                                .asked = Deadline::Clock::now()});
}

std::optional<Peers::Addresses> Peers::addresses(const std::string &host) const {
    const auto found = outgoing_.find(host);
    if (found == outgoing_.end() || !found->second.connection)
        return std::nullopt;
    const auto own = own_address(found->second.connection->socket());
    if (!own)
        return std::nullopt;
    return Addresses{.theirs = found->second.connection->endpoint().address, .own = *own};
}

void Peers::watch(std::vector<pollfd> &fds) const {
    if (listener_ && !accept_again_)
        fds.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
    for (const auto &one : incoming_)
        one->connection.watch(fds);
    for (const auto &[host, one] : outgoing_) {
        if (one.search)
            fds.push_back({.fd = one.search->fd(), .events = POLLIN, .revents = 0});
        if (one.connection)
            one.connection->watch(fds);
    }
}

// Whether somebody else has the next word.
bool Peers::waits(const Outgoing &one, bool sent) {
    return sent || one.search || (one.connection && !one.connection->established());
}

std::optional<Deadline> Peers::next_deadline() const {
    std::optional<Deadline> first = accept_again_;
    for (const auto &one : incoming_)
        consider(first, one->connection.next_deadline());
    for (const auto &[host, one] : outgoing_) {
        if (one.search)
            consider(first, one.search->deadline());
        if (one.connection)
            consider(first, one.connection->next_deadline());
        for (const auto &[token, pending] : one.pending)
            consider(first, waits(one, pending.sent) ? pending.deadline : Deadline::after(0ms));
        if (one.pending.empty())
            consider(first, one.idle);
    }
    return first;
}

void Peers::handle() {
    if (listener_ && (!accept_again_ || accept_again_->expired()))
        accept();
    // Copies: what is done for a request may ask somebody.
    for (const auto &one : std::list(incoming_))
        handle_incoming(one);
    std::erase_if(incoming_, [](const auto &one) { return one->over; });
    std::vector<std::string> hosts;
    for (const auto &[host, one] : outgoing_)
        hosts.push_back(host);
    for (const auto &host : hosts)
        handle_outgoing(host, outgoing_.at(host));
    std::erase_if(outgoing_, [](const auto &entry) {
        return entry.second.pending.empty() && (!entry.second.connection || entry.second.idle.expired());
    });
}

std::optional<std::string> Peers::no_room_for(const Endpoint &from) const {
    if (!is_reserved(from.port))
        return "it calls from a port that any user may have";
    const auto proven = [](const auto &one) { return one->connection.established(); };
    if (std::ranges::count_if(incoming_, proven) >= kProvenLimit)
        return "there are too many connections";
    if (std::ranges::count_if(incoming_, [&](const auto &one) {
            return proven(one) && one->connection.endpoint().address == from.address;
        }) >= kOfOneAddress)
        return "there are too many connections from its address";
    return std::nullopt;
}

// Of those that have not proved themselves one goes, if all places are taken.
void Peers::make_room_for(const Endpoint &from) {
    std::vector<std::shared_ptr<Incoming>> unproven; // the oldest first, as they have come
    std::vector<std::uint32_t> addresses;
    for (const auto &one : incoming_)
        if (!one->connection.established()) {
            unproven.push_back(one);
            addresses.push_back(one->connection.endpoint().address);
        }
    const auto send_away = [&](std::size_t at, const char *why) {
        refusals_.add(unproven[at]->connection.name(), why);
        unproven[at]->over = true;
        incoming_.remove(unproven[at]);
    };
    const auto of_same = std::ranges::count_if(
        incoming_, [&](const auto &one) { return one->connection.endpoint().address == from.address; });
    const auto oldest_of_same = std::ranges::find(addresses, from.address);
    if (of_same >= kOfOneAddress && oldest_of_same != addresses.end())
        send_away(static_cast<std::size_t>(oldest_of_same - addresses.begin()),
                  "too many others from its address have not proved themselves yet");
    else if (unproven.size() >= kUnprovenLimit)
        send_away(oldest_of_most(std::span<const std::uint32_t>(addresses)),
                  "too many others have not proved themselves yet");
}

void Peers::accept() {
    accept_again_.reset();
    for (int count = 0; count < kBacklog; ++count) {
        auto accepted = accept_tcp(listener_.get());
        if (!accepted) {
            if (accepted.error().code == EMFILE || accepted.error().code == ENFILE ||
                accepted.error().code == ENOMEM || accepted.error().code == ENOBUFS) {
                kLog.error("{}", accepted.error().message());
                accept_again_ = Deadline::after(kAcceptPause);
            }
            return;
        }
        const auto who = text_of(accepted->from);
        if (const auto why = no_room_for(accepted->from)) {
            refusals_.add(who, *why);
            continue;
        }
        auto handshake = Handshake::answer(options_.host, options_.munge);
        if (!handshake) {
            refusals_.add(who, handshake.error().message());
            continue;
        }
        make_room_for(accepted->from);
        incoming_.push_back(std::make_shared<Incoming>(Incoming{
            .connection = Connection(std::move(accepted->socket), accepted->from, std::move(*handshake))}));
    }
}

void Peers::handle_incoming(const std::shared_ptr<Incoming> &one) {
    const auto drop = [&](const Error &error) {
        // That a peer which has proved itself goes away is nothing to tell of.
        if (one->connection.established() && error.code == ECONNRESET)
            kLog.debug("{}", error.message());
        else
            refusals_.add(one->connection.name(), error.message());
        one->over = true;
    };
    if (auto handled = one->connection.handle(); !handled)
        return drop(handled.error());
    while (auto request = one->connection.next()) {
        if (++one->requests > kRequestsOfOne)
            return drop({"serve", one->connection.name(), "it asks too much at a time", EBUSY});
        const auto token = request->token();
        auto answer = [weak = std::weak_ptr(one), token](wire::Envelope reply) {
            const auto to = weak.lock();
            if (!to || to->over)
                return;
            --to->requests;
            reply.set_token(token);
            if (auto sent = to->connection.send(reply); !sent) {
                kLog.warning("{}", sent.error().message());
                to->over = true;
            }
        };
        const auto own = own_address(one->connection.socket());
        if (!own)
            return drop(own.error());
        if (request->has_ping()) {
            wire::Envelope reply;
            reply.mutable_pong()->set_host(options_.host);
            answer(std::move(reply));
        } else {
            on_request_(
                {.host = one->connection.peer(), .endpoint = one->connection.endpoint(), .own_address = *own},
                std::move(*request), std::move(answer));
        }
    }
}

void Peers::fail(Outgoing &one, const Error &error) {
    one.search.reset();
    one.connection.reset();
    for (auto pending = std::exchange(one.pending, {}); auto &[token, asked] : pending)
        asked.on_reply(std::unexpected(error));
}

void Peers::handle_outgoing(const std::string &host, Outgoing &one) {
    if (!one.pending.empty())
        one.idle = Deadline::after(kIdle);
    if (auto worked = work(host, one); !worked)
        return fail(one, worked.error());
    const auto late =
        std::ranges::find_if(one.pending, [](const auto &entry) { return entry.second.deadline.expired(); });
    if (late == one.pending.end())
        return;
    auto asked = std::move(late->second);
    one.pending.erase(late);
    const auto error = timeout_error(asked.deadline, "the agent of " + quote(host));
    // A connection on which nothing at all has come since is dead, whatever TCP still hopes for.
    if (one.heard < asked.asked)
        fail(one, error);
    asked.on_reply(std::unexpected(error));
}

Expected<void> Peers::begin(const std::string &host, Outgoing &one) {
    if (!one.search) {
        auto subprocess = Subprocess::start(
            "find the host " + quote(host), [host] { return search(host).SerializeAsString(); },
            Deadline::after(kSearchPatience));
        if (!subprocess)
            return propagate(subprocess);
        one.search = std::move(*subprocess);
    }
    auto text = one.search->take();
    if (!text)
        return propagate(text);
    if (!*text)
        return {};
    one.search.reset();
    auto found = findings_of(**text);
    if (!found)
        return propagate(found);
    const Endpoint to{.address = found->address(), .port = options_.port};
    auto socket = call_tcp(to);
    if (!socket)
        return propagate(socket);
    auto handshake = Handshake::call({.own = options_.host, .peer = short_name(host)}, options_.munge);
    if (!handshake)
        return propagate(handshake);
    one.connection = std::make_unique<Connection>(std::move(*socket), to, std::move(*handshake));
    return {};
}

Expected<void> Peers::work(const std::string &host, Outgoing &one) {
    if (!one.connection) {
        if (one.pending.empty())
            return {};
        if (auto begun = begin(host, one); !begun || !one.connection)
            return begun;
    }
    if (auto handled = one.connection->handle(); !handled)
        return handled;
    if (!one.connection->established())
        return {};
    for (auto &[token, pending] : one.pending) {
        if (pending.sent)
            continue;
        if (auto sent = one.connection->send(pending.request); !sent)
            return sent;
        pending.sent = true;
        pending.request.Clear();
    }
    while (auto reply = one.connection->next()) {
        one.heard = Deadline::Clock::now();
        auto found = one.pending.extract(reply->token());
        if (found.empty())
            continue; // it was not waited for any longer
        found.mapped().on_reply(std::move(*reply));
    }
    return {};
}

} // namespace singularity::peers
