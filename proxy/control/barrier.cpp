// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/control/barrier.hpp"

#include "common/unix_socket.hpp"
#include "proxy/barrier/coordinator.hpp"
#include "proxy/barrier/messages.hpp"
#include "proxy/channel/memory_file.hpp"
#include "proxy/control/connection.hpp"
#include "proxy/control/messages.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/random.h>

namespace singularity::proxy_control {

namespace {

// For the proxy itself, beyond what its clients are given.
constexpr std::chrono::seconds kMargin{10};
constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20U;

void append(std::vector<std::byte> &bytes, const barrier::Key &process, std::span<const std::byte> message) {
    const RoundEntry entry{.process = process.words, .bytes = message.size()};
    const auto head = std::as_bytes(std::span(&entry, 1));
    bytes.insert(bytes.end(), head.begin(), head.end());
    bytes.insert(bytes.end(), message.begin(), message.end());
}

Expected<Answer> receive_answer(int socket, const std::filesystem::path &path, UniqueFd *descriptor,
                                const Deadline &deadline) {
    Answer answer;
    if (auto got =
            receive_packet(socket, std::as_writable_bytes(std::span(&answer, 1)), descriptor, deadline);
        !got)
        return failure("ask the clients of", path.native(), got.error().message(), got.error().code);
    answer.text.back() = '\0';
    if (answer.kind == std::to_underlying(AnswerKind::failed))
        return failure("ask the clients of", path.native(), answer.text.data(), EIO);
    if (answer.kind != std::to_underlying(AnswerKind::done))
        return failure("ask the clients of", path.native(), fmt::format("it answers with {}", answer.kind),
                       EPROTO);
    return answer;
}

} // namespace

Expected<BarrierConnection> BarrierConnection::open(const std::filesystem::path &control_socket,
                                                    const Deadline &deadline) {
    auto socket = connect_unix(control_socket, deadline);
    if (!socket)
        return propagate(socket);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.remaining()).count();
    const Request request{.operation = std::to_underlying(Operation::barrier),
                          .within = static_cast<std::uint64_t>(left)};
    if (auto sent = send_packet(socket->get(), std::as_bytes(std::span(&request, 1)), -1, deadline); !sent)
        return propagate(sent);
    auto answer = receive_answer(socket->get(), control_socket, nullptr, deadline);
    if (!answer)
        return propagate(answer);
    return BarrierConnection(std::move(*socket), control_socket);
}

Expected<void> BarrierConnection::ask(const std::map<barrier::Key, barrier::Request> &requests,
                                      const barrier::Request &otherwise, std::chrono::milliseconds patience) {
    std::vector<std::byte> bytes;
    for (const auto &[process, request] : requests)
        append(bytes, process, encode(request));
    append(bytes, {}, encode(otherwise));
    const auto file = channel::to_memory_file(bytes);
    if (!file)
        return std::unexpected(file.error());
    const Round round{.bytes = bytes.size(), .within = static_cast<std::uint64_t>(patience.count())};
    return send_packet(socket_.get(), std::as_bytes(std::span(&round, 1)), file->get(),
                       Deadline::after(kMargin));
}

Expected<std::vector<barrier::Report>> BarrierConnection::reports(const Deadline &deadline) {
    UniqueFd reported;
    auto answer = receive_answer(socket_.get(), path_, &reported, deadline);
    if (!answer)
        return propagate(answer);
    auto all = channel::from_memory_file(reported.get(), answer->bytes, kMostBytes);
    if (!all)
        return propagate(all);
    std::vector<barrier::Report> reports;
    std::span<const std::byte> left(*all);
    while (!left.empty()) {
        RoundEntry entry;
        if (left.size() < sizeof(entry))
            return failure("read", "a round of the barrier", "it ends within an entry", EPROTO);
        std::memcpy(&entry, left.data(), sizeof(entry));
        left = left.subspan(sizeof(entry));
        if (left.size() < entry.bytes)
            return failure("read", "a round of the barrier", "it ends within a report", EPROTO);
        auto report = barrier::decode_report(left.first(entry.bytes));
        if (!report)
            return propagate(report);
        // Who it is, the proxy knows.
        report->process = {.words = entry.process};
        reports.push_back(std::move(*report));
        left = left.subspan(entry.bytes);
    }
    return reports;
}

Expected<NodeBarrier> NodeBarrier::open(std::span<const std::filesystem::path> control_sockets,
                                        const Deadline &deadline) {
    std::vector<BarrierConnection> proxies;
    for (const auto &socket : control_sockets) {
        auto proxy = BarrierConnection::open(socket, deadline);
        if (!proxy)
            return propagate(proxy);
        proxies.push_back(std::move(*proxy));
    }
    return NodeBarrier(std::move(proxies));
}

Expected<std::vector<barrier::Report>>
NodeBarrier::round(const std::map<barrier::Key, barrier::Request> &requests,
                   const barrier::Request &otherwise, std::chrono::milliseconds patience) {
    for (auto &proxy : proxies_)
        if (auto asked = proxy.ask(requests, otherwise, patience); !asked)
            return propagate(asked);
    const auto deadline = Deadline::after(patience + kMargin);
    std::map<barrier::Key, barrier::Report> all;
    for (auto &proxy : proxies_) {
        auto reports = proxy.reports(deadline);
        if (!reports)
            return propagate(reports);
        // Of several answers of a process the last one asked for is the one that counts most.
        for (auto &report : *reports)
            all.insert_or_assign(report.process, std::move(report));
    }
    std::vector<barrier::Report> reports;
    reports.reserve(all.size());
    for (auto &[process, report] : all)
        reports.push_back(std::move(report));
    return reports;
}

Expected<NodeBarrier::Cut> NodeBarrier::acquire(std::chrono::milliseconds patience, const Deadline &deadline,
                                                const std::function<Expected<void>()> &wanted) {
    std::uint64_t number = 0;
    if (getrandom(&number, sizeof(number), 0) != sizeof(number))
        return std::unexpected(errno_error("number", "a barrier"));
    barrier::Coordinator coordinator(number);
    barrier::Coordinator::Decision decision{.requests = {}, .otherwise = coordinator.first()};
    for (;;) {
        auto reports = round(decision.requests, decision.otherwise, coordinator.patience(patience));
        if (!reports)
            return propagate(reports);
        auto next = coordinator.decide(*reports);
        if (!next)
            return propagate(next);
        if (next->complete)
            return Cut{.rounds = coordinator.round() - 1, .processes = reports->size()};
        if (deadline.expired())
            return failure("stop", "all ranks between two collectives",
                           fmt::format("within {} ms they did not come there: {}", deadline.span().count(),
                                       coordinator.behind()),
                           ETIMEDOUT);
        if (auto still = wanted(); !still)
            return propagate(still);
        decision = std::move(*next);
    }
}

} // namespace singularity::proxy_control
