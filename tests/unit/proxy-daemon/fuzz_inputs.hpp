// SPDX-License-Identifier: GPL-2.0-or-later
// How inputs are made: well-formed records and packets, and small changes of them that keep most of it
// well-formed. A part's slot, piece and context are those of a record's header: the reply's slot, the piece,
// and the index of the context's handle. Of a packet: how many descriptors come with it, and which is the
// first.
#pragma once

#include "fuzz/parts.hpp"

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace singularity::test {

inline constexpr std::uint64_t kFuzzWindow = 0x5500'0000'0000; // where ThreadSanitizer lets it be
inline constexpr std::uint64_t kFuzzWindowSize = std::uint64_t{1} << 38;
inline constexpr std::uint64_t kFuzzSlice = kFuzzWindow + kFuzzWindowSize / 2; // of the only device
inline constexpr std::uint64_t kFuzzFileSize = std::uint64_t{64} << 10;

// Of a part's flags.
inline constexpr std::uint8_t kLies = 1;   // a record's header says the size that the message begins with
inline constexpr std::uint8_t kPacket = 2; // not a record: a packet on the socket, as it is

// The handle of an object; one with index 1 of each kind is there from the begin.
[[nodiscard]] std::uint64_t fuzz_handle(unsigned kind, std::uint64_t index);

// Every record and packet that a client sends, well-formed, each by itself or behind what it needs.
[[nodiscard]] const std::vector<std::vector<Part>> &seed_inputs();

class Changer {
  public:
    explicit Changer(std::uint64_t seed) : random_(seed) {}

    // A few seeds in a row, changed.
    [[nodiscard]] std::vector<Part> input();
    // One small change, of a part or of the row.
    void change(std::vector<Part> &parts);

  private:
    std::uint64_t below(std::uint64_t end) { return end == 0 ? 0 : random_() % end; }
    void change_message(Bytes &message);
    void change_head(Part &part);

    std::mt19937_64 random_;
};

} // namespace singularity::test
