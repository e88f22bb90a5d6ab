// SPDX-License-Identifier: GPL-2.0-or-later
#include "image_options.hpp"

#include "common/plain_path.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

namespace singularity::spank {

namespace {

constexpr std::string_view kPlain = "an absolute path without . and .., // and a / at the end";

std::string_view take(std::string_view &text, char separator) {
    const auto out = text.substr(0, text.find(separator));
    text.remove_prefix(out.size() == text.size() ? out.size() : out.size() + 1);
    return out;
}

} // namespace

Expected<std::vector<MountOption>> parse_image_mounts(std::string_view text) {
    std::vector<MountOption> out;
    for (bool more = true; more;) {
        more = text.contains(','); // the last one may be empty, and is refused then
        const auto one = take(text, ',');
        auto rest = one;
        const auto source = take(rest, ':');
        const auto target = take(rest, ':');
        if (!is_plain_path(source) || !is_plain_path(target) || (!rest.empty() && rest != "ro") ||
            one.ends_with(':'))
            return failure("accept --singularity-mount", std::string(one),
                           "expected SRC:DST or SRC:DST:ro, each " + std::string(kPlain) +
                               ", with commas between several: --singularity-mount=/data:/data:ro",
                           EINVAL);
        if (std::ranges::find(out, target, &MountOption::target) != out.end())
            return failure(
                "accept --singularity-mount", std::string(one),
                fmt::format("something else is to be mounted at {} already: each DST once", target), EINVAL);
        if (out.size() == kMostMounts)
            return failure("accept --singularity-mount", std::string(one),
                           fmt::format("there are {} before it, and no more can be: mount a directory that "
                                       "holds several of them",
                                       kMostMounts),
                           EINVAL);
        out.push_back(
            {.source = std::string(source), .target = std::string(target), .read_only = rest == "ro"});
    }
    return out;
}

Expected<void> check_image_option(std::string_view text) {
    if (is_plain_path(text))
        return {};
    return failure("accept --singularity-image", std::string(text),
                   "expected " + std::string(kPlain) +
                       ": the directory of an unpacked image, on every node of the job",
                   EINVAL);
}

Expected<void> check_workdir_option(std::string_view text) {
    if (text == "/" || is_plain_path(text))
        return {};
    return failure("accept --singularity-workdir", std::string(text),
                   "expected " + std::string(kPlain) + ": a directory as it is named in the image", EINVAL);
}

Expected<void> check_root_option(std::string_view text) {
    if (text == kRootWritable || text == kRootReadOnly)
        return {};
    return failure(
        "accept --singularity-root", std::string(text),
        fmt::format("expected {} or {}; without it, it is as the site says", kRootWritable, kRootReadOnly),
        EINVAL);
}

} // namespace singularity::spank
