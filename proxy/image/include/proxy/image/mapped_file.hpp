// SPDX-License-Identifier: GPL-2.0-or-later
// An empty file that grows in memory: its pages can be made before anybody waits for what is written to them.
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace singularity::image {

// Invariant: [base_, base_ + room_) are addresses of this object's, of which the first size_ bytes are the
// file's; or base_ is nullptr.
class MappedFile {
  public:
    static constexpr std::size_t kStep = std::size_t{2} << 20;

    // The descriptor, open for reading and writing, stays the caller's and must outlive this. most: bytes
    // that the file can have.
    [[nodiscard]] static Expected<MappedFile> make(int fd, std::uint64_t most);
    // Whether a descriptor is of that kind of file.
    [[nodiscard]] static bool fits(int fd);

    MappedFile(MappedFile &&other) noexcept
        : fd_(other.fd_), base_(std::exchange(other.base_, nullptr)), room_(other.room_), size_(other.size_) {
    }
    MappedFile(const MappedFile &) = delete;
    MappedFile &operator=(const MappedFile &) = delete;
    MappedFile &operator=(MappedFile &&) = delete;
    ~MappedFile();

    [[nodiscard]] std::span<std::byte> memory() const { return {base_, size_}; }
    // So many bytes more, in whole steps; ENOSPC where the file system has no room, EFBIG where the file has
    // not.
    [[nodiscard]] Expected<void> grow(std::size_t bytes);
    // The file has so many bytes and no more.
    [[nodiscard]] Expected<void> end_at(std::size_t size);

  private:
    MappedFile(int fd, std::byte *base, std::size_t room) : fd_(fd), base_(base), room_(room) {}

    int fd_;
    std::byte *base_;
    std::size_t room_;
    std::size_t size_ = 0;
};

} // namespace singularity::image
