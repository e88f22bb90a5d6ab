// SPDX-License-Identifier: GPL-2.0-or-later
// The two ways of reading slurmctld's memory. A reader opens a record, which checks that it is what the
// layout says, and gives a view from which fields are read: what the generated read_<struct>() functions
// need.
#pragma once

#include "common/error.hpp"
#include "layout.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace singularity::records {

// Slurm makes no difference between an absent and an empty string, nor does a snapshot.
using Text = std::string;

// What slurm's xmalloc() puts in front of each block: a constant and the size that was asked for
// (common/xmalloc.c, the same from 22.05 to 26.05).
struct BlockHeader {
    static constexpr std::size_t kMagic = 0x42;
    std::size_t magic;
    std::size_t size;
};

// Reads through the kernel, so a wrong address is an error and never a fault: for records whose layout is not
// trusted yet.
class SafeReader {
  public:
    // The longest text that is believed; the node list of a large job is the longest that there is.
    static constexpr std::size_t kLongestText = 256UL * 1024;

    // A copy of the record.
    class View {
      public:
        template <std::integral T>
        [[nodiscard]] Expected<void> read(const FieldLayout &field, T &value) const {
            std::memcpy(&value, bytes_.data() + field.offset, sizeof(value));
            return {};
        }
        [[nodiscard]] Expected<void> read(const FieldLayout &field, Text &text) const;
        [[nodiscard]] const void *pointer(const FieldLayout &field) const noexcept;

      private:
        friend class SafeReader;
        explicit View(std::vector<std::byte> bytes) noexcept : bytes_(std::move(bytes)) {}

        std::vector<std::byte> bytes_;
    };

    // The block must be one of slurm's, as large as the struct, and begin as the struct does.
    [[nodiscard]] Expected<View> open(const StructLayout &layout, const void *record) const;

    // That this process may read its own memory in this way at all: some sandboxes forbid it.
    [[nodiscard]] static Expected<void> usable();
};

// Reads directly: for records whose layout the verifier has found to be right. The caller holds slurmctld's
// locks.
class DirectReader {
  public:
    class View {
      public:
        template <std::integral T>
        [[nodiscard]] Expected<void> read(const FieldLayout &field, T &value) const noexcept {
            std::memcpy(&value, record_ + field.offset, sizeof(value));
            return {};
        }
        [[nodiscard]] Expected<void> read(const FieldLayout &field, Text &text) const;
        [[nodiscard]] const void *pointer(const FieldLayout &field) const noexcept;

      private:
        friend class DirectReader;
        explicit View(const void *record) noexcept : record_(static_cast<const std::byte *>(record)) {}

        const std::byte *record_;
    };

    // The magic number must be there.
    [[nodiscard]] Expected<View> open(const StructLayout &layout, const void *record) const;
};

// Reads what a pointer in the record leads to; a null pointer leads to nothing.
template <class Reader, class Snapshot>
[[nodiscard]] Expected<void> follow(const Reader &reader, const typename Reader::View &view,
                                    const FieldLayout &field, std::optional<Snapshot> &snapshot,
                                    Expected<Snapshot> (*read)(const Reader &, const void *)) {
    snapshot.reset();
    const void *const pointer = view.pointer(field);
    if (pointer == nullptr)
        return {};
    auto pointee = read(reader, pointer);
    if (!pointee)
        return propagate(pointee);
    snapshot = std::move(*pointee);
    return {};
}

} // namespace singularity::records
