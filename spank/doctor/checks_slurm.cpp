// SPDX-License-Identifier: GPL-2.0-or-later
// What is wrong with Slurm's own files.
#include "checks.hpp"
#include "slurm_text.hpp"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

namespace singularity::doctor {

namespace {

constexpr const char *kRestart = "and restart slurmctld, and slurmd on all nodes";
constexpr const char *kReconfigure = "and run `scontrol reconfigure`";

// Empty where Slurm has none.
std::string value(const Settings &settings, std::string_view key) {
    const auto found = settings.find(key);
    return found != settings.end() ? found->second : std::string();
}

std::string shown(std::string_view key, const std::string &value) {
    return fmt::format("{} is {}", key, value.empty() ? "not set" : value);
}

std::string write(const Slurm &slurm, std::string_view line, const char *then) {
    return fmt::format("write {} in {} {}", line, slurm.file.native(), then);
}

bool is(const std::string &value, std::string_view wanted) {
    return value.size() == wanted.size() && has_word(value, wanted);
}

// What a key of slurm.conf must be, or be at least, and why.
struct Wanted {
    const char *key;
    const char *value;
    const char *why;
    const char *then;
};
constexpr Wanted kProctrack{
    "ProctrackType", "proctrack/cgroup",
    "only with proctrack/cgroup SIGTERM reaches a task alone and not what it has started: programs would die "
    "when they are to be checkpointed",
    kRestart};
constexpr Wanted kSelectType{"SelectType", "select/cons_tres_singularity",
                             "nobody decides which jobs are resized and moved, and when",
                             "and restart slurmctld"};
constexpr Wanted kPriorityType{"PriorityType", "priority/singularity",
                               "tiers and what jobs have missed so far count for nothing in the queue",
                               "and restart slurmctld"};
constexpr Wanted kJobRequeue{
    "JobRequeue", "1", "a job without --requeue is cancelled when it is preempted, whatever was saved of it",
    kReconfigure};
constexpr Wanted kKillWait{
    "KillWait", "60", "it is all the time that a job has for its last checkpoint between SIGTERM and SIGKILL",
    kReconfigure};
constexpr Wanted kUnkillable{
    "UnkillableStepTimeout", "60", // Slurm's default
    "a killed job with much memory on host and GPUs needs time to go, and its node would be drained",
    kReconfigure};

template <const Wanted &wanted>
Verdict is_set(const Slurm &slurm) {
    const auto found = value(slurm.settings, wanted.key);
    if (found == wanted.value)
        return std::nullopt;
    return Problem{shown(wanted.key, found), wanted.why,
                   write(slurm, fmt::format("{}={}", wanted.key, wanted.value), wanted.then)};
}

template <const Wanted &wanted>
Verdict is_enough(const Slurm &slurm) {
    const auto found = number_of(value(slurm.settings, wanted.key)); // none is less than any
    return found < number_of(wanted.value) ? is_set<wanted>(slurm) : std::nullopt;
}

Verdict task_plugin(const Slurm &slurm) {
    const auto found = value(slurm.settings, "TaskPlugin");
    if (has_word(found, "task/cgroup"))
        return std::nullopt;
    return Problem{
        shown("TaskPlugin", found), "nothing keeps a job to the memory and the GPUs that it was given",
        write(slurm,
              found.empty() || found == "task/none" ? "TaskPlugin=task/cgroup"
                                                    : fmt::format("TaskPlugin={},task/cgroup", found),
              kRestart)};
}

constexpr std::string_view kJobSubmit = "singularity";

Verdict job_submit(const Slurm &slurm) {
    const auto found = value(slurm.settings, "JobSubmitPlugins");
    if (has_word(found, kJobSubmit))
        return std::nullopt;
    return Problem{shown("JobSubmitPlugins", found),
                   "an elastic job that cannot be requeued is accepted, and one that is requeued begins its "
                   "output anew",
                   write(slurm,
                         found.empty() ? "JobSubmitPlugins=singularity"
                                       : fmt::format("JobSubmitPlugins={},singularity", found),
                         "and restart slurmctld")};
}

Verdict job_submit_file(const Slurm &slurm) {
    if (!has_word(value(slurm.settings, "JobSubmitPlugins"), kJobSubmit) ||
        slurm.job_submit.kind == FileKind::kRegular)
        return std::nullopt;
    return Problem{fmt::format("JobSubmitPlugins names singularity, and {} is {}",
                               slurm.job_submit.path.native(),
                               slurm.job_submit.kind == FileKind::kMissing ? "not there" : "no regular file"),
                   "a slurmctld that is started on such a host ends at once",
                   fmt::format("install slurm-singularity for Slurm {}", slurm.release)};
}

Verdict requeue_delay(const Slurm &slurm) {
    constexpr std::int64_t kDefault = 120;
    constexpr std::int64_t kLong = 30;
    const auto found = value(slurm.settings, "AuthInfo");
    const auto expire = option_of(found, "cred_expire");
    const auto seconds = expire ? number_of(*expire).value_or(kDefault) : kDefault;
    if (seconds <= kLong)
        return std::nullopt;
    const auto wanted = expire || found.empty() ? std::string("AuthInfo=cred_expire=5")
                                                : fmt::format("AuthInfo={},cred_expire=5", found);
    return Problem{expire ? fmt::format("cred_expire in AuthInfo is {}", *expire)
                          : fmt::format("AuthInfo says nothing of cred_expire: it is {}", kDefault),
                   fmt::format("each requeued job waits for {} s before it may start again", seconds + 1),
                   write(slurm, wanted, kRestart)};
}

bool loses_jobs(const std::string &mode) { return has_word(mode, "suspend") || has_word(mode, "cancel"); }

constexpr const char *kNoRequeue =
    "a suspended job keeps its GPUs, and a cancelled one does not come back from its checkpoint";

Verdict preempt_mode(const Slurm &slurm) {
    const auto type = value(slurm.settings, "PreemptType");
    const auto found = value(slurm.settings, "PreemptMode");
    if (type.empty() || type == "preempt/none" || !loses_jobs(found))
        return std::nullopt;
    return Problem{fmt::format("{}, with PreemptType={}", shown("PreemptMode", found), type), kNoRequeue,
                   write(slurm, "PreemptMode=REQUEUE", kRestart)};
}

Verdict preempt_partition(const Slurm &slurm) {
    if (value(slurm.settings, "PreemptType") != "preempt/partition_prio")
        return std::nullopt;
    const auto everywhere = value(slurm.settings, "PreemptMode");
    std::string found;
    for (const Settings &partition : slurm.partitions) {
        const auto mode = value(partition, "PreemptMode");
        if (mode != everywhere && loses_jobs(mode))
            found += fmt::format("{}PreemptMode of partition {} is {}", found.empty() ? "" : ", ",
                                 value(partition, "PartitionName"), mode);
    }
    if (found.empty())
        return std::nullopt;
    return Problem{found, kNoRequeue,
                   write(slurm, "PreemptMode=REQUEUE in the line of the partition", kReconfigure)};
}

Verdict user_signal(const Slurm &slurm) {
    const bool former =
        option_of(value(slurm.settings, "SlurmctldParameters"), "preempt_send_user_signal").has_value();
    if (!former && !option_of(value(slurm.settings, "PreemptParameters"), "send_user_signal"))
        return std::nullopt;
    const auto *const where = former ? "preempt_send_user_signal is set in SlurmctldParameters"
                                     : "send_user_signal is set in PreemptParameters";
    return Problem{
        where, "a job with --signal gets that signal in place of SIGTERM, by which it is told to save itself",
        fmt::format("take it out of that line in {} {}", slurm.file.native(), kReconfigure)};
}

Verdict gres_types(const Slurm &slurm) {
    const auto found = value(slurm.settings, "GresTypes");
    if (has_word(found, "gpu"))
        return std::nullopt;
    return Problem{
        shown("GresTypes", found), "Slurm knows of no GPUs, and elastic jobs are counted in GPUs",
        write(slurm, found.empty() ? "GresTypes=gpu" : fmt::format("GresTypes={},gpu", found), kRestart)};
}

bool yes(const std::string &value) { return is(value, "yes") || is(value, "true") || value == "1"; }

std::string write(const Cgroup &cgroup, std::string_view line) {
    return fmt::format("write {} in {} and restart slurmd", line, cgroup.file.native());
}

Verdict constrain_devices(const Cgroup &cgroup) {
    const auto found = value(cgroup.settings, "constraindevices");
    if (yes(found))
        return std::nullopt;
    return Problem{cgroup.present
                       ? fmt::format("{} in {}", shown("ConstrainDevices", found), cgroup.file.native())
                       : fmt::format("there is no {}: ConstrainDevices is no", cgroup.file.native()),
                   "a job can use GPUs that were given to others, past their device proxies",
                   write(cgroup, "ConstrainDevices=yes")};
}

Verdict signal_children(const Cgroup &cgroup) {
    const auto found = value(cgroup.settings, "signalchildrenprocesses");
    if (!yes(found))
        return std::nullopt;
    return Problem{
        fmt::format("SignalChildrenProcesses is {} in {}", found, cgroup.file.native()),
        "SIGTERM reaches all that a task has started: programs die when they are to be checkpointed",
        write(cgroup, "SignalChildrenProcesses=no")};
}

Verdict cgroup_mounts(const Cgroup &cgroup) {
    if (cgroup.unified || cgroup.v1)
        return std::nullopt;
    return Problem{"neither the unified cgroup hierarchy nor those of freezer and devices are mounted",
                   "Slurm can contain no job", "mount cgroup2 at /sys/fs/cgroup (systemd does at boot)"};
}

Verdict cgroup_plugin(const Cgroup &cgroup) {
    const auto found = value(cgroup.settings, "cgroupplugin");
    const bool other = (found == "cgroup/v1" && !cgroup.v1) || (found == "cgroup/v2" && !cgroup.unified);
    if (found != "disabled" && (!other || (!cgroup.v1 && !cgroup.unified)))
        return std::nullopt;
    return Problem{fmt::format("CgroupPlugin is {} in {}", found, cgroup.file.native()),
                   other ? "another hierarchy is mounted on this host: slurmd cannot start jobs"
                         : "without cgroups SIGTERM is not kept from what a task has started",
                   write(cgroup, "CgroupPlugin=autodetect")};
}

Verdict clock(const Clock &clock) {
    constexpr std::int64_t kMost = 5; // seconds
    if (std::abs(clock.ahead) <= kMost)
        return std::nullopt;
    return Problem{
        fmt::format("the clock of {} is {} s {} that of slurmctld's host", clock.host, std::abs(clock.ahead),
                    clock.ahead > 0 ? "ahead of" : "behind"),
        "how long jobs have run and when they were saved is told by several hosts, and munge refuses "
        "what comes from another time",
        "let a time service (chrony, ntpd) set the clocks of all hosts"};
}

constexpr std::array kSlurmChecks{
    check<clock, &Facts::clock>("clock", Severity::kError),
    check<is_set<kProctrack>, &Facts::slurm>("proctrack", Severity::kError),
    check<task_plugin, &Facts::slurm>("task-plugin", Severity::kError),
    check<is_set<kJobRequeue>, &Facts::slurm>("job-requeue", Severity::kError),
    check<preempt_mode, &Facts::slurm>("preempt-mode", Severity::kError),
    check<preempt_partition, &Facts::slurm>("preempt-partition", Severity::kError),
    check<gres_types, &Facts::slurm>("gres-types", Severity::kError),
    check<is_set<kSelectType>, &Facts::slurm>("select-type", Severity::kWarning),
    check<is_set<kPriorityType>, &Facts::slurm>("priority-type", Severity::kWarning),
    check<job_submit, &Facts::slurm>("job-submit", Severity::kWarning),
    check<job_submit_file, &Facts::slurm>("job-submit-file", Severity::kError),
    check<requeue_delay, &Facts::slurm>("requeue-delay", Severity::kWarning),
    check<is_enough<kKillWait>, &Facts::slurm>("kill-wait", Severity::kWarning),
    check<is_enough<kUnkillable>, &Facts::slurm>("unkillable-step", Severity::kWarning),
    check<user_signal, &Facts::slurm>("preempt-signal", Severity::kWarning),
    check<constrain_devices, &Facts::cgroup>("constrain-devices", Severity::kError),
    check<signal_children, &Facts::cgroup>("signal-children", Severity::kError),
    check<cgroup_mounts, &Facts::cgroup>("cgroup-mounts", Severity::kError),
    check<cgroup_plugin, &Facts::cgroup>("cgroup-plugin", Severity::kError),
};

} // namespace

std::span<const Check> slurm_checks() { return kSlurmChecks; }

} // namespace singularity::doctor
