// SPDX-License-Identifier: GPL-2.0-or-later
// The content address of everything in the store: BLAKE3, 256 bits.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::store {

// Part of every manifest and of the path of every chunk, so that another algorithm can stand beside this one.
inline constexpr std::string_view kHashName = "blake3";

struct Hash {
    static constexpr std::size_t kSize = 32;

    std::array<std::byte, kSize> bytes{};

    auto operator<=>(const Hash &) const = default;

    // 64 lower-case hexadecimal digits.
    [[nodiscard]] std::string hex() const;
    [[nodiscard]] static std::optional<Hash> from_hex(std::string_view text);
    // The first eight bytes as a number: for tables and for sets in which a false hit does no harm.
    [[nodiscard]] std::uint64_t prefix() const;
};

[[nodiscard]] Hash hash_of(std::span<const std::byte> data);

// For what does not lie in memory at once. Needs 32 bytes of memory per KiB of input.
class Hasher {
  public:
    void update(std::span<const std::byte> data);
    [[nodiscard]] Hash finish() const;

  private:
    static constexpr std::size_t kLeaf = 1024; // a chunk, as BLAKE3's specification calls it

    std::array<std::byte, kLeaf> rest_{}; // never empty once there was input: the last leaf may be the root
    std::size_t rest_size_ = 0;
    std::vector<std::byte> values_; // of the leaves before, 32 bytes each
};

// The name of the kernel in use, for reports: "avx512", "avx2" or "generic".
[[nodiscard]] std::string_view hash_kernel();

} // namespace singularity::store
