// SPDX-License-Identifier: GPL-2.0-or-later
#include "rendezvous_line.hpp"

#include "log.hpp"
#include "proxy/collectives/shape.hpp"
#include "words.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace singularity::collectives {

namespace {

constexpr std::chrono::seconds kToConnect{10};
constexpr std::chrono::seconds kLineToTake{10};
constexpr std::chrono::hours kLineForever{24 * 365};

} // namespace

RendezvousLine::~RendezvousLine() {
    {
        const std::scoped_lock lock(lock_);
        stopping_ = true;
        if (connected_)
            socket_.shut_down();
    }
    threads_.wait();
}

void RendezvousLine::say(Word word, const JoinRequest &request) {
    const std::scoped_lock lock(lock_);
    if (stopping_)
        return;
    to_say_.emplace_back(word, request);
    if (connected_) {
        if (auto sent = send_all(); !sent)
            socket_.shut_down(); // the thread sees it
    } else if (!std::exchange(running_, true)) {
        threads_.start([this] { run(); });
    }
}

// With the lock held.
Expected<void> RendezvousLine::send_all() {
    for (const auto &[word, request] : std::exchange(to_say_, {}))
        if (auto sent = send_word(socket_, word, bytes_of_word(request), Deadline::after(kLineToTake)); !sent)
            return sent;
    return {};
}

Expected<Socket> RendezvousLine::connect() {
    const auto deadline = Deadline::after(kToConnect);
    auto socket = Socket::connect(address_, deadline);
    if (!socket)
        return socket;
    if (auto proved = prove_as_caller(*socket, key_, Purpose::rendezvous, deadline); !proved)
        return propagate(proved);
    if (auto sent = send_word(*socket, Word::announce, bytes_of_word(me_), deadline); !sent)
        return propagate(sent);
    return socket;
}

void RendezvousLine::run() {
    auto socket = connect();
    Expected<void> done;
    if (socket) {
        const std::scoped_lock lock(lock_);
        socket_ = std::move(*socket);
        connected_ = true;
        done = stopping_ ? failure("use", "the rendezvous", "this process ends", ECONNABORTED) : send_all();
    } else {
        done = propagate(socket);
    }
    while (done)
        done = hear();
    bool stopping = false;
    {
        const std::scoped_lock lock(lock_);
        connected_ = running_ = false;
        to_say_.clear();
        socket_ = {};
        stopping = stopping_;
    }
    if (stopping)
        return;
    kLog.warning("the rendezvous at {} is lost: {}", address_.text(), done.error().message());
    listener_.rendezvous_lost(done.error().message());
}

Expected<void> RendezvousLine::hear() {
    auto word = receive_word(socket_, Deadline::after(kLineForever));
    if (!word)
        return propagate(word);
    if (const auto reply = word_as<RefusedReply>(*word, Word::refused)) {
        listener_.refused(reply->ticket, std::string(text_in(reply->text)));
        return {};
    }
    const auto nonsense = [] {
        return failure("understand", "the rendezvous", "it says what is none of its words", EPROTO);
    };
    CompleteReply reply;
    if (word->word != Word::complete || word->bytes.size() < sizeof(reply))
        return nonsense();
    std::memcpy(&reply, word->bytes.data(), sizeof(reply));
    if (reply.ranks == 0 || reply.ranks > kMostMembers || reply.processes == 0 ||
        reply.processes > reply.ranks ||
        word->bytes.size() !=
            sizeof(reply) + reply.ranks * sizeof(std::uint32_t) + reply.processes * sizeof(ProcessInfo))
        return nonsense();
    std::vector<std::uint32_t> owners(reply.ranks);
    std::vector<ProcessInfo> processes(reply.processes);
    const auto *at = word->bytes.data() + sizeof(reply);
    std::memcpy(owners.data(), at, owners.size() * sizeof(std::uint32_t));
    std::memcpy(processes.data(), at + owners.size() * sizeof(std::uint32_t),
                processes.size() * sizeof(ProcessInfo));
    if (std::ranges::any_of(owners, [&](auto owner) { return owner >= reply.processes; }))
        return nonsense();
    listener_.complete(reply, owners, processes);
    return {};
}

} // namespace singularity::collectives
