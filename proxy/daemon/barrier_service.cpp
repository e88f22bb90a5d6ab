// SPDX-License-Identifier: GPL-2.0-or-later
#include "barrier_service.hpp"

#include "log.hpp"
#include "proxy/barrier/messages.hpp"
#include "proxy/channel/memory_file.hpp"
#include "proxy/control/connection.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

namespace singularity::proxyd {

namespace {

using proxy_control::Answer;
using proxy_control::AnswerKind;
using proxy_control::Round;
using proxy_control::RoundEntry;

// Longer than any checkpoint: a coordinator that says nothing for so long has forgotten us.
constexpr std::chrono::minutes kBetweenRounds{60};
constexpr std::chrono::seconds kToSend{5};
constexpr std::chrono::milliseconds kLongestPatience{600'000};
// For a client that is where it shall be, or out of patience, to say so.
constexpr std::chrono::seconds kToSay{3};
constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20U;

bool has_hung_up(const UniqueFd &socket) {
    pollfd one{.fd = socket.get(), .events = POLLIN | POLLRDHUP, .revents = 0};
    return poll(&one, 1, 0) == 1 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

// One session of each process.
std::vector<std::shared_ptr<Session>> one_of_each(std::vector<std::shared_ptr<Session>> sessions) {
    std::erase_if(sessions, [](const auto &session) {
        return session->ending() || session->presence() != Session::Presence::here;
    });
    std::ranges::sort(sessions, {}, [](const auto &session) { return session->place().client; });
    const auto again = std::ranges::unique(
        sessions, {}, [](const auto &session) { return session->place().client.process; });
    sessions.erase(again.begin(), again.end());
    return sessions;
}

Expected<std::uint64_t> ask(Session &session, std::span<const std::byte> message,
                            std::chrono::milliseconds patience) {
    auto file = channel::to_memory_file(message);
    if (!file)
        return propagate(file);
    const channel::Barrier head{.size = message.size(),
                                .within = static_cast<std::uint64_t>(patience.count())};
    const auto ticket = session.reports().ask();
    const int descriptor = file->get();
    if (auto sent = session.link().send(channel::PacketType::barrier, ticket, channel::body_of(head),
                                        {&descriptor, 1}, Deadline::after(kToSend));
        !sent)
        return propagate(sent);
    return ticket;
}

Expected<void> answer(int socket, const Answer &answer, int descriptor) {
    return proxy_control::send_packet(socket, std::as_bytes(std::span(&answer, 1)), descriptor,
                                      Deadline::after(kToSend));
}

Answer failed(const Error &error) {
    Answer answer{.kind = std::to_underlying(AnswerKind::failed)};
    const auto text = error.message();
    std::ranges::copy(text.substr(0, answer.text.size() - 1), answer.text.begin());
    return answer;
}

} // namespace

BarrierService::~BarrierService() {
    const std::scoped_lock lock(lock_);
    if (socket_)
        shutdown(socket_.get(), SHUT_RDWR);
    if (thread_.joinable())
        thread_.join();
}

Expected<void> BarrierService::begin(UniqueFd socket) {
    const std::scoped_lock lock(lock_);
    if (busy_ && has_hung_up(socket_)) // it ends with its round, if it is in one
        thread_.join();
    if (busy_.exchange(true)) {
        Error busy{"begin", "a barrier", "another one is under way with this device proxy", EBUSY};
        static_cast<void>(answer(socket.get(), failed(busy), -1)); // or it sees a hang-up
        return std::unexpected(std::move(busy));
    }
    if (thread_.joinable())
        thread_.join();
    socket_ = std::move(socket);
    if (auto told = answer(socket_.get(), {.kind = std::to_underlying(AnswerKind::done)}, -1); !told) {
        busy_ = false;
        return told;
    }
    thread_ = std::thread([this] { run(); });
    return {};
}

void BarrierService::run() {
    // A process that began now would not stand at its gate, and nobody would ask it.
    static_cast<void>(keeper_.hold());
    for (;;) {
        Round round;
        UniqueFd descriptor;
        auto got = proxy_control::receive_packet(socket_.get(), std::as_writable_bytes(std::span(&round, 1)),
                                                 &descriptor, Deadline::after(kBetweenRounds));
        if (!got && got.error().code != ECONNRESET)
            kLog.warning("the barrier is given up: {}", got.error().message());
        if (!got)
            break;
        if (auto served = serve_round(round, descriptor.get()); !served) {
            kLog.warning("the barrier is given up: {}", served.error().message());
            if (auto told = answer(socket_.get(), failed(served.error()), -1); !told)
                kLog.debug("{}", told.error().message());
            break;
        }
    }
    open_gates();
    keeper_.release();
    shutdown(socket_.get(), SHUT_RDWR);
    busy_ = false;
}

Expected<BarrierService::Messages> BarrierService::read(const Round &round, int descriptor) {
    const auto refuse = [](std::string why) {
        return failure("read", "a round of the barrier", std::move(why), EPROTO);
    };
    if (round.version != proxy_control::kVersion || descriptor < 0)
        return refuse("it is of another version, or without a descriptor");
    auto bytes = channel::from_memory_file(descriptor, round.bytes, kMostBytes);
    if (!bytes)
        return propagate(bytes);
    Messages messages;
    std::span<const std::byte> left(*bytes);
    while (!left.empty()) {
        RoundEntry entry;
        if (left.size() < sizeof(entry))
            return refuse("it ends within an entry");
        std::memcpy(&entry, left.data(), sizeof(entry));
        left = left.subspan(sizeof(entry));
        if (left.size() < entry.bytes)
            return refuse("it ends within a request");
        messages[entry.process].assign(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(entry.bytes));
        left = left.subspan(entry.bytes);
    }
    if (!messages.contains({}))
        return refuse("it says nothing to processes that it does not name");
    return messages;
}

Expected<void> BarrierService::serve_round(const Round &round, int descriptor) {
    auto messages = read(round, descriptor);
    if (!messages)
        return propagate(messages);
    const auto request = barrier::decode_request(messages->at({}));
    if (!request)
        return std::unexpected(request.error());
    barrier_ = request->barrier;
    const auto patience =
        std::chrono::milliseconds(std::min<std::uint64_t>(round.within, kLongestPatience.count()));
    std::vector<std::shared_ptr<Session>> asked;
    for (const auto &session : one_of_each(keeper_.all())) {
        const auto &process = session->place().client.process;
        const auto &message = messages->at(messages->contains(process) ? process : decltype(process){});
        auto told = ask(*session, message, patience);
        // Whoever lives and is not asked would go on issuing.
        if (!told && !has_ended(*session, told.error()))
            return failure("ask", session->who(), told.error().message(), told.error().code);
        if (told)
            asked.push_back(session);
    }
    const auto deadline = Deadline::after(patience + kToSay);
    std::vector<std::byte> reports;
    std::uint64_t clients = 0;
    for (const auto &session : asked) {
        auto report = session->reports().wait(deadline, "the client to say what it has issued");
        if (!report && has_ended(*session, report.error()))
            continue;
        if (!report)
            return failure("ask", session->who(), report.error().message(), report.error().code);
        const RoundEntry entry{.process = session->place().client.process, .bytes = report->size()};
        const auto head = std::as_bytes(std::span(&entry, 1));
        reports.insert(reports.end(), head.begin(), head.end());
        reports.insert(reports.end(), report->begin(), report->end());
        ++clients;
    }
    const auto file = channel::to_memory_file(reports);
    if (!file)
        return std::unexpected(file.error());
    return answer(socket_.get(),
                  {.kind = std::to_underlying(AnswerKind::done), .bytes = reports.size(), .clients = clients},
                  file->get());
}

// A process may lose one device and go on with another: then it has not.
bool BarrierService::has_ended(const Session &asked, const Error &error) const {
    const bool gone = asked.ending() || error.code == EPIPE || error.code == ECONNRESET;
    return gone && std::ranges::none_of(keeper_.all(), [&](const auto &session) {
               return session.get() != &asked && !session->ending() &&
                      session->place().client.process == asked.place().client.process;
           });
}

void BarrierService::open_gates() {
    const auto message =
        barrier::encode({.action = barrier::Request::Action::release, .barrier = barrier_, .targets = {}});
    // Nobody waits for their answers; who cannot be told has hung up.
    for (const auto &session : one_of_each(keeper_.all()))
        static_cast<void>(ask(*session, message, {}));
}

} // namespace singularity::proxyd
