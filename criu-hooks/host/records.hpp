// SPDX-License-Identifier: GPL-2.0-or-later
// CRIU's image files: two magic numbers, then messages with their length in front. (A few kinds have raw data
// between the messages; those are not read here.)
#pragma once

#include "common/unique_fd.hpp"
#include "wire.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace singularity::host {

// CRIU's criu/include/magic.h; the image format never changes these.
enum class Magic : std::uint32_t {
    kCore = 0x55053847,
    kFiles = 0x56303138,
    kRegularFiles = 0x50363636,
    kPagemap = 0x56084025,
    kGhostFile = 0x52583605,
    kStatistics = 0x57093306,
    kProcesses = 0x50273030,
    kMounts = 0x55563928,
    kWrittenFiles = 0x54495257,  // ours: written_files.hpp
    kSocketOptions = 0x4b434f53, // ours: socket_options.hpp
    kBindings = 0x444e4942,      // ours: bindings.hpp
};

// From front to back, one message in memory at a time.
class RecordReader {
  public:
    [[nodiscard]] static Expected<RecordReader> open(int directory, const std::string &name, Magic magic);

    // The next message, valid until the next call; nothing at the end.
    [[nodiscard]] Expected<std::optional<Bytes>> next();

    [[nodiscard]] const std::string &name() const { return name_; }

  private:
    RecordReader(UniqueFd file, std::string name, std::uint64_t size)
        : file_(std::move(file)), name_(std::move(name)), size_(size) {}

    [[nodiscard]] Expected<std::size_t> read_up_to(std::span<std::byte> out);
    [[nodiscard]] Expected<bool> refill();

    UniqueFd file_;
    std::string name_;
    std::uint64_t size_;            // of the file: no message is longer
    std::vector<std::byte> buffer_; // what was read and not yet handed out begins at at_
    std::size_t at_ = 0;
    std::vector<std::byte> message_;
};

// Hands every message of the file to `work(Bytes) -> Expected<void>`, until one fails.
template <class Work>
[[nodiscard]] Expected<void> for_each_record(int directory, const std::string &name, Magic magic,
                                             Work &&work) {
    auto reader = RecordReader::open(directory, name, magic);
    if (!reader)
        return propagate(reader);
    for (;;) {
        auto message = reader->next();
        if (!message)
            return propagate(message);
        const std::optional<Bytes> &bytes = *message;
        if (!bytes)
            return {};
        if (auto done = work(*bytes); !done)
            return done;
    }
}

// The first message of a file, of those that have one only; nothing if it is empty.
[[nodiscard]] Expected<std::optional<std::string>> first_record(int directory, const std::string &name,
                                                                Magic magic);

// A whole image file again, from its messages.
[[nodiscard]] std::string framed(Magic magic, const std::vector<std::string> &messages);

} // namespace singularity::host
