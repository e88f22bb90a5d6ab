// SPDX-License-Identifier: GPL-2.0-or-later
#include "file_content.hpp"

#include "criu-hooks/store/hash.hpp"
#include "file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::host {
namespace {

constexpr std::size_t kBlock = std::size_t{256} << 10U;
constexpr std::size_t kMostExtents = 4096;
constexpr std::uint64_t kEdge = std::uint64_t{64} << 10U; // of a fingerprint

// For pieces of these: most files are smaller than a block.
std::vector<std::byte> block_for(const Extents &extents) {
    std::uint64_t largest = 0;
    for (const Extent &extent : extents)
        largest = std::max(largest, extent.size);
    return std::vector<std::byte>(std::min<std::uint64_t>(kBlock, largest));
}

off_t offset(std::uint64_t value) { return static_cast<off_t>(value); }

// As many bytes as there are before the end of the file.
Expected<std::size_t> read_at(int file, std::span<std::byte> out, std::uint64_t at) {
    std::size_t done = 0;
    while (done < out.size()) {
        const ssize_t got = pread(file, out.data() + done, out.size() - done, offset(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return std::unexpected(errno_error("read", "a file"));
        if (got == 0)
            break;
        done += static_cast<std::size_t>(got);
    }
    return done;
}

Expected<void> write_at(int file, std::span<const std::byte> data, std::uint64_t at) {
    while (!data.empty()) {
        const ssize_t done = pwrite(file, data.data(), data.size(), offset(at));
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return std::unexpected(errno_error("write", "a file"));
        data = data.subspan(static_cast<std::size_t>(done));
        at += static_cast<std::uint64_t>(done);
    }
    return {};
}

// The first place at or behind `from` that is data, or a hole (`what`); `size` if there is none below it.
// File systems that know no holes say that all is data.
Expected<std::uint64_t> seek(int file, std::uint64_t from, int what, std::uint64_t size) {
    const off_t found = lseek(file, offset(from), what);
    if (found < 0 && errno == ENXIO)
        return size;
    if (found < 0)
        return std::unexpected(errno_error("look for the data of", "a file"));
    return std::min(static_cast<std::uint64_t>(found), size);
}

Expected<std::optional<Extent>> next_data(int file, std::uint64_t from, std::uint64_t size) {
    auto begin = from < size ? seek(file, from, SEEK_DATA, size) : Expected<std::uint64_t>(size);
    if (!begin)
        return propagate(begin);
    if (*begin >= size)
        return std::optional<Extent>();
    auto end = seek(file, *begin, SEEK_HOLE, size);
    if (!end)
        return propagate(end);
    return Extent{.begin = *begin, .size = *end - *begin};
}

// Hands each piece of [begin, begin + size) of a copy, with the place in the file that it belongs to, to
// `work(std::span<const std::byte>, std::uint64_t at) -> Expected<bool>`; false ends it.
template <class Work>
Expected<bool> for_each_piece(const Copy &copy, int from, Work &&work) {
    auto block = block_for(copy.extents);
    std::uint64_t at = copy.begin;
    for (const Extent &extent : copy.extents)
        for (std::uint64_t done = 0; done < extent.size;) {
            const auto part = std::span(block).first(std::min<std::uint64_t>(kBlock, extent.size - done));
            auto got = read_at(from, part, at);
            if (!got)
                return propagate(got);
            if (*got != part.size())
                return failure("read", "the copy of a file in the image", "it is cut off", EPROTO);
            auto go_on = work(std::span<const std::byte>(part), extent.begin + done);
            if (!go_on || !*go_on)
                return go_on;
            done += part.size();
            at += part.size();
        }
    return true;
}

// Likewise the places between the extents: `work(std::uint64_t begin, std::uint64_t end) -> Expected<bool>`.
template <class Work>
Expected<bool> for_each_gap(const Extents &extents, std::uint64_t size, Work &&work) {
    std::uint64_t from = 0;
    for (const Extent &extent : extents) {
        if (from < extent.begin)
            if (auto go_on = work(from, extent.begin); !go_on || !*go_on)
                return go_on;
        from = extent.begin + extent.size;
    }
    return from < size ? work(from, size) : Expected<bool>(true);
}

bool is_zero(std::span<const std::byte> data) {
    return std::ranges::all_of(data, [](std::byte each) { return each == std::byte{0}; });
}

// What is not zero in [begin, end) is handed to `work(std::span<std::byte>, std::uint64_t at)`.
template <class Work>
Expected<bool> for_each_non_zero(int file, std::uint64_t begin, std::uint64_t end, Work &&work) {
    std::vector<std::byte> block(kBlock);
    while (begin < end) {
        auto data = next_data(file, begin, end);
        if (!data)
            return propagate(data);
        const auto &extent = *data;
        if (!extent)
            return true;
        begin = extent->begin;
        for (const std::uint64_t to = extent->begin + extent->size; begin < to;) {
            const auto part = std::span(block).first(std::min<std::uint64_t>(kBlock, to - begin));
            auto got = read_at(file, part, begin);
            if (!got)
                return propagate(got);
            if (*got == 0) // it has become shorter
                return true;
            if (!is_zero(part.first(*got)))
                if (auto go_on = work(part.first(*got), begin); !go_on || !*go_on)
                    return go_on;
            begin += *got;
        }
    }
    return true;
}

} // namespace

Expected<std::optional<Extents>> data_in(int file, std::uint64_t size, std::uint64_t most) {
    Extents out;
    std::uint64_t total = 0;
    for (std::uint64_t from = 0;;) {
        auto data = next_data(file, from, size);
        if (!data)
            return propagate(data);
        const auto &extent = *data;
        if (!extent)
            return out;
        total += extent->size;
        if (total > most || out.size() == kMostExtents)
            return std::optional<Extents>();
        out.push_back(*extent);
        from = extent->begin + extent->size;
    }
}

Expected<bool> append_copy(int file, const Extents &extents, int to) {
    auto block = block_for(extents);
    bool is_good = true;
    // All of it is written, whatever can be read: the places of the others stay right.
    for (const Extent &extent : extents)
        for (std::uint64_t done = 0; done < extent.size;) {
            const auto part = std::span(block).first(std::min<std::uint64_t>(kBlock, extent.size - done));
            auto got = read_at(file, part, extent.begin + done);
            is_good = is_good && got && *got == part.size();
            if (auto written = write_all(to, part); !written)
                return propagate(written);
            done += part.size();
        }
    return is_good;
}

Expected<bool> is_as_copied(int file, std::uint64_t size, const Copy &copy, int from) {
    struct stat about{};
    if (fstat(file, &about) != 0)
        return std::unexpected(errno_error("examine", "a file"));
    if (static_cast<std::uint64_t>(about.st_size) < size)
        return false;
    auto block = block_for(copy.extents);
    const auto is_same = [&](std::span<const std::byte> piece, std::uint64_t at) -> Expected<bool> {
        const auto part = std::span(block).first(piece.size());
        auto got = read_at(file, part, at);
        if (!got)
            return propagate(got);
        return *got == piece.size() && std::memcmp(part.data(), piece.data(), piece.size()) == 0;
    };
    auto same = for_each_piece(copy, from, is_same);
    if (!same || !*same)
        return same;
    return for_each_gap(copy.extents, size, [file](std::uint64_t begin, std::uint64_t end) {
        return for_each_non_zero(file, begin, end,
                                 [](std::span<std::byte>, std::uint64_t) -> Expected<bool> { return false; });
    });
}

Expected<void> write_copy(int file, std::uint64_t size, const Copy &copy, int from) {
    auto block = block_for(copy.extents);
    const auto write_piece = [&](std::span<const std::byte> piece, std::uint64_t at) -> Expected<bool> {
        const auto part = std::span(block).first(piece.size());
        auto got = read_at(file, part, at);
        if (!got)
            return propagate(got);
        if (*got == piece.size() && std::memcmp(part.data(), piece.data(), piece.size()) == 0)
            return true;
        if (auto written = write_at(file, piece, at); !written)
            return propagate(written);
        return true;
    };
    if (auto written = for_each_piece(copy, from, write_piece); !written)
        return propagate(written);
    const auto clear = [file](std::span<std::byte> piece, std::uint64_t at) -> Expected<bool> {
        std::ranges::fill(piece, std::byte{0});
        if (auto written = write_at(file, piece, at); !written)
            return propagate(written);
        return true;
    };
    auto cleared = for_each_gap(copy.extents, size, [&](std::uint64_t begin, std::uint64_t end) {
        return for_each_non_zero(file, begin, end, clear);
    });
    if (!cleared)
        return propagate(cleared);
    if (ftruncate(file, offset(size)) != 0)
        return std::unexpected(errno_error("set the size of", "a file"));
    return {};
}

Expected<std::string> fingerprint_of(int file, std::uint64_t size) {
    const std::uint64_t edge = std::min(size, kEdge);
    std::vector<std::byte> data(2 * edge);
    const auto first = std::span(data).first(edge);
    const auto last = std::span(data).subspan(edge);
    for (const auto &[part, at] : {std::pair(first, std::uint64_t{0}), std::pair(last, size - edge)}) {
        auto got = read_at(file, part, at);
        if (!got)
            return propagate(got);
        if (*got != part.size())
            return std::string();
    }
    return store::hash_of(data).hex();
}

Expected<void> copy_rest(int file, std::uint64_t begin, int to) {
    struct stat about{};
    if (fstat(file, &about) != 0)
        return std::unexpected(errno_error("examine", "a file"));
    const auto size = static_cast<std::uint64_t>(about.st_size);
    auto copied = for_each_non_zero(file, begin, size,
                                    [&](std::span<std::byte> piece, std::uint64_t at) -> Expected<bool> {
                                        if (auto written = write_at(to, piece, at - begin); !written)
                                            return propagate(written);
                                        return true;
                                    });
    if (!copied)
        return propagate(copied);
    if (ftruncate(to, offset(size - std::min(begin, size))) != 0)
        return std::unexpected(errno_error("set the size of", "a file"));
    return {};
}

} // namespace singularity::host
