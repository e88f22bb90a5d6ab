// SPDX-License-Identifier: GPL-2.0-or-later
#include "notice.hpp"

#include "common/replace_file.hpp"
#include "common/trusted_file.hpp"

#include <cerrno>
#include <string>

namespace singularity::local {

namespace {

constexpr mode_t kForRoot = 0600;                          // slurmstepd reads it
constexpr std::size_t kMostBytes = std::size_t{64} << 10U; // 9 paths

} // namespace

// Each with a zero behind it: paths hold any other character.
Expected<void> leave_notice(const std::filesystem::path &file, const Notice &notice) {
    std::string text(notice.base.native() + '\0');
    for (const auto &path : notice.paths)
        text += path.native() + '\0';
    return replace_file(file, text, kForRoot, Durable::kNo);
}

Expected<std::optional<Notice>> read_notice(const std::filesystem::path &file) {
    const auto known = read_trusted_file(file, kMostBytes);
    if (!known && known.error().code == ENOENT)
        return std::nullopt;
    if (!known)
        return std::unexpected(known.error());
    const auto &text = *known;
    if (text.empty() || text.back() != '\0')
        return failure("read", file.native(), "it has no end: start singularityd again", EPROTO);
    Notice out;
    for (std::size_t at = 0; at < text.size();) {
        const auto end = text.find('\0', at);
        const std::filesystem::path path = text.substr(at, end - at);
        if (!path.is_absolute())
            return failure("read", file.native(), "it has no absolute path: start singularityd again",
                           EPROTO);
        if (at == 0)
            out.base = path;
        else
            out.paths.push_back(path);
        at = end + 1;
    }
    return out;
}

} // namespace singularity::local
