// SPDX-License-Identifier: GPL-2.0-or-later
// Fatbins: the containers in which nvcc, cudart and the libraries hand device code to the driver. Everything
// read here comes from a user's process, so every size and offset is checked before it is used.
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::ptx {

enum class EntryKind : std::uint8_t { ptx, elf, other };
enum class Compression : std::uint8_t { none, lz4, zstd };

namespace fatbin_flag {
inline constexpr std::uint64_t kAddress64 = 1U << 0U;
inline constexpr std::uint64_t kDebug = 1U << 1U;
inline constexpr std::uint64_t kLz4 = 1U << 13U;
inline constexpr std::uint64_t kZstd = 1U << 15U;
inline constexpr std::uint64_t kArchitectureSpecific = 1U << 20U; // sm_90a
inline constexpr std::uint64_t kFamilySpecific = 1U << 21U;       // sm_100f
} // namespace fatbin_flag

// One image in a container. Views point into the bytes that were read and live as long as they do.
struct FatbinEntry {
    EntryKind kind = EntryKind::other;
    std::uint16_t raw_kind = 0;
    std::uint32_t sm = 0; // 90 for sm_90
    std::uint16_t version_major = 0;
    std::uint16_t version_minor = 0;
    std::uint64_t flags = 0;
    Compression compression = Compression::none;
    std::uint64_t offset = 0; // of the entry's header from the start of what was read
    std::uint64_t size = 0;   // of the payload once uncompressed, bytes
    std::string_view name;
    std::string_view options; // what the program asked of ptxas
    std::span<const std::byte> stored;
};

// No image that a compiler makes comes near this; a corrupt size field must not become an allocation.
inline constexpr std::uint64_t kMaxPayload = std::uint64_t{256} << 20U;

// Bytes that the fatbin at `start` says it has, its header included. For callers that hold only a pointer:
// 16 bytes are enough.
[[nodiscard]] Expected<std::uint64_t> fatbin_size(std::span<const std::byte> start);

// Entries of an image as cuModuleLoadData, cuModuleLoadFatBinary or cuLibraryLoadData take it: a fatbin, an
// ELF file or PTX text. What follows a fatbin's end is not looked at. The 24-byte wrapper holds pointers and
// is for the caller to follow.
[[nodiscard]] Expected<std::vector<FatbinEntry>> read_image(std::span<const std::byte> image);

// Entries of all fatbins of a .nv_fatbin section, where zeros may stand between one fatbin and the next.
[[nodiscard]] Expected<std::vector<FatbinEntry>> read_fatbin_section(std::span<const std::byte> section);

// The image itself. PTX comes without the zeros that pad it.
[[nodiscard]] Expected<std::vector<std::byte>> payload(const FatbinEntry &entry);
[[nodiscard]] Expected<std::string> ptx_text(const FatbinEntry &entry);

// The PTX that a device of compute capability `sm` (90 for 9.0) would compile: of the newest virtual
// architecture that is not newer than the device; "a" and "f" variants only where the number is the
// device's own. nullptr if there is none.
[[nodiscard]] const FatbinEntry *select_ptx(std::span<const FatbinEntry> entries, std::uint32_t sm);

} // namespace singularity::ptx
