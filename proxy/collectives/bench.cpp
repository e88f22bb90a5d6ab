// SPDX-License-Identifier: GPL-2.0-or-later
// How long an all-reduce takes, and what it is compared with. One process for each rank; tests/bench/ranks.py
// starts them. Not installed.
//     singularity-collectives-bench rank RANK SIZE HOST ADDRESS RENDEZVOUS    key on stdin; rank 0 is the
//     rendezvous singularity-collectives-bench memcpy singularity-collectives-bench receive ADDRESS      and,
//     when it has printed a line: send ADDRESS
// Prints the median of seconds for kBytes.
#include "proxy/collectives/engine.hpp"
#include "proxy/collectives/rendezvous.hpp"
#include "socket.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <unistd.h>

namespace {

using namespace singularity;
using namespace singularity::collectives;

constexpr std::size_t kBytes = std::size_t{64} << 20;
constexpr int kWarm = 2;
constexpr int kRounds = 9;
constexpr std::chrono::seconds kPatience{60};

Deadline soon() { return Deadline::after(kPatience); }

[[noreturn]] void give_up(const std::string &why) {
    std::fprintf(stderr, "singularity-collectives-bench: %s\n", why.c_str());
    std::exit(EXIT_FAILURE);
}

template <class T>
T need(Expected<T> value) {
    if (!value)
        give_up(value.error().message());
    if constexpr (!std::is_void_v<T>)
        return std::move(*value);
}

void measure(const std::function<void()> &prepare, const std::function<void()> &run) {
    std::vector<double> seconds;
    for (int round = 0; round < kWarm + kRounds; ++round) {
        prepare();
        const auto begin = std::chrono::steady_clock::now();
        run();
        const std::chrono::duration<double> span = std::chrono::steady_clock::now() - begin;
        if (round >= kWarm)
            seconds.push_back(span.count());
    }
    std::ranges::sort(seconds);
    std::printf("%.9f\n", seconds[seconds.size() / 2]);
}

void be_rank(std::span<char *> arguments) {
    const auto rank = static_cast<std::uint32_t>(std::strtoul(arguments[0], nullptr, 10));
    const auto size = static_cast<std::uint32_t>(std::strtoul(arguments[1], nullptr, 10));
    EngineOptions options{.rendezvous = arguments[4],
                          .host = arguments[2],
                          .address = arguments[3],
                          .key = need(read_job_key(0))};
    std::unique_ptr<Rendezvous> rendezvous;
    if (rank == 0)
        rendezvous = need(Rendezvous::start(options.rendezvous, options.key));
    // Others may be faster than rank 0.
    const auto engine = need(Engine::start(options));
    std::shared_ptr<Member> member;
    std::thread thread;
    const auto deadline = soon();
    for (;;) {
        member = need(engine->join({.key = {1, 1}, .rank = rank, .size = size, .completed = 0}, {}));
        const auto state = member->wait(0, deadline);
        if (state.phase == protocol::CommunicatorPhase::ready)
            break;
        if (deadline.expired())
            give_up("the ranks do not meet: " + state.failure.text);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    thread = std::thread([member] {
        HostMover mover;
        member->run(mover);
    });
    std::vector<float> numbers(kBytes / sizeof(float), 1.0F);
    std::uint64_t group = 0;
    const auto reduce = [&](std::size_t count) {
        if (!member->issue({{.kind = std::to_underlying(protocol::CollectiveKind::all_reduce),
                             .type = 7,
                             .reduction = 2,
                             .count = count,
                             .input = std::bit_cast<std::uint64_t>(numbers.data()),
                             .output = std::bit_cast<std::uint64_t>(numbers.data())}}))
            give_up("the communicator takes nothing");
        member->begin(++group);
        if (const auto state = member->wait(group, soon()); state.completed < group)
            give_up("an all-reduce does not end: " + state.failure.text);
    };
    measure([&] { reduce(1); }, [&] { reduce(numbers.size()); });
    member->leave();
    thread.join();
}

void copy() {
    const std::vector<std::byte> from(kBytes, std::byte{1});
    std::vector<std::byte> to(kBytes);
    measure([] {},
            [&] {
                std::memcpy(to.data(), from.data(), to.size());
                asm volatile("" : : "r"(to.data()) : "memory"); // nobody reads it
            });
}

void receive(const std::string &address) {
    const auto listener = need(ListeningSocket::open(need(Address::parse(address))));
    std::printf("listening\n");
    std::fflush(stdout);
    pollfd one{.fd = listener.fd(), .events = POLLIN, .revents = 0};
    if (poll(&one, 1, 60'000) != 1)
        give_up("nobody comes");
    auto socket = need(listener.accept());
    std::vector<std::byte> bytes(kBytes);
    std::byte token{};
    measure([&] { need(socket.send(std::span(&token, 1), soon())); },
            [&] { need(socket.receive(bytes, soon())); });
}

void send(const std::string &address) {
    auto socket = need(Socket::connect(need(Address::parse(address)), soon()));
    const std::vector<std::byte> bytes(kBytes, std::byte{1});
    std::byte token{};
    for (int round = 0; round < kWarm + kRounds; ++round) {
        need(socket.receive(std::span(&token, 1), soon()));
        need(socket.send(bytes, soon()));
    }
}

} // namespace

int main(int argc, char **argv) {
    const std::span<char *> arguments(argv, static_cast<std::size_t>(argc));
    const std::string what = argc > 1 ? arguments[1] : "";
    if (what == "rank" && argc == 7)
        be_rank(arguments.subspan(2));
    else if (what == "memcpy" && argc == 2)
        copy();
    else if (what == "receive" && argc == 3)
        receive(arguments[2]);
    else if (what == "send" && argc == 3)
        send(arguments[2]);
    else
        give_up("see the head of its source");
    return EXIT_SUCCESS;
}
