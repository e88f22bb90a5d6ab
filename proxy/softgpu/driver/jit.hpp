// SPDX-License-Identifier: GPL-2.0-or-later
// Options of the just-in-time compiler. Here only its logs mean something.
#pragma once

#include "driver/result.hpp"

#include <chrono>
#include <string_view>

namespace singularity::softgpu::driver {

class JitOptions {
  public:
    JitOptions() = default;
    JitOptions(unsigned count, CUjit_option *options, void **values);

    // Into the program's error log, as much as there is room for.
    void say_error(std::string_view text);
    // Compiled: writes the times and the sizes of the logs.
    void done();

  private:
    [[nodiscard]] void **find(CUjit_option option);
    void fill(CUjit_option buffer_option, CUjit_option size_option, std::string_view text);

    unsigned count_ = 0;
    CUjit_option *options_ = nullptr;
    void **values_ = nullptr;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

} // namespace singularity::softgpu::driver
