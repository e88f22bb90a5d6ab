// SPDX-License-Identifier: GPL-2.0-or-later
// The file of a device image as memory that the driver copies to by itself. What can be made of it before the
// clients stand still is made before.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "driver_api/backend.hpp"
#include "proxy/image/mapped_file.hpp"
#include "proxy/image/writer.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace singularity::proxyd {

class PinnedFile {
  public:
    // An empty file, open for reading and writing; most: bytes that the image can have.
    [[nodiscard]] static Expected<std::unique_ptr<PinnedFile>>
    make(UniqueFd file, const driver_api::Backend &driver, std::uint64_t most);
    ~PinnedFile();
    PinnedFile(const PinnedFile &) = delete;
    PinnedFile &operator=(const PinnedFile &) = delete;
    PinnedFile(PinnedFile &&) = delete;
    PinnedFile &operator=(PinnedFile &&) = delete;

    // At least so many bytes are memory, and the driver knows it, if a context of the device is current.
    [[nodiscard]] Expected<void> reserve(std::uint64_t bytes, const image::GoOn &go_on);
    // Whether the descriptor is of the same file.
    [[nodiscard]] bool is(const UniqueFd &file) const;

    [[nodiscard]] image::MappedFile &file() { return file_; }

  private:
    PinnedFile(UniqueFd fd, const driver_api::Backend &driver, image::MappedFile file);
    void pin(std::span<std::byte> part);

    UniqueFd fd_;
    const driver_api::Backend &driver_;
    image::MappedFile file_;
    std::size_t pinned_to_ = 0;     // of the file's memory: looked at
    std::vector<std::byte *> pins_; // registered with the driver
};

} // namespace singularity::proxyd
