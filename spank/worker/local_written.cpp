// SPDX-License-Identifier: GPL-2.0-or-later
#include "local_written.hpp"

#include "common/trusted_file.hpp"
#include "common/write_all.hpp"

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::worker {

namespace {

constexpr std::size_t kLargestTable = std::size_t{64} << 20U; // bytes
constexpr mode_t kRootsAlone = 0600;

// Up to the next zero byte, which goes as well. False: there is none.
bool take_word(std::string_view &text, std::string_view &word) {
    const auto end = text.find('\0');
    if (end == std::string_view::npos)
        return false;
    word = text.substr(0, end);
    text.remove_prefix(end + 1);
    return true;
}

} // namespace

void add_below(LocalFiles &files, const std::string &node, std::uint32_t number, const std::string &directory,
               const std::vector<std::string> &paths) {
    for (const auto &path : paths)
        if (path.starts_with(directory + "/"))
            files.insert({.node = node, .directory = number, .name = "." + path.substr(directory.size())});
}

Expected<LocalFiles> read_local_files(int directory, const char *name) {
    LocalFiles out;
    const UniqueFd file(openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file && errno == ENOENT)
        return out;
    if (!file)
        return std::unexpected(errno_error("open", name));
    auto text = read_to_end(file, name, kLargestTable);
    if (!text)
        return propagate(text);
    std::string_view rest(*text);
    while (!rest.empty()) {
        std::string_view node;
        std::string_view number;
        std::string_view path;
        std::uint32_t in = 0;
        if (!take_word(rest, node) || !take_word(rest, number) || !take_word(rest, path) ||
            std::from_chars(number.begin(), number.end(), in).ptr != number.end() || number.empty() ||
            !path.starts_with("./"))
            return failure("read", name, "it is no table of files: it was changed or is damaged", EPROTO);
        out.insert({.node = std::string(node), .directory = in, .name = std::string(path)});
    }
    return out;
}

Expected<void> write_local_files(int directory, const char *name, const LocalFiles &files) {
    std::string text;
    for (const auto &one : files) {
        text += one.node + '\0';
        text += fmt::format("{}", one.directory) + '\0';
        text += one.name + '\0';
    }
    if (text.size() > kLargestTable)
        return failure("write", name,
                       fmt::format("the names of files that are open for writing in local directories have "
                                   "more than {} bytes together",
                                   kLargestTable),
                       EOPNOTSUPP);
    const auto next = fmt::format("{}.new", name);
    UniqueFd file(
        openat(directory, next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kRootsAlone));
    if (!file)
        return std::unexpected(errno_error("create", next));
    if (auto written = write_all(file.get(), text, name); !written)
        return written;
    if (auto closed = file.close(); !closed)
        return closed;
    if (renameat(directory, next.c_str(), directory, name) != 0)
        return std::unexpected(errno_error("rename", next));
    return {};
}

Expected<UniqueFd> names_for_tar(const LocalFiles &mine, const LocalFiles &others, std::uint32_t directory) {
    std::set<std::string_view> of_others;
    for (const auto &other : others)
        if (other.directory == directory)
            of_others.insert(other.name);
    std::string text;
    for (const auto &one : mine)
        if (one.directory == directory && !of_others.contains(one.name))
            text += one.name + '\0';
    if (text.empty())
        return UniqueFd();
    // tar opens it anew, as its user.
    UniqueFd out(memfd_create("names", MFD_CLOEXEC));
    if (!out || fchmod(out.get(), 0444) != 0)
        return std::unexpected(errno_error("make a file for", "names of files"));
    if (auto written = write_all(out.get(), text, "names of files"); !written)
        return propagate(written);
    return out;
}

} // namespace singularity::worker
