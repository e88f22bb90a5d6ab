// SPDX-License-Identifier: GPL-2.0-or-later
// What the programs of this folder have in common: ranks that are processes (environment, as in
// tests/workloads/ranks.cuh) or, with --threads N, threads of one.
#pragma once

#include "ranks.cuh"

#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

namespace members {

struct Member {
    int rank = 0;
    int size = 1;
    ncclUniqueId id{}; // the same for all
};

// The whole program ends at the first failure of any rank.
#define EXPECT(condition, ...)                                                                               \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            std::fprintf(stderr, "%s:%d: %s does not hold: ", __FILE__, __LINE__, #condition);               \
            std::fprintf(stderr, __VA_ARGS__);                                                               \
            std::fprintf(stderr, "; last error: %s\n", ncclGetLastError(nullptr));                           \
            std::_Exit(1);                                                                                   \
        }                                                                                                    \
    } while (false)

#define EXPECT_RESULT(call, expected)                                                                        \
    do {                                                                                                     \
        const ncclResult_t found_ = (call);                                                                  \
        EXPECT(found_ == (expected), "%s is %d (%s), expected %d", #call, found_,                            \
               ncclGetErrorString(found_), static_cast<int>(expected));                                      \
    } while (false)

inline void use_device(int rank) { workload::use_device({rank, 0, rank}); }

// body(member) on each rank, with its device current.
inline int run(int argc, char **argv, const std::function<void(const Member &)> &body) {
    if (argc == 3 && std::string(argv[1]) == "--threads") {
        const int size = std::atoi(argv[2]);
        ncclUniqueId id{};
        CHECK_NCCL(ncclGetUniqueId(&id));
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < size; ++rank)
            threads.emplace_back([&, rank] {
                use_device(rank);
                body({rank, size, id});
            });
        threads.clear();
        std::printf("PASSED\n");
        return 0;
    }
    const auto world = workload::world_of_environment();
    Member member{world.rank, world.size, {}};
    if (member.rank == 0)
        CHECK_NCCL(ncclGetUniqueId(&member.id));
    workload::share(world, &member.id, sizeof(member.id));
    workload::use_device(world);
    body(member);
    std::printf("PASSED\n");
    return 0;
}

inline ncclComm_t join(const Member &member) {
    ncclComm_t out = nullptr;
    CHECK_NCCL(ncclCommInitRank(&out, member.size, member.id, member.rank));
    return out;
}

// Nobody goes on before all have come.
inline void meet(ncclComm_t communicator, cudaStream_t stream) {
    workload::Buffer<int> one(std::vector<int>{1});
    CHECK_NCCL(ncclAllReduce(one.data(), one.data(), 1, ncclInt, ncclSum, communicator, stream));
    CHECK(cudaStreamSynchronize(stream));
}

class Stream {
  public:
    Stream() { CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;
    ~Stream() { cudaStreamDestroy(stream_); }
    operator cudaStream_t() const { return stream_; }

  private:
    cudaStream_t stream_ = nullptr;
};

} // namespace members
