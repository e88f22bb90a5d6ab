// SPDX-License-Identifier: GPL-2.0-or-later
// What is wrong with plugstack.conf, and with the SPANK plugin that it names.
#include "checks.hpp"
#include "slurm_text.hpp"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

namespace singularity::doctor {

namespace {

Verdict plugstack_line(const Plugstack &plugstack) {
    if (plugstack.line)
        return std::nullopt;
    return Problem{plugstack.present
                       ? fmt::format("no line of {} names spank_singularity.so", plugstack.file.native())
                       : fmt::format("there is no {}", plugstack.file.native()),
                   "--singularity-elastic is an unknown option",
                   fmt::format("write required spank_singularity.so in {}", plugstack.file.native())};
}

std::string place(const PlugstackLine &line) {
    return fmt::format("line {} of {}", line.number, line.file.native());
}

Verdict plugstack_required(const Plugstack &plugstack) {
    if (!plugstack.line || plugstack.line->required)
        return std::nullopt;
    return Problem{fmt::format("{} says optional", place(*plugstack.line)),
                   "a host that cannot load the plugin runs elastic jobs as if they were ordinary ones",
                   fmt::format("write required {} in {}", plugstack.line->plugin, place(*plugstack.line))};
}

Verdict plugin_file(const Plugstack &plugstack) {
    if (!plugstack.line || plugstack.plugin.kind == FileKind::kRegular)
        return std::nullopt;
    return Problem{fmt::format("{} means {}, which is {}", place(*plugstack.line),
                               plugstack.plugin.path.native(),
                               plugstack.plugin.kind == FileKind::kMissing ? "not there" : "no regular file"),
                   "no job can be started, or submitted, on this host",
                   fmt::format("install slurm-singularity for this release of Slurm, or correct {}",
                               place(*plugstack.line))};
}

constexpr const char *kRunsAsRoot = "who can write to it runs what he likes as root, in slurmstepd";

Verdict plugin_owner(const Plugstack &plugstack) {
    const FileFacts &file = plugstack.plugin;
    if (file.kind != FileKind::kRegular || is_roots(file))
        return std::nullopt;
    return Problem{
        fmt::format("{} belongs to uid {} and has mode {:04o}", file.path.native(), file.uid, file.mode),
        kRunsAsRoot,
        fmt::format("find out what is in it, then chown root: {0}; chmod 0644 {0}", file.path.native())};
}

Verdict plugin_way(const Plugstack &plugstack) {
    const auto bad = std::ranges::find_if_not(plugstack.way, is_roots);
    if (bad == plugstack.way.end())
        return std::nullopt;
    const auto path = bad->path.native();
    const auto what = fmt::format("{}, on the way to {}, ", path, plugstack.plugin.path.native());
    if (bad->kind == FileKind::kLink)
        return Problem{fmt::format("{}is a symbolic link of uid {}", what, bad->uid), kRunsAsRoot,
                       fmt::format("find out who did what, then chown -h root: {}", path)};
    return Problem{fmt::format("{}belongs to uid {} and has mode {:04o}", what, bad->uid, bad->mode),
                   kRunsAsRoot,
                   fmt::format("find out who did what, then chown root: {0}; chmod go-w {0}", path)};
}

Verdict plugin_loads(const Plugstack &plugstack) {
    if (plugstack.load_error.empty())
        return std::nullopt;
    return Problem{
        fmt::format("{} cannot be loaded: {}", plugstack.plugin.path.native(), plugstack.load_error),
        "no job can be started, or submitted, on this host",
        "install slurm-singularity again, with what it depends on"};
}

Verdict plugin_version(const Plugstack &plugstack, const Slurm &slurm) {
    // As Slurm compares them: a SPANK plugin is for a release, whatever its third number.
    constexpr std::uint32_t kMask = 0xffff00;
    if (plugstack.version == 0 || (plugstack.version & kMask) == (version_of(slurm.release) & kMask))
        return std::nullopt;
    return Problem{fmt::format("{} is for Slurm {}, and this is {}", plugstack.plugin.path.native(),
                               release_of(plugstack.version), slurm.release),
                   "Slurm refuses to load it",
                   fmt::format("install slurm-singularity for Slurm {}", slurm.release)};
}

constexpr std::array kPlugstackChecks{
    check<plugstack_line, &Facts::plugstack>("plugstack-line", Severity::kError),
    check<plugstack_required, &Facts::plugstack>("plugstack-required", Severity::kWarning),
    check<plugin_file, &Facts::plugstack>("plugin-file", Severity::kError),
    check<plugin_owner, &Facts::plugstack>("plugin-owner", Severity::kError),
    check<plugin_way, &Facts::plugstack>("plugin-way", Severity::kError),
    check<plugin_loads, &Facts::plugstack>("plugin-loads", Severity::kError),
    check<plugin_version, &Facts::plugstack, &Facts::slurm>("plugin-version", Severity::kError),
};

} // namespace

std::span<const Check> plugstack_checks() { return kPlugstackChecks; }

} // namespace singularity::doctor
