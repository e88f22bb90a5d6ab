// SPDX-License-Identifier: GPL-2.0-or-later
// Threads that count, each for itself and all in one chain, in registers, on stacks and on the heap.
//     threads THREADS STEPS PROGRESS    prints the chain's value; PROGRESS gets a byte per step
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace {

constexpr int kRounds = 20000; // of arithmetic, between two steps

std::uint64_t churn(std::uint64_t value) {
    for (int i = 0; i < kRounds; ++i) {
        value ^= value << 13U;
        value ^= value >> 7U;
        value ^= value << 17U;
    }
    return value;
}

struct Chain {
    std::mutex mutex;
    std::condition_variable changed;
    unsigned turn = 0;
    std::uint64_t value = 88172645463325252U;
};

} // namespace

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    const auto count = static_cast<unsigned>(std::atoi(argv[1]));
    const int steps = std::atoi(argv[2]);
    const int progress = open(argv[3], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (progress < 0)
        return 2;
    Chain chain;
    std::atomic<std::uint64_t> total = 0;
    std::vector<std::uint64_t> own(count);
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < count; ++number)
        threads.emplace_back([&, number] {
            thread_local std::uint64_t mine = number + 1;
            double fraction = 1.0 / (number + 1);
            for (int step = 0; step < steps; ++step) {
                mine = churn(mine);
                fraction = fraction * 3.9 * (1.0 - fraction); // any lost bit of a register shows
                std::unique_lock lock(chain.mutex);
                chain.changed.wait(lock, [&] { return chain.turn == number; });
                chain.value = churn(chain.value + mine + static_cast<std::uint64_t>(fraction * 1e9));
                chain.turn = (number + 1) % count;
                if (number == 0 && write(progress, ".", 1) != 1)
                    std::abort();
                chain.changed.notify_all();
                lock.unlock();
                total += mine;
                usleep(2000);
            }
            own[number] = mine;
        });
    for (std::thread &each : threads)
        each.join();
    for (const std::uint64_t each : own)
        std::printf("%016llx\n", static_cast<unsigned long long>(each));
    std::printf("%016llx %016llx\n", static_cast<unsigned long long>(chain.value),
                static_cast<unsigned long long>(total.load()));
    return 0;
}
