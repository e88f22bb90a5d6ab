// SPDX-License-Identifier: GPL-2.0-or-later
// What is wrong with this host.
#include "checks.hpp"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace singularity::doctor {

namespace {

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
                   "install slurm-singularity again, or the package of the library that is named"};
}

Verdict nccl(const Nccl &nccl) {
    if (nccl.trouble.empty())
        return std::nullopt;
    return Problem{fmt::format("NVIDIA's NCCL, {}, cannot be used: {}", nccl.library.native(), nccl.trouble),
                   "ranks that have a GPU each are to exchange their data through it",
                   "install it on this host, readable for all, or correct agents.nccl in singularity.yaml"};
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

Verdict key_files(const std::vector<FileFacts> &keys) {
    constexpr mode_t kOthersMay = S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;
    const auto bad = std::ranges::find_if(keys, [](const FileFacts &one) {
        return one.kind == FileKind::kRegular && (one.mode & kOthersMay) != 0;
    });
    if (bad == keys.end())
        return std::nullopt;
    const auto path = bad->path.native();
    return Problem{
        fmt::format("{} has mode {:04o}", path, bad->mode),
        "whoever reads a key of munge's or Slurm's can say to slurmctld and to the agents of all nodes "
        "that they are root",
        fmt::format("chmod 0600 {}; make a new key if users have been on a host where it was so", path)};
}

// A kernel without Yama has nothing to write it to.
Verdict ptrace_scope(const PtraceScope &scope) {
    if (scope.value != 0U)
        return std::nullopt;
    return Problem{
        "kernel.yama.ptrace_scope is 0",
        "each program of a user's can read and steer all others of that user's on this host, also those "
        "of other jobs, and the device proxies that have their GPUs",
        "write kernel.yama.ptrace_scope=1 in /etc/sysctl.d/singularity.conf and run `sysctl --system`; "
        "programs can still be started in a debugger"};
}

constexpr const char *kNoImages =
    "write containers.enabled: false in singularity.yaml if there are to be none";

Verdict images_overlay(const ForImages &images) {
    if (images.overlay.empty())
        return std::nullopt;
    return Problem{
        fmt::format("this kernel makes no overlay: {}", images.overlay),
        "steps with --singularity-image fail here",
        fmt::format("run `modprobe overlay`, and write overlay in /etc/modules-load.d/singularity.conf; "
                    "or {}",
                    kNoImages)};
}

Verdict images_fuse(const ForImages &images) {
    if (images.fuse.empty())
        return std::nullopt;
    return Problem{
        fmt::format("/dev/fuse cannot be opened: {}", images.fuse),
        "steps in images that are files (squashfs, SIF) fail here; directories work",
        fmt::format("run `modprobe fuse`, and write fuse in /etc/modules-load.d/singularity.conf; or {}",
                    kNoImages)};
}

Verdict images_server(const ForImages &images) {
    if (!images.server.empty())
        return std::nullopt;
    return Problem{"there is no squashfuse_ll",
                   "steps in images that are files (squashfs, SIF) fail here; directories work",
                   fmt::format("install the package squashfuse (built with libfuse 3); or {}", kNoImages)};
}

constexpr std::array kHostChecks{
    check<agent_silent, &Facts::agent>("agent-silent", Severity::kError),
    check<agent_owner, &Facts::agent>("agent-owner", Severity::kError),
    check<agent_version, &Facts::agent_program>("agent-version", Severity::kError),
    check<agent_replaced, &Facts::agent_program>("agent-replaced", Severity::kWarning),
    check<libraries, &Facts::libraries>("libraries", Severity::kError),
    check<nccl, &Facts::nccl>("nccl", Severity::kError),
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
    check<key_files, &Facts::keys>("key-files", Severity::kError),
    check<ptrace_scope, &Facts::ptrace_scope>("ptrace-scope", Severity::kWarning),
    check<images_overlay, &Facts::images>("images-overlay", Severity::kWarning),
    check<images_fuse, &Facts::images>("images-fuse", Severity::kWarning),
    check<images_server, &Facts::images>("images-server", Severity::kWarning),
};

} // namespace

std::span<const Check> host_checks() { return kHostChecks; }

} // namespace singularity::doctor
