// SPDX-License-Identifier: GPL-2.0-or-later
// Host threads with streams and events. A pipeline: two producers, each on its own stream, prepare parts; a
// consumer's stream waits for their events and combines; host functions on the stream count. Then many
// threads that work without regard to each other, and the ordering of the legacy default stream. Argument:
// parts.
#include "workload.cuh"

#include <atomic>
#include <thread>

constexpr unsigned words = 8192;
constexpr unsigned threads = 128;

__global__ void prepare(std::uint32_t *out, std::uint32_t seed) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    std::uint32_t value = seed + i * 747796405U;
    value = ((value >> ((value >> 28) + 4)) ^ value) * 277803737U;
    out[i] = (value >> 22) ^ value;
}

__global__ void combine(const std::uint32_t *a, const std::uint32_t *b, std::uint32_t *sum) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    sum[i] = sum[i] * 31U + (a[i] ^ b[i]);
}

std::uint32_t prepared(std::uint32_t seed, unsigned i) {
    std::uint32_t value = seed + i * 747796405U;
    value = ((value >> ((value >> 28) + 4)) ^ value) * 277803737U;
    return (value >> 22) ^ value;
}

void count_up(void *counter) { static_cast<std::atomic<int> *>(counter)->fetch_add(1); }

void pipeline(workload::Report &report, int parts) {
    std::uint32_t *inputs[2];
    cudaStream_t streams[3];
    for (cudaStream_t &stream : streams)
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (auto &input : inputs)
        CHECK(cudaMalloc(&input, words * sizeof(std::uint32_t)));
    workload::Buffer<std::uint32_t> sum(words);
    CHECK(cudaMemsetAsync(sum.data(), 0, words * sizeof(std::uint32_t), streams[2]));
    // ready[p][i]: producer p has prepared part i; used[i]: the consumer has read part i.
    std::vector<cudaEvent_t> ready[2];
    std::vector<cudaEvent_t> used(parts);
    for (auto &events : ready)
        events.resize(parts);
    for (int part = 0; part < parts; ++part)
        for (cudaEvent_t *event : {&ready[0][part], &ready[1][part], &used[part]})
            CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    std::atomic<int> counted{0};
    // How many parts each side has put on its stream: an event can be waited for only after it was recorded.
    std::atomic<int> queued[2] = {0, 0};
    std::atomic<int> consumed{0};
    std::vector<std::thread> producers;
    for (int producer = 0; producer < 2; ++producer)
        producers.emplace_back([&, producer] {
            CHECK(cudaSetDevice(0));
            for (int part = 0; part < parts; ++part) {
                if (part > 0) {
                    while (consumed.load() < part)
                        std::this_thread::yield();
                    CHECK(cudaStreamWaitEvent(streams[producer], used[part - 1], 0));
                }
                prepare<<<words / threads, threads, 0, streams[producer]>>>(
                    inputs[producer], static_cast<std::uint32_t>(part * 2 + producer));
                CHECK_LAUNCH();
                CHECK(cudaEventRecord(ready[producer][part], streams[producer]));
                queued[producer].store(part + 1);
            }
        });
    for (int part = 0; part < parts; ++part) {
        for (int producer = 0; producer < 2; ++producer) {
            while (queued[producer].load() <= part)
                std::this_thread::yield();
            CHECK(cudaStreamWaitEvent(streams[2], ready[producer][part], 0));
        }
        combine<<<words / threads, threads, 0, streams[2]>>>(inputs[0], inputs[1], sum.data());
        CHECK_LAUNCH();
        CHECK(cudaLaunchHostFunc(streams[2], count_up, &counted));
        CHECK(cudaEventRecord(used[part], streams[2]));
        consumed.store(part + 1);
    }
    for (std::thread &producer : producers)
        producer.join();
    CHECK(cudaStreamSynchronize(streams[2]));
    report.value("host functions", counted.load());
    report.expect(counted.load() == parts, "every host function ran before the stream was done");
    std::vector<std::uint32_t> expected(words, 0);
    for (int part = 0; part < parts; ++part)
        for (unsigned i = 0; i < words; ++i)
            expected[i] = expected[i] * 31U + (prepared(part * 2, i) ^ prepared(part * 2 + 1, i));
    report.equal("pipeline", sum.read(), expected);
    for (int part = 0; part < parts; ++part)
        for (cudaEvent_t event : {ready[0][part], ready[1][part], used[part]})
            CHECK(cudaEventDestroy(event));
    for (auto *input : inputs)
        CHECK(cudaFree(input));
    for (cudaStream_t stream : streams)
        CHECK(cudaStreamDestroy(stream));
}

// Each thread allocates, copies, computes and frees by itself.
void independent(workload::Report &report, int rounds) {
    constexpr int workers = 6;
    std::vector<std::vector<std::uint32_t>> results(workers);
    std::vector<std::thread> team;
    for (int worker = 0; worker < workers; ++worker)
        team.emplace_back([&, worker] {
            cudaStream_t stream = nullptr;
            CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, worker % 2 == 0 ? 0 : -1));
            std::vector<std::uint32_t> host(words, static_cast<std::uint32_t>(worker));
            for (int round = 0; round < rounds; ++round) {
                std::uint32_t *parts[2];
                for (auto &part : parts)
                    CHECK(cudaMalloc(&part, words * sizeof(std::uint32_t)));
                CHECK(cudaMemcpyAsync(parts[0], host.data(), words * sizeof(std::uint32_t),
                                      cudaMemcpyHostToDevice, stream));
                prepare<<<words / threads, threads, 0, stream>>>(parts[1],
                                                                 static_cast<std::uint32_t>(worker + round));
                combine<<<words / threads, threads, 0, stream>>>(parts[1], parts[0], parts[0]);
                CHECK_LAUNCH();
                CHECK(cudaMemcpyAsync(host.data(), parts[0], words * sizeof(std::uint32_t),
                                      cudaMemcpyDeviceToHost, stream));
                CHECK(cudaStreamSynchronize(stream));
                for (auto *part : parts)
                    CHECK(cudaFree(part));
            }
            CHECK(cudaStreamDestroy(stream));
            results[worker] = std::move(host);
        });
    for (std::thread &worker : team)
        worker.join();
    for (int worker = 0; worker < workers; ++worker) {
        std::vector<std::uint32_t> expected(words, static_cast<std::uint32_t>(worker));
        for (int round = 0; round < rounds; ++round)
            for (unsigned i = 0; i < words; ++i)
                expected[i] = expected[i] * 31U + (prepared(worker + round, i) ^ expected[i]);
        report.equal("independent", results[worker], expected);
    }
}

// A blocking stream and the legacy default stream wait for each other without being told.
void default_stream(workload::Report &report) {
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreate(&stream));
    workload::Buffer<std::uint32_t> a(words);
    workload::Buffer<std::uint32_t> sum(words);
    CHECK(cudaMemsetAsync(sum.data(), 0, words * sizeof(std::uint32_t), stream));
    std::vector<std::uint32_t> expected(words, 0);
    for (std::uint32_t round = 0; round < 6; ++round) {
        prepare<<<words / threads, threads, 0, round % 2 == 0 ? stream : nullptr>>>(a.data(), round);
        combine<<<words / threads, threads, 0, round % 2 == 0 ? nullptr : stream>>>(a.data(), sum.data(),
                                                                                    sum.data());
        CHECK_LAUNCH();
        for (unsigned i = 0; i < words; ++i)
            expected[i] = expected[i] * 31U + (prepared(round, i) ^ expected[i]);
    }
    report.equal("default stream", sum.read(), expected);
    cudaEvent_t start = nullptr;
    cudaEvent_t end = nullptr;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(start, stream));
    prepare<<<words / threads, threads, 0, stream>>>(a.data(), 1);
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    float elapsed = -1.0F;
    CHECK(cudaEventElapsedTime(&elapsed, start, end));
    report.expect(elapsed >= 0.0F && cudaEventQuery(end) == cudaSuccess &&
                      cudaStreamQuery(stream) == cudaSuccess,
                  "events have times");
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv) {
    const int parts = static_cast<int>(workload::size_argument(argc, argv, 24, 100000));
    workload::Report report;
    pipeline(report, parts);
    independent(report, 4);
    default_stream(report);
    return report.finish();
}
