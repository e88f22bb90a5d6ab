// SPDX-License-Identifier: GPL-2.0-or-later
// Copies of every size and alignment between pageable, pinned and device memory, synchronous and not, many in
// flight, with a kernel between them that changes every byte. Argument: bytes of the largest copy.
#include "workload.cuh"

#include <algorithm>

__global__ void change(unsigned char *data, std::size_t size, unsigned char by) {
    const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += stride)
        data[i] = static_cast<unsigned char>(data[i] * 5 + by);
}

// Memory of the host, pinned or not.
class Host {
  public:
    Host(std::size_t size, bool pinned) : pinned_(pinned) {
        if (pinned)
            CHECK(cudaMallocHost(&data_, size));
        else
            data_ = static_cast<unsigned char *>(std::malloc(size));
    }
    Host(const Host &) = delete;
    Host &operator=(const Host &) = delete;
    ~Host() {
        if (pinned_)
            cudaFreeHost(data_);
        else
            std::free(data_);
    }
    [[nodiscard]] unsigned char *data() const { return data_; }

  private:
    unsigned char *data_ = nullptr;
    bool pinned_;
};

void fill(unsigned char *data, std::size_t size, std::uint64_t seed) {
    workload::Random random(seed);
    std::size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        const std::uint64_t word = random.next();
        std::memcpy(data + i, &word, 8);
    }
    for (; i < size; ++i)
        data[i] = static_cast<unsigned char>(random.next());
}

bool changed(const unsigned char *before, const unsigned char *after, std::size_t size, unsigned char by) {
    for (std::size_t i = 0; i < size; ++i)
        if (after[i] != static_cast<unsigned char>(before[i] * 5 + by))
            return false;
    return true;
}

// Up, changed for small sizes, and down again: all pairs of kinds, at addresses that are no multiples of
// anything.
void one_by_one(workload::Report &report, std::size_t largest) {
    constexpr std::size_t margin = 64;
    workload::Buffer<unsigned char> device(largest + 2 * margin);
    for (const std::size_t wanted :
         {std::size_t{1}, std::size_t{3}, std::size_t{64}, std::size_t{4095}, std::size_t{65536},
          std::size_t{131071}, std::size_t{131073}, std::size_t{262149}, std::size_t{1} << 20, largest}) {
        const std::size_t size = std::min(wanted, largest);
        bool right = true;
        for (const bool pinned : {false, true}) {
            Host from(size + margin, pinned);
            Host to(size + margin, !pinned);
            const std::size_t shift = size % 13;
            fill(from.data() + shift, size, size + (pinned ? 1 : 0));
            CHECK(cudaMemset(device.data(), 0x77, size + 2 * margin));
            CHECK(cudaMemcpy(device.data() + margin + shift, from.data() + shift, size,
                             cudaMemcpyHostToDevice));
            const bool compute = size <= 300000;
            if (compute) {
                change<<<16, 128>>>(device.data() + margin + shift, size, static_cast<unsigned char>(size));
                CHECK_LAUNCH();
            }
            CHECK(cudaMemcpy(to.data() + 1, device.data() + margin + shift, size, cudaMemcpyDefault));
            right = right && (compute ? changed(from.data() + shift, to.data() + 1, size,
                                                static_cast<unsigned char>(size))
                                      : std::memcmp(from.data() + shift, to.data() + 1, size) == 0);
            // Nothing beside the range was touched.
            unsigned char edges[2] = {0, 0};
            CHECK(cudaMemcpy(&edges[0], device.data() + margin + shift - 1, 1, cudaMemcpyDeviceToHost));
            CHECK(cudaMemcpy(&edges[1], device.data() + margin + shift + size, 1, cudaMemcpyDeviceToHost));
            right = right && edges[0] == 0x77 && edges[1] == 0x77;
            if (!pinned)
                std::printf("bits %016llx\n",
                            static_cast<unsigned long long>(workload::checksum(to.data() + 1, size)));
        }
        report.value("bytes", size);
        report.expect(right, "copied");
    }
}

// Pieces through several streams at once; the host's memory of a piece is used again as soon as its stream is
// done.
void in_flight(workload::Report &report) {
    constexpr std::size_t piece = 192 * 1024 + 7;
    constexpr int streams = 4;
    constexpr int rounds = 5;
    cudaStream_t stream[streams];
    std::vector<unsigned char> expected(piece * streams * rounds);
    fill(expected.data(), expected.size(), 181);
    workload::Buffer<unsigned char> device(expected.size());
    workload::Buffer<unsigned char> second(expected.size());
    Host staging(piece * streams, true);
    for (cudaStream_t &one : stream)
        CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    for (int round = 0; round < rounds; ++round)
        for (int i = 0; i < streams; ++i) {
            const std::size_t at = piece * static_cast<std::size_t>(round * streams + i);
            unsigned char *const staged = staging.data() + piece * i;
            CHECK(cudaStreamSynchronize(stream[i]));
            std::copy_n(&expected[at], piece, staged);
            CHECK(cudaMemcpyAsync(device.data() + at, staged, piece, cudaMemcpyHostToDevice, stream[i]));
            CHECK(cudaMemcpyAsync(second.data() + at, device.data() + at, piece, cudaMemcpyDeviceToDevice,
                                  stream[i]));
        }
    CHECK(cudaDeviceSynchronize());
    report.equal("pinned pieces", second.read(), expected);

    // From pageable memory: when the call returns the host may change it.
    std::vector<unsigned char> pageable(expected);
    CHECK(
        cudaMemcpyAsync(device.data(), pageable.data(), pageable.size(), cudaMemcpyHostToDevice, stream[0]));
    std::fill(pageable.begin(), pageable.end(), static_cast<unsigned char>(0));
    CHECK(
        cudaMemcpyAsync(pageable.data(), device.data(), pageable.size(), cudaMemcpyDeviceToHost, stream[0]));
    CHECK(cudaStreamSynchronize(stream[0]));
    report.equal("pageable", pageable, expected);

    // Between pieces of one allocation, and of the host to itself.
    CHECK(cudaMemcpyAsync(device.data(), device.data() + piece, piece, cudaMemcpyDeviceToDevice, stream[1]));
    CHECK(cudaStreamSynchronize(stream[1]));
    CHECK(cudaMemcpy(staging.data(), device.data(), piece, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(pageable.data(), staging.data(), piece, cudaMemcpyHostToHost));
    pageable.resize(piece);
    report.equal("within the device", pageable,
                 std::vector<unsigned char>(expected.begin() + piece, expected.begin() + 2 * piece));
    for (cudaStream_t one : stream)
        CHECK(cudaStreamDestroy(one));
}

int main(int argc, char **argv) {
    const std::size_t largest =
        workload::size_argument(argc, argv, (std::size_t{12} << 20) + 5, std::size_t{1} << 34);
    workload::Report report;
    one_by_one(report, largest);
    in_flight(report);
    return report.finish();
}
