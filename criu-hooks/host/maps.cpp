// SPDX-License-Identifier: GPL-2.0-or-later
#include "maps.hpp"

#include "common/proc.hpp"
#include "file.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <fmt/format.h>

namespace singularity::host {
namespace {

constexpr std::size_t kLargestMaps = std::size_t{256} << 20U;
constexpr int kHex = 16;

// "55d0-55d5 r-xp 00002000 08:02 173521      /usr/bin/dbus-daemon"
bool parse(std::string_view line, Mapping &mapping) {
    const char *const begin = line.data();
    const char *const end = begin + line.size();
    auto got = std::from_chars(begin, end, mapping.begin, kHex);
    if (got.ec != std::errc() || got.ptr == end || *got.ptr != '-')
        return false;
    got = std::from_chars(got.ptr + 1, end, mapping.end, kHex);
    if (got.ec != std::errc() || end - got.ptr < 5)
        return false;
    mapping.executable = got.ptr[3] == 'x';
    mapping.shared = got.ptr[4] == 's';
    std::string_view rest(got.ptr, static_cast<std::size_t>(end - got.ptr));
    for (int column = 0; column < 4; ++column) { // rights, offset, device, inode
        const std::size_t next = rest.find(' ', 1);
        rest = next == std::string_view::npos ? std::string_view() : rest.substr(next);
    }
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    mapping.name = rest;
    return true;
}

} // namespace

Expected<std::vector<Mapping>> mappings_of(pid_t pid) {
    const std::string path = fmt::format("/proc/{}/maps", pid);
    auto text = proc::read(path, kLargestMaps);
    if (!text)
        return propagate(text);
    std::vector<Mapping> mappings;
    std::string_view rest = *text;
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        if (!parse(rest.substr(0, end), mappings.emplace_back()))
            return failure("understand", path, "its lines are not as proc_pid_maps(5) has them");
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return mappings;
}

} // namespace singularity::host
