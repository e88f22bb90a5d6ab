// SPDX-License-Identifier: GPL-2.0-or-later
// Programs of several ranks with NCCL: who this process is among them, and how rank 0's unique id gets to the
// others. Ranks come from RANK, WORLD_SIZE and LOCAL_RANK (torchrun's), or from Slurm; rank 0 listens on
// MASTER_ADDR:MASTER_PORT.
#pragma once

#include "workload.cuh"

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <nccl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace workload {

inline void check_nccl(ncclResult_t status, const char *file, int line, const char *what) {
    if (status != ncclSuccess)
        stop(file, line, what, std::string(ncclGetErrorString(status)) + ": " + ncclGetLastError(nullptr));
}
#define CHECK_NCCL(call) ::workload::check_nccl((call), __FILE__, __LINE__, #call)

struct World {
    int rank = 0;
    int size = 1;
    int local = 0; // rank on this host
};

inline std::string environment(const char *name, const char *otherwise, const char *preset) {
    for (const char *one : {name, otherwise})
        if (const char *const value = one == nullptr ? nullptr : std::getenv(one); value != nullptr)
            return value;
    return preset;
}

inline World world_of_environment() {
    const auto number = [](const char *name, const char *slurm, const char *preset) {
        return std::stoi(environment(name, slurm, preset));
    };
    return {number("RANK", "SLURM_PROCID", "0"), number("WORLD_SIZE", "SLURM_NTASKS", "1"),
            number("LOCAL_RANK", "SLURM_LOCALID", "0")};
}

// Ranks share devices where there are fewer of them.
inline void use_device(const World &world) {
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaSetDevice(world.local % devices));
}

class Socket {
  public:
    explicit Socket(int fd) : fd_(fd) {}
    Socket(Socket &&other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;
    Socket &operator=(Socket &&) = delete;
    ~Socket() {
        if (fd_ >= 0)
            close(fd_);
    }
    [[nodiscard]] int fd() const { return fd_; }

  private:
    int fd_;
};

constexpr std::chrono::seconds meeting_patience{120};

inline bool ready_in_time(int fd, short events, std::chrono::steady_clock::time_point until) {
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
        pollfd one{fd, events, 0};
        const int ready = left.count() > 0 ? poll(&one, 1, static_cast<int>(left.count())) : 0;
        if (ready >= 0 || errno != EINTR) // as after a restore
            return ready > 0;
    }
}

inline bool transfer(int fd, void *data, std::size_t size, bool out,
                     std::chrono::steady_clock::time_point until) {
    auto *bytes = static_cast<char *>(data);
    while (size > 0) {
        if (!ready_in_time(fd, out ? POLLOUT : POLLIN, until))
            return false;
        const auto moved = out ? send(fd, bytes, size, MSG_NOSIGNAL) : recv(fd, bytes, size, 0);
        if (moved <= 0)
            return false;
        bytes += moved;
        size -= static_cast<std::size_t>(moved);
    }
    return true;
}

// Rank 0's bytes become everybody's. Once in a program.
inline void share(const World &world, void *data, std::size_t size) {
    if (world.size == 1)
        return;
    const auto until = std::chrono::steady_clock::now() + meeting_patience;
    const std::string host = environment("MASTER_ADDR", nullptr, "127.0.0.1");
    const std::string port = environment("MASTER_PORT", nullptr, "29500");
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo *found = nullptr;
    if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0)
        stop(__FILE__, __LINE__, host, "MASTER_ADDR has no address");
    if (world.rank == 0) {
        const Socket listener(socket(AF_INET, SOCK_STREAM, 0));
        const int on = 1;
        setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(listener.fd(), found->ai_addr, found->ai_addrlen) != 0 || listen(listener.fd(), 128) != 0)
            stop(__FILE__, __LINE__, host + ":" + port, std::strerror(errno));
        for (int served = 1; served < world.size;) {
            if (!ready_in_time(listener.fd(), POLLIN, until))
                stop(__FILE__, __LINE__, "accept", "not all ranks have come");
            const Socket one(accept(listener.fd(), nullptr, nullptr));
            // One that gives up in between comes again.
            char understood = 0;
            if (one.fd() >= 0 && transfer(one.fd(), data, size, true, until) &&
                transfer(one.fd(), &understood, 1, false, until))
                ++served;
        }
    } else {
        for (;;) {
            if (std::chrono::steady_clock::now() > until)
                stop(__FILE__, __LINE__, host + ":" + port, "rank 0 does not answer");
            const Socket one(socket(AF_INET, SOCK_STREAM, 0));
            char understood = 1;
            if (connect(one.fd(), found->ai_addr, found->ai_addrlen) == 0 &&
                transfer(one.fd(), data, size, false, until) &&
                transfer(one.fd(), &understood, 1, true, until))
                break;
            std::this_thread::sleep_for(std::chrono::milliseconds(20)); // rank 0 has not begun to listen
        }
    }
    freeaddrinfo(found);
}

// All ranks in one communicator, on this rank's device.
inline ncclComm_t meet(const World &world) {
    ncclUniqueId id{};
    if (world.rank == 0)
        CHECK_NCCL(ncclGetUniqueId(&id));
    share(world, &id, sizeof(id));
    ncclComm_t all = nullptr;
    CHECK_NCCL(ncclCommInitRank(&all, world.size, id, world.rank));
    return all;
}

// Everybody's checksums, in the order of ranks, on every rank.
inline std::vector<std::uint64_t> gather_checksums(std::uint64_t mine, ncclComm_t all, int size) {
    Buffer<std::uint64_t> one(std::vector<std::uint64_t>{mine});
    Buffer<std::uint64_t> every(static_cast<std::size_t>(size));
    CHECK_NCCL(ncclAllGather(one.data(), every.data(), 1, ncclUint64, all, nullptr));
    return every.read();
}

} // namespace workload
