// SPDX-License-Identifier: GPL-2.0-or-later
// Looking at this host and its cluster. Changes nothing; what needs root is left out, and marked, for others.
// Everything that is asked has a deadline of some seconds.
#pragma once

#include "facts.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace singularity::doctor {

struct Where {
    std::filesystem::path socket;  // of the node agent
    std::filesystem::path staging; // its staging directory
    std::string version;           // of the program that asks
};

[[nodiscard]] Facts gather(const Where &where);

// The parts. Each is one look.
[[nodiscard]] Fact<Slurm> look_at_slurm();
[[nodiscard]] Fact<Cgroup> look_at_cgroup(const std::filesystem::path &slurm_conf);
[[nodiscard]] Fact<Plugstack> look_at_plugstack(const Slurm &slurm);
[[nodiscard]] Fact<Place> look_at_place(const std::filesystem::path &directory);
[[nodiscard]] Fact<std::vector<FileFacts>> look_at_way(const std::filesystem::path &file);
[[nodiscard]] Fact<std::vector<FileFacts>> look_at_keys(const std::filesystem::path &slurm_conf);
[[nodiscard]] Fact<PtraceScope> look_at_ptrace_scope();
[[nodiscard]] Fact<ForImages> look_at_images(const Config::Containers &containers);
[[nodiscard]] Fact<Place> look_at_local(const Config::LocalDirectories &local,
                                        const Config::Containers &containers);
[[nodiscard]] Fact<std::vector<Place>> look_at_stores(const Config::Store &stores);
[[nodiscard]] Fact<Agent> look_at_agent(const std::filesystem::path &socket);
[[nodiscard]] Fact<AgentProgram> look_at_agent_program(const Where &where);
[[nodiscard]] Fact<Libraries> look_at_libraries(const Where &where);
[[nodiscard]] Fact<Clock> clock_of(const Slurm &slurm);
[[nodiscard]] Fact<Nccl> look_at_nccl(const std::filesystem::path &library);
[[nodiscard]] Fact<Criu> look_at_criu();
[[nodiscard]] Fact<CriuKernel> look_at_criu_kernel();
[[nodiscard]] Fact<Driver> look_at_driver();
[[nodiscard]] Fact<Munge> look_at_munge(const std::filesystem::path &socket);
[[nodiscard]] Fact<HostName> look_at_host_name();
[[nodiscard]] Fact<KernelNetwork> look_at_kernel_network(const Config::Network &settings);

// For all parts.
[[nodiscard]] std::unexpected<NotSeen> not_seen(Unseen why, std::string words);
// EACCES and EPERM mean something else to who is not root.
[[nodiscard]] std::unexpected<NotSeen> not_seen(const Error &error);
[[nodiscard]] Expected<FileFacts> look_at_file(const std::filesystem::path &path);
// Every directory and symbolic link that leads to a file, and it: the last one. That one is missing, with the
// path that is not there, or a link where links go round.
[[nodiscard]] Expected<std::vector<FileFacts>> follow(const std::filesystem::path &path);

} // namespace singularity::doctor
