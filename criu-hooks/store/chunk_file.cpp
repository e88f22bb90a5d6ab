// SPDX-License-Identifier: GPL-2.0-or-later
#include "chunk_file.hpp"

#include "directory.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <zstd.h>

namespace singularity::store {
namespace {

constexpr std::string_view kMagic = "singchnk";
constexpr const char *kRead = "read chunk";

// NOLINTNEXTLINE(performance-enum-size): its place in the header
enum class Codec : std::uint32_t { kNone = 0, kZstd = 1 };

struct Header {
    std::array<char, 8> magic;
    Codec codec;
    std::uint32_t size;              // of the content
    std::uint32_t payload;           // behind the header
    std::array<std::byte, 12> check; // of a compressed payload: the beginning of its hash; else zero
};
static_assert(sizeof(Header) == kChunkHeader);

// A sample tells whether the rest is worth the time: four pieces spread over the content.
constexpr std::size_t kSamples = 4;
constexpr std::size_t kSampleSize = std::size_t{8} << 10U;

// Compression pays if it saves a tenth: reading back costs time as well.
bool pays(std::size_t before, std::size_t after) { return after < before - (before / 10); }

Expected<ZSTD_CCtx *> compressor(Scratch &scratch) {
    if (!scratch.compressor)
        scratch.compressor.reset(ZSTD_createCCtx());
    if (!scratch.compressor)
        return failure("compress", "", "zstd finds no memory", ENOMEM);
    return scratch.compressor.get();
}

bool sample_pays(ZSTD_CCtx *context, std::span<const std::byte> content, int level, Scratch &scratch) {
    if (content.size() < 8 * kSamples * kSampleSize)
        return true;
    scratch.sample.clear();
    const std::size_t stride = content.size() / kSamples;
    for (std::size_t i = 0; i < kSamples; ++i) {
        const auto piece = content.subspan((i * stride) + (stride / 3), kSampleSize);
        scratch.sample.insert(scratch.sample.end(), piece.begin(), piece.end());
    }
    const std::size_t size = ZSTD_compressCCtx(context, scratch.file.data(), scratch.file.size(),
                                               scratch.sample.data(), scratch.sample.size(), level);
    return ZSTD_isError(size) == 0 && pays(scratch.sample.size(), size);
}

// Not every bit that zstd reads changes what it makes of it. Uncompressed content has its own hash as the
// name.
std::array<std::byte, 12> check_of(Codec codec, std::span<const std::byte> payload) {
    std::array<std::byte, 12> check{};
    if (codec == Codec::kZstd)
        std::copy_n(hash_of(payload).bytes.begin(), check.size(), check.begin());
    return check;
}

std::array<std::byte, kChunkHeader> header_of(Codec codec, std::size_t size,
                                              std::span<const std::byte> payload) {
    Header header{{},
                  codec,
                  static_cast<std::uint32_t>(size),
                  static_cast<std::uint32_t>(payload.size()),
                  check_of(codec, payload)};
    std::ranges::copy(kMagic, header.magic.begin());
    std::array<std::byte, kChunkHeader> bytes{};
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
}

std::unexpected<Error> damaged(const std::string &path, const std::string &why) {
    return failure(kRead, path, "it is damaged: " + why, EBADMSG);
}

struct OpenChunk {
    UniqueFd file;
    std::string path;
    Header header;
    std::uint32_t stored;
};

// A header that fits the size of its file, whatever the content.
Expected<OpenChunk> open_chunk(const Directory &directory, const std::string &name) {
    auto file = directory.open_file(name);
    if (!file)
        return propagate(file);
    OpenChunk chunk{*std::move(file), directory.path_of(name), {}, 0};
    struct stat status{};
    if (::fstat(chunk.file.get(), &status) != 0)
        return std::unexpected(errno_error("look at", chunk.path));
    std::array<std::byte, kChunkHeader> bytes{};
    const auto got = read_all(chunk.file, bytes, 0, chunk.path);
    if (!got)
        return std::unexpected(got.error());
    std::memcpy(&chunk.header, bytes.data(), sizeof chunk.header);
    const Header &header = chunk.header;
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (*got < bytes.size() || size != kChunkHeader + std::uint64_t{header.payload})
        return damaged(chunk.path,
                       fmt::format("it has {} bytes, not what its header says; it was cut, or its header "
                                   "was changed",
                                   size));
    const bool raw = header.codec == Codec::kNone;
    if (std::string_view(header.magic.data(), header.magic.size()) != kMagic ||
        (!raw && header.codec != Codec::kZstd) || header.size == 0 || header.size > kChunkSize ||
        header.payload > kChunkSize || (raw && header.payload != header.size) ||
        (raw && header.check != check_of(header.codec, {})))
        return damaged(chunk.path, "its header is not one of a chunk");
    chunk.stored = static_cast<std::uint32_t>(size);
    return chunk;
}

// `out` has the size that the header says.
Expected<void> decode(const OpenChunk &chunk, const Hash &hash, std::span<std::byte> out, Scratch &scratch) {
    std::span<std::byte> payload = out;
    if (chunk.header.codec == Codec::kZstd) {
        scratch.file.resize(std::max(scratch.file.size(), kChunkSize));
        payload = std::span(scratch.file).first(chunk.header.payload);
    }
    const auto got = read_all(chunk.file, payload, kChunkHeader, chunk.path);
    if (!got)
        return std::unexpected(got.error());
    if (*got != payload.size())
        return damaged(chunk.path, "it became shorter while it was read");
    if (chunk.header.codec == Codec::kZstd) {
        if (check_of(chunk.header.codec, payload) != chunk.header.check)
            return damaged(chunk.path, "its compressed content does not have the hash in its header");
        if (!scratch.decompressor)
            scratch.decompressor.reset(ZSTD_createDCtx());
        if (!scratch.decompressor)
            return failure("decompress", chunk.path, "zstd finds no memory", ENOMEM);
        const std::size_t size = ZSTD_decompressDCtx(scratch.decompressor.get(), out.data(), out.size(),
                                                     payload.data(), payload.size());
        if (ZSTD_isError(size) != 0)
            return damaged(chunk.path, fmt::format("zstd says: {}", ZSTD_getErrorName(size)));
        if (size != out.size())
            return damaged(chunk.path, "its content is shorter than its header says");
    }
    if (hash_of(out) != hash)
        return damaged(chunk.path, "its content does not have the hash that it is named after");
    return {};
}

// Where gc may have put it for a while: "<hash>.<random>" among the condemned.
Expected<OpenChunk> open_condemned(const UserSpace &space, const std::string &name) {
    auto names = space.condemned.names();
    if (!names)
        return propagate(names);
    for (const std::string &candidate : *names)
        if (candidate.starts_with(name))
            return open_chunk(space.condemned, candidate);
    return failure("open", space.condemned.path_of(name), "there is no such chunk", ENOENT);
}

// gc moves a chunk away and back by renaming it: who finds it at neither place looks again. Every further
// turn needs another round of gc in between, so the bound is never met in practice.
Expected<OpenChunk> find_chunk(UserSpace &space, const Hash &hash) {
    constexpr int kTurns = 8;
    const auto shard = space.shard(hash);
    if (!shard)
        return std::unexpected(shard.error());
    const std::string name = hash.hex();
    for (int turn = 0; turn < kTurns; ++turn) {
        auto chunk = open_chunk(**shard, name);
        if (chunk || chunk.error().code != ENOENT)
            return chunk;
        chunk = open_condemned(space, name);
        if (chunk || chunk.error().code != ENOENT)
            return chunk;
    }
    return failure(kRead, (*shard)->path_of(name), "it is missing", ENOENT);
}

} // namespace

Expected<EncodedChunk> encode_chunk(std::span<const std::byte> content, int level, Scratch &scratch) {
    if (level != 0) {
        auto context = compressor(scratch);
        if (!context)
            return propagate(context);
        scratch.file.resize(std::max(scratch.file.size(), ZSTD_compressBound(kChunkSize)));
        if (sample_pays(*context, content, level, scratch)) {
            const std::size_t size = ZSTD_compressCCtx(*context, scratch.file.data(), scratch.file.size(),
                                                       content.data(), content.size(), level);
            if (ZSTD_isError(size) != 0)
                return failure("compress", "", ZSTD_getErrorName(size));
            const auto payload =
                std::span<const std::byte>(scratch.file).first(std::min(size, scratch.file.size()));
            if (pays(content.size(), size))
                return EncodedChunk{header_of(Codec::kZstd, content.size(), payload), payload};
        }
    }
    return EncodedChunk{header_of(Codec::kNone, content.size(), content), content};
}

// The first bytes are zero and each is equal to the one so far behind it.
bool is_zero(std::span<const std::byte> content) {
    constexpr std::size_t kFirst = 16;
    const auto first = content.first(std::min(kFirst, content.size()));
    return std::ranges::all_of(first, [](std::byte byte) { return byte == std::byte{}; }) &&
           (content.size() <= kFirst ||
            std::memcmp(content.data(), content.data() + kFirst, content.size() - kFirst) == 0);
}

Expected<std::optional<std::uint32_t>> find_stored(UserSpace &space, const Hash &hash, std::size_t size) {
    const auto shard = space.shard(hash);
    if (!shard)
        return std::unexpected(shard.error());
    const auto chunk = open_chunk(**shard, hash.hex());
    if (!chunk && (chunk.error().code == ENOENT || chunk.error().code == EBADMSG))
        return std::nullopt;
    if (!chunk)
        return std::unexpected(chunk.error());
    if (chunk->header.size != size)
        return std::nullopt;
    return chunk->stored;
}

Expected<void> read_chunk(UserSpace &space, const Chunk &chunk, std::span<std::byte> out, Scratch &scratch) {
    const auto opened = find_chunk(space, chunk.hash);
    if (!opened)
        return std::unexpected(opened.error());
    // Its size as a file may differ from the manifest's: another writer may have compressed it differently.
    if (opened->header.size != chunk.size)
        return damaged(opened->path, fmt::format("it holds {} bytes, and the manifest says {}",
                                                 opened->header.size, chunk.size));
    return decode(*opened, chunk.hash, out, scratch);
}

Expected<std::uint32_t> check_chunk_file(const Directory &directory, const std::string &name,
                                         const Hash &hash, Scratch &scratch) {
    const auto opened = open_chunk(directory, name);
    if (!opened)
        return std::unexpected(opened.error());
    scratch.sample.resize(std::max(scratch.sample.size(), std::size_t{opened->header.size}));
    if (auto decoded = decode(*opened, hash, std::span(scratch.sample).first(opened->header.size), scratch);
        !decoded)
        return propagate(decoded);
    return opened->stored;
}

} // namespace singularity::store
