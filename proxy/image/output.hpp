// SPDX-License-Identifier: GPL-2.0-or-later
// Where a writer's records go.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "proxy/image/go_on.hpp"
#include "proxy/image/mapped_file.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace singularity::image {

class Output {
  public:
    Output() = default;
    Output(const Output &) = delete;
    Output &operator=(const Output &) = delete;
    Output(Output &&) = delete;
    Output &operator=(Output &&) = delete;
    virtual ~Output() = default;

    // Valid until the next call; nothing of it is written unless keep() follows.
    [[nodiscard]] virtual Expected<std::span<std::byte>> room(std::size_t size) = 0;
    virtual void keep(std::size_t size) = 0;
    [[nodiscard]] virtual Expected<void> finish() = 0;
    [[nodiscard]] virtual std::uint64_t bytes() const = 0;
};

// A descriptor that is written to: small records together.
class StreamOutput : public Output {
  public:
    StreamOutput(int fd, const Deadline &deadline, GoOn go_on);
    ~StreamOutput() override;
    [[nodiscard]] Expected<std::span<std::byte>> room(std::size_t size) override;
    void keep(std::size_t size) override { held_ += size; }
    [[nodiscard]] Expected<void> finish() override;
    [[nodiscard]] std::uint64_t bytes() const override { return bytes_; }

  private:
    int fd_;
    int flags_before_;
    Deadline deadline_;
    GoOn go_on_;
    std::vector<std::byte> buffer_;
    std::size_t held_ = 0;
    std::uint64_t bytes_ = 0;
};

class FileOutput : public Output {
  public:
    FileOutput(MappedFile &file, GoOn go_on) : file_(file), go_on_(std::move(go_on)) {}
    [[nodiscard]] Expected<std::span<std::byte>> room(std::size_t size) override;
    void keep(std::size_t size) override { end_ += size; }
    [[nodiscard]] Expected<void> finish() override { return file_.end_at(end_); }
    [[nodiscard]] std::uint64_t bytes() const override { return end_; }

  private:
    MappedFile &file_;
    GoOn go_on_;
    std::size_t end_ = 0;
};

} // namespace singularity::image
