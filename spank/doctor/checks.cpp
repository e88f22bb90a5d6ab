// SPDX-License-Identifier: GPL-2.0-or-later
#include "checks.hpp"

#include <algorithm>
#include <array>

namespace singularity::doctor {

namespace {

struct Part {
    std::string_view name;
    const NotSeen *(*reason)(const Facts &facts);
};

template <auto Member>
constexpr Part part(std::string_view name) {
    return Part{name, [](const Facts &facts) -> const NotSeen * {
                    return (facts.*Member).has_value() ? nullptr : &(facts.*Member).error();
                }};
}

constexpr std::array kParts{
    part<&Facts::slurm>("slurm.conf, as slurmctld has it"),
    part<&Facts::clock>("clock of slurmctld's host"),
    part<&Facts::cgroup>("cgroup.conf"),
    part<&Facts::plugstack>("plugstack.conf"),
    part<&Facts::configuration_way>("directories above singularity.yaml"),
    part<&Facts::keys>("files of keys"),
    part<&Facts::ptrace_scope>("kernel.yama.ptrace_scope"),
    part<&Facts::stores>("checkpoint stores"),
    part<&Facts::staging>("staging directory"),
    part<&Facts::local>("base of local directories"),
    part<&Facts::agent>("node agent"),
    part<&Facts::agent_program>("version of the node agent"),
    part<&Facts::libraries>("programs and libraries of the node agent"),
    part<&Facts::nccl>("NVIDIA's NCCL"),
    part<&Facts::criu>("CRIU"),
    part<&Facts::criu_kernel>("what CRIU needs of the kernel"),
    part<&Facts::driver>("GPU driver"),
    part<&Facts::munge>("munge"),
    part<&Facts::host_name>("name of this host"),
    part<&Facts::kernel_network>("what private networks need of the kernel"),
    part<&Facts::images>("what steps in images need"),
};

} // namespace

Diagnosis diagnose(const Facts &facts) {
    Diagnosis out;
    for (const auto table : {slurm_checks(), plugstack_checks(), configuration_checks(), host_checks()})
        for (const Check &each : table)
            if (auto problem = each.judge(facts); problem)
                out.findings.push_back({each.name, each.severity, *std::move(problem)});
    std::ranges::stable_sort(out.findings, {}, &Finding::severity);
    for (const Part &each : kParts)
        if (const NotSeen *const reason = each.reason(facts);
            reason != nullptr && reason->why != Unseen::kUnused)
            out.unlooked.push_back({each.name, *reason});
    return out;
}

} // namespace singularity::doctor
