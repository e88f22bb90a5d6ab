// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/proc.hpp"

#include "common/unique_fd.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace singularity::proc {

namespace {

// The part up to the separator, which is taken off the text together with it.
std::string_view take(std::string_view &text, char separator) {
    const auto end = std::min(text.find(separator), text.size());
    const auto part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return part;
}

std::vector<std::string_view> words(std::string_view text) {
    std::vector<std::string_view> out;
    while (!text.empty())
        if (const auto word = take(text, ' '); !word.empty())
            out.push_back(word);
    return out;
}

// \040 and the like stand for bytes that would end a column.
std::string unescaped(std::string_view text) {
    constexpr std::size_t kDigits = 3;
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        unsigned char code = 0;
        const auto *const digits = text.data() + i + 1;
        if (text[i] == '\\' && i + kDigits < text.size() &&
            std::from_chars(digits, digits + kDigits, code, 8).ptr == digits + kDigits) {
            plain += static_cast<char>(code);
            i += kDigits;
        } else {
            plain += text[i];
        }
    }
    return plain;
}

template <class T>
std::optional<T> number(std::string_view text) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size())
        return std::nullopt;
    return value;
}

// "36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw,errors=continue"
std::optional<Mount> mount_of(std::string_view line) {
    constexpr std::string_view kDash = " - ";
    const auto dash = line.find(kDash);
    if (dash == std::string_view::npos)
        return std::nullopt;
    const auto front = words(line.substr(0, dash));
    const auto back = words(line.substr(dash + kDash.size()));
    if (front.size() < 6 || back.size() < 2)
        return std::nullopt;
    auto device = front[2];
    const auto id = number<std::uint64_t>(front[0]);
    const auto major_number = number<unsigned>(take(device, ':'));
    const auto minor_number = number<unsigned>(device);
    if (!id || !major_number || !minor_number)
        return std::nullopt;
    return Mount{.id = *id,
                 .device = makedev(*major_number, *minor_number),
                 .root = unescaped(front[3]),
                 .point = unescaped(front[4]),
                 .type = unescaped(back[0]),
                 .source = unescaped(back[1]),
                 .options = back.size() > 2 ? unescaped(back[2]) : std::string()};
}

} // namespace

Expected<std::string> read(const std::string &path, std::size_t largest) {
    constexpr std::size_t kStep = 16384;
    auto file = open_file(path, O_RDONLY);
    if (!file)
        return propagate(file);
    std::string text;
    for (;;) {
        const auto had = text.size();
        text.resize(had + kStep);
        const auto got = ::read(file->get(), text.data() + had, kStep);
        if (got < 0 && errno != EINTR)
            return std::unexpected(errno_error("read", path));
        text.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        if (got == 0)
            return text;
        if (text.size() > largest)
            return failure("read", path, fmt::format("it is longer than {} bytes", largest), EFBIG);
    }
}

std::vector<Mount> mounts(std::string_view mountinfo) {
    std::vector<Mount> out;
    while (!mountinfo.empty())
        if (auto mount = mount_of(take(mountinfo, '\n')))
            out.push_back(std::move(*mount));
    return out;
}

std::vector<std::string_view> stat_columns(std::string_view stat) {
    const auto name_end = stat.rfind(')');
    if (name_end == std::string_view::npos)
        return {};
    stat.remove_prefix(name_end + 1);
    return words(take(stat, '\n'));
}

std::string_view status_line(std::string_view status, std::string_view label) {
    while (!status.empty()) {
        auto line = take(status, '\n');
        if (!line.starts_with(label) || line.size() == label.size() || line[label.size()] != ':')
            continue;
        line.remove_prefix(label.size() + 1);
        return line.substr(std::min(line.find_first_not_of("\t "), line.size()));
    }
    return {};
}

} // namespace singularity::proc
