// SPDX-License-Identifier: GPL-2.0-or-later
// Slurm's own settings are asked of its commands, not of libslurm: the layout of slurm_conf_t and the
// library's name change with every release, and singularityctl must start where another release, or none, is
// installed.
#include "common/proc.hpp"
#include "common/program_output.hpp"
#include "gather.hpp"
#include "peers/handshake.hpp"
#include "slurm_text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <string_view>

#include <dlfcn.h>
#include <glob.h>
#include <unistd.h>

namespace singularity::doctor {

namespace {

// A client of a slurmctld that does not answer tries for SlurmctldTimeout and more.
constexpr std::chrono::seconds kSlurmPatience{20};
constexpr std::string_view kPlugin = "spank_singularity.so";
constexpr const char *kJobSubmitFile = "job_submit_singularity.so";
constexpr int kDeepest = 8; // includes of includes

Expected<std::string> ask(std::vector<std::string> command) {
    return answer_of(std::move(command), Deadline::after(kSlurmPatience));
}

// Of a clock that showed `there` at some moment from `before` to `after`, both of this host's.
std::int64_t ahead_of(std::time_t there, std::time_t before, std::time_t after) {
    if (there < before - 1)
        return before - there;
    return there > after + 1 ? after - there : 0;
}

std::string host_name() {
    std::array<char, 256> name{};
    return gethostname(name.data(), name.size() - 1) == 0 ? peers::short_name(name.data()) : std::string();
}

// Every line "NODE HOST GRES".
void take_nodes(std::string_view text, Slurm &into) {
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        const auto line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        const auto first = line.find(' ');
        const auto second = line.find(' ', first + 1);
        if (first == std::string_view::npos || second == std::string_view::npos)
            continue;
        into.nodes.emplace_back(line.substr(0, first));
        if (peers::short_name(line.substr(first + 1, second - first - 1)) == into.host)
            into.gpus = gpus_of(line.substr(second + 1));
    }
    std::ranges::sort(into.nodes); // of several partitions, each node comes with each
    into.nodes.erase(std::ranges::unique(into.nodes).begin(), into.nodes.end());
}

Expected<std::vector<std::filesystem::path>> files_of(const std::string &pattern) {
    glob_t found{};
    const int code = glob(pattern.c_str(), 0, nullptr, &found);
    const std::unique_ptr<glob_t, void (*)(glob_t *)> owner(&found, globfree);
    if (code != 0 && code != GLOB_NOMATCH)
        return failure("list", pattern, "glob(3) failed");
    return std::vector<std::filesystem::path>(found.gl_pathv, found.gl_pathv + found.gl_pathc);
}

Expected<std::optional<PlugstackLine>> find_line(const std::filesystem::path &file, int depth) {
    auto text = proc::read(file.native());
    if (!text)
        return propagate(text);
    for (const PlugstackWord &word : parse_plugstack(*text)) {
        if (word.kind == "include" && depth < kDeepest) {
            auto files = files_of((file.parent_path() / word.what).native());
            if (!files)
                return propagate(files);
            for (const auto &one : *files) {
                auto found = find_line(one, depth + 1);
                if (!found || found->has_value())
                    return found;
            }
        }
        if (std::filesystem::path(word.what).filename() == kPlugin)
            return PlugstackLine{.file = file,
                                 .number = word.number,
                                 .required = word.kind == "required",
                                 .plugin = word.what};
    }
    return std::optional<PlugstackLine>();
}

// As Slurm does it: a name without a slash is looked for in PluginDir.
Expected<std::vector<FileFacts>> files_of_plugin(const std::string &plugin, std::string_view directories) {
    if (plugin.contains('/'))
        return follow(plugin);
    std::filesystem::path first;
    while (!directories.empty()) {
        const auto end = std::min(directories.find(':'), directories.size());
        const auto path = std::filesystem::path(directories.substr(0, end)) / plugin;
        directories.remove_prefix(std::min(end + 1, directories.size()));
        auto found = follow(path);
        if (!found || found->back().kind != FileKind::kMissing)
            return found;
        if (first.empty())
            first = path;
    }
    return std::vector{FileFacts{.path = first.empty() ? std::filesystem::path(plugin) : first}};
}

// As Slurm does it. The file, and the way to it, is root's alone: loading it runs its initialisers.
void look_inside(Plugstack &plugstack) {
    void *const library = dlopen(plugstack.plugin.path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) {
        const char *const words = dlerror();
        // Linked with -z now, it finds the functions of Slurm nowhere but in Slurm's programs.
        if (const std::string_view why = words != nullptr ? words : "no reason is given";
            !why.contains("undefined symbol"))
            plugstack.load_error = why;
        return;
    }
    if (const void *const version = dlsym(library, "plugin_version"); version != nullptr)
        plugstack.version = *static_cast<const std::uint32_t *>(version);
    dlclose(library);
}

} // namespace

Fact<Clock> clock_of(const Slurm &slurm) {
    if (!slurm.clock_ahead)
        return not_seen(Unseen::kFailed,
                        "scontrol show config does not say when it was written, as 2026-01-31T12:00:00: "
                        "unset SLURM_TIME_FORMAT");
    return Clock{.host = slurm.host, .ahead = *slurm.clock_ahead};
}

Fact<Slurm> look_at_slurm() {
    Slurm out;
    out.host = host_name();
    const auto before = std::time(nullptr);
    auto config = ask({"scontrol", "show", "config"});
    if (!config)
        return not_seen(Unseen::kFailed, config.error().message());
    if (const auto there = written_at(*config))
        out.clock_ahead = ahead_of(*there, before, std::time(nullptr));
    out.settings = parse_config(*config);
    const auto file = out.settings.find("SLURM_CONF");
    out.file = file != out.settings.end() ? file->second : "/etc/slurm/slurm.conf";
    auto partitions = ask({"scontrol", "-o", "show", "partition"});
    if (!partitions)
        return not_seen(Unseen::kFailed, partitions.error().message());
    out.partitions = parse_records(*partitions);
    auto nodes = ask({"sinfo", "-h", "-a", "-N", "-o", "%N %n %G"});
    if (!nodes)
        return not_seen(Unseen::kFailed, nodes.error().message());
    take_nodes(*nodes, out);
    auto release = ask({"scontrol", "--version"});
    if (!release)
        return not_seen(Unseen::kFailed, release.error().message());
    const auto version = version_of(*release);
    if (version == 0)
        return not_seen(Unseen::kFailed, "`scontrol --version` says no release: " + *release);
    out.release = release_of(version);
    const auto directories = out.settings.find("PluginDir");
    auto submit = files_of_plugin(kJobSubmitFile, directories != out.settings.end() ? directories->second
                                                                                    : std::string_view());
    if (!submit)
        return not_seen(submit.error());
    out.job_submit = std::move(submit->back());
    return out;
}

Fact<Plugstack> look_at_plugstack(const Slurm &slurm) {
    Plugstack out;
    const auto named = slurm.settings.find("PlugStackConfig");
    out.file = named != slurm.settings.end() ? std::filesystem::path(named->second)
                                             : slurm.file.parent_path() / "plugstack.conf";
    auto line = find_line(out.file, 0);
    if (!line && line.error().code == ENOENT)
        return out;
    if (!line)
        return not_seen(line.error());
    out.present = true;
    out.line = *std::move(line);
    if (!out.line)
        return out;
    const auto directories = slurm.settings.find("PluginDir");
    auto plugin = files_of_plugin(out.line->plugin, directories != slurm.settings.end() ? directories->second
                                                                                        : std::string_view());
    if (!plugin)
        return not_seen(plugin.error());
    out.way = *std::move(plugin);
    out.plugin = std::move(out.way.back());
    out.way.pop_back();
    if (out.plugin.kind == FileKind::kRegular && is_roots(out.plugin) &&
        std::ranges::all_of(out.way, is_roots))
        look_inside(out);
    return out;
}

} // namespace singularity::doctor
