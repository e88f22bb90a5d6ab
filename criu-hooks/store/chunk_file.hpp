// SPDX-License-Identifier: GPL-2.0-or-later
// A chunk as a file: a header of 32 bytes and the content, compressed where that pays. Its name is the hash
// of the content; every bit of the header is determined by the file's size, the content and the codec.
#pragma once

#include "common/error.hpp"
#include "criu-hooks/store/hash.hpp"
#include "criu-hooks/store/manifest.hpp"
#include "state.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace singularity::store {

inline constexpr std::size_t kChunkHeader = 32;

// Header and payload apart: uncompressed content is written from where it lies. Valid as long as both the
// content and the scratch are left alone.
struct EncodedChunk {
    std::array<std::byte, kChunkHeader> header;
    std::span<const std::byte> payload;

    [[nodiscard]] std::uint32_t stored() const {
        return static_cast<std::uint32_t>(kChunkHeader + payload.size());
    }
};

[[nodiscard]] Expected<EncodedChunk> encode_chunk(std::span<const std::byte> content, int level,
                                                  Scratch &scratch);

[[nodiscard]] bool is_zero(std::span<const std::byte> content);

// The size of the file in which this content lies already; nothing where there is none or where its header
// shows that it is damaged.
[[nodiscard]] Expected<std::optional<std::uint32_t>> find_stored(UserSpace &space, const Hash &hash,
                                                                 std::size_t size);

// The content of a chunk that a manifest names, checked, into `out` of exactly its size. The error names the
// file.
[[nodiscard]] Expected<void> read_chunk(UserSpace &space, const Chunk &chunk, std::span<std::byte> out,
                                        Scratch &scratch);

// A file that lies in `directory`, whoever names it: decoded and checked against `hash`; returns its size.
[[nodiscard]] Expected<std::uint32_t> check_chunk_file(const Directory &directory, const std::string &name,
                                                       const Hash &hash, Scratch &scratch);

} // namespace singularity::store
