// SPDX-License-Identifier: GPL-2.0-or-later
// The tree of BLAKE3 above the kernels (specification, section 2.1): chunks of 1 KiB are leaves, neighbours
// are joined level by level, and one without a neighbour rises as it is, which makes every left subtree a
// full one.
#include "criu-hooks/store/hash.hpp"

#include "blake3_kernels.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace singularity::store {
namespace {

using namespace blake3;

static_assert(std::endian::native == std::endian::little, "words of BLAKE3 are read as they lie in memory");

struct NamedKernel {
    std::string_view name;
    Kernel hash;
};

NamedKernel choose() {
#ifdef SINGULARITY_STORE_X86
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
        return {"avx512", hash_avx512};
    if (__builtin_cpu_supports("avx2"))
        return {"avx2", hash_avx2};
#endif
    return {"generic", hash_generic};
}

const NamedKernel &kernel() {
    static const NamedKernel kChosen = choose();
    return kChosen;
}

void mix(std::array<std::uint32_t, 16> &v, std::size_t a, std::size_t b, std::size_t c, std::size_t d,
         std::uint32_t x, std::uint32_t y) {
    v[a] += v[b] + x;
    v[d] = std::rotr(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = std::rotr(v[b] ^ v[c], 12);
    v[a] += v[b] + y;
    v[d] = std::rotr(v[d] ^ v[a], 8);
    v[c] += v[d];
    v[b] = std::rotr(v[b] ^ v[c], 7);
}

using Value = std::array<std::uint32_t, 8>;

// One block of at most kBlockSize bytes.
void compress(Value &value, const std::byte *block, std::size_t length, std::uint64_t counter,
              std::uint32_t flags) {
    std::array<std::uint32_t, 16> m{};
    if (length != 0)
        std::memcpy(m.data(), block, length);
    std::array<std::uint32_t, 16> v{};
    std::ranges::copy(value, v.begin());
    std::copy_n(std::begin(kIv), 4, v.begin() + 8);
    v[12] = static_cast<std::uint32_t>(counter);
    v[13] = static_cast<std::uint32_t>(counter >> 32U);
    v[14] = static_cast<std::uint32_t>(length);
    v[15] = flags;
    for (const auto &order : kOrder) {
        for (std::size_t i = 0; i < 4; ++i)
            mix(v, i, 4 + i, 8 + i, 12 + i, m[order[2 * i]], m[order[(2 * i) + 1]]);
        for (std::size_t i = 0; i < 4; ++i)
            mix(v, i, 4 + ((i + 1) % 4), 8 + ((i + 2) % 4), 12 + ((i + 3) % 4), m[order[8 + (2 * i)]],
                m[order[9 + (2 * i)]]);
    }
    for (std::size_t i = 0; i < 8; ++i)
        value[i] = v[i] ^ v[i + 8];
}

Value initial() {
    Value value{};
    std::ranges::copy(kIv, value.begin());
    return value;
}

void put(const Value &value, std::byte *output) { std::memcpy(output, value.data(), Hash::kSize); }

// One leaf of at most kChunkSize bytes.
void hash_leaf(std::span<const std::byte> data, std::uint64_t counter, std::uint32_t root,
               std::byte *output) {
    Value value = initial();
    std::size_t at = 0;
    do {
        const std::size_t length = std::min(kBlockSize, data.size() - at);
        const bool last = at + length == data.size();
        compress(value, data.data() + at, length, counter,
                 (at == 0 ? kChunkStart : 0U) | (last ? kChunkEnd | root : 0U));
        at += length;
    } while (at < data.size());
    put(value, output);
}

// Leaves of exactly kChunkSize bytes, none of them the root.
void hash_leaves(const std::byte *data, std::size_t count, std::uint64_t counter, std::byte *output) {
    const Job job{kChunkSize, kChunkSize / kBlockSize, counter, true, 0, kChunkStart, kChunkEnd};
    for (std::size_t i = kernel().hash(job, data, count, output); i < count; ++i)
        hash_leaf({data + (i * kChunkSize), kChunkSize}, counter + i, 0, output + (i * Hash::kSize));
}

// The parents of `count` pairs of values that lie one behind another.
void hash_parents(const std::byte *values, std::size_t count, std::byte *output) {
    const Job job{kBlockSize, 1, 0, false, kParent, 0, 0};
    for (std::size_t i = kernel().hash(job, values, count, output); i < count; ++i) {
        Value value = initial();
        compress(value, values + (i * kBlockSize), kBlockSize, 0, kParent);
        put(value, output + (i * Hash::kSize));
    }
}

// The root above at least two leaves.
Hash root_of(std::vector<std::byte> values) {
    std::size_t count = values.size() / Hash::kSize;
    std::vector<std::byte> above((count + 1) / 2 * Hash::kSize);
    for (; count > 2; count = (count + 1) / 2) {
        hash_parents(values.data(), count / 2, above.data());
        if (count % 2 != 0)
            std::memcpy(above.data() + (count / 2 * Hash::kSize), values.data() + ((count - 1) * Hash::kSize),
                        Hash::kSize);
        values.swap(above);
    }
    Value value = initial();
    compress(value, values.data(), kBlockSize, 0, kParent | kRoot);
    Hash hash;
    put(value, hash.bytes.data());
    return hash;
}

} // namespace

void Hasher::update(std::span<const std::byte> data) {
    const auto add_leaves = [this](const std::byte *from, std::size_t count) {
        const std::size_t before = values_.size();
        values_.resize(before + (count * Hash::kSize));
        hash_leaves(from, count, before / Hash::kSize, values_.data() + before);
    };
    if (rest_size_ != 0) {
        const std::size_t taken = std::min(kLeaf - rest_size_, data.size());
        std::ranges::copy(data.first(taken), rest_.begin() + static_cast<std::ptrdiff_t>(rest_size_));
        rest_size_ += taken;
        data = data.subspan(taken);
        if (data.empty())
            return;
        add_leaves(rest_.data(), 1);
        rest_size_ = 0;
    }
    if (data.empty())
        return;
    const std::size_t leaves = (data.size() - 1) / kLeaf;
    add_leaves(data.data(), leaves);
    const auto rest = data.subspan(leaves * kLeaf);
    std::ranges::copy(rest, rest_.begin());
    rest_size_ = rest.size();
}

Hash Hasher::finish() const {
    Hash hash;
    if (values_.empty()) {
        hash_leaf(std::span(rest_).first(rest_size_), 0, kRoot, hash.bytes.data());
        return hash;
    }
    std::vector<std::byte> values(values_);
    values.resize(values.size() + Hash::kSize);
    hash_leaf(std::span(rest_).first(rest_size_), values_.size() / Hash::kSize, 0,
              values.data() + values_.size());
    return root_of(std::move(values));
}

Hash hash_of(std::span<const std::byte> data) {
    Hasher hasher;
    hasher.update(data);
    return hasher.finish();
}

std::string_view hash_kernel() { return kernel().name; }

namespace {
constexpr std::string_view kDigits = "0123456789abcdef";
} // namespace

std::string Hash::hex() const {
    std::string text;
    text.reserve(2 * kSize);
    for (const std::byte byte : bytes) {
        text += kDigits[std::to_integer<std::size_t>(byte >> 4U)];
        text += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
    }
    return text;
}

std::optional<Hash> Hash::from_hex(std::string_view text) {
    if (text.size() != 2 * kSize)
        return std::nullopt;
    Hash hash;
    for (std::size_t i = 0; i < kSize; ++i) {
        const auto high = kDigits.find(text[2 * i]);
        const auto low = kDigits.find(text[(2 * i) + 1]);
        if (high == std::string_view::npos || low == std::string_view::npos)
            return std::nullopt;
        hash.bytes[i] = static_cast<std::byte>((high << 4U) | low);
    }
    return hash;
}

std::uint64_t Hash::prefix() const {
    std::uint64_t number = 0;
    std::memcpy(&number, bytes.data(), sizeof number);
    return number;
}

} // namespace singularity::store
