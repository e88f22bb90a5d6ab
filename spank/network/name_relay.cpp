// SPDX-License-Identifier: GPL-2.0-or-later
#include "name_relay.hpp"

#include "log.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <ranges>
#include <span>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace singularity::network {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t kServers = 3;      // <resolv.h>, MAXNS
constexpr std::size_t kQuestions = 1024; // at a time, of each server
constexpr auto kPatience = 20s;          // with a server: who asks has given up by then
constexpr std::size_t kStreams = 128;    // at a time
constexpr std::size_t kMessage = 65535;  // bytes
constexpr std::size_t kHeader = 12;      // of a message (RFC 1035, 4.1.1)
constexpr std::size_t kShortQuestion = 512;
constexpr int kMessagesAtOnce = 64; // then it is somebody else's turn

// What the events' keys say: a server's number and one of its sockets, or a stream.
enum Source : std::uint8_t { kAsker, kServer, kListener, kSources };
constexpr std::uint64_t kFirstStream = kServers * kSources;

sockaddr_in address_at(std::uint32_t address) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(kNamePort);
    out.sin_addr.s_addr = htonl(address);
    return out;
}

std::string name_of(std::uint32_t address) {
    return fmt::format("name server {}.{}.{}.{}", address >> 24, address >> 16 & 0xff, address >> 8 & 0xff,
                       address & 0xff);
}

using Setting = int (*)(int, const sockaddr *, socklen_t);

// A socket of the namespace that the thread is in, bound or connected.
Expected<UniqueFd> make_socket(int type, Setting set, std::uint32_t address) {
    UniqueFd out(socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto to = address_at(address);
    const int yes = 1; // what an earlier one had there may still be closing
    if (!out || setsockopt(out.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
        (set(out.get(), reinterpret_cast<const sockaddr *>(&to), sizeof(to)) != 0 && errno != EINPROGRESS))
        return std::unexpected(errno_error("make a socket for", name_of(address)));
    return out;
}

std::uint16_t number_in(std::span<const char> message) {
    return static_cast<std::uint16_t>(static_cast<unsigned char>(message[0]) << 8 |
                                      static_cast<unsigned char>(message[1]));
}

void put_number(std::span<char> message, std::uint16_t number) {
    message[0] = static_cast<char>(number >> 8);
    message[1] = static_cast<char>(number & 0xff);
}

void send_to(const UniqueFd &socket, std::span<const char> message, const sockaddr_in &to) {
    // What does not arrive is asked again, as with any datagram.
    static_cast<void>(sendto(socket.get(), message.data(), message.size(), MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr *>(&to), sizeof(to)));
}

} // namespace

std::vector<std::uint32_t> loopback_servers(std::string_view resolv_conf) {
    std::vector<std::uint32_t> out;
    std::size_t servers = 0;
    for (const auto line : std::views::split(resolv_conf, '\n')) {
        std::string_view rest(line.begin(), line.end());
        constexpr std::string_view kKey = "nameserver";
        constexpr std::string_view kBlank = " \t";
        if (!rest.starts_with(kKey) || rest.size() == kKey.size() || !kBlank.contains(rest[kKey.size()]))
            continue;
        rest.remove_prefix(std::min(rest.find_first_not_of(kBlank, kKey.size()), rest.size()));
        const std::string text(rest.substr(0, rest.find_first_of(" \t\r;#")));
        if (servers++ == kServers)
            break;
        in_addr address{};
        if (inet_aton(text.c_str(), &address) == 0)
            continue;
        const auto number = ntohl(address.s_addr);
        if (number >> 24 == IN_LOOPBACKNET && std::ranges::find(out, number) == out.end())
            out.push_back(number);
    }
    return out;
}

std::vector<std::uint32_t> allowed_servers(std::vector<std::uint32_t> servers, const Outside &outside) {
    if (!outside.everywhere)
        std::erase_if(servers, [&](std::uint32_t server) {
            return std::ranges::none_of(outside.only, [&](const OutsideTarget &target) {
                const auto differs = std::uint64_t{server ^ target.address};
                return !target.ipv6 && differs >> (32 - target.prefix) == 0 &&
                       (target.port == 0 || target.port == kNamePort);
            });
        });
    return servers;
}

bool NameRelay::listen_for(std::size_t server, std::uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = server * kSources + kListener;
    return epoll_ctl(events_.get(), EPOLL_CTL_MOD, servers_[server].listener.get(), &event) == 0;
}

void NameRelay::listen_again() {
    for (std::size_t number = 0; number < servers_.size(); ++number)
        if (servers_[number].full && streams_.size() < kStreams)
            servers_[number].full = !listen_for(number, EPOLLIN);
}

Expected<NameRelay> NameRelay::make(const NameSpace &node, std::shared_ptr<const NameSpace> host,
                                    const std::vector<std::uint32_t> &servers) {
    UniqueFd events(epoll_create1(EPOLL_CLOEXEC));
    if (!events)
        return std::unexpected(errno_error("wait for", "questions of names"));
    NameRelay out(std::move(events), std::move(host));
    out.next_ = kFirstStream;
    for (const auto address : servers)
        if (auto served = out.serve(node, address); !served)
            kLog.error("{}: programs cannot ask this one", served.error().message());
    return out;
}

Expected<void> NameRelay::watch(const UniqueFd &fd, std::uint32_t events, std::uint64_t key) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = key;
    if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0)
        return std::unexpected(errno_error("wait for", "questions of names"));
    return {};
}

Expected<void> NameRelay::serve(const NameSpace &node, std::uint32_t address) {
    if (servers_.size() == kServers)
        return failure("serve", name_of(address), "there are too many", E2BIG);
    Server made;
    made.address = address;
    {
        auto visit = NameSpaceVisit::to(node);
        if (!visit)
            return propagate(visit);
        auto datagrams = make_socket(SOCK_DGRAM, bind, address);
        if (!datagrams)
            return propagate(datagrams);
        auto listener = make_socket(SOCK_STREAM, bind, address);
        if (!listener)
            return propagate(listener);
        if (listen(listener->get(), kStreams) != 0)
            return std::unexpected(errno_error("listen in place of", name_of(address)));
        made.in_node = std::move(*datagrams);
        made.listener = std::move(*listener);
    }
    {
        auto visit = NameSpaceVisit::to(*host_);
        if (!visit)
            return propagate(visit);
        auto to_server = make_socket(SOCK_DGRAM, connect, address);
        if (!to_server)
            return propagate(to_server);
        made.on_host = std::move(*to_server);
    }
    const auto first = servers_.size() * kSources;
    for (const auto &[source, fd] :
         {std::pair{kAsker, &made.in_node}, {kServer, &made.on_host}, {kListener, &made.listener}})
        if (auto watched = watch(*fd, EPOLLIN, first + source); !watched)
            return watched;
    servers_.push_back(std::move(made));
    return {};
}

std::optional<Deadline> NameRelay::next_deadline() const {
    if (!unfinished_.empty())
        return Deadline::after(0s);
    std::optional<Deadline> out;
    for (const auto &[number, stream] : streams_)
        if (!out || stream.until().when() < out->when())
            out = stream.until();
    return out;
}

void NameRelay::work() {
    std::array<epoll_event, kFirstStream + kStreams> ready{};
    const int count = epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), 0);
    auto of_streams = std::exchange(unfinished_, {});
    for (const auto &event : std::span(ready).first(static_cast<std::size_t>(std::max(count, 0)))) {
        const auto key = event.data.u64;
        if (key >= kFirstStream) {
            of_streams.push_back(key);
            continue;
        }
        auto &server = servers_[key / kSources];
        switch (static_cast<Source>(key % kSources)) {
        case kAsker:
            ask(server);
            break;
        case kServer:
            answer(server);
            break;
        default:
            accept(key / kSources);
        }
    }
    std::ranges::sort(of_streams);
    const auto twice = std::ranges::unique(of_streams);
    of_streams.erase(twice.begin(), twice.end());
    for (const auto number : of_streams) {
        const auto found = streams_.find(number);
        if (found == streams_.end())
            continue;
        const auto outcome = found->second.pass();
        if (outcome == NameStream::Outcome::over)
            streams_.erase(found);
        else if (outcome == NameStream::Outcome::goes_on)
            unfinished_.push_back(number);
    }
    std::erase_if(streams_, [](const auto &entry) { return entry.second.until().expired(); });
    listen_again();
}

// Those that were not answered in time make room for new ones.
bool NameRelay::has_room(Server &server) {
    while (!server.order.empty()) {
        const auto oldest = server.asked.find(server.order.front());
        if (oldest != server.asked.end() && !oldest->second.until.expired())
            break;
        if (oldest != server.asked.end())
            server.asked.erase(oldest);
        server.order.pop_front();
    }
    return server.asked.size() < kQuestions;
}

void NameRelay::ask(Server &server) {
    std::array<char, kMessage> message; // NOLINT(cppcoreguidelines-pro-type-member-init): recvfrom() fills it
    for (int turn = 0; turn < kMessagesAtOnce; ++turn) {
        sockaddr_in from{};
        socklen_t size = sizeof(from);
        const auto count = recvfrom(server.in_node.get(), message.data(), message.size(), 0,
                                    reinterpret_cast<sockaddr *>(&from), &size);
        if (count < 0)
            return;
        const auto text = std::span(message).first(static_cast<std::size_t>(count));
        if (text.size() < kHeader)
            continue;
        if (!has_room(server))
            continue;
        while (server.asked.contains(++server.last)) {
        }
        const auto asked = number_in(text);
        server.asked.emplace(server.last, Question{.from = from,
                                                   .number = asked,
                                                   .text = text.size() <= kShortQuestion
                                                               ? std::string(text.begin(), text.end())
                                                               : std::string(),
                                                   .until = Deadline::after(kPatience)});
        server.order.push_back(server.last);
        put_number(text, server.last);
        if (send(server.on_host.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0 && errno == ECONNREFUSED)
            refuse_all(server);
    }
}

void NameRelay::answer(Server &server) {
    std::array<char, kMessage> message; // NOLINT(cppcoreguidelines-pro-type-member-init): recv() fills it
    for (int turn = 0; turn < kMessagesAtOnce; ++turn) {
        const auto count = recv(server.on_host.get(), message.data(), message.size(), 0);
        if (count < 0) {
            if (errno == ECONNREFUSED)
                refuse_all(server);
            return;
        }
        const auto text = std::span(message).first(static_cast<std::size_t>(count));
        const auto found = text.size() < kHeader ? server.asked.end() : server.asked.find(number_in(text));
        if (found == server.asked.end())
            continue;
        put_number(text, found->second.number);
        send_to(server.in_node, text, found->second.from);
        server.asked.erase(found);
    }
}

// The server does not run: who has asked hears so at once, as on the host, and asks the next one.
void NameRelay::refuse_all(Server &server) {
    constexpr unsigned kIsAnswer = 0x80;   // in the third byte
    constexpr unsigned kServerFailure = 2; // in the fourth
    server.order.clear();
    for (auto &[number, question] : std::exchange(server.asked, {})) {
        if (question.text.empty())
            continue;
        auto &text = question.text;
        text[2] = static_cast<char>(static_cast<unsigned char>(text[2]) | kIsAnswer);
        text[3] = static_cast<char>((static_cast<unsigned char>(text[3]) & 0xf0U) | kServerFailure);
        send_to(server.in_node, text, question.from);
    }
}

// Who comes when all places are taken waits in the listener's queue.
void NameRelay::accept(std::size_t number_of_server) {
    Server &server = servers_[number_of_server];
    if (streams_.size() >= kStreams) {
        server.full = listen_for(number_of_server, 0);
        return;
    }
    UniqueFd in_node(accept4(server.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!in_node)
        return;
    auto visit = NameSpaceVisit::to(*host_);
    auto on_host = visit ? make_socket(SOCK_STREAM, connect, server.address) : propagate(visit);
    if (!on_host) {
        kLog.error("{}", on_host.error().message());
        return;
    }
    const auto number = next_++;
    const auto &stream = streams_.try_emplace(number, std::move(in_node), std::move(*on_host)).first->second;
    constexpr std::uint32_t kAll = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    for (const auto *const end : {&stream.in_node(), &stream.on_host()})
        if (auto watched = watch(*end, kAll, number); !watched) {
            kLog.error("{}", watched.error().message());
            streams_.erase(number);
            return;
        }
}

} // namespace singularity::network
