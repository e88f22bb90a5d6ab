// SPDX-License-Identifier: GPL-2.0-or-later
// Reductions among ranks of one device: the same steps in the same order as the loops of proxy/collectives.
// Compiled to PTX, which the daemon carries (reduction_kernels.hpp).
#include "reduction_arguments.hpp"

#include <cstddef>
#include <cstdint>
#include <tuple>

#define SINGULARITY_ELEMENT __device__
namespace {
#include "proxy/collectives/elements.hpp"

using singularity::proxyd::kReductionWord;
using singularity::proxyd::ReduceArguments;
using singularity::proxyd::ScaleArguments;

template <class T>
struct Pack {
    using Storage = typename T::Storage;
    static constexpr int kEach =
        sizeof(Storage) < kReductionWord ? static_cast<int>(kReductionWord / sizeof(Storage)) : 1;
    alignas(kEach * sizeof(Storage)) Storage values[kEach];

    __device__ static Pack *at(std::uint64_t address) { return reinterpret_cast<Pack *>(address); }
    __device__ static std::uint64_t packs(std::uint64_t count) { return (count + kEach - 1) / kEach; }
};

__device__ std::uint64_t first() { return (std::uint64_t{blockIdx.x} * blockDim.x) + threadIdx.x; }
__device__ std::uint64_t step() { return std::uint64_t{gridDim.x} * blockDim.x; }

template <class T, class Operation>
__device__ void fold(const ReduceArguments &a) {
    using P = Pack<T>;
    constexpr int kLoadsAhead = P::kEach == 1 ? 4 : 1;
    for (auto index = first(); index < P::packs(a.count); index += step()) {
        P result = P::at(a.operands)[index];
#pragma unroll(kLoadsAhead)
        for (std::uint32_t member = 1; member < a.members; ++member) {
            const P with = P::at(a.operands + (member * a.stride))[index];
            for (int each = 0; each < P::kEach; ++each)
                result.values[each] = Operation::template of<T>(result.values[each], with.values[each]);
        }
        if constexpr (!T::kFloats)
            if (a.divisor != 0)
                for (int each = 0; each < P::kEach; ++each)
                    result.values[each] = divided<T>(result.values[each], a.divisor);
        P::at(a.result)[index] = result;
    }
}

template <class T>
__device__ void reduce(const ReduceArguments &a) {
    switch (a.reduction) {
    case 0:
        return fold<T, Sum>(a);
    case 1:
        return fold<T, Product>(a);
    case 2:
        return fold<T, Largest>(a);
    default:
        return fold<T, Smallest>(a);
    }
}

template <class T>
__device__ void scale(const ScaleArguments &a) {
    using P = Pack<T>;
    typename T::Storage factor;
    memcpy(&factor, &a.scalar, sizeof(factor));
    for (auto index = first(); index < P::packs(a.count); index += step()) {
        P values = P::at(a.values)[index];
        for (int each = 0; each < P::kEach; ++each)
            values.values[each] = Product::of<T>(factor, values.values[each]);
        P::at(a.values)[index] = values;
    }
}

} // namespace

#define SINGULARITY_KERNELS(number)                                                                          \
    extern "C" __global__ void reduce_##number(const ReduceArguments arguments) {                            \
        reduce<std::tuple_element_t<number, Elements>>(arguments);                                           \
    }                                                                                                        \
    extern "C" __global__ void scale_##number(const ScaleArguments arguments) {                              \
        scale<std::tuple_element_t<number, Elements>>(arguments);                                            \
    }
SINGULARITY_KERNELS(0)
SINGULARITY_KERNELS(1)
SINGULARITY_KERNELS(2)
SINGULARITY_KERNELS(3)
SINGULARITY_KERNELS(4)
SINGULARITY_KERNELS(5)
SINGULARITY_KERNELS(6)
SINGULARITY_KERNELS(7)
SINGULARITY_KERNELS(8)
SINGULARITY_KERNELS(9)
SINGULARITY_KERNELS(10)
SINGULARITY_KERNELS(11)
