// SPDX-License-Identifier: GPL-2.0-or-later
#include "outside.hpp"

#include "common/proc.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "file.hpp"
#include "proc.hpp"
#include "session.hpp"

#include <algorithm>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::host {
namespace {

constexpr std::size_t kLargestTable = std::size_t{1} << 20U;

bool is_plain(std::string_view text) {
    return !text.empty() &&
           std::ranges::none_of(text, [](char c) { return c == '\t' || c == '\n' || c == '\0'; });
}

} // namespace

Expected<Resource> resource_of(int fd) {
    const std::string name = fmt::format("/proc/self/fd/{}", fd);
    auto link = read_link(name);
    if (!link)
        return propagate(link);
    struct stat status{};
    if (fstat(fd, &status) != 0)
        return std::unexpected(errno_error("examine", name));
    if (link->starts_with("pipe:["))
        return Resource{*link, ""};
    if (S_ISSOCK(status.st_mode))
        return Resource{*link, fmt::format("unix[{}]", status.st_ino)};
    if (S_ISCHR(status.st_mode) && isatty(fd) == 1) {
        const std::string tty = fmt::format("tty[{:x}:{:x}]", status.st_rdev, status.st_dev);
        return Resource{tty, tty};
    }
    auto info = proc::read(fmt::format("/proc/self/fdinfo/{}", fd));
    if (!info)
        return propagate(info);
    const auto mount = number_after(*info, "mnt_id:");
    if (!mount)
        return failure("read", name, "its fdinfo names no mount");
    const std::string file = fmt::format("file[{:x}:{:x}]", *mount, status.st_ino);
    return Resource{file, file};
}

Expected<void> write_table(int images, const DescriptorTable &table) {
    std::string text;
    for (const auto &[key, resource] : table) {
        if (!is_plain(key) || !is_plain(resource))
            return failure("save", "the descriptor " + quote(key),
                           "tabs and line ends cannot be in its name");
        text.append(key).append(1, '\t').append(resource).append(1, '\n');
    }
    return write_file_at(images, kDescriptorTable, text);
}

Expected<DescriptorTable> read_table(int images) {
    auto text = read_file_at(images, kDescriptorTable, kLargestTable);
    if (!text)
        return propagate(text);
    DescriptorTable table;
    std::string_view rest = *text;
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        const std::string_view line = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        const std::size_t tab = line.find('\t');
        if (tab == std::string_view::npos)
            return failure("read", "the image's table of descriptors", "no tab in line " + quote(line));
        table.emplace(line.substr(0, tab), line.substr(tab + 1));
    }
    return table;
}

} // namespace singularity::host
