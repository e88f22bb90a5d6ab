// SPDX-License-Identifier: GPL-2.0-or-later
// Words of pinned memory in one context, for which streams wait.
#pragma once

#include "driver_api/backend.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace singularity::proxyd {

class WaitWords {
  public:
    // In the current context. nullptr: the driver has no such memory, or cannot wait for it.
    [[nodiscard]] static std::shared_ptr<WaitWords> make(const driver_api::Backend &driver);

    // A word that nobody has; what it says now.
    struct Word {
        std::size_t index = 0;
        std::uint32_t value = 0;
    };
    [[nodiscard]] std::optional<Word> take();
    void give_back(std::size_t index);
    void set(std::size_t index, std::uint32_t value);
    // The stream goes on when the word has reached the value, or is past it.
    [[nodiscard]] CUresult wait(CUstream stream, std::size_t index, std::uint32_t value) const;
    // The context goes, and the memory with it.
    void forget();

  private:
    WaitWords(const driver_api::Backend &driver, std::atomic<std::uint32_t> *words, CUdeviceptr device)
        : driver_(driver), words_(words), device_(device) {}

    const driver_api::Backend &driver_;
    std::mutex lock_;
    std::atomic<std::uint32_t> *words_; // nullptr: forgotten
    CUdeviceptr device_;
    std::size_t used_ = 0;
    std::vector<std::size_t> free_;
};

} // namespace singularity::proxyd
