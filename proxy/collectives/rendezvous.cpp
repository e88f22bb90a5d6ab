// SPDX-License-Identifier: GPL-2.0-or-later
// One thread for each process that has connected: they are as many as a job has devices. What they say is
// checked; who has not proved that it knows the key is heard for a moment only, and only a few are at a time
// (unproved.hpp).
#include "proxy/collectives/rendezvous.hpp"

#include "common/log.hpp"
#include "matcher.hpp"
#include "proof.hpp"
#include "socket.hpp"
#include "threads.hpp"
#include "unproved.hpp"
#include "words.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

namespace singularity::collectives {

namespace {

constexpr log::Channel kRendezvousLog("rendezvous");
constexpr std::size_t kMostClients = 4096; // that have proved themselves
constexpr std::chrono::seconds kToProve{10};
constexpr std::chrono::seconds kToSendWord{10}; // a word
constexpr std::chrono::hours kRendezvousForever{24 * 365};

} // namespace

class Rendezvous::Server {
  public:
    Server(ListeningSocket listener, const JobKey &key, UniqueFd stop, Instance first)
        : listener_(std::move(listener)), key_(key), stop_(std::move(stop)), matcher_(first) {
        threads_.start([this] { listen(); });
    }
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;
    Server(Server &&) = delete;
    Server &operator=(Server &&) = delete;
    ~Server() {
        {
            const std::scoped_lock lock(lock_);
            stopping_ = true;
            for (const auto &[number, client] : clients_)
                client->socket.shut_down();
        }
        // Its counter has room.
        static_cast<void>(eventfd_write(stop_.get(), 1));
        threads_.wait();
        if (listener_.address().unix_socket && !listener_.address().host.starts_with('@'))
            static_cast<void>(unlink(listener_.address().host.c_str()));
    }
    [[nodiscard]] std::string address() const { return listener_.address().text(); }

  private:
    struct Client {
        Socket socket;
        std::mutex sending;
        ProcessInfo info;
        bool announced = false;
    };

    void listen();
    void serve(std::uint64_t number, const std::shared_ptr<Client> &client);
    [[nodiscard]] Expected<void> admit();
    [[nodiscard]] Expected<void> hear(std::uint64_t number, Client &client);
    [[nodiscard]] Expected<void> take_join(std::uint64_t number, Client &client, const JoinRequest &request);
    void tell(const Matcher::Whole &whole);
    static void send(Client &client, Word word, std::span<const std::byte> bytes);

    ListeningSocket listener_;
    JobKey key_;
    UniqueFd stop_;
    Unproved unproved_;
    std::mutex lock_;
    bool stopping_ = false;
    std::map<std::uint64_t, std::shared_ptr<Client>> clients_;
    std::size_t proved_ = 0;
    std::uint64_t next_ = 1;
    Matcher matcher_;
    Threads threads_;
};

void Rendezvous::Server::listen() {
    for (;;) {
        std::array<pollfd, 2> watched{pollfd{.fd = listener_.fd(), .events = POLLIN, .revents = 0},
                                      pollfd{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
        if (poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR)
            return kRendezvousLog.error("{}", errno_error("wait for", "processes").message());
        if (watched[1].revents != 0)
            return;
        auto socket = listener_.accept();
        if (!socket)
            continue; // it has gone again
        auto client = std::make_shared<Client>();
        client->socket = std::move(*socket);
        unproved_.add(client->socket);
        const std::scoped_lock lock(lock_);
        if (stopping_)
            return;
        const auto number = next_++;
        clients_.emplace(number, client);
        threads_.start([this, number, client] { serve(number, client); });
    }
}

void Rendezvous::Server::serve(std::uint64_t number, const std::shared_ptr<Client> &client) {
    auto done = prove_as_listener(client->socket, key_, Purpose::rendezvous, Deadline::after(kToProve));
    unproved_.remove(client->socket);
    if (done)
        done = admit();
    const bool proved = done.has_value();
    while (done)
        done = hear(number, *client);
    if (done.error().code != ECONNRESET)
        kRendezvousLog.warning("a process is not heard any more: {}", done.error().message());
    const std::scoped_lock lock(lock_);
    if (proved)
        --proved_;
    matcher_.forget_process(number);
    clients_.erase(number);
}

Expected<void> Rendezvous::Server::admit() {
    const std::scoped_lock lock(lock_);
    if (proved_ >= kMostClients)
        return failure("serve", "a process", fmt::format("there are {} already", proved_), EBUSY);
    ++proved_;
    return {};
}

Expected<void> Rendezvous::Server::hear(std::uint64_t number, Client &client) {
    auto word = receive_word(client.socket, Deadline::after(kRendezvousForever));
    if (!word)
        return propagate(word);
    if (const auto info = word_as<ProcessInfo>(*word, Word::announce); info && !client.announced) {
        const std::scoped_lock lock(lock_);
        client.info = *info;
        client.announced = true;
        return {};
    }
    if (const auto request = word_as<JoinRequest>(*word, Word::join); request && client.announced)
        return take_join(number, client, *request);
    if (const auto request = word_as<JoinRequest>(*word, Word::forget)) {
        const std::scoped_lock lock(lock_);
        matcher_.forget(number, request->ticket);
        return {};
    }
    return failure("understand", "a process",
                   fmt::format("word {} of {} bytes has no place here", std::to_underlying(word->word),
                               word->bytes.size()),
                   EPROTO);
}

Expected<void> Rendezvous::Server::take_join(std::uint64_t number, Client &client,
                                             const JoinRequest &request) {
    const std::scoped_lock lock(lock_);
    auto joined =
        matcher_.join(request.key, request.rank, request.size, {.process = number, .ticket = request.ticket});
    if (!joined) {
        RefusedReply reply{.ticket = request.ticket};
        static_cast<void>(put_text(
            reply.text, std::string_view(joined.error().message()).substr(0, reply.text.size() - 1)));
        send(client, Word::refused, bytes_of_word(reply));
        return {};
    }
    if (*joined)
        tell(**joined);
    return {};
}

// With the lock held.
void Rendezvous::Server::tell(const Matcher::Whole &whole) {
    std::vector<std::uint64_t> numbers;
    std::vector<std::uint32_t> owners;
    for (const auto &seat : whole.seats) {
        const auto found = std::ranges::find(numbers, seat.process);
        owners.push_back(static_cast<std::uint32_t>(found - numbers.begin()));
        if (found == numbers.end())
            numbers.push_back(seat.process);
    }
    const CompleteReply head{.instance = whole.instance,
                             .key = whole.key,
                             .ranks = static_cast<std::uint32_t>(owners.size()),
                             .processes = static_cast<std::uint32_t>(numbers.size())};
    std::vector<std::byte> bytes;
    const auto append = [&](std::span<const std::byte> more) {
        bytes.insert(bytes.end(), more.begin(), more.end());
    };
    append(bytes_of_word(head));
    append(std::as_bytes(std::span(owners)));
    for (const auto number : numbers)
        append(bytes_of_word(clients_.at(number)->info));
    for (const auto number : numbers)
        send(*clients_.at(number), Word::complete, bytes);
}

void Rendezvous::Server::send(Client &client, Word word, std::span<const std::byte> bytes) {
    const std::scoped_lock lock(client.sending);
    if (auto sent = send_word(client.socket, word, bytes, Deadline::after(kToSendWord)); !sent)
        client.socket.shut_down(); // its thread sees it
}

Rendezvous::Rendezvous(std::unique_ptr<Server> server) : server_(std::move(server)) {}
Rendezvous::~Rendezvous() = default;
std::string Rendezvous::address() const { return server_->address(); }

Expected<std::unique_ptr<Rendezvous>> Rendezvous::start(const std::string &address, const JobKey &key) {
    auto where = Address::parse(address);
    if (!where)
        return propagate(where);
    auto listener = ListeningSocket::open(*where);
    if (!listener)
        return propagate(listener);
    return serve(std::move(*listener), key);
}

Expected<std::unique_ptr<Rendezvous>> Rendezvous::start(UniqueFd listening, const JobKey &key) {
    auto listener = ListeningSocket::adopt(std::move(listening));
    if (!listener)
        return propagate(listener);
    return serve(std::move(*listener), key);
}

Expected<std::unique_ptr<Rendezvous>> Rendezvous::serve(ListeningSocket listener, const JobKey &key) {
    UniqueFd stop(eventfd(0, EFD_CLOEXEC));
    if (!stop)
        return std::unexpected(errno_error("make", "an event"));
    // Not what another rendezvous of the job has counted, before this one.
    Instance first = 0;
    if (getrandom(&first, sizeof(first), 0) != sizeof(first))
        return std::unexpected(errno_error("make", "random bytes"));
    return std::unique_ptr<Rendezvous>(
        new Rendezvous(std::make_unique<Server>(std::move(listener), key, std::move(stop), first)));
}

} // namespace singularity::collectives
