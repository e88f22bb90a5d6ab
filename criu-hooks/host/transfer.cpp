// SPDX-License-Identifier: GPL-2.0-or-later
#include "criu-hooks/host/transfer.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "file.hpp"
#include "pages.hpp"
#include "session.hpp"
#include "written_files.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::host {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 20U;

// Of this dump and of no use to a restore.
constexpr std::array<std::string_view, 3> kLeftOut{kLog, kComplaints, "stats-dump"};

Expected<void> save_file(int images, const std::string &name, const std::vector<std::uint64_t> &cuts,
                         store::ImageWriter &image, std::span<std::byte> buffer) {
    UniqueFd file(openat(images, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file)
        return std::unexpected(errno_error("open", name));
    std::uint64_t offset = 0;
    auto cut = cuts.begin();
    for (;;) {
        if (cut != cuts.end() && *cut == offset) {
            if (auto begun = image.boundary(); !begun)
                return begun;
            ++cut;
        }
        const std::uint64_t wanted =
            cut == cuts.end() ? buffer.size() : std::min<std::uint64_t>(buffer.size(), *cut - offset);
        const ssize_t got = read(file.get(), buffer.data(), static_cast<std::size_t>(wanted));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return std::unexpected(errno_error("read", name));
        if (got == 0)
            break;
        if (auto appended = image.append(buffer.first(static_cast<std::size_t>(got))); !appended)
            return appended;
        offset += static_cast<std::uint64_t>(got);
    }
    if (cut != cuts.end())
        return failure("save", name, fmt::format("its map speaks of {} bytes and it has {}", *cut, offset));
    return image.finish();
}

// Names come from a manifest: data until they have been looked at.
bool is_file_name(std::string_view name) {
    constexpr std::size_t kLongest = 255;
    return !name.empty() && name.size() <= kLongest && name.front() != '.' &&
           std::ranges::all_of(name, [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '-' || c == '_';
           });
}

bool is_zero(std::span<const std::byte> data) {
    return std::ranges::all_of(data, [](std::byte each) { return each == std::byte{0}; });
}

Expected<void> load_file(store::ImageReader &image, const std::string &name, int images,
                         std::span<std::byte> buffer) {
    UniqueFd file(openat(images, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file)
        return std::unexpected(errno_error("create", name));
    std::uint64_t offset = 0;
    for (;;) {
        auto got = image.read(buffer);
        if (!got)
            return propagate(got);
        if (*got == 0)
            break;
        const auto part = buffer.first(*got);
        offset += part.size();
        // What is zero stays a hole: on a tmpfs it then takes no memory.
        if (is_zero(part)) {
            if (lseek(file.get(), static_cast<off_t>(offset), SEEK_SET) < 0)
                return std::unexpected(errno_error("write", name));
        } else if (auto written = write_all(file.get(), part); !written) {
            written.error().on = name;
            return written;
        }
    }
    if (ftruncate(file.get(), static_cast<off_t>(offset)) != 0)
        return std::unexpected(errno_error("write", name));
    return file.close();
}

} // namespace

Expected<void> save(int images, store::Writer &writer, const std::string &node, const Cuts &of_files) {
    auto names = names_in(images);
    if (!names)
        return propagate(names);
    auto cuts = page_cuts(images);
    if (!cuts)
        return propagate(cuts);
    cuts->insert(of_files.begin(), of_files.end());
    std::vector<std::byte> buffer(kBuffer);
    for (const std::string &name : *names) {
        if (std::ranges::find(kLeftOut, name) != kLeftOut.end())
            continue;
        auto image = writer.image({.node = node, .device = "", .name = name});
        if (!image)
            return propagate(image);
        if (auto saved = save_file(images, name, (*cuts)[name], *image, buffer); !saved)
            return saved;
    }
    return {};
}

Expected<void> load(const store::Checkpoint &checkpoint, const std::string &node, int images,
                    std::uint64_t largest) {
    const auto &nodes = checkpoint.manifest().nodes;
    const auto wanted = std::ranges::find(nodes, node, &store::VirtualNode::name);
    if (wanted == nodes.end())
        return failure("load", "the virtual node " + quote(node),
                       "checkpoint " + checkpoint.manifest().id + " has none of that name");
    std::uint64_t total = 0;
    for (const store::Image &each : wanted->images) {
        if (!is_file_name(each.name))
            return failure("load", "the image " + quote(each.name), "that is no name of an image file");
        const std::uint64_t size = each.size();
        if (size > largest - total)
            return failure("load", "the virtual node " + quote(node),
                           fmt::format("its images take more than {} bytes", largest), EFBIG);
        total += size;
    }
    std::vector<std::byte> buffer(kBuffer);
    for (const store::Image &each : wanted->images) {
        auto image = checkpoint.image({.node = node, .device = "", .name = each.name});
        if (!image)
            return propagate(image);
        if (auto loaded = load_file(*image, each.name, images, buffer); !loaded)
            return loaded;
    }
    return {};
}

namespace {

// Nothing: that node has none.
Expected<bool> load_table(const store::Checkpoint &checkpoint, const store::VirtualNode &node,
                          std::string_view table, const std::string &name, int images) {
    constexpr std::uint64_t kLargestTable = std::uint64_t{256} << 20U;
    const auto found = std::ranges::find(node.images, table, &store::Image::name);
    if (found == node.images.end())
        return false;
    if (found->size() > kLargestTable)
        return failure("load", "the image " + quote(found->name),
                       fmt::format("it has more than {} bytes", kLargestTable), EFBIG);
    auto image = checkpoint.image({.node = node.name, .device = "", .name = found->name});
    if (!image)
        return propagate(image);
    std::vector<std::byte> buffer(kBuffer);
    if (auto loaded = load_file(*image, name, images, buffer); !loaded)
        return propagate(loaded);
    return true;
}

} // namespace

Expected<void> load_of_others(const store::Checkpoint &checkpoint, const std::string &node, int images) {
    std::size_t count = 0;
    bool is_later = false;
    for (const auto &other : checkpoint.manifest().nodes) {
        is_later = is_later || other.name == node;
        if (other.name == node)
            continue;
        const auto name = fmt::format("{}{}", is_later ? kLaterTables : kEarlierTables, count);
        auto loaded = load_table(checkpoint, other, kFilesTable, name, images);
        if (!loaded)
            return propagate(loaded);
        count += *loaded ? 1 : 0;
    }
    return {};
}

Expected<std::vector<std::string>> load_tables_of_others(const store::Checkpoint &checkpoint,
                                                         const std::string &node, int images) {
    std::vector<std::string> out;
    for (const auto &other : checkpoint.manifest().nodes) {
        if (other.name == node)
            continue;
        const auto name = fmt::format("files-of-others.{}", out.size());
        auto loaded = load_table(checkpoint, other, "files.img", name, images);
        if (!loaded)
            return propagate(loaded);
        if (*loaded)
            out.push_back(name);
    }
    return out;
}

} // namespace singularity::host
