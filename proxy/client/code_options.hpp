// SPDX-License-Identifier: GPL-2.0-or-later
// CUjit_option and CUlibraryOption lists: arrays of names, and of values that hide in pointers.
#pragma once

#include "proxy/libcuda/cuda.hpp"
#include "proxy/protocol/code.hpp"

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace singularity::client {

class JitOptions {
  public:
    // The caller's arrays are read now and written to by finish().
    JitOptions(unsigned count, CUjit_option *options, void **values);

    // NOT_SUPPORTED for options that point to the program's memory (symbols' addresses).
    [[nodiscard]] CUresult result() const { return result_; }
    [[nodiscard]] std::span<const protocol::CodeOption> wire() const { return wire_; }
    [[nodiscard]] driver_api::View view() const;

    // Logs and values of a reply: into the program's buffers and array.
    void finish(const std::array<driver_api::View, 3> &reply) const;
    // Only the logs; for a link the program's array may be gone.
    void finish_logs(std::string_view info, std::string_view error) const;

  private:
    struct Log {
        char *text = nullptr;
        std::size_t size = 0;
    };
    static void write(const Log &log, std::string_view text);

    CUresult result_ = CUDA_SUCCESS;
    unsigned count_;
    CUjit_option *options_;
    void **values_;
    Log info_;
    Log error_;
    std::vector<protocol::CodeOption> wire_;
};

} // namespace singularity::client
