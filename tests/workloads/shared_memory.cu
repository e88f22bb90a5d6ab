// SPDX-License-Identifier: GPL-2.0-or-later
// Device memory and events of several processes (cudaIpc*): a ring of three, each with a part that it has
// allocated and that the others have opened; in every round each works on its own and on its neighbour's
// part, by turns. Then what handles are not good for, and what is left when the process has ended that made
// the memory. Argument: rounds.
#include "workload.cuh"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

constexpr int kProcesses = 3;
constexpr unsigned kThreads = 128;
constexpr int kParts = 3; // of each process: of one slab, of a slab of its own, of several chunks
constexpr std::size_t kSizes[kParts] = {1000, (std::size_t{3} << 20) + 24, std::size_t{70} << 20};
constexpr int kSteps = 200000; // of what is ordered by events
constexpr int kMostEvents = 60;
constexpr unsigned kEnd = 200; // words that are used at the begin and at the end of each

__global__ void change(std::uint32_t *part, std::uint32_t words, std::uint32_t by) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= kEnd)
        return;
    part[i] = part[i] * 5 + by;
    if (words >= 2 * kEnd)
        part[words - 1 - i] = part[words - 1 - i] * 7 + by;
}

struct Process {
    int rank = 0;
    int sockets[kProcesses] = {-1, -1, -1}; // to each of the others
    std::uint32_t *own[kParts] = {};
    std::uint32_t *others[kProcesses][kParts] = {};
    cudaIpcMemHandle_t handles[kParts] = {};

    template <typename T>
    void tell(int to, const T &what) const {
        if (write(sockets[to], &what, sizeof(what)) != static_cast<ssize_t>(sizeof(what)))
            workload::stop(__FILE__, __LINE__, "write", "the other process has ended");
    }
    template <typename T>
    [[nodiscard]] T hear(int from) const {
        T what{};
        std::size_t at = 0;
        while (at < sizeof(what)) {
            const auto got = read(sockets[from], reinterpret_cast<char *>(&what) + at, sizeof(what) - at);
            if (got <= 0)
                workload::stop(__FILE__, __LINE__, "read", "the other process has ended");
            at += static_cast<std::size_t>(got);
        }
        return what;
    }
    // All have come here, in the order of their ranks.
    void in_turn(int round, void (*what)(Process &, int)) {
        for (int turn = 0; turn < kProcesses; ++turn) {
            if (turn == rank) {
                what(*this, round);
                for (int to = 0; to < kProcesses; ++to)
                    if (to != rank)
                        tell(to, 1);
            } else {
                static_cast<void>(hear<int>(turn));
            }
        }
    }
};

void work_on(std::uint32_t *part, std::size_t bytes, std::uint32_t by) {
    change<<<workload::blocks_for(kEnd, kThreads), kThreads>>>(part, static_cast<std::uint32_t>(bytes / 4),
                                                               by);
    CHECK_LAUNCH();
}

void one_turn(Process &mine, int round) {
    const int next = (mine.rank + 1) % kProcesses;
    for (int part = 0; part < kParts; ++part) {
        const auto by = static_cast<std::uint32_t>(round * 16 + mine.rank * 4 + part);
        work_on(mine.own[part], kSizes[part], by);
        work_on(mine.others[next][part], kSizes[part], by + 1);
    }
    CHECK(cudaDeviceSynchronize());
}

std::uint64_t sum_of(const std::uint32_t *part, std::size_t bytes) {
    std::vector<std::uint32_t> begin(kEnd);
    std::vector<std::uint32_t> end(kEnd);
    CHECK(cudaMemcpy(begin.data(), part, kEnd * 4, cudaMemcpyDefault));
    CHECK(cudaMemcpy(end.data(), part + bytes / 4 - kEnd, kEnd * 4, cudaMemcpyDefault));
    return workload::checksum(begin.data(), kEnd * 4) * 31 + workload::checksum(end.data(), kEnd * 4);
}

// What all of it holds in the end, by the processor.
std::vector<std::uint64_t> expected(int rounds) {
    std::vector<std::uint64_t> sums;
    for (int owner = 0; owner < kProcesses; ++owner)
        for (int part = 0; part < kParts; ++part) {
            const auto words = static_cast<std::uint32_t>(kSizes[part] / 4);
            std::vector<std::uint32_t> begin(kEnd), end(kEnd);
            const auto apply = [&](std::uint32_t by) {
                if (words < 2 * kEnd) {
                    for (unsigned i = 0; i < kEnd; ++i)
                        begin[i] = begin[i] * 5 + by;
                    return;
                }
                for (unsigned i = 0; i < kEnd; ++i) {
                    begin[i] = begin[i] * 5 + by;
                    end[kEnd - 1 - i] = end[kEnd - 1 - i] * 7 + by;
                }
            };
            for (int round = 0; round < rounds; ++round)
                for (int turn = 0; turn < kProcesses; ++turn) {
                    const auto by = static_cast<std::uint32_t>(round * 16 + turn * 4 + part);
                    if (turn == owner)
                        apply(by);
                    if ((turn + 1) % kProcesses == owner)
                        apply(by + 1);
                }
            if (words < 2 * kEnd) // the two ends overlap
                for (unsigned i = 0; i < kEnd; ++i)
                    end[i] = words - kEnd + i < kEnd ? begin[words - kEnd + i] : 0;
            sums.push_back(workload::checksum(begin.data(), kEnd * 4) * 31 +
                           workload::checksum(end.data(), kEnd * 4));
        }
    return sums;
}

void share(Process &mine) {
    CHECK(cudaSetDevice(0));
    for (int part = 0; part < kParts; ++part) {
        CHECK(cudaMalloc(&mine.own[part], kSizes[part]));
        CHECK(cudaMemset(mine.own[part], 0, kSizes[part]));
        CHECK(cudaIpcGetMemHandle(&mine.handles[part], mine.own[part]));
    }
    CHECK(cudaDeviceSynchronize());
    for (int to = 0; to < kProcesses; ++to)
        if (to != mine.rank)
            for (const auto &handle : mine.handles)
                mine.tell(to, handle);
    for (int from = 0; from < kProcesses; ++from)
        for (int part = 0; from != mine.rank && part < kParts; ++part)
            CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void **>(&mine.others[from][part]),
                                       mine.hear<cudaIpcMemHandle_t>(from), cudaIpcMemLazyEnablePeerAccess));
}

bool refused(cudaError_t status, cudaError_t wanted) {
    static_cast<void>(cudaGetLastError());
    return status == wanted;
}

// What the first process finds of handles.
void look_at_handles(Process &mine, workload::Report &report) {
    void *pointer = nullptr;
    report.expect(refused(cudaIpcOpenMemHandle(&pointer, mine.handles[0], cudaIpcMemLazyEnablePeerAccess),
                          cudaErrorDeviceUninitialized),
                  "a process's own handle");
    auto handle = mine.hear<cudaIpcMemHandle_t>(1);
    void *again = nullptr;
    CHECK(cudaIpcOpenMemHandle(&again, handle, cudaIpcMemLazyEnablePeerAccess));
    report.expect(again == mine.others[1][1], "opened twice: the same address");
    CHECK(cudaIpcCloseMemHandle(again));
    report.expect(sum_of(mine.others[1][1], kSizes[1]) != 0, "closed once of two times");
    report.expect(refused(cudaFree(again), cudaErrorInvalidValue), "it is another process's to free");
    cudaPointerAttributes about{};
    CHECK(cudaPointerGetAttributes(&about, mine.others[1][2]));
    report.expect(about.type == cudaMemoryTypeDevice && about.device == 0, "it is device memory");
    bool all = true;
    for (const std::size_t at : {0, 9, 17, 33, 41, 50, 57}) {
        auto other = handle;
        other.reserved[at] = static_cast<char>(other.reserved[at] ^ 0x55);
        all = all && cudaIpcOpenMemHandle(&pointer, other, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess;
        static_cast<void>(cudaGetLastError());
    }
    report.expect(all, "handles that were changed");
    cudaIpcMemHandle_t none{};
    report.expect(cudaIpcOpenMemHandle(&pointer, none, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess,
                  "no handle");
    static_cast<void>(cudaGetLastError());
    report.expect(refused(cudaIpcCloseMemHandle(mine.own[0]), cudaErrorInvalidValue),
                  "closed without being open");
    // Memory that the second process has freed, and other memory at the same place.
    const auto freed = mine.hear<cudaIpcMemHandle_t>(1);
    const auto made = mine.hear<cudaIpcMemHandle_t>(1);
    report.expect(cudaIpcOpenMemHandle(&pointer, freed, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess,
                  "memory that was freed");
    static_cast<void>(cudaGetLastError());
    CHECK(cudaIpcOpenMemHandle(&pointer, made, cudaIpcMemLazyEnablePeerAccess));
    std::vector<unsigned char> bytes(512);
    CHECK(cudaMemcpy(bytes.data(), pointer, bytes.size(), cudaMemcpyDeviceToHost));
    bool right = true;
    for (const auto byte : bytes)
        right = right && byte == 0x6b;
    report.expect(right, "memory at its place");
    CHECK(cudaIpcCloseMemHandle(pointer));
    mine.tell(1, 1);
}

void offer_handles(Process &mine) {
    mine.tell(0, mine.handles[1]);
    void *memory = nullptr;
    cudaIpcMemHandle_t freed{};
    cudaIpcMemHandle_t made{};
    CHECK(cudaMalloc(&memory, 512));
    CHECK(cudaIpcGetMemHandle(&freed, memory));
    CHECK(cudaFree(memory));
    CHECK(cudaMalloc(&memory, 512));
    CHECK(cudaMemset(memory, 0x6b, 512));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaIpcGetMemHandle(&made, memory));
    mine.tell(0, freed);
    mine.tell(0, made);
    static_cast<void>(mine.hear<int>(0));
    CHECK(cudaFree(memory));
}

// Long enough that whoever does not wait for it sees it.
__global__ void append(std::uint32_t *words, std::uint32_t round, std::uint32_t rank) {
    std::uint32_t value = words[0];
    for (int step = 0; step < kSteps; ++step)
        value = value * 1664525U + 1013904223U;
    words[0] = value + round * 4 + rank;
    words[1] += 1;
}

std::uint32_t appended(std::uint32_t value, std::uint32_t round, std::uint32_t rank) {
    for (int step = 0; step < kSteps; ++step)
        value = value * 1664525U + 1013904223U;
    return value + round * 4 + rank;
}

// The first two processes append to one word by turns. Nobody waits for the device: each tells the other that
// it has recorded an event, its own or, in every third round, the other's.
void by_events(Process &mine, int rounds, workload::Report &report) {
    if (mine.rank > 1)
        return;
    const int other = 1 - mine.rank;
    auto *const words = (mine.rank == 0 ? mine.own : mine.others[0])[kParts - 1] + (1 << 20); // in the middle
    cudaStream_t stream = nullptr;
    cudaEvent_t own = nullptr;
    cudaEvent_t theirs = nullptr;
    cudaIpcEventHandle_t handle{};
    std::uint32_t before[2] = {};
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&own, cudaEventDisableTiming | cudaEventInterprocess));
    CHECK(cudaIpcGetEventHandle(&handle, own));
    CHECK(cudaMemcpy(before, words, sizeof(before), cudaMemcpyDefault));
    mine.tell(other, handle);
    const auto opens = mine.hear<cudaIpcEventHandle_t>(other);
    CHECK(cudaIpcOpenEventHandle(&theirs, opens));
    for (int round = 0; round < rounds; ++round) {
        const bool swapped = round % 3 == 2;
        for (int turn = 0; turn < 2; ++turn) {
            const auto event = (turn == mine.rank) != swapped ? own : theirs;
            if (turn == mine.rank) {
                append<<<1, 1, 0, stream>>>(words, static_cast<std::uint32_t>(round),
                                            static_cast<std::uint32_t>(turn));
                CHECK_LAUNCH();
                CHECK(cudaEventRecord(event, stream));
                mine.tell(other, 1);
            } else {
                static_cast<void>(mine.hear<int>(other));
                CHECK(cudaStreamWaitEvent(stream, event, 0));
            }
        }
    }
    // The second one has appended last.
    if (mine.rank == 1) {
        CHECK(cudaEventRecord(own, stream));
        mine.tell(0, 1);
        static_cast<void>(mine.hear<int>(0)); // that has looked
    } else {
        static_cast<void>(mine.hear<int>(1));
        CHECK(cudaEventSynchronize(theirs));
        report.expect(cudaEventQuery(theirs) == cudaSuccess, "the other's event is complete");
        std::uint32_t after[2] = {};
        CHECK(cudaMemcpyAsync(after, words, sizeof(after), cudaMemcpyDefault, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (int round = 0; round < rounds; ++round)
            for (std::uint32_t turn = 0; turn < 2; ++turn)
                before[0] = appended(before[0], static_cast<std::uint32_t>(round), turn);
        report.expect(after[0] == before[0] && after[1] == before[1] + 2 * rounds,
                      "two processes in the order of events");
        cudaEvent_t none = nullptr;
        report.expect(refused(cudaIpcOpenEventHandle(&none, handle), cudaErrorDeviceUninitialized),
                      "a process's own event");
        auto changed = opens;
        changed.reserved[17] = static_cast<char>(changed.reserved[17] ^ 1);
        report.expect(refused(cudaIpcOpenEventHandle(&none, changed), cudaErrorInvalidValue),
                      "an event that nobody has");
        CHECK(cudaEventCreateWithFlags(&none, cudaEventDisableTiming));
        report.expect(refused(cudaIpcGetEventHandle(&changed, none), cudaErrorInvalidValue),
                      "an event of one process");
        CHECK(cudaEventDestroy(none));
        mine.tell(1, 1);
    }
    CHECK(cudaEventDestroy(own));
    if (mine.rank == 1) {
        mine.tell(0, 1);
    } else {
        static_cast<void>(mine.hear<int>(1));
        cudaEvent_t none = nullptr;
        report.expect(refused(cudaIpcOpenEventHandle(&none, opens), cudaErrorInvalidValue),
                      "an event that was destroyed");
        CHECK(cudaEventSynchronize(theirs));
    }
    CHECK(cudaEventDestroy(theirs));
    CHECK(cudaStreamDestroy(stream));
}

void run(Process &mine, int rounds, workload::Report &report) {
    share(mine);
    for (int round = 0; round < rounds; ++round)
        mine.in_turn(round, one_turn);
    by_events(mine, rounds < kMostEvents ? rounds : kMostEvents, report);
    if (mine.rank == 0)
        look_at_handles(mine, report);
    else if (mine.rank == 1)
        offer_handles(mine);
    if (mine.rank != 0) { // the memory of these ends with them, and the first one still has it
        for (int from = 0; from < kProcesses; ++from)
            for (int part = 0; from != mine.rank && part < kParts; ++part)
                CHECK(cudaIpcCloseMemHandle(mine.others[from][part]));
        mine.tell(0, 1);
        return;
    }
    for (int from = 1; from < kProcesses; ++from) {
        static_cast<void>(mine.hear<int>(from));
        int status = 0;
        if (wait(&status) < 0 || status != 0)
            report.expect(false, "a process has failed");
    }
    const auto sums = expected(rounds);
    bool right = true;
    for (int owner = 0; owner < kProcesses; ++owner)
        for (int part = 0; part < kParts; ++part)
            right = right && sums[owner * kParts + part] ==
                                 sum_of(owner == 0 ? mine.own[part] : mine.others[owner][part], kSizes[part]);
    report.expect(right, "what all have written to all parts");
    for (int owner = 1; owner < kProcesses; ++owner)
        for (int part = 0; part < kParts; ++part)
            CHECK(cudaIpcCloseMemHandle(mine.others[owner][part]));
    for (auto *const part : mine.own)
        CHECK(cudaFree(part));
}

int main(int argc, char **argv) {
    const int rounds = static_cast<int>(workload::size_argument(argc, argv, 30));
    workload::Report report;
    int pairs[kProcesses][kProcesses][2];
    for (int one = 0; one < kProcesses; ++one)
        for (int other = one + 1; other < kProcesses; ++other)
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[one][other]) != 0)
                workload::stop(__FILE__, __LINE__, "socketpair", "failed");
    std::fflush(stdout);
    Process mine;
    for (int rank = 1; rank < kProcesses && mine.rank == 0; ++rank)
        if (fork() == 0)
            mine.rank = rank;
    for (int one = 0; one < kProcesses; ++one)
        for (int other = one + 1; other < kProcesses; ++other) {
            if (one == mine.rank)
                mine.sockets[other] = pairs[one][other][0];
            else
                close(pairs[one][other][0]);
            if (other == mine.rank)
                mine.sockets[one] = pairs[one][other][1];
            else
                close(pairs[one][other][1]);
        }
    run(mine, rounds, report);
    return mine.rank == 0 ? report.finish() : 0;
}
