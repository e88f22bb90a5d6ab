// SPDX-License-Identifier: GPL-2.0-or-later
// Writing a checkpoint.
#pragma once

#include "common/error.hpp"
#include "criu-hooks/store/manifest.hpp"
#include "criu-hooks/store/request.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace singularity::store {

class WriterState;
struct OpenImage;

// One image, from front to back. Equal chunks are stored once, so content that may recur should begin a
// chunk: call boundary() at the start of each slab, mapping or file. One thread at a time.
class ImageWriter {
  public:
    ImageWriter(ImageWriter &&) noexcept;
    ImageWriter &operator=(ImageWriter &&) noexcept;
    ImageWriter(const ImageWriter &) = delete;
    ImageWriter &operator=(const ImageWriter &) = delete;
    ~ImageWriter(); // an image that was not finished cannot be committed

    // Returns when the bytes have been copied. Waits while too much is on its way to the disk. Fails with the
    // first error of the whole checkpoint, code EDQUOT where it is the quota.
    [[nodiscard]] Expected<void> append(std::span<const std::byte> data);
    // The same as appending so many zeros, but does not touch memory.
    [[nodiscard]] Expected<void> append_zeros(std::uint64_t size);
    // What follows begins a chunk.
    [[nodiscard]] Expected<void> boundary();
    [[nodiscard]] Expected<void> finish();

  private:
    friend class Writer;
    ImageWriter(std::shared_ptr<WriterState> state, OpenImage *image);

    [[nodiscard]] Expected<void> submit();

    std::shared_ptr<WriterState> state_;
    OpenImage *image_;
    std::vector<std::byte> filling_; // less than a chunk
};

// A checkpoint that is being written. Ends as if it had never been begun unless commit or finish_part
// succeeds. Its images may be written by several threads at once.
class Writer {
  public:
    Writer(Writer &&) noexcept;
    Writer &operator=(Writer &&) noexcept;
    Writer(const Writer &) = delete;
    Writer &operator=(const Writer &) = delete;
    ~Writer(); // aborts

    // Also after a join: the id of the whole checkpoint.
    [[nodiscard]] const std::string &id() const;

    // Each address once.
    [[nodiscard]] Expected<ImageWriter> image(const ImageAddress &address);
    // Adds attributes of a virtual node, or of a device of it; either may be new.
    [[nodiscard]] Expected<void> describe(const std::string &node, const std::string &device,
                                          const Attributes &attributes);

    [[nodiscard]] Progress progress() const;

    // All images must be finished. On return the checkpoint is durable and the manifest is what is on disk.
    [[nodiscard]] Expected<Manifest> commit();

    // Of a writer that joined, instead of commit: what it wrote is durable, and the result is for add_part of
    // the writer that began the checkpoint, which must not have ended in between.
    [[nodiscard]] Expected<std::vector<std::byte>> finish_part();
    [[nodiscard]] Expected<void> add_part(std::span<const std::byte> part);
    // The same through a file in the store: leave_part's result is the name for take_part, which checks it.
    [[nodiscard]] Expected<std::string> leave_part();
    [[nodiscard]] Expected<void> take_part(const std::string &name);

    void abort();

  private:
    friend class Store;
    explicit Writer(std::shared_ptr<WriterState> state);

    std::shared_ptr<WriterState> state_;
};

} // namespace singularity::store
