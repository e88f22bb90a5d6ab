// SPDX-License-Identifier: GPL-2.0-or-later
// The kernels of reductions, against the host's loops: every type and reduction, on values of all kinds, to
// the bit. On the software GPU, or on the driver library that SINGULARITY_TEST_DRIVER names.
#include "reduction_kernels.hpp"

#include "back_end.hpp"
#include "cmocka.hpp"
#include "need.hpp"
#include "proxy/collectives/reduce.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace singularity;
using singularity::test::fail;
using singularity::test::need;

constexpr std::size_t kLine = 64;
constexpr std::byte kUntouched{0xA5};

void succeeds(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS)
        fail(fmt::format("{}: CUresult {}", what, std::to_underlying(result)));
}

// A context on the device, and memory there.
class Bench {
  public:
    explicit Bench(std::size_t bytes) {
        const char *const named = std::getenv("SINGULARITY_TEST_DRIVER");
        back_end = need(proxyd::BackEnd::open(named == nullptr ? SINGULARITY_SOFTGPU : named, 0));
        succeeds(driver().cuCtxCreate_v2(&context, 0, back_end->device()), "cuCtxCreate");
        succeeds(driver().cuMemAlloc_v2(&memory, bytes), "cuMemAlloc");
        kernels = need(proxyd::ReductionKernels::load(driver()));
    }
    ~Bench() { static_cast<void>(driver().cuCtxDestroy_v2(context)); }
    Bench(const Bench &) = delete;
    Bench &operator=(const Bench &) = delete;
    Bench(Bench &&) = delete;
    Bench &operator=(Bench &&) = delete;

    [[nodiscard]] const driver_api::Backend &driver() const { return back_end->driver(); }
    void write(std::size_t at, std::span<const std::byte> bytes) const {
        succeeds(driver().cuMemcpyHtoDAsync_v2(memory + at, bytes.data(), bytes.size(), nullptr), "write");
    }
    [[nodiscard]] std::vector<std::byte> read(std::size_t at, std::size_t size) const {
        std::vector<std::byte> out(size);
        succeeds(driver().cuMemcpyDtoHAsync_v2(out.data(), memory + at, size, nullptr), "read");
        succeeds(driver().cuStreamSynchronize(nullptr), "wait");
        return out;
    }

    std::unique_ptr<proxyd::BackEnd> back_end;
    CUcontext context = nullptr;
    CUdeviceptr memory = 0;
    std::shared_ptr<const proxyd::ReductionKernels> kernels;
};

template <class Float, class Bits>
std::vector<Bits> special() {
    using Limits = std::numeric_limits<Float>;
    std::vector<Bits> out;
    for (const Float value :
         {Float{0}, Float{1}, Float{3}, Limits::min(), Limits::denorm_min(), Limits::max(),
          Limits::infinity(), Limits::quiet_NaN(), Limits::epsilon(), Limits::min() / 3})
        for (const Float signed_one : {value, -value})
            out.push_back(std::bit_cast<Bits>(signed_one));
    out.push_back(static_cast<Bits>(std::bit_cast<Bits>(Limits::infinity()) + 1)); // signals
    out.push_back(static_cast<Bits>(std::bit_cast<Bits>(Limits::quiet_NaN()) + 12345));
    return out;
}

// Any bits, and in between, for the types that have some, what is special, in all pairs.
std::vector<std::byte> operand(std::mt19937_64 &random, std::uint32_t type, std::size_t count,
                               unsigned which) {
    const auto size = collectives::element_size(type);
    std::vector<std::byte> out(count * size);
    for (std::size_t at = 0; at < out.size(); ++at)
        out[at] = static_cast<std::byte>(random());
    const auto mix = [&](const auto &values) {
        const auto many = values.size();
        for (std::size_t index = 0; index < count && index < many * many; ++index) {
            const auto &value = values[which == 0   ? index % many
                                       : which == 1 ? index / many
                                                    : random() % many];
            std::memcpy(out.data() + (index * size), &value, size);
        }
    };
    if (type == 7)
        mix(special<float, std::uint32_t>());
    else if (type == 8)
        mix(special<double, std::uint64_t>());
    else if (size == 1 && which < 2) // all pairs
        for (std::size_t index = 0; index < std::min<std::size_t>(count, 65536); ++index)
            out[index] = static_cast<std::byte>(which == 0 ? index : index / 256);
    return out;
}

std::string first_difference(const std::vector<std::byte> &got, const std::vector<std::byte> &wanted,
                             std::size_t size) {
    const auto at =
        static_cast<std::size_t>(std::ranges::mismatch(got, wanted).in1 - got.begin()) / size * size;
    std::string text = fmt::format("element {}: ", at / size);
    for (const auto *bytes : {&got, &wanted}) {
        for (std::size_t byte = size; byte-- > 0;)
            text += fmt::format("{:02x}", std::to_integer<unsigned>((*bytes)[at + byte]));
        text += bytes == &got ? " instead of " : "";
    }
    return text;
}

void reductions_are_the_hosts(void **) {
    constexpr std::size_t kCount = 65536 + 13;
    constexpr std::size_t kMost = kCount * 8 + kLine;
    constexpr std::size_t kStride = (kMost + 255) / 256 * 256;
    const Bench bench(kStride * 9);
    std::mt19937_64 random(11);
    for (std::uint32_t type = 0; type < protocol::kDataTypes; ++type) {
        const auto size = collectives::element_size(type);
        for (const std::uint32_t members : {1U, 2U, 3U, 8U}) {
            const std::size_t count = members == 2 ? kCount : 4000 + (random() % 100);
            const auto bytes = count * size;
            std::vector<std::vector<std::byte>> operands;
            std::vector<const std::byte *> pointers;
            for (std::uint32_t member = 0; member < members; ++member) {
                operands.push_back(operand(random, type, count, member));
                bench.write(member * kStride, operands.back());
            }
            for (const auto &one : operands)
                pointers.push_back(one.data());
            for (std::uint32_t reduction = 0; reduction < protocol::kReductions; ++reduction) {
                const std::size_t behind = (bytes + kLine - 1) / kLine * kLine;
                bench.write(8 * kStride, std::vector<std::byte>(behind + kLine, kUntouched));
                const bool divides =
                    collectives::adjustment(type, reduction) == collectives::Adjustment::divide_result;
                succeeds(bench.kernels->reduce(nullptr, {.type = type,
                                                         .step = collectives::step_of(reduction),
                                                         .operands = bench.memory,
                                                         .stride = kStride,
                                                         .members = members,
                                                         .divisor = divides ? members : 0,
                                                         .result = bench.memory + 8 * kStride,
                                                         .count = count}),
                         "reduce");
                std::vector<std::byte> wanted(bytes);
                collectives::reduce(type, reduction, pointers, wanted.data(), count);
                const auto got = bench.read(8 * kStride, bytes);
                if (got != wanted)
                    fail(fmt::format("type {}, reduction {}, {} operands: {}", type, reduction, members,
                                     first_difference(got, wanted, size)));
                const auto rest = bench.read(8 * kStride + behind, kLine);
                if (rest != std::vector<std::byte>(kLine, kUntouched))
                    fail(fmt::format("type {}, reduction {}: more is written than the last line", type,
                                     reduction));
            }
        }
    }
}

void scaling_is_the_hosts(void **) {
    constexpr std::size_t kCount = 5001;
    const Bench bench(kCount * 8 + kLine);
    std::mt19937_64 random(12);
    for (std::uint32_t type = 0; type < protocol::kDataTypes; ++type) {
        const auto size = collectives::element_size(type);
        std::vector<collectives::Scalar> scalars{collectives::inverse(type, 3),
                                                 collectives::inverse(type, 8)};
        const auto more = operand(random, type, 30, 0);
        for (std::size_t at = 0; at < more.size(); at += size) {
            std::memcpy(scalars.emplace_back().data(), more.data() + at, size);
        }
        for (const auto &scalar : scalars) {
            auto wanted = operand(random, type, kCount, 1);
            bench.write(0, wanted);
            succeeds(bench.kernels->scale(nullptr, type, bench.memory, scalar, kCount), "scale");
            const auto got = bench.read(0, wanted.size());
            collectives::scale(type, wanted.data(), scalar, kCount);
            if (got != wanted)
                fail(fmt::format("type {}: {}", type, first_difference(got, wanted, size)));
        }
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(reductions_are_the_hosts),
        cmocka_unit_test(scaling_is_the_hosts),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
