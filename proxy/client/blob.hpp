// SPDX-License-Identifier: GPL-2.0-or-later
// Images on their way to a daemon.
#pragma once

#include "proxy/client/forward.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace singularity::client {

// An image in the daemon while this object lives.
class Blob {
  public:
    Blob(const Route &route, std::span<const std::byte> bytes);
    ~Blob();
    Blob(const Blob &) = delete;
    Blob &operator=(const Blob &) = delete;
    Blob(Blob &&) = delete;
    Blob &operator=(Blob &&) = delete;

    [[nodiscard]] CUresult result() const { return result_; }
    [[nodiscard]] std::uint64_t number() const { return number_; }

  private:
    Route route_;
    std::uint64_t number_;
    CUresult result_;
};

[[nodiscard]] std::uint64_t new_blob_number();
// A blob that the daemon made.
[[nodiscard]] CUresult read_blob(const Route &route, std::uint64_t number, std::span<std::byte> bytes);
// The file's bytes; the error is CUDA_ERROR_FILE_NOT_FOUND.
[[nodiscard]] CUresult read_file(const char *path, std::vector<std::byte> &bytes);

} // namespace singularity::client
