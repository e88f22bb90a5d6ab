// SPDX-License-Identifier: GPL-2.0-or-later
// What is wrong with this host, and with what singularity.yaml says of it.
#include "checks.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

namespace singularity::doctor {

namespace {

using Verdict = std::optional<Problem>;

constexpr std::uint64_t kTenth = 10;
constexpr mode_t kForOthers = S_IRWXG | S_IRWXO;
constexpr const char *kYaml = "singularity.yaml";

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

Verdict store_missing(const Place &store) {
    if (store.directory.kind != FileKind::kMissing)
        return std::nullopt;
    return Problem{
        fmt::format("the checkpoint store {} is not there", store.directory.path.native()),
        "checkpoints fail, or go to whatever is mounted there instead",
        fmt::format(
            "mount its file system, or install -d -m 0700 -o root {}; or correct store.directory in {}",
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
        return above.kind != FileKind::kDirectory || above.uid != 0 ||
               ((above.mode & (S_IWGRP | S_IWOTH)) != 0 && (above.mode & S_ISVTX) == 0);
    });
    if (bad == store.way.end())
        return std::nullopt;
    const auto path = bad->path.native();
    if (bad->kind != FileKind::kDirectory)
        return Problem{fmt::format("{}, above the checkpoint store, is {}", path,
                                   bad->kind == FileKind::kLink ? "a symbolic link" : "no directory"),
                       "the store follows none: nothing is saved",
                       fmt::format("write the path without it as store.directory in {}", kYaml)};
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
        fmt::format("write a directory of a file system that all nodes share as store.directory in {}",
                    kYaml)};
}

Verdict store_memory(const Place &store) {
    if (!is_one_of(store.type, kMemoryTypes))
        return std::nullopt;
    return Problem{
        fmt::format("the checkpoint store {} is on {}", store.directory.path.native(), store.type),
        "checkpoints are lost when this host is rebooted, and take its memory until then",
        fmt::format("write a directory on a disk that all nodes share as store.directory in {}", kYaml)};
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

Verdict agent_silent(const Agent &agent) {
    if (agent.silence.empty())
        return std::nullopt;
    return Problem{agent.silence, "no job can be started in a virtual node here, saved or restored",
                   "run `systemctl enable --now singularityd`; its log is in `journalctl -u singularityd`"};
}

Verdict agent_owner(const Agent &agent) {
    if (!agent.silence.empty() || agent.uid == 0)
        return std::nullopt;
    return Problem{fmt::format("a process of uid {} listens at {}", agent.uid, agent.socket.native()),
                   "it is not the node agent, and is told what users want to run",
                   "find out who did what, then run `systemctl restart singularityd`"};
}

Verdict agent_version(const AgentProgram &agent) {
    if (agent.version == agent.ours)
        return std::nullopt;
    return Problem{fmt::format("the node agent, {}, is version {}, and this program {}", agent.file,
                               agent.version, agent.ours),
                   "they may not understand each other", "run `systemctl restart singularityd`"};
}

Verdict agent_replaced(const AgentProgram &agent) {
    if (!agent.replaced || agent.version != agent.ours)
        return std::nullopt;
    return Problem{fmt::format("the file of the running node agent, {}, has been replaced", agent.file),
                   "it goes on with the old program and starts new ones",
                   "run `systemctl restart singularityd`"};
}

Verdict libraries(const Libraries &libraries) {
    if (libraries.missing.empty())
        return std::nullopt;
    return Problem{fmt::format("missing or not to be used: {}", fmt::join(libraries.missing, ", ")),
                   "the node agent needs them to start, save and connect virtual nodes and their devices",
                   "install slurm-singularity again"};
}

Verdict criu_version(const Criu &criu) {
    if (criu.version)
        return std::nullopt;
    return Problem{criu.version.error().message(), "nothing can be saved or restored without",
                   "install CRIU 4.2 or newer"};
}

Verdict criu_run(const Criu &criu) {
    if (criu.run_is_memory)
        return std::nullopt;
    return Problem{
        "/run is no tmpfs",
        "CRIU keeps there what it knows of the kernel, and believes it after a reboot: nothing is saved",
        "mount a tmpfs at /run (systemd does at boot)"};
}

Verdict criu_kernel(const CriuKernel &criu) {
    if (criu.trouble.empty())
        return std::nullopt;
    return Problem{fmt::format("`criu check` fails: {}", criu.trouble),
                   "jobs cannot be saved or restored on this kernel",
                   "boot a kernel with what it names (CONFIG_CHECKPOINT_RESTORE and others)"};
}

Verdict driver_missing(const Driver &driver, const Slurm &slurm) {
    const auto gpus = slurm.gpus.value_or(0);
    if (gpus == 0 || driver.control)
        return std::nullopt;
    return Problem{
        fmt::format("Slurm gives this node {} GPUs, and there is no /dev/nvidiactl", gpus),
        "device proxies run on the software GPU, slowly",
        "install NVIDIA's driver and run `nvidia-modprobe -c 0 -u`, or take Gres=gpu out of the node's line"};
}

Verdict driver_library(const Driver &driver) {
    if (!driver.control || driver.library_error.empty())
        return std::nullopt;
    return Problem{
        fmt::format("libcuda.so.1 cannot be used: {}", driver.library_error), "no device proxy can start",
        "install the library of the very release of NVIDIA's driver that is loaded, and run ldconfig"};
}

Verdict device_files(const Driver &driver, const Slurm &slurm) {
    const auto expected = slurm.gpus.value_or(0);
    if (!driver.control || driver.devices >= expected)
        return std::nullopt;
    return Problem{fmt::format("Slurm gives this node {} GPUs, and /dev has {} files nvidia0, nvidia1, ...",
                               expected, driver.devices),
                   "a job gets GPUs that are not there",
                   "look at `nvidia-smi` and `dmesg` for the missing one, or correct gres.conf"};
}

Verdict munge(const Munge &munge) {
    if (munge.trouble.empty())
        return std::nullopt;
    return Problem{
        fmt::format("munged at {} makes or reads no credential: {}", munge.socket.native(), munge.trouble),
        "agents of different hosts prove with munge who they are: jobs stay where they are",
        fmt::format("run `systemctl restart munge`, or correct agents.munge_socket in {}", kYaml)};
}

Verdict host_resolves(const HostName &host) {
    if (host.trouble.empty() && !host.resolved.empty())
        return std::nullopt;
    return Problem{fmt::format("the name of this host, {}, has no IPv4 address: {}", host.name,
                               host.trouble.empty() ? "none is found" : host.trouble),
                   "agents call each other by name: no job can be on this host and another",
                   "write the address and the name in /etc/hosts, or in DNS, on every host"};
}

Verdict host_loopback(const HostName &host) {
    const auto found =
        std::ranges::find_if(host.resolved, [](const auto &each) { return each.starts_with("127."); });
    if (found == host.resolved.end())
        return std::nullopt;
    return Problem{
        fmt::format("the name of this host, {}, stands for {}", host.name, *found),
        "other hosts would be told to send there, to themselves",
        "take the name out of the line of that address in /etc/hosts, and write it with the host's own"};
}

Verdict host_address(const HostName &host) {
    const auto foreign = std::ranges::find_if(host.resolved, [&](const auto &each) {
        return !each.starts_with("127.") && std::ranges::find(host.own, each) == host.own.end();
    });
    if (foreign == host.resolved.end())
        return std::nullopt;
    return Problem{fmt::format("the name of this host, {}, stands for {}, which no interface of it has",
                               host.name, *foreign),
                   "what is sent to this host goes to another",
                   "correct the address in /etc/hosts, or in DNS, on every host"};
}

Verdict kernel_network(const KernelNetwork &network) {
    if (network.broken.empty())
        return std::nullopt;
    std::string found;
    for (const auto &[name, trouble] : network.broken)
        found += fmt::format("{}{} cannot be used: {}", found.empty() ? "" : "; ", name, trouble);
    return Problem{found, "virtual nodes and the private networks of jobs are made of it",
                   "run `modprobe` for it and write its name in /etc/modules-load.d/singularity.conf; where "
                   "there is none, "
                   "boot a kernel that has it"};
}

constexpr std::array kChecks{
    Check{"configuration", Severity::kError, configuration},
    check<elastic_enabled, &Facts::configuration>("elastic-enabled", Severity::kWarning),
    check<decide, &Facts::configuration>("decide", Severity::kWarning),
    check<agents_address, &Facts::configuration, &Facts::slurm>("agents-address", Severity::kError),
    check<agents_address_own, &Facts::configuration, &Facts::host_name>("agents-address-own",
                                                                        Severity::kError),
    check<store_missing, &Facts::store>("store-missing", Severity::kWarning),
    check<store_owner, &Facts::store>("store-owner", Severity::kError),
    check<store_way, &Facts::store>("store-way", Severity::kError),
    check<store_shared, &Facts::store, &Facts::slurm>("store-shared", Severity::kError),
    check<store_memory, &Facts::store>("store-memory", Severity::kError),
    check<store_space, &Facts::store>("store-space", Severity::kWarning),
    check<staging_owner, &Facts::staging>("staging-owner", Severity::kError),
    check<staging_memory, &Facts::staging>("staging-memory", Severity::kWarning),
    check<staging_space, &Facts::staging>("staging-space", Severity::kWarning),
    check<agent_silent, &Facts::agent>("agent-silent", Severity::kError),
    check<agent_owner, &Facts::agent>("agent-owner", Severity::kError),
    check<agent_version, &Facts::agent_program>("agent-version", Severity::kError),
    check<agent_replaced, &Facts::agent_program>("agent-replaced", Severity::kWarning),
    check<libraries, &Facts::libraries>("libraries", Severity::kError),
    check<criu_version, &Facts::criu>("criu-version", Severity::kError),
    check<criu_run, &Facts::criu>("criu-run", Severity::kError),
    check<criu_kernel, &Facts::criu_kernel>("criu-kernel", Severity::kError),
    check<driver_missing, &Facts::driver, &Facts::slurm>("driver-missing", Severity::kWarning),
    check<driver_library, &Facts::driver>("driver-library", Severity::kError),
    check<device_files, &Facts::driver, &Facts::slurm>("device-files", Severity::kError),
    check<munge, &Facts::munge>("munge", Severity::kError),
    check<host_resolves, &Facts::host_name>("host-resolves", Severity::kError),
    check<host_loopback, &Facts::host_name>("host-loopback", Severity::kError),
    check<host_address, &Facts::host_name>("host-address", Severity::kError),
    check<kernel_network, &Facts::kernel_network>("kernel-network", Severity::kError),
};

} // namespace

std::span<const Check> host_checks() { return kChecks; }

} // namespace singularity::doctor
