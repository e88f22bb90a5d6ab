// SPDX-License-Identifier: GPL-2.0-or-later
// What is wrong with singularity.yaml, and with the directories for images.
#include "checks.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>
#include <sys/stat.h>

namespace singularity::doctor {

namespace {

constexpr std::uint64_t kTenth = 10;
constexpr mode_t kForOthers = S_IRWXG | S_IRWXO;

// Of which one host's files are not another's.
constexpr std::array<std::string_view, 11> kLocalTypes{
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "reiserfs", "overlay", "bcachefs", "vfat"};
constexpr std::array<std::string_view, 2> kMemoryTypes{"tmpfs", "ramfs"};

bool is_one_of(const std::string &type, std::span<const std::string_view> types) {
    return std::ranges::find(types, type) != types.end();
}

// Not of parts: the file that cannot be read is what was seen.
Verdict configuration(const Facts &facts) {
    if (facts.configuration)
        return std::nullopt;
    return Problem{facts.configuration.error().message(),
                   "the node agent does not start, and elastic jobs are refused",
                   fmt::format("correct {}; `singularityctl config check` says more",
                               facts.configuration_file.native())};
}

Verdict elastic_enabled(const Config &config) {
    if (config.elastic.enabled)
        return std::nullopt;
    return Problem{fmt::format("elastic.enabled is false in {}", kYaml),
                   "each elastic job is refused at submission",
                   fmt::format("write enabled: true below elastic: in {}", kYaml)};
}

Verdict decide(const Config &config) {
    if (config.slurmctld.decide)
        return std::nullopt;
    return Problem{fmt::format("slurmctld.decide is false in {}", kYaml),
                   "the plugins in slurmctld only forward: no job is resized or moved by itself",
                   fmt::format("write decide: true below slurmctld: in {} and restart slurmctld", kYaml)};
}

Verdict run_without_slurm(const Config &config, const Slurm & /*slurm*/) {
    if (!config.agents.run_without_slurm)
        return std::nullopt;
    return Problem{
        fmt::format("agents.run_without_slurm is true in {}, and this is a node of Slurm's", kYaml),
        "users can run programs outside of their jobs, on CPUs, memory and GPUs that Slurm has given to "
        "others",
        fmt::format("write run_without_slurm: false below agents: in {} and restart singularityd", kYaml)};
}

Verdict configuration_way(const std::vector<FileFacts> &way) {
    const auto bad = std::ranges::find_if(
        way, [](const FileFacts &one) { return one.kind != FileKind::kMissing && !is_roots(one); });
    if (bad == way.end())
        return std::nullopt;
    const auto path = bad->path.native();
    return Problem{
        fmt::format("{}, on the way to {}, belongs to uid {} and has mode {:04o}", path, kYaml, bad->uid,
                    bad->mode),
        "whoever can put another file there decides what root's agents do: which stores they believe, "
        "and what users may",
        fmt::format("chown root {0}; chmod go-w {0}", path)};
}

Verdict store_quota(const Config &config, const Slurm & /*slurm*/) {
    if (config.store.quota_gib != 0)
        return std::nullopt;
    return Problem{
        fmt::format("store.quota_gib is 0 in {}", kYaml),
        "one user's checkpoints can fill the store: nobody's jobs are saved then",
        fmt::format("write quota_gib: below store: in {}, twice what a user's jobs can hold", kYaml)};
}

Verdict agents_address(const Config &config, const Slurm &slurm) {
    if (!config.agents.address.empty() || slurm.nodes.size() < 2)
        return std::nullopt;
    return Problem{
        fmt::format("agents.address is empty in {}, and the cluster has {} nodes", kYaml, slurm.nodes.size()),
        "other hosts cannot call this one: jobs stay where they are",
        fmt::format("write address: \"0.0.0.0\" below agents: in {} and restart singularityd", kYaml)};
}

Verdict agents_address_own(const Config &config, const HostName &host) {
    const std::string &found = config.agents.address;
    if (found.empty() || found == "0.0.0.0" || std::ranges::find(host.own, found) != host.own.end())
        return std::nullopt;
    return Problem{
        fmt::format("agents.address is {} in {}, and no interface of this host has it", found, kYaml),
        "the node agent cannot listen there",
        fmt::format("write address: \"0.0.0.0\" below agents: in {} and restart singularityd", kYaml)};
}

// The first store of which there is something to say.
template <auto kJudge, class... More>
Verdict of_stores(const std::vector<Place> &stores, const More &...more) {
    for (const auto &store : stores)
        if (auto verdict = kJudge(store, more...); verdict)
            return verdict;
    return std::nullopt;
}

Verdict store_missing(const Place &store) {
    if (store.directory.kind != FileKind::kMissing)
        return std::nullopt;
    return Problem{
        fmt::format("the checkpoint store {} is not there", store.directory.path.native()),
        "checkpoints fail, or go to whatever is mounted there instead",
        fmt::format("mount its file system, or install -d -m 0700 -o root {}; or correct its path in {}",
                    store.directory.path.native(), kYaml)};
}

Problem not_private(const char *what, const FileFacts &directory) {
    return Problem{
        directory.kind == FileKind::kDirectory
            ? fmt::format("{} {} belongs to uid {} and has mode {:04o}", what, directory.path.native(),
                          directory.uid, directory.mode)
            : fmt::format("{} {} is no directory", what, directory.path.native()),
        "whoever can reach images reads the memory of jobs, or becomes root by changing it: nothing is saved "
        "there",
        fmt::format("find out who did what, then chown root {0}; chmod 0700 {0}", directory.path.native())};
}

bool is_private(const FileFacts &directory) {
    return directory.kind == FileKind::kMissing || (directory.kind == FileKind::kDirectory &&
                                                    directory.uid == 0 && (directory.mode & kForOthers) == 0);
}

Verdict store_owner(const Place &store) {
    if (is_private(store.directory))
        return std::nullopt;
    return not_private("the checkpoint store", store.directory);
}

Verdict store_way(const Place &store) {
    const auto bad = std::ranges::find_if(store.way, [](const FileFacts &above) {
        if (above.kind == FileKind::kMissing)
            return false;
        return above.kind != FileKind::kDirectory || !is_roots(above);
    });
    if (bad == store.way.end())
        return std::nullopt;
    const auto path = bad->path.native();
    if (bad->kind != FileKind::kDirectory)
        return Problem{fmt::format("{}, above the checkpoint store, is {}", path,
                                   bad->kind == FileKind::kLink ? "a symbolic link" : "no directory"),
                       "the store follows none: nothing is saved",
                       fmt::format("write the path without it in {}", kYaml)};
    return Problem{fmt::format("{}, above the checkpoint store, belongs to uid {} and has mode {:04o}", path,
                               bad->uid, bad->mode),
                   "others could put another store in its place: nothing is saved",
                   fmt::format("chown root {0}; chmod go-w {0}", path)};
}

Verdict store_shared(const Place &store, const Slurm &slurm) {
    if (slurm.nodes.size() < 2 || !is_one_of(store.type, kLocalTypes))
        return std::nullopt;
    return Problem{
        fmt::format(
            "the checkpoint store {} is on {}, which is this host's own, and the cluster has {} nodes",
            store.directory.path.native(), store.type, slurm.nodes.size()),
        "a job that is saved here cannot be restored on another node",
        fmt::format("write a directory of a file system that all nodes share in {}", kYaml)};
}

Verdict store_memory(const Place &store) {
    if (!is_one_of(store.type, kMemoryTypes))
        return std::nullopt;
    return Problem{fmt::format("the checkpoint store {} is on {}", store.directory.path.native(), store.type),
                   "checkpoints are lost when this host is rebooted, and take its memory until then",
                   fmt::format("write a directory on a disk that all nodes share in {}", kYaml)};
}

Verdict space(const char *what, const Place &place, const char *why, const char *fix) {
    if (place.size == 0 || place.free >= place.size / kTenth)
        return std::nullopt;
    return Problem{fmt::format("of {} on which {} {} is, {} are free", byte_count(place.size), what,
                               place.directory.path.native(), byte_count(place.free)),
                   why, fix};
}

Verdict store_space(const Place &store) {
    return space("the checkpoint store", store, "a checkpoint for which there is no room fails",
                 "run `singularityctl store gc`, `singularityctl store rm`, or give it a larger file system");
}

Verdict staging_owner(const Place &staging) {
    if (is_private(staging.directory))
        return std::nullopt;
    return not_private("the staging directory", staging.directory);
}

Verdict staging_memory(const Place &staging) {
    if (!is_one_of(staging.type, kMemoryTypes))
        return std::nullopt;
    return Problem{
        fmt::format("the staging directory {} is on {}", staging.directory.path.native(), staging.type),
        "while a job is saved, its memory is there twice",
        "start singularityd with --staging and a directory on a local disk, where memory is short"};
}

Verdict staging_space(const Place &staging) {
    return space("the staging directory", staging, "a job is saved there before it goes to the store",
                 "make room, or start singularityd with --staging and another directory");
}

Verdict local_owner(const Place &local) {
    const auto &found = local.directory;
    if (found.kind == FileKind::kMissing || // it is made
        (found.kind == FileKind::kDirectory && found.uid == 0 && found.mode == S_IRWXU))
        return std::nullopt;
    const auto path = found.path.native();
    return Problem{
        found.kind == FileKind::kDirectory
            ? fmt::format("{}, the base of local directories, belongs to uid {} and has mode {:04o}", path,
                          found.uid, found.mode)
            : fmt::format("{}, the base of local directories, is no directory", path),
        "it may be another directory of the same name, so it is not used: elastic jobs fail",
        fmt::format("if it is meant to be: chown root {0}; chmod 0700 {0}; else name another as "
                    "local_directories.base in {1}, on all hosts",
                    path, kYaml)};
}

Verdict local_way(const Place &local) {
    const auto bad = std::ranges::find_if(
        local.way, [](const FileFacts &one) { return one.kind != FileKind::kMissing && !is_roots(one); });
    if (bad == local.way.end())
        return std::nullopt;
    return Problem{
        fmt::format("{}, above the base of local directories, belongs to uid {} and has mode {:04o}",
                    bad->path.native(), bad->uid, bad->mode),
        "others could put another directory in its place, and look into what jobs have there",
        fmt::format("chown root {0}; chmod go-w {0}; or name another base in {1}", bad->path.native(),
                    kYaml)};
}

Problem local_disk(const Place &local, const char *why, const char *where) {
    return {
        fmt::format("the base of local directories {} is on {}", local.directory.path.native(), local.type),
        why, fmt::format("name {} as local_directories.base in {}", where, kYaml)};
}

Verdict local_shared(const Place &local) {
    if (local.type.empty() || is_one_of(local.type, kLocalTypes) || is_one_of(local.type, kMemoryTypes))
        return std::nullopt;
    return local_disk(local,
                      "hosts that have the same one remove what jobs have there while they run on others",
                      "a directory on a disk of the host's own");
}

Verdict local_memory(const Place &local) {
    if (!is_one_of(local.type, kMemoryTypes))
        return std::nullopt;
    return local_disk(local, "what jobs write there takes the host's memory", "a directory on a disk");
}

Verdict local_subvolumes(const Place &local) {
    if (local.type != "btrfs")
        return std::nullopt;
    return local_disk(local,
                      "users can make subvolumes there, with which a job's directories are not removed",
                      "a directory on ext4 or xfs");
}

Verdict local_quota(const Place &local) {
    if (!is_one_of(local.type, kLocalTypes) || local.options.contains("prjquota"))
        return std::nullopt;
    return Problem{
        fmt::format("{}, on which the base of local directories {} is, is mounted without prjquota",
                    local.type, local.directory.path.native()),
        "nothing bounds what jobs write there, and they may fill the disk for all that use it",
        "give it a file system of its own, mounted with prjquota, and its directory a project with "
        "a limit (docs/admin.md, \"Local directories\")"};
}

constexpr std::array kConfigurationChecks{
    Check{"configuration", Severity::kError, configuration},
    check<elastic_enabled, &Facts::configuration>("elastic-enabled", Severity::kWarning),
    check<decide, &Facts::configuration>("decide", Severity::kWarning),
    check<run_without_slurm, &Facts::configuration, &Facts::slurm>("run-without-slurm", Severity::kWarning),
    check<configuration_way, &Facts::configuration_way>("configuration-way", Severity::kError),
    check<store_quota, &Facts::configuration, &Facts::slurm>("store-quota", Severity::kWarning),
    check<agents_address, &Facts::configuration, &Facts::slurm>("agents-address", Severity::kError),
    check<agents_address_own, &Facts::configuration, &Facts::host_name>("agents-address-own",
                                                                        Severity::kError),
    check<of_stores<store_missing>, &Facts::stores>("store-missing", Severity::kWarning),
    check<of_stores<store_owner>, &Facts::stores>("store-owner", Severity::kError),
    check<of_stores<store_way>, &Facts::stores>("store-way", Severity::kError),
    check<of_stores<store_shared, Slurm>, &Facts::stores, &Facts::slurm>("store-shared", Severity::kError),
    check<of_stores<store_memory>, &Facts::stores>("store-memory", Severity::kError),
    check<of_stores<store_space>, &Facts::stores>("store-space", Severity::kWarning),
    check<staging_owner, &Facts::staging>("staging-owner", Severity::kError),
    check<staging_memory, &Facts::staging>("staging-memory", Severity::kWarning),
    check<staging_space, &Facts::staging>("staging-space", Severity::kWarning),
    check<local_owner, &Facts::local>("local-owner", Severity::kError),
    check<local_way, &Facts::local>("local-way", Severity::kError),
    check<local_shared, &Facts::local>("local-shared", Severity::kError),
    check<local_memory, &Facts::local>("local-memory", Severity::kWarning),
    check<local_subvolumes, &Facts::local>("local-subvolumes", Severity::kWarning),
    check<local_quota, &Facts::local>("local-quota", Severity::kWarning),
};

} // namespace

std::span<const Check> configuration_checks() { return kConfigurationChecks; }

} // namespace singularity::doctor
