// SPDX-License-Identifier: GPL-2.0-or-later
// A file descriptor, without the libraries that init does not have.
#pragma once

namespace singularity::init {

// Closes what it holds.
class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd &&other) noexcept : fd_(other.release()) {}
    Fd &operator=(Fd &&other) noexcept;
    Fd(const Fd &) = delete;
    Fd &operator=(const Fd &) = delete;
    ~Fd();

    [[nodiscard]] int get() const { return fd_; }
    [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
    int release();

  private:
    int fd_ = -1;
};

} // namespace singularity::init
