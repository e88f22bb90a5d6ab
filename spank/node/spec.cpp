// SPDX-License-Identifier: GPL-2.0-or-later
#include "spec.hpp"

#include "common/exec.hpp"
#include "common/plain_path.hpp"
#include "common/text.hpp"
#include "network.hpp"
#include "packet.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace singularity::node {

namespace {

constexpr std::size_t kNameLimit = 64;     // as of a hostname, which it becomes by default
constexpr std::size_t kGroupLimit = 65536; // NGROUPS_MAX
constexpr std::size_t kSocketLimit = 64;
constexpr std::size_t kCommandLimit = 64;
constexpr std::size_t kLineLimit = 4096;
constexpr std::size_t kGroupLines = 64;

// What every node has there, whatever is in its image.
constexpr std::array<std::string_view, 4> kOwnPlaces{"/proc", "/dev", "/sys", kRunInNode};
constexpr std::array<std::string_view, 4> kOwnFiles{"/etc/hosts", "/etc/resolv.conf", "/etc/passwd",
                                                    "/etc/group"};
constexpr std::array<std::string_view, 2> kMemoryPlaces{"/tmp", "/var/tmp"};

bool overlap(std::string_view one, std::string_view other) { return is_in(one, other) || is_in(other, one); }

bool is_line(std::string_view text) {
    return text.size() <= kLineLimit && text.find('\n') == std::string_view::npos &&
           text.find('\0') == std::string_view::npos;
}

bool is_letter_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Letters, digits, dots and dashes, beginning and ending with a letter or digit: good for a file and for
// hostname(7).
bool is_name(std::string_view text) {
    return !text.empty() && text.size() <= kNameLimit && is_letter_or_digit(text.front()) &&
           is_letter_or_digit(text.back()) &&
           std::ranges::all_of(text, [](char c) { return is_letter_or_digit(c) || c == '.' || c == '-'; });
}

} // namespace

std::string device_socket(std::uint32_t device) { return fmt::format("{}.sock", device); }

const LocalDirectory *layer_of(const Spec &spec) {
    const auto found = std::ranges::find_if(spec.local, &LocalDirectory::is_layer);
    return found == spec.local.end() ? nullptr : &*found;
}

std::unexpected<Error> refuse_mount(const ImageMount &one, std::string why) {
    return failure("mount in the image", quote(fmt::format("{}:{}", one.source, one.target)), std::move(why),
                   EINVAL);
}

std::span<const std::string_view> own_places() { return kOwnPlaces; }

Expected<void> check_image(const Image &image) {
    const auto refuse = [&](std::string why) {
        return failure("use the image", quote(image.directory), std::move(why), EINVAL);
    };
    if (!is_plain_path(image.directory))
        return refuse(
            "expected the absolute path of a directory or a file, without . and .., // and a / at the end");
    if (!is_line(image.account) || image.groups.size() > kGroupLines ||
        !std::ranges::all_of(image.groups, is_line))
        return refuse("its user's account is no line of passwd(5)");
    if (image.root > static_cast<std::uint32_t>(RootIs::read_only))
        return refuse(fmt::format("its root is {}, and no such kind is known", image.root));
    if (image.mounts.size() > kImageMountLimit)
        return refuse(fmt::format("{} mounts; at most {}", image.mounts.size(), kImageMountLimit));
    for (const auto &one : image.mounts) {
        if (!is_plain_path(one.source) || !is_plain_path(one.target))
            return refuse_mount(one, "expected two absolute paths without . and .., // and a / at the end");
        if (std::cmp_greater(std::ranges::count(one.target, '/'), kImageDepthLimit))
            return refuse_mount(one, fmt::format("it is more than {} directories deep: choose another place "
                                                 "in the image",
                                                 kImageDepthLimit));
    }
    return {};
}

Expected<void> check_image(const Spec &spec) {
    const auto &image = spec.image;
    if (!image.any()) {
        if (!image.mounts.empty() || !spec.shown.empty())
            return failure("make the virtual node", quote(spec.name),
                           "only an image has mounts of its own: name one with --singularity-image", EINVAL);
        return {};
    }
    if (auto checked = check_image(image); !checked)
        return checked;
    for (const auto &one : spec.shown)
        if (!is_plain_path(one))
            return failure("show in an image", quote(one), "expected an absolute path without . and ..",
                           EINVAL);
    std::vector<std::string_view> taken(spec.shown.begin(), spec.shown.end());
    taken.insert(taken.end(), kOwnPlaces.begin(), kOwnPlaces.end());
    taken.insert(taken.end(), kOwnFiles.begin(), kOwnFiles.end());
    taken.insert(taken.end(), spec.commands.begin(), spec.commands.end());
    for (const auto &one : spec.local)
        if (!one.is_layer())
            taken.emplace_back(one.path);
    for (const auto &one : image.mounts) {
        for (const auto other : taken)
            if (overlap(one.target, other))
                return refuse_mount(one,
                                    fmt::format("a job has {} mounted there already: choose another place "
                                                "in the image",
                                                quote(other)));
        for (const auto other : kMemoryPlaces)
            if (one.target != other && overlap(one.target, other))
                return refuse_mount(one,
                                    fmt::format("it is in or above {}, which is in memory: choose another "
                                                "place in the image, or {} itself",
                                                other, other));
        taken.emplace_back(one.target);
    }
    return {};
}

std::vector<std::string> memory_directories(const Spec &spec) {
    std::vector<std::string> out;
    if (!spec.image.any())
        return out;
    const auto covers = [](std::string_view place) {
        return [place](std::string_view other) { return overlap(place, other); };
    };
    for (const auto place : kMemoryPlaces)
        if (std::ranges::none_of(spec.shown, covers(place)) &&
            std::ranges::none_of(
                spec.local, [&](const auto &one) { return !one.is_layer() && overlap(place, one.path); }) &&
            std::ranges::none_of(spec.image.mounts, covers(place), &ImageMount::target))
            out.emplace_back(place);
    return out;
}

std::vector<std::string> mount_points(const Spec &spec) {
    std::vector<std::string> out(kOwnFiles.begin(), kOwnFiles.end());
    out.insert(out.end(), kOwnPlaces.begin(), kOwnPlaces.end());
    for (auto &one : memory_directories(spec))
        out.push_back(std::move(one));
    out.insert(out.end(), spec.shown.begin(), spec.shown.end());
    out.insert(out.end(), spec.commands.begin(), spec.commands.end());
    for (const auto &one : spec.local)
        if (!one.is_layer())
            out.push_back(one.path);
    for (const auto &one : spec.image.mounts)
        out.push_back(one.target);
    return out;
}

Expected<void> check_spec(const Spec &spec) {
    const auto refuse = [&](std::string why) {
        return failure("make the virtual node", quote(spec.name), std::move(why), EINVAL);
    };
    if (!is_name(spec.name))
        return refuse(fmt::format("a name has 1 to {} letters, digits, '.' and '-'", kNameLimit));
    if (!is_name(spec.hostname))
        return refuse(fmt::format("the hostname {} has not 1 to {} letters, digits, '.' and '-'",
                                  quote(spec.hostname), kNameLimit));
    if (auto address = parse_address(spec.address); !address)
        return propagate(address);
    if (spec.groups.size() > kGroupLimit)
        return refuse(fmt::format("{} supplementary groups; at most {}", spec.groups.size(), kGroupLimit));
    if (spec.sockets.size() > kSocketLimit)
        return refuse(fmt::format("{} sockets; at most {}", spec.sockets.size(), kSocketLimit));
    if (spec.devices > kDeviceLimit)
        return refuse(fmt::format("{} devices; at most {}", spec.devices, kDeviceLimit));
    if (!spec.job.empty() && !is_name(spec.job))
        return refuse(fmt::format("{} is no name of a job", quote(spec.job)));
    if (spec.neighbours.size() > kNeighbourLimit)
        return refuse(fmt::format("{} neighbours; at most {}", spec.neighbours.size(), kNeighbourLimit));
    for (const auto &neighbour : spec.neighbours)
        if (!is_name(neighbour.name) || !parse_address(neighbour.address + "/32"))
            return refuse(fmt::format("its neighbour {} at {} is none", quote(neighbour.name),
                                      quote(neighbour.address)));
    if (spec.commands.size() > kCommandLimit)
        return refuse(fmt::format("{} commands; at most {}", spec.commands.size(), kCommandLimit));
    for (const auto &command : spec.commands)
        if (!command.starts_with('/'))
            return refuse(fmt::format("its command {} is no absolute path", quote(command)));
    if (spec.local.size() > kLocalLimit)
        return refuse(fmt::format("{} local directories; at most {}", spec.local.size(), kLocalLimit));
    for (const auto &one : spec.local)
        if (!one.path.starts_with('/') || !one.source.starts_with('/'))
            return refuse(fmt::format("its local directory {} is no absolute path", quote(one.path)));
        else if (one.is_layer() && (!spec.image.any() || &one != &spec.local.back()))
            return refuse("only an image has a writable layer, after all local directories");
    if (auto checked = check_image(spec); !checked)
        return checked;
    for (const auto &entry : spec.environment)
        if (entry.find('=') == std::string::npos || entry.front() == '=')
            return refuse(fmt::format("{} in its environment is not NAME=VALUE", quote(entry)));
    if (const std::size_t size = size_for_exec(spec.environment); size > kProgramLimit)
        return refuse(
            fmt::format("its environment takes {} bytes, and Linux starts nothing with more than {} "
                        "(execve(2)): unset variables",
                        size, kProgramLimit));
    return {};
}

} // namespace singularity::node
