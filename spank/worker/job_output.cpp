// SPDX-License-Identifier: GPL-2.0-or-later
#include "job_output.hpp"

#include "agent/output/spool.hpp"
#include "common/unique_fd.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::worker {

namespace {

constexpr std::size_t kBlock = 65536; // as agent/output/spool.cpp has it

std::string image_name(std::size_t rank) { return fmt::format("output.{}", rank); }

// The first byte that is there; `length` if there is none.
Expected<std::uint64_t> data_from(const UniqueFd &file, std::uint64_t length, const std::string &name) {
    const auto at = lseek(file.get(), 0, SEEK_DATA);
    if (at < 0 && errno != ENXIO)
        return std::unexpected(errno_error("look into", name));
    return at < 0 ? length : std::min<std::uint64_t>(length, static_cast<std::uint64_t>(at));
}

// take: gets each piece of what lies between the two.
template <class Take>
Expected<void> read_range(const UniqueFd &file, std::uint64_t from, std::uint64_t to, const std::string &name,
                          Take take) {
    std::vector<std::byte> block(kBlock);
    while (from < to) {
        const auto got = pread(file.get(), block.data(), std::min<std::uint64_t>(block.size(), to - from),
                               static_cast<off_t>(from));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return std::unexpected(errno_error("read", name, got == 0 ? EIO : errno));
        if (auto taken = take(std::span(block).first(static_cast<std::size_t>(got)), from); !taken)
            return taken;
        from += static_cast<std::uint64_t>(got);
    }
    return {};
}

Expected<void> write_at(const UniqueFd &file, std::span<const std::byte> bytes, std::uint64_t at,
                        const std::string &name) {
    while (!bytes.empty()) {
        const auto done = pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return std::unexpected(errno_error("write", name));
        bytes = bytes.subspan(static_cast<std::size_t>(done));
        at += static_cast<std::uint64_t>(done);
    }
    return {};
}

Expected<UniqueFd> new_file(const std::filesystem::path &path) {
    return open_file(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
}

} // namespace

Expected<void> store_outputs(const std::filesystem::path &directory, std::span<const std::uint64_t> lengths,
                             store::Writer &writer, const std::string &job) {
    for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
        const auto path = agent::rank_file(directory, static_cast<std::uint32_t>(rank));
        auto file = open_file(path, O_RDONLY | O_NOFOLLOW);
        if (!file)
            return propagate(file);
        auto image = writer.image({.node = job, .device = {}, .name = image_name(rank)});
        if (!image)
            return propagate(image);
        auto from = data_from(*file, lengths[rank], path.native());
        if (!from)
            return propagate(from);
        if (auto skipped = image->append_zeros(*from); !skipped)
            return skipped;
        if (auto kept = read_range(
                *file, *from, lengths[rank], path.native(),
                [&](std::span<const std::byte> bytes, std::uint64_t /*at*/) { return image->append(bytes); });
            !kept)
            return kept;
        if (auto finished = image->finish(); !finished)
            return finished;
    }
    return {};
}

Expected<void> load_outputs(const store::Checkpoint &checkpoint, const std::filesystem::path &directory) {
    const auto &manifest = checkpoint.manifest();
    const auto found = std::ranges::find(manifest.nodes, manifest.job, &store::VirtualNode::name);
    const auto count = found == manifest.nodes.end() ? 0 : found->images.size();
    for (std::size_t rank = 0; rank < count; ++rank) {
        auto image = checkpoint.image({.node = manifest.job, .device = {}, .name = image_name(rank)});
        if (!image)
            return propagate(image);
        const auto path = agent::rank_file(directory, static_cast<std::uint32_t>(rank));
        auto file = new_file(path);
        if (!file)
            return propagate(file);
        std::vector<std::byte> block(kBlock);
        bool begun = false;
        for (std::uint64_t at = 0; at < image->size();) {
            auto got = image->read(block);
            if (!got)
                return propagate(got);
            const auto bytes = std::span(block).first(*got);
            begun = begun || std::ranges::any_of(bytes, [](std::byte one) { return one != std::byte{0}; });
            if (begun)
                if (auto written = write_at(*file, bytes, at, path.native()); !written)
                    return written;
            at += bytes.size();
        }
        if (ftruncate(file->get(), static_cast<off_t>(image->size())) != 0)
            return std::unexpected(errno_error("write", path.native()));
    }
    return {};
}

Expected<void> copy_with_holes(const std::filesystem::path &from, const std::filesystem::path &to) {
    auto source = open_file(from, O_RDONLY | O_NOFOLLOW);
    if (!source)
        return propagate(source);
    auto copy = new_file(to);
    if (!copy)
        return propagate(copy);
    struct stat about{};
    if (fstat(source->get(), &about) != 0)
        return std::unexpected(errno_error("look at", from.native()));
    const auto length = static_cast<std::uint64_t>(about.st_size);
    auto begin = data_from(*source, length, from.native());
    if (!begin)
        return propagate(begin);
    if (auto copied = read_range(*source, *begin, length, from.native(),
                                 [&](std::span<const std::byte> bytes, std::uint64_t at) {
                                     return write_at(*copy, bytes, at, to.native());
                                 });
        !copied)
        return copied;
    if (ftruncate(copy->get(), static_cast<off_t>(length)) != 0)
        return std::unexpected(errno_error("write", to.native()));
    return {};
}

} // namespace singularity::worker
