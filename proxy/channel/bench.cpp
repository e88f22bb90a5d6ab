// SPDX-License-Identifier: GPL-2.0-or-later
// What the channel itself costs, without a driver: the time of an asynchronous record in the client, of an
// empty call with a reply, and the throughput of pieces through the ring. The daemon's end runs in a process
// of its own.
#include "proxy/channel/client_end.hpp"
#include "proxy/channel/server_end.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

namespace channel = singularity::channel;
using Clock = std::chrono::steady_clock;
using singularity::Deadline;

constexpr std::size_t kMessage = 128; // about a kernel launch
constexpr std::size_t kPiece = 128U << 10;
constexpr std::size_t kCopy = 64U << 20;

double nanoseconds(Clock::duration span) { return std::chrono::duration<double, std::nano>(span).count(); }

[[noreturn]] void give_up(const singularity::Error &error) {
    fmt::print(stderr, "singularity-channel-bench: {}\n", error.message());
    std::exit(EXIT_FAILURE);
}

template <class T>
T need(singularity::Expected<T> value) {
    if (!value)
        give_up(value.error());
    return std::move(*value);
}

double median(std::vector<double> values) {
    std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
    return values[values.size() / 2];
}

// Reads everything, copies pieces to memory of its own as a driver would, answers with nothing.
[[noreturn]] void serve(channel::ServerEnd &end) {
    std::vector<std::byte> memory(kCopy);
    std::size_t at = 0;
    std::vector<std::byte> message(kMessage);
    for (;;) {
        auto record = need(end.next(Deadline::after(std::chrono::seconds(30))));
        if (!record)
            std::_Exit(EXIT_SUCCESS);
        if (record->message.size() > kMessage) {
            at = at + record->message.size() > memory.size() ? 0 : at;
            channel::copy_once(std::span(memory).subspan(at, record->message.size()), record->message);
            at += record->message.size();
        } else {
            channel::copy_once(message, record->message);
        }
        end.release(*record);
        if (record->header.reply_slot != channel::kNoReply) {
            if (record->message.size() == 1)
                std::_Exit(EXIT_SUCCESS);
            if (auto done = end.reply(record->header, std::span(message).first(16), 0); !done)
                give_up(done.error());
        }
    }
}

void call(channel::ClientEnd &client, std::size_t size) {
    auto reply = need(client.prepare_reply(16));
    need(client.begin(1, size, &reply)).commit();
    static_cast<void>(need(reply.wait()));
}

double record_time(channel::ClientEnd &client) {
    // Bursts that fit in the ring, as a program issues them between two synchronisations.
    constexpr int kBurst = 1000;
    std::vector<double> times;
    std::vector<std::byte> message(kMessage);
    for (int round = 0; round < 200; ++round) {
        const auto start = Clock::now();
        for (int i = 0; i < kBurst; ++i) {
            auto record = need(client.begin(1, kMessage));
            std::ranges::copy(message, record.message().begin());
            record.commit();
        }
        times.push_back(nanoseconds(Clock::now() - start) / kBurst);
        call(client, 16);
    }
    return median(times);
}

double call_time(channel::ClientEnd &client) {
    std::vector<double> times;
    for (int i = 0; i < 20'000; ++i) {
        const auto start = Clock::now();
        call(client, 16);
        times.push_back(nanoseconds(Clock::now() - start) / 1000);
    }
    return median(times);
}

// Bytes per nanosecond of one 64 MiB copy in pieces, by the side of plain memcpy.
double copy_ratio(channel::ClientEnd &client) {
    std::vector<std::byte> source(kCopy, std::byte{1});
    std::vector<std::byte> target(kCopy);
    std::vector<double> ratios;
    for (int round = 0; round < 9; ++round) {
        auto start = Clock::now();
        std::ranges::copy(source, target.begin());
        const double plain = nanoseconds(Clock::now() - start);
        start = Clock::now();
        for (std::size_t at = 0; at < kCopy; at += kPiece) {
            auto record = need(client.begin(1, kPiece));
            std::ranges::copy(std::span(source).subspan(at, kPiece), record.message().begin());
            record.commit();
        }
        call(client, 16);
        ratios.push_back(plain / nanoseconds(Clock::now() - start));
    }
    return median(ratios);
}

} // namespace

int main() {
    auto server = need(channel::ServerEnd::create(channel::Geometry{}));
    int sockets[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
        give_up(singularity::errno_error("make", "a pair of sockets"));
    const pid_t child = fork();
    if (child < 0)
        give_up(singularity::errno_error("start", "the daemon's side"));
    if (child == 0)
        serve(*server);
    channel::ClientEnd client(need(channel::Segment::map(server->segment_fd(), server->geometry())),
                              need(channel::Link::adopt(singularity::UniqueFd(sockets[0]))));
    call(client, 16);
    fmt::print("async_record_ns {:.0f}\n", record_time(client));
    fmt::print("sync_rtt_us {:.2f}\n", call_time(client));
    fmt::print("h2d_ratio {:.2f}\n", copy_ratio(client));
    const auto statistics = client.statistics();
    fmt::print("records {} waits_for_room {} wake_ups {}\n", statistics.records, statistics.full_waits,
               statistics.wake_ups);
    call(client, 16);
    auto last = need(client.prepare_reply(16));
    need(client.begin(1, 1, &last)).commit();
    // It ends without an answer.
    int status = 0;
    waitpid(child, &status, 0);
    client.mark_dead();
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
