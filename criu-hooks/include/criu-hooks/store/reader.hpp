// SPDX-License-Identifier: GPL-2.0-or-later
// Reading a checkpoint. Every byte is checked against the hash of its chunk before it is handed out.
#pragma once

#include "common/error.hpp"
#include "criu-hooks/store/manifest.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace singularity::store {

class CheckpointState;
class ImageState;

class ImageReader {
  public:
    ImageReader(ImageReader &&) noexcept;
    ImageReader &operator=(ImageReader &&) noexcept;
    ImageReader(const ImageReader &) = delete;
    ImageReader &operator=(const ImageReader &) = delete;
    ~ImageReader();

    [[nodiscard]] std::uint64_t size() const;

    // From front to back, ahead of the caller by a few chunks. Fewer bytes than asked for only at the end.
    // One thread at a time. An error names the damaged file and the newest older checkpoint of the job that
    // does without it.
    [[nodiscard]] Expected<std::size_t> read(std::span<std::byte> out);

    // Any part, for a lazy restore; all of it must lie in the image. From any thread. The last chunks used
    // are kept.
    [[nodiscard]] Expected<void> read_at(std::uint64_t offset, std::span<std::byte> out) const;

  private:
    friend class Checkpoint;
    explicit ImageReader(std::unique_ptr<ImageState> state);

    std::unique_ptr<ImageState> state_;
};

class Checkpoint {
  public:
    [[nodiscard]] const Manifest &manifest() const;
    // The reader keeps what it needs of the checkpoint.
    [[nodiscard]] Expected<ImageReader> image(const ImageAddress &address) const;

  private:
    friend class Store;
    explicit Checkpoint(std::shared_ptr<CheckpointState> state);

    std::shared_ptr<CheckpointState> state_;
};

} // namespace singularity::store
