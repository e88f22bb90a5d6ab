// SPDX-License-Identifier: GPL-2.0-or-later
// What keeps users from each other, and from what is root's: keys, the way to the configuration, Yama.
#include "common/proc.hpp"
#include "gather.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <system_error>

#include <fmt/format.h>

namespace singularity::doctor {

namespace {

constexpr const char *kMungeKey = "/etc/munge/munge.key";
constexpr const char *kYama = "/proc/sys/kernel/yama/ptrace_scope";
// Beside slurm.conf: of auth/slurm, of auth/jwt, and of slurmdbd, whose password for its database is there.
constexpr std::array kSlurmKeys{"slurm.key", "jwt_hs256.key", "slurmdbd.conf"};

} // namespace

Fact<std::vector<FileFacts>> look_at_way(const std::filesystem::path &file) {
    auto way = follow(file);
    if (!way)
        return not_seen(way.error());
    // The file is judged when it is read.
    if (!way->empty())
        way->pop_back();
    return *std::move(way);
}

Fact<std::vector<FileFacts>> look_at_keys(const std::filesystem::path &slurm_conf) {
    std::vector<std::filesystem::path> paths{kMungeKey};
    for (const auto *const name : kSlurmKeys)
        paths.push_back(slurm_conf.parent_path() / name);
    std::vector<FileFacts> out;
    for (const auto &path : paths) {
        auto found = look_at_file(path);
        if (!found)
            return not_seen(found.error());
        if (found->kind != FileKind::kMissing)
            out.push_back(*std::move(found));
    }
    return out;
}

Fact<PtraceScope> look_at_ptrace_scope() {
    const auto text = proc::read(kYama);
    if (!text && text.error().code == ENOENT)
        return PtraceScope{};
    if (!text)
        return not_seen(text.error());
    std::uint64_t value = 0;
    const auto *const end = text->data() + text->size();
    if (std::from_chars(text->data(), end, value).ec != std::errc())
        return not_seen(Unseen::kFailed, fmt::format("{} is no number", kYama));
    return PtraceScope{.value = value};
}

} // namespace singularity::doctor
