// SPDX-License-Identifier: GPL-2.0-or-later
// Which number a texture or surface object is to have, while the calling thread makes one of a device image
// anew: the program keeps the number, and kernels are given it as a parameter.
#pragma once

#include "log.hpp"
#include "proxy/libcuda/cuda.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace singularity::proxyd {

// 0: any will do.
inline thread_local std::uint64_t wanted_number = 0;

class WantedNumber {
  public:
    explicit WantedNumber(std::uint64_t number) : before_(std::exchange(wanted_number, number)) {}
    ~WantedNumber() { wanted_number = before_; }
    WantedNumber(const WantedNumber &) = delete;
    WantedNumber &operator=(const WantedNumber &) = delete;
    WantedNumber(WantedNumber &&) = delete;
    WantedNumber &operator=(WantedNumber &&) = delete;

  private:
    std::uint64_t before_;
};

// More than any program has of them at a time.
inline constexpr std::size_t kMostNumbersTried = 65536;

// Makes an object that has the wanted number, if one is wanted: the driver gives numbers as it likes, mostly
// the next free one, so others are made until it comes. create(number) and destroy(number): CUresult.
template <class Create, class Destroy>
CUresult make_numbered(std::string_view what, std::uint64_t &object, Create create, Destroy destroy) {
    std::vector<std::uint64_t> others;
    auto result = CUDA_SUCCESS;
    for (;;) {
        result = create(object);
        if (result != CUDA_SUCCESS || wanted_number == 0 || object == wanted_number)
            break;
        others.push_back(object);
        if (others.size() == kMostNumbersTried) {
            kLog.error(
                "the program knows a {} object as {:#x}, a number that this driver does not give again", what,
                wanted_number);
            result = CUDA_ERROR_NOT_SUPPORTED;
            break;
        }
    }
    for (const auto other : others)
        static_cast<void>(destroy(other));
    return result;
}

} // namespace singularity::proxyd
