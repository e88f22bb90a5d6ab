// SPDX-License-Identifier: GPL-2.0-or-later
// Collectives within stream captures: what a graph does with them, and what is refused. Argument: what to do.
//   rules      everything that holds while all is well (with --threads N for ranks that are threads)
//   destroyed, aborted, finalized   the communicator, before a launch
//   killed     all go on launching; whoever runs this kills rank 0 when it says "ready PID"
#include "members.cuh"

#include <chrono>
#include <numeric>
#include <string>

namespace {

using workload::Buffer;
using Numbers = std::vector<int>;

constexpr std::size_t count = 100; // of each rank

struct Rank {
    workload::World world;
    ncclComm_t all = nullptr;
};

class Graph {
  public:
    // What body() puts on the stream, instantiated.
    template <class Body>
    Graph(cudaStream_t stream, Body body) {
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        body();
        CHECK(cudaStreamEndCapture(stream, &graph_));
        CHECK(cudaGraphInstantiate(&executable_, graph_, 0));
    }
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;
    ~Graph() {
        CHECK(cudaGraphExecDestroy(executable_));
        if (graph_ != nullptr)
            CHECK(cudaGraphDestroy(graph_));
    }
    void drop_graph() {
        CHECK(cudaGraphDestroy(graph_));
        graph_ = nullptr;
    }
    [[nodiscard]] cudaGraph_t graph() const { return graph_; }
    operator cudaGraphExec_t() const { return executable_; }

  private:
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t executable_ = nullptr;
};

Numbers numbers(int rank, std::size_t many, int salt = 0) {
    Numbers out(many);
    std::iota(out.begin(), out.end(), rank * 100000 + salt);
    return out;
}

// Every collective there is, one after the other; what it gives is in `out`, `place` numbers for each.
void every(const Rank &rank, int *in, int *out, std::size_t place, cudaStream_t stream) {
    const int root = rank.world.size - 1;
    const int next = (rank.world.rank + 1) % rank.world.size;
    const int last = (rank.world.rank + rank.world.size - 1) % rank.world.size;
    const auto at = [&](std::size_t index) { return out + index * place; };
    CHECK_NCCL(ncclAllReduce(in, at(0), place, ncclInt, ncclSum, rank.all, stream));
    CHECK_NCCL(ncclBroadcast(in, at(1), place, ncclInt, root, rank.all, stream));
    CHECK_NCCL(ncclReduce(in, at(2), place, ncclInt, ncclMax, root, rank.all, stream));
    CHECK_NCCL(ncclAllGather(in, at(3), count, ncclInt, rank.all, stream));
    CHECK_NCCL(ncclReduceScatter(in, at(4), count, ncclInt, ncclSum, rank.all, stream));
    CHECK_NCCL(ncclAlltoAll(in, at(5), count, ncclInt, rank.all, stream));
    CHECK_NCCL(ncclGather(in, at(6), count, ncclInt, root, rank.all, stream));
    CHECK_NCCL(ncclScatter(in, at(7), count, ncclInt, root, rank.all, stream));
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclSend(in, count, ncclInt, next, rank.all, stream));
    CHECK_NCCL(ncclRecv(at(8), count, ncclInt, last, rank.all, stream));
    CHECK_NCCL(ncclAllReduce(at(0), at(9), place, ncclInt, ncclSum, rank.all, stream));
    CHECK_NCCL(ncclGroupEnd());
}
constexpr std::size_t collectives = 10;

void graphs_do_what_calls_do(const Rank &rank) {
    const members::Stream stream;
    const std::size_t place = count * static_cast<std::size_t>(rank.world.size);
    Buffer<int> in(numbers(rank.world.rank, place));
    Buffer<int> called(collectives * place);
    Buffer<int> launched(collectives * place);
    called.clear();
    launched.clear();
    CHECK(cudaDeviceSynchronize());
    Graph graph(stream, [&] { every(rank, in.data(), launched.data(), place, stream); });
    graph.drop_graph();
    for (int salt = 0; salt < 3; ++salt) {
        in.write(numbers(rank.world.rank, place, salt));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaGraphLaunch(graph, stream)); // calls behind it, of the same communicator
        every(rank, in.data(), called.data(), place, stream);
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(called.read() == launched.read(), "rank %d, launch %d", rank.world.rank, salt);
    }
}

// Each launch adds the ranks' numbers to themselves: with `size` ranks the values are multiplied by size.
void double_up(const Rank &rank, int *data, cudaStream_t stream) {
    CHECK_NCCL(ncclAllReduce(data, data, count, ncclInt, ncclSum, rank.all, stream));
}

int power(int base, int times) { return times == 0 ? 1 : base * power(base, times - 1); }

void launches_come_one_after_the_other(const Rank &rank) {
    const members::Stream one;
    const members::Stream two;
    Buffer<int> data(Numbers(count, 1));
    CHECK(cudaDeviceSynchronize());
    Graph graph(one, [&] { double_up(rank, data.data(), one); });
    cudaGraphExec_t again = nullptr; // of the same graph: no less ordered, by the communicator
    CHECK(cudaGraphInstantiate(&again, graph.graph(), 0));
    for (int times = 0; times < 2; ++times) {
        CHECK(cudaGraphLaunch(graph, one));
        CHECK(cudaGraphLaunch(graph, two)); // the same executable graph waits for itself
    }
    CHECK(cudaStreamSynchronize(two));
    CHECK(cudaGraphLaunch(again, one));
    CHECK(cudaStreamSynchronize(one));
    for (const auto stream : {cudaStreamLegacy, cudaStreamPerThread, cudaStream_t{}}) {
        CHECK(cudaGraphLaunch(graph, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    EXPECT(data.read() == Numbers(count, power(rank.world.size, 8)), "%d", data.read()[0]);
    // Far more at once than a device takes.
    data.write(Numbers(count, 0));
    CHECK(cudaDeviceSynchronize());
    for (int times = 0; times < 500; ++times)
        CHECK(cudaGraphLaunch(times % 3 == 0 ? again : static_cast<cudaGraphExec_t>(graph), one));
    CHECK(cudaStreamSynchronize(one));
    EXPECT(data.read() == Numbers(count, 0), "%d", data.read()[0]);
    CHECK(cudaGraphExecDestroy(again));
}

void clones_and_updates(const Rank &rank) {
    const members::Stream stream;
    Buffer<int> data(Numbers(count, 1));
    Buffer<int> other(Numbers(count, 3));
    CHECK(cudaDeviceSynchronize());
    Graph first(stream, [&] { double_up(rank, data.data(), stream); });
    Graph second(stream, [&] { double_up(rank, other.data(), stream); });
    cudaGraph_t clone = nullptr;
    cudaGraphExec_t of_clone = nullptr;
    CHECK(cudaGraphClone(&clone, first.graph()));
    CHECK(cudaGraphInstantiateWithFlags(&of_clone, clone, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    unsigned long long flags = 0;
    CHECK(cudaGraphExecGetFlags(of_clone, &flags));
    EXPECT(flags == cudaGraphInstantiateFlagAutoFreeOnLaunch, "%llu", flags);
    CHECK(cudaGraphDestroy(clone));
    CHECK(cudaGraphUpload(of_clone, stream));
    CHECK(cudaGraphLaunch(of_clone, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(data.read() == Numbers(count, rank.world.size), "%d", data.read()[0]);
    // Now it does what the second graph does.
    cudaGraphExecUpdateResultInfo info{};
    CHECK(cudaGraphExecUpdate(of_clone, second.graph(), &info));
    EXPECT(info.result == cudaGraphExecUpdateSuccess, "%d", info.result);
    CHECK(cudaGraphLaunch(of_clone, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(data.read() == Numbers(count, rank.world.size), "%d", data.read()[0]);
    EXPECT(other.read() == Numbers(count, 3 * rank.world.size), "%d", other.read()[0]);
    // Another number of collectives is another graph; so is none, and so is one more node.
    const auto changed = [&](const Graph &of, const Graph &to) {
        EXPECT(cudaGraphExecUpdate(of, to.graph(), &info) == cudaErrorGraphExecUpdateFailure, "updated");
        EXPECT(info.result == cudaGraphExecUpdateErrorTopologyChanged, "%d", info.result);
        static_cast<void>(cudaGetLastError());
    };
    Graph twice(stream, [&] {
        double_up(rank, data.data(), stream);
        double_up(rank, data.data(), stream);
    });
    Graph none(stream, [&] { CHECK(cudaMemsetAsync(data.data(), 0, 4, stream)); });
    Graph more(stream, [&] {
        double_up(rank, data.data(), stream);
        CHECK(cudaMemsetAsync(data.data(), 0, 4, stream));
    });
    changed(first, twice);
    changed(first, none);
    changed(none, first);
    changed(first, more);
    CHECK(cudaGraphLaunch(first, stream)); // it is what it was
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(data.read() == Numbers(count, rank.world.size * rank.world.size), "%d", data.read()[0]);
    CHECK(cudaGraphExecDestroy(of_clone));
}

// A collective beside work that needs none of it, and one that a fork of the capture has.
void forks_are_joined(const Rank &rank) {
    const members::Stream main;
    const members::Stream beside;
    Buffer<int> first(Numbers(count, 1));
    Buffer<int> second(Numbers(count, 2));
    Buffer<int> third(Numbers(count, 9));
    CHECK(cudaDeviceSynchronize());
    cudaEvent_t event = nullptr;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    const auto order = [&](cudaStream_t earlier, cudaStream_t later) {
        CHECK(cudaEventRecord(event, earlier));
        CHECK(cudaStreamWaitEvent(later, event, 0));
    };
    const auto bytes = count * sizeof(int);
    Graph graph(main, [&] {
        CHECK(cudaMemsetAsync(first.data(), 1, bytes, main));
        order(main, beside);
        double_up(rank, first.data(), beside);
        CHECK(cudaMemsetAsync(second.data(), 2, bytes, main)); // meanwhile
        double_up(rank, second.data(), main);
        order(beside, main);
        CHECK(cudaMemcpyAsync(third.data(), first.data(), bytes, cudaMemcpyDeviceToDevice, main));
        double_up(rank, third.data(), main);
    });
    const int size = rank.world.size;
    for (int times = 0; times < 3; ++times) {
        CHECK(cudaGraphLaunch(graph, main));
        CHECK(cudaStreamSynchronize(main));
        EXPECT(first.read() == Numbers(count, 0x01010101 * size), "%x", first.read()[0]);
        EXPECT(second.read() == Numbers(count, 0x02020202 * size), "%x", second.read()[0]);
        EXPECT(third.read() == Numbers(count, 0x01010101 * size * size), "%x", third.read()[0]);
    }
    // The operations of one group on two streams of a capture are one.
    Graph group(main, [&] {
        order(main, beside);
        CHECK_NCCL(ncclGroupStart());
        double_up(rank, first.data(), main);
        double_up(rank, third.data(), beside);
        CHECK_NCCL(ncclGroupEnd());
        order(beside, main);
    });
    first.write(Numbers(count, 5));
    third.write(Numbers(count, 6));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaGraphLaunch(group, main));
    CHECK(cudaStreamSynchronize(main));
    EXPECT(first.read() == Numbers(count, 5 * size) && third.read() == Numbers(count, 6 * size), "a group");
    CHECK(cudaEventDestroy(event));
}

// What comes after no collective is done while one still waits: the other ranks launch only when rank 0 has
// seen it.
void work_beside_a_collective_is_done_meanwhile(const Rank &rank) {
    const members::Stream main;
    const members::Stream beside;
    const members::Stream look;
    ncclComm_t other = nullptr;
    CHECK_NCCL(ncclCommSplit(rank.all, 0, rank.world.rank, &other, nullptr));
    Buffer<int> data(Numbers(count, 1));
    Buffer<int> mark(Numbers(1, 0));
    Buffer<int> last(Numbers(count, 1));
    CHECK(cudaDeviceSynchronize());
    cudaEvent_t event = nullptr;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    Graph graph(main, [&] {
        CHECK(cudaEventRecord(event, main));
        CHECK(cudaStreamWaitEvent(beside, event, 0));
        double_up(rank, data.data(), beside);
        CHECK(cudaMemsetAsync(mark.data(), 7, sizeof(int), main));
        double_up(rank, last.data(), main);
        CHECK(cudaEventRecord(event, beside));
        CHECK(cudaStreamWaitEvent(main, event, 0));
    });
    if (rank.world.rank == 0) {
        CHECK(cudaGraphLaunch(graph, main));
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        for (int seen = 0; seen != 0x07070707;) {
            CHECK(cudaMemcpyAsync(&seen, mark.data(), sizeof(seen), cudaMemcpyDeviceToHost, look));
            CHECK(cudaStreamSynchronize(look));
            EXPECT(std::chrono::steady_clock::now() < until, "it waits for the others: %x", seen);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    members::meet(other, look);
    if (rank.world.rank != 0)
        CHECK(cudaGraphLaunch(graph, main));
    CHECK(cudaStreamSynchronize(main));
    EXPECT(data.read() == Numbers(count, rank.world.size) && last.read() == data.read(), "%d",
           data.read()[0]);
    CHECK(cudaEventDestroy(event));
    CHECK_NCCL(ncclCommDestroy(other));
}

// Nothing of it is lost without an error.
void what_cannot_be_is_refused(const Rank &rank) {
    const members::Stream captured;
    const members::Stream plain;
    Buffer<int> data(Numbers(count, 1));
    Buffer<int> other(Numbers(count, 1));
    cudaEvent_t event = nullptr;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaDeviceSynchronize());
    // A group is captured as a whole, or not at all.
    Graph rest(captured, [&] {
        double_up(rank, data.data(), captured);
        CHECK_NCCL(ncclGroupStart());
        EXPECT_RESULT(ncclAllReduce(data.data(), data.data(), count, ncclInt, ncclSum, rank.all, captured),
                      ncclSuccess);
        EXPECT_RESULT(ncclAllReduce(other.data(), other.data(), count, ncclInt, ncclSum, rank.all, plain),
                      ncclInvalidUsage);
        EXPECT_RESULT(ncclGroupEnd(), ncclInvalidUsage);
        EXPECT(std::string(ncclGetLastError(rank.all)).find("capture all of them, or none") !=
                   std::string::npos,
               "words");
    });
    CHECK(cudaGraphLaunch(rest, captured));
    CHECK(cudaStreamSynchronize(captured));
    EXPECT(data.read() == Numbers(count, rank.world.size), "%d", data.read()[0]);
    EXPECT(other.read() == Numbers(count, 1), "%d", other.read()[0]);

    const auto refused = [&](cudaError_t result, cudaError_t expected, const char *what) {
        EXPECT(result == expected, "%s: %s", what, cudaGetErrorName(result));
        static_cast<void>(cudaGetLastError());
    };
    // Within another graph.
    cudaGraph_t outer = nullptr;
    cudaGraphNode_t node = nullptr;
    CHECK(cudaGraphCreate(&outer, 0));
    refused(cudaGraphAddChildGraphNode(&node, outer, nullptr, 0, rest.graph()), cudaErrorNotSupported,
            "a child");
    CHECK(cudaGraphDestroy(outer));
    CHECK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeThreadLocal));
    refused(cudaGraphLaunch(rest, captured), cudaErrorStreamCaptureUnsupported, "a captured launch");
    static_cast<void>(cudaStreamEndCapture(captured, &outer));
    static_cast<void>(cudaGetLastError());
    if (outer != nullptr)
        CHECK(cudaGraphDestroy(outer));
    // Collectives are issued in the order in which they were captured, and an edge may not say otherwise.
    Graph fork(captured, [&] {
        CHECK(cudaEventRecord(event, captured));
        CHECK(cudaStreamWaitEvent(plain, event, 0));
        double_up(rank, data.data(), captured);
        double_up(rank, other.data(), plain);
        CHECK(cudaEventRecord(event, plain));
        CHECK(cudaStreamWaitEvent(captured, event, 0));
    });
    cudaGraphNode_t both[2]{};
    std::size_t found = 2;
    CHECK(cudaGraphGetNodes(fork.graph(), both, &found));
    EXPECT(found == 2, "%zu nodes", found);
    int allowed = 0;
    for (const int first : {0, 1}) {
        const cudaGraphEdgeData edge{};
        CHECK(cudaGraphAddDependencies(fork.graph(), &both[first], &both[1 - first], &edge, 1));
        cudaGraphExec_t one = nullptr;
        const auto result = cudaGraphInstantiate(&one, fork.graph(), 0);
        EXPECT(result == cudaSuccess || result == cudaErrorNotSupported, "%s", cudaGetErrorName(result));
        static_cast<void>(cudaGetLastError());
        if (result == cudaSuccess) {
            ++allowed;
            CHECK(cudaGraphExecDestroy(one));
        }
        CHECK(cudaGraphRemoveDependencies(fork.graph(), &both[first], &both[1 - first], &edge, 1));
    }
    EXPECT(allowed == 1, "%d", allowed);
    CHECK(cudaEventDestroy(event));
    // By kernels.
    cudaGraphExec_t executable = nullptr;
    refused(cudaGraphInstantiateWithFlags(&executable, rest.graph(), cudaGraphInstantiateFlagDeviceLaunch),
            cudaErrorNotSupported, "launches by kernels");
    // Single nodes of what is executable.
    Graph with_memset(captured, [&] {
        CHECK(cudaMemsetAsync(data.data(), 1, 4, captured));
        double_up(rank, data.data(), captured);
    });
    std::size_t nodes = 1;
    CHECK(cudaGraphGetRootNodes(with_memset.graph(), &node, &nodes));
    cudaMemsetParams params{};
    CHECK(cudaGraphMemsetNodeGetParams(node, &params));
    refused(cudaGraphExecMemsetNodeSetParams(with_memset, node, &params), cudaErrorInvalidResourceHandle,
            "a node");
}

void rules(const Rank &rank) {
    graphs_do_what_calls_do(rank);
    launches_come_one_after_the_other(rank);
    clones_and_updates(rank);
    forks_are_joined(rank);
    work_beside_a_collective_is_done_meanwhile(rank);
    what_cannot_be_is_refused(rank);
    CHECK_NCCL(ncclCommDestroy(rank.all));
}

void gone(const Rank &rank, const std::string &how) {
    const members::Stream stream;
    Buffer<int> data(Numbers(count, 1));
    CHECK(cudaDeviceSynchronize());
    Graph graph(stream, [&] { double_up(rank, data.data(), stream); });
    CHECK(cudaGraphLaunch(graph, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(data.read() == Numbers(count, rank.world.size), "%d", data.read()[0]);
    if (how == "destroyed")
        CHECK_NCCL(ncclCommDestroy(rank.all));
    else if (how == "aborted")
        CHECK_NCCL(ncclCommAbort(rank.all));
    else
        CHECK_NCCL(ncclCommFinalize(rank.all));
    const auto failed = [](cudaError_t result, const char *what) {
        EXPECT(result == cudaErrorLaunchFailure, "%s: %s", what, cudaGetErrorName(result));
    };
    failed(cudaGraphLaunch(graph, stream), "the launch");
    failed(cudaStreamSynchronize(stream), "it stays");
    failed(cudaGraphLaunch(graph, stream), "for good");
    std::printf("PASSED\n");
    std::fflush(stdout);
    std::_Exit(0); // a context that has failed cannot be cleaned up
}

// Launches until one fails: nobody waits for a stream, which may wait for a rank that is gone.
void killed(const Rank &rank) {
    const members::Stream stream;
    Buffer<int> data(Numbers(count, 0));
    CHECK(cudaDeviceSynchronize());
    Graph graph(stream, [&] { double_up(rank, data.data(), stream); });
    members::meet(rank.all, stream);
    if (rank.world.rank == 0) {
        std::printf("ready %d\n", static_cast<int>(getpid()));
        std::fflush(stdout);
    }
    using Clock = std::chrono::steady_clock;
    for (const auto until = Clock::now() + std::chrono::seconds(60); Clock::now() < until;) {
        if (const auto result = cudaGraphLaunch(graph, stream); result != cudaSuccess) {
            EXPECT(result == cudaErrorLaunchFailure, "%s", cudaGetErrorName(result));
            ncclResult_t now = ncclSuccess;
            CHECK_NCCL(ncclCommGetAsyncError(rank.all, &now));
            EXPECT_RESULT(now, ncclRemoteError);
            std::printf("PASSED\n");
            std::fflush(stdout);
            std::_Exit(0);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT(false, "no launch has failed");
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 3) // --threads
        return members::run(argc, argv, [](const members::Member &member) {
            rules({{member.rank, member.size, member.rank}, members::join(member)});
        });
    if (argc != 2)
        return 2;
    const std::string what = argv[1];
    Rank rank;
    rank.world = workload::world_of_environment();
    workload::use_device(rank.world);
    rank.all = workload::meet(rank.world);
    if (what == "killed")
        killed(rank);
    else if (what != "rules")
        gone(rank, what);
    else
        rules(rank);
    std::printf("PASSED\n");
    return 0;
}
