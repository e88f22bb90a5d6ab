// SPDX-License-Identifier: GPL-2.0-or-later
// Every way by which the device's data gets into memory that is not pinned. What CUDA calls synchronous there
// is complete when the call returns ("API synchronization behavior" of the runtime's documentation), behind a
// kernel that takes its time; then the program writes over the memory, and nothing may come later, or beside
// it. Argument: rows of the largest box.
#include "workload.cuh"

#include <array>
#include <functional>
#include <memory>

#include <malloc.h>

namespace {

constexpr std::size_t kMargin = 32;
constexpr std::size_t kGap = 4; // between rows, where there may be one
constexpr unsigned char kUntouched = 0x11;
constexpr unsigned char kOver = 0xee;
constexpr unsigned kThreads = 128;
constexpr std::size_t kSymbol = std::size_t{1} << 20;

__device__ unsigned symbol[kSymbol / sizeof(unsigned)];

struct Box {
    std::size_t width; // bytes, a multiple of four
    std::size_t height;
    std::size_t depth;
    [[nodiscard]] std::size_t bytes() const { return width * height * depth; }
};

__host__ __device__ unsigned word(unsigned seed, std::size_t index) {
    return (static_cast<unsigned>(index) + 1) * 2654435761U + seed;
}

// Goes around first, so that who does not wait comes too early.
__global__ void fill_late(unsigned *out, unsigned count, unsigned seed) {
    unsigned around = seed;
    for (unsigned i = 0; i < 2000; ++i)
        around = around * 1664525U + 1013904223U;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
        out[i] = around == 1 && seed == 0 ? 0 : word(seed, i);
}

// Memory from malloc(3) that the program reads and writes over at once. It is looked at again at the end, and
// only then freed.
class Target {
  public:
    explicit Target(std::size_t size) : size_(size), data_(static_cast<unsigned char *>(std::malloc(all()))) {
        std::memset(data_.get(), kUntouched, all());
    }
    [[nodiscard]] unsigned char *memory() const { return data_.get() + kMargin; }
    [[nodiscard]] bool margins_are_untouched() const {
        return all_are(data_.get(), kMargin, kUntouched) && all_are(memory() + size_, kMargin, kUntouched);
    }
    void write_over() { std::memset(data_.get(), kOver, all()); }
    [[nodiscard]] bool nothing_came_later() const { return all_are(data_.get(), all(), kOver); }

    static bool all_are(const unsigned char *data, std::size_t size, unsigned char value) {
        for (std::size_t i = 0; i < size; ++i)
            if (data[i] != value)
                return false;
        return true;
    }

  private:
    struct Free {
        void operator()(unsigned char *data) const { std::free(data); }
    };
    [[nodiscard]] std::size_t all() const { return size_ + 2 * kMargin; }

    std::size_t size_;
    std::unique_ptr<unsigned char, Free> data_;
};

// Where a kernel writes, and from where a copy reads.
struct Sources {
    unsigned *device = nullptr;
    unsigned *pinned = nullptr;
    unsigned *managed = nullptr;
    unsigned *symbol_address = nullptr;
};

using Source = unsigned *Sources::*;

struct Way {
    const char *name;
    Source from;
    std::size_t gap; // after each row of the target
    bool complete;   // when the call returns; else when the stream is done
    std::function<void(unsigned char *to, const unsigned *from, const Box &box, cudaStream_t stream)> copy;
};

cudaMemcpy3DParms spatial(unsigned char *to, const unsigned *from, const Box &box) {
    cudaMemcpy3DParms parameters{};
    parameters.srcPtr = make_cudaPitchedPtr(const_cast<unsigned *>(from), box.width, box.width, box.height);
    parameters.dstPtr = make_cudaPitchedPtr(to, box.width + kGap, box.width, box.height);
    parameters.extent = make_cudaExtent(box.width, box.height, box.depth);
    parameters.kind = cudaMemcpyDeviceToHost;
    return parameters;
}

// A graph, run twice; the memory is the program's again when its stream is done.
void run_graph(cudaGraph_t graph, cudaStream_t stream) {
    cudaGraphExec_t executable = nullptr;
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int run = 0; run < 2; ++run)
        CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
}

std::vector<Way> ways() {
    constexpr auto kDown = cudaMemcpyDeviceToHost;
    std::vector<Way> all{
        {"cudaMemcpy", &Sources::device, 0, true,
         [](auto *to, const auto *from, const Box &box, auto) {
             CHECK(cudaMemcpy(to, from, box.bytes(), kDown));
         }},
        {"cudaMemcpy by address", &Sources::device, 0, true,
         [](auto *to, const auto *from, const Box &box, auto) {
             CHECK(cudaMemcpy(to, from, box.bytes(), cudaMemcpyDefault));
         }},
        {"cudaMemcpyAsync", &Sources::device, 0, true,
         [](auto *to, const auto *from, const Box &box, auto stream) {
             CHECK(cudaMemcpyAsync(to, from, box.bytes(), kDown, stream));
         }},
        {"cudaMemcpy2D", &Sources::device, kGap, true,
         [](auto *to, const auto *from, const Box &box, auto) {
             CHECK(cudaMemcpy2D(to, box.width + kGap, from, box.width, box.width, box.height * box.depth,
                                kDown));
         }},
        {"cudaMemcpy2DAsync", &Sources::device, kGap, true,
         [](auto *to, const auto *from, const Box &box, auto stream) {
             CHECK(cudaMemcpy2DAsync(to, box.width + kGap, from, box.width, box.width, box.height * box.depth,
                                     kDown, stream));
         }},
        {"cudaMemcpy3D", &Sources::device, kGap, true,
         [](auto *to, const auto *from, const Box &box, auto) {
             const auto parameters = spatial(to, from, box);
             CHECK(cudaMemcpy3D(&parameters));
         }},
        {"cudaMemcpy3DAsync", &Sources::device, kGap, true,
         [](auto *to, const auto *from, const Box &box, auto stream) {
             const auto parameters = spatial(to, from, box);
             CHECK(cudaMemcpy3DAsync(&parameters, stream));
         }},
        {"cudaMemcpyFromSymbol", &Sources::symbol_address, 0, true,
         [](auto *to, const auto *, const Box &box, auto) {
             CHECK(cudaMemcpyFromSymbol(to, symbol, box.bytes()));
         }},
        {"cudaMemcpyFromSymbolAsync", &Sources::symbol_address, 0, true,
         [](auto *to, const auto *, const Box &box, auto stream) {
             CHECK(cudaMemcpyFromSymbolAsync(to, symbol, box.bytes(), 0, kDown, stream));
         }},
        {"cudaMemcpyAsync of pinned memory", &Sources::pinned, 0, true,
         [](auto *to, const auto *from, const Box &box, auto stream) {
             CHECK(cudaMemcpyAsync(to, from, box.bytes(), cudaMemcpyHostToHost, stream));
         }},
        {"cudaMemcpyAsync of managed memory", &Sources::managed, 0, true,
         [](auto *to, const auto *from, const Box &box, auto stream) {
             CHECK(cudaMemcpyAsync(to, from, box.bytes(), cudaMemcpyDefault, stream));
         }},
        {"graph, captured", &Sources::device, 0, false,
         [](auto *to, const auto *from, const Box &box, auto stream) {
             cudaGraph_t graph = nullptr;
             CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
             CHECK(cudaMemcpyAsync(to, from, box.bytes(), kDown, stream));
             CHECK(cudaStreamEndCapture(stream, &graph));
             run_graph(graph, stream);
         }},
        {"graph, node", &Sources::device, kGap, false,
         [](auto *to, const auto *from, const Box &box, auto stream) {
             cudaGraph_t graph = nullptr;
             cudaGraphNode_t node = nullptr;
             const auto parameters = spatial(to, from, box);
             CHECK(cudaGraphCreate(&graph, 0));
             CHECK(cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, &parameters));
             run_graph(graph, stream);
         }},
    };
#if CUDART_VERSION >= 13000
    all.push_back({"cudaMemcpyBatchAsync", &Sources::device, 0, false,
                   [](auto *to, const auto *from, const Box &box, auto stream) {
                       const std::size_t half = box.bytes() / 2;
                       const std::array<void *, 2> into{to, to + half};
                       const std::array<const void *, 2> out_of{
                           from, static_cast<const unsigned char *>(static_cast<const void *>(from)) + half};
                       const std::array<std::size_t, 2> sizes{half, box.bytes() - half};
                       cudaMemcpyAttributes attributes{};
                       attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
                       std::size_t first = 0;
                       CHECK(cudaMemcpyBatchAsync(into.data(), out_of.data(), sizes.data(), sizes.size(),
                                                  &attributes, &first, 1, stream));
                   }});
    all.push_back({"cudaMemcpy3DBatchAsync", &Sources::device, kGap, false,
                   [](auto *to, const auto *from, const Box &box, auto stream) {
                       cudaMemcpy3DBatchOp one{};
                       one.src.type = one.dst.type = cudaMemcpyOperandTypePointer;
                       one.src.op.ptr.ptr = const_cast<unsigned *>(from);
                       one.src.op.ptr.rowLength = box.width;
                       one.src.op.ptr.layerHeight = one.dst.op.ptr.layerHeight = box.height;
                       one.dst.op.ptr.ptr = to;
                       one.dst.op.ptr.rowLength = box.width + kGap;
                       one.extent = make_cudaExtent(box.width, box.height, box.depth);
                       one.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
                       CHECK(cudaMemcpy3DBatchAsync(1, &one, 0, stream));
                   }});
#endif
    return all;
}

bool is_copied(const unsigned char *data, const Box &box, std::size_t gap, unsigned seed) {
    std::size_t index = 0;
    for (std::size_t row = 0; row < box.height * box.depth; ++row, data += box.width + gap) {
        for (std::size_t x = 0; x < box.width; x += sizeof(unsigned), ++index) {
            const unsigned expected = word(seed, index);
            if (std::memcmp(data + x, &expected, sizeof(expected)) != 0)
                return false;
        }
        if (!Target::all_are(data + box.width, gap, kUntouched))
            return false;
    }
    return true;
}

// What the runtime answers through a pointer, in memory that is freed at once.
void answers(workload::Report &report, std::vector<Target> &targets, cudaStream_t stream) {
    const auto asked = [&](const char *name, std::size_t size, const auto &question) {
        auto &target = targets.emplace_back(size);
        question(static_cast<void *>(target.memory()));
        report.expect(target.margins_are_untouched(), name);
        target.write_over();
    };
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(begin, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    asked("cudaEventElapsedTime", sizeof(float),
          [&](void *out) { CHECK(cudaEventElapsedTime(static_cast<float *>(out), begin, end)); });
    asked("cudaMemGetInfo", 2 * sizeof(std::size_t), [](void *out) {
        auto *const sizes = static_cast<std::size_t *>(out);
        CHECK(cudaMemGetInfo(sizes, sizes + 1));
    });
    asked("cudaFuncGetAttributes", sizeof(cudaFuncAttributes),
          [](void *out) { CHECK(cudaFuncGetAttributes(static_cast<cudaFuncAttributes *>(out), fill_late)); });
    asked("cudaGetDeviceProperties", sizeof(cudaDeviceProp),
          [](void *out) { CHECK(cudaGetDeviceProperties(static_cast<cudaDeviceProp *>(out), 0)); });
    asked("cudaPointerGetAttributes", sizeof(cudaPointerAttributes), [](void *out) {
        void *address = nullptr;
        CHECK(cudaGetSymbolAddress(&address, symbol));
        CHECK(cudaPointerGetAttributes(static_cast<cudaPointerAttributes *>(out), address));
    });
    asked("cudaStreamGetCaptureInfo", sizeof(unsigned long long), [&](void *out) {
        cudaStreamCaptureStatus status{};
        CHECK(cudaStreamGetCaptureInfo(stream, &status, static_cast<unsigned long long *>(out)));
    });
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
}

} // namespace

int main(int argc, char **argv) {
    const std::size_t rows = workload::size_argument(argc, argv, 32, 64);
    const std::array<Box, 3> boxes{{{4, 3, 2}, {40, 5, 5}, {512, rows, 20}}};
    const std::size_t largest = boxes.back().bytes();
    Sources sources;
    CHECK(cudaMalloc(&sources.device, largest));
    CHECK(cudaMallocHost(&sources.pinned, largest));
    CHECK(cudaMallocManaged(&sources.managed, largest));
    CHECK(cudaGetSymbolAddress(reinterpret_cast<void **>(&sources.symbol_address), symbol));
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreate(&stream));

    workload::Report report;
    std::vector<Target> targets;
    unsigned seed = 0;
    for (const auto &way : ways())
        for (const auto &box : boxes) {
            unsigned *const from = sources.*way.from;
            auto &target = targets.emplace_back((box.width + way.gap) * box.height * box.depth);
            fill_late<<<1, kThreads, 0, stream>>>(from, static_cast<unsigned>(box.bytes() / sizeof(unsigned)),
                                                  ++seed);
            CHECK_LAUNCH();
            way.copy(target.memory(), from, box, stream);
            if (!way.complete)
                CHECK(cudaStreamSynchronize(stream));
            const bool right =
                is_copied(target.memory(), box, way.gap, seed) && target.margins_are_untouched();
            target.write_over();
            report.expect(right, way.name);
        }
    answers(report, targets, stream);

    CHECK(cudaDeviceSynchronize());
    bool late = false;
    for (const auto &target : targets)
        late = late || !target.nothing_came_later();
    report.expect(!late, "nothing came later");
    targets.clear();
    malloc_trim(0); // looks at what was freed
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(sources.managed));
    CHECK(cudaFreeHost(sources.pinned));
    CHECK(cudaFree(sources.device));
    return report.finish();
}
