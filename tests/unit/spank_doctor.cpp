// SPDX-License-Identifier: GPL-2.0-or-later
// What singularityctl doctor makes of facts: nothing of good ones, and of each that is changed one finding.
#include "cmocka.hpp"
#include "doctor/checks.hpp"
#include "doctor/report.hpp"
#include "doctor/slurm_text.hpp"

#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace {

using namespace singularity::doctor;
using singularity::Error;
using singularity::test::expect_contains;
using singularity::test::expect_equal;
using singularity::test::fail;

FileFacts directory(const char *path, uid_t uid = 0, mode_t mode = 0755) {
    return {.path = path, .kind = FileKind::kDirectory, .uid = uid, .mode = mode};
}

Place place(const char *path, const char *type) {
    return {.directory = directory(path, 0, 0700),
            .way = {directory("/"), directory("/shared", 0, 01777)},
            .type = type,
            .options = {},
            .free = 50,
            .size = 100};
}

// Two nodes, and this is n1.
Facts good() {
    Facts facts;
    facts.slurm = Slurm{.file = "/etc/slurm/slurm.conf",
                        .settings = {{"ProctrackType", "proctrack/cgroup"},
                                     {"TaskPlugin", "task/affinity,task/cgroup"},
                                     {"SelectType", "select/cons_tres_singularity"},
                                     {"PriorityType", "priority/singularity"},
                                     {"JobSubmitPlugins", "lua,singularity"},
                                     {"JobRequeue", "1"},
                                     {"AuthInfo", "socket=/run/munge/s,cred_expire=5"},
                                     {"KillWait", "120 sec"},
                                     {"UnkillableStepTimeout", "60 sec"},
                                     {"PreemptType", "preempt/partition_prio"},
                                     {"PreemptMode", "REQUEUE"},
                                     {"GresTypes", "gpu"}},
                        .partitions = {{{"PartitionName", "low"}, {"PreemptMode", "REQUEUE"}},
                                       {{"PartitionName", "high"}, {"PreemptMode", "OFF"}}},
                        .nodes = {"n1", "n2"},
                        .host = "n1",
                        .gpus = 4,
                        .release = "24.11.5",
                        .clock_ahead = 0,
                        .job_submit = {.path = "/lib/slurm/job_submit_singularity.so",
                                       .kind = FileKind::kRegular,
                                       .uid = 0,
                                       .mode = 0644}};
    facts.cgroup = Cgroup{.file = "/etc/slurm/cgroup.conf",
                          .present = true,
                          .settings = {{"constraindevices", "Yes"}, {"cgroupplugin", "cgroup/v1"}},
                          .unified = false,
                          .v1 = true};
    facts.plugstack = Plugstack{.file = "/etc/slurm/plugstack.conf",
                                .present = true,
                                .line = PlugstackLine{.file = "/etc/slurm/plugstack.conf",
                                                      .number = 3,
                                                      .required = true,
                                                      .plugin = "spank_singularity.so"},
                                // Root's file of a sticky directory, by root's link, is root's.
                                .way = {directory("/"),
                                        directory("/tmp", 0, 01777),
                                        {.path = "/tmp/l", .kind = FileKind::kLink, .uid = 0, .mode = 0777}},
                                .plugin = {.path = "/lib/slurm/spank_singularity.so",
                                           .kind = FileKind::kRegular,
                                           .uid = 0,
                                           .mode = 0644},
                                .version = 0x180b00, // another third number than this host's
                                .load_error = {}};
    facts.configuration_file = "/etc/slurm/singularity.yaml";
    facts.configuration->agents.address = "10.77.0.2";
    facts.configuration->store.quota_gib = 500;
    facts.configuration_way = std::vector{directory("/etc"), directory("/etc/slurm")};
    facts.keys = std::vector{
        FileFacts{.path = "/etc/munge/munge.key", .kind = FileKind::kRegular, .uid = 110, .mode = 0400},
        FileFacts{.path = "/etc/slurm/slurm.key", .kind = FileKind::kRegular, .uid = 64030, .mode = 0600}};
    facts.ptrace_scope = PtraceScope{.value = 1};
    facts.stores = std::vector{place("/shared/store", "nfs4"), place("/shared/fast", "lustre")};
    facts.clock = Clock{.host = "n1", .ahead = 0};
    facts.staging = place("/var/lib/singularity/staging", "ext4");
    facts.local = place("/var/spool/singularity/local", "xfs");
    facts.local->options = "rw,prjquota";
    facts.agent = Agent{.socket = "/run/singularity/agent.sock", .silence = {}, .uid = 0};
    facts.agent_program = AgentProgram{
        .file = "/usr/sbin/singularityd", .replaced = false, .version = "1.2.3", .ours = "1.2.3"};
    facts.libraries = Libraries{.directory = "/usr/lib/singularity", .missing = {}};
    facts.nccl = Nccl{.library = "/usr/lib/libnccl.so.2", .trouble = {}};
    facts.criu = Criu{.version = "4.2", .run_is_memory = true};
    facts.driver = Driver{.control = true, .devices = 4, .library_error = {}};
    facts.munge = Munge{.socket = "/run/munge/munge.socket.2", .trouble = {}};
    facts.host_name =
        HostName{.name = "n1", .resolved = {"10.77.0.2"}, .trouble = {}, .own = {"127.0.0.1", "10.77.0.2"}};
    facts.images = ForImages{.overlay = {}, .fuse = {}, .server = "/usr/bin/squashfuse_ll"};
    return facts;
}

struct Case {
    std::string_view check;
    void (*spoil)(Facts &facts);
    std::string_view what; // the finding must say, in what was found or in the fix
};

constexpr Case kCases[] = {
    {"clock", [](Facts &f) { f.clock->ahead = 6; }, "n1 is 6 s ahead of that of slurmctld's host"},
    {"clock", [](Facts &f) { f.clock->ahead = -3600; }, "is 3600 s behind that"},
    {"proctrack", [](Facts &f) { f.slurm->settings["ProctrackType"] = "proctrack/linuxproc"; },
     "proctrack/linuxproc"},
    {"task-plugin", [](Facts &f) { f.slurm->settings["TaskPlugin"] = "task/affinity"; },
     "TaskPlugin=task/affinity,task/cgroup"},
    {"task-plugin", [](Facts &f) { f.slurm->settings.erase("TaskPlugin"); }, "TaskPlugin is not set"},
    {"select-type", [](Facts &f) { f.slurm->settings["SelectType"] = "select/cons_tres"; },
     "SelectType is select/cons_tres"},
    {"priority-type", [](Facts &f) { f.slurm->settings["PriorityType"] = "priority/basic"; },
     "priority/basic"},
    {"job-requeue", [](Facts &f) { f.slurm->settings["JobRequeue"] = "0"; }, "JobRequeue is 0"},
    {"job-submit", [](Facts &f) { f.slurm->settings["JobSubmitPlugins"] = "lua"; },
     "write JobSubmitPlugins=lua,singularity"},
    {"job-submit", [](Facts &f) { f.slurm->settings.erase("JobSubmitPlugins"); },
     "JobSubmitPlugins is not set"},
    {"job-submit-file", [](Facts &f) { f.slurm->job_submit.kind = FileKind::kMissing; },
     "/lib/slurm/job_submit_singularity.so is not there"},
    {"job-submit-file", [](Facts &f) { f.slurm->job_submit.kind = FileKind::kDirectory; }, "no regular file"},
    {"requeue-delay", [](Facts &f) { f.slurm->settings.erase("AuthInfo"); }, "write AuthInfo=cred_expire=5"},
    {"requeue-delay", [](Facts &f) { f.slurm->settings["AuthInfo"] = "socket=/s"; },
     "AuthInfo=socket=/s,cred_expire=5"},
    {"requeue-delay", [](Facts &f) { f.slurm->settings["AuthInfo"] = "cred_expire=120"; },
     "cred_expire in AuthInfo is 120"},
    {"kill-wait", [](Facts &f) { f.slurm->settings["KillWait"] = "30 sec"; }, "KillWait is 30 sec"},
    {"unkillable-step", [](Facts &f) { f.slurm->settings["UnkillableStepTimeout"] = "20 sec"; }, "is 20 sec"},
    {"preempt-mode",
     [](Facts &f) {
         f.slurm->settings["PreemptMode"] = "GANG,SUSPEND";
         f.slurm->partitions[0]["PreemptMode"] = "GANG,SUSPEND";
     },
     "GANG,SUSPEND"},
    {"preempt-partition", [](Facts &f) { f.slurm->partitions[0]["PreemptMode"] = "CANCEL"; },
     "PreemptMode of partition low is CANCEL"},
    {"preempt-signal", [](Facts &f) { f.slurm->settings["PreemptParameters"] = "send_user_signal"; },
     "PreemptParameters"},
    {"preempt-signal",
     [](Facts &f) { f.slurm->settings["SlurmctldParameters"] = "preempt_send_user_signal"; },
     "SlurmctldParameters"},
    {"gres-types", [](Facts &f) { f.slurm->settings["GresTypes"] = "nic"; }, "GresTypes=nic,gpu"},
    {"constrain-devices", [](Facts &f) { f.cgroup->settings.erase("constraindevices"); },
     "ConstrainDevices is not set"},
    {"constrain-devices", [](Facts &f) { f.cgroup->settings["constraindevices"] = "no"; },
     "ConstrainDevices is no"},
    {"constrain-devices",
     [](Facts &f) {
         f.cgroup->settings.clear();
         f.cgroup->present = false;
     },
     "there is no /etc/slurm/cgroup.conf"},
    {"signal-children", [](Facts &f) { f.cgroup->settings["signalchildrenprocesses"] = "yes"; },
     "SignalChildrenProcesses=no"},
    {"cgroup-mounts", [](Facts &f) { f.cgroup->v1 = false; }, "neither"},
    {"cgroup-plugin",
     [](Facts &f) {
         f.cgroup->v1 = false;
         f.cgroup->unified = true;
     },
     "CgroupPlugin is cgroup/v1"},
    {"cgroup-plugin", [](Facts &f) { f.cgroup->settings["cgroupplugin"] = "disabled"; },
     "CgroupPlugin=autodetect"},
    {"plugstack-line",
     [](Facts &f) {
         f.plugstack = Plugstack{
             .file = "/p.conf", .present = false, .line = {}, .way = {}, .plugin = {}, .load_error = {}};
     },
     "there is no /p.conf"},
    {"plugstack-line",
     [](Facts &f) {
         f.plugstack = Plugstack{
             .file = "/p.conf", .present = true, .line = {}, .way = {}, .plugin = {}, .load_error = {}};
     },
     "no line of /p.conf"},
    {"plugstack-required", [](Facts &f) { f.plugstack->line->required = false; },
     "line 3 of /etc/slurm/plugstack.conf says optional"},
    {"plugin-file",
     [](Facts &f) {
         f.plugstack->plugin.kind = FileKind::kMissing;
         f.plugstack->version = 0;
     },
     "not there"},
    {"plugin-file",
     [](Facts &f) {
         f.plugstack->plugin.kind = FileKind::kDirectory;
         f.plugstack->version = 0;
     },
     "no regular file"},
    {"plugin-owner", [](Facts &f) { f.plugstack->plugin.uid = 1001; }, "belongs to uid 1001"},
    {"plugin-owner", [](Facts &f) { f.plugstack->plugin.mode = 0664; }, "mode 0664"},
    {"plugin-way", [](Facts &f) { f.plugstack->way[0].uid = 1001; }, "/, on the way to /lib/slurm/"},
    {"plugin-way", [](Facts &f) { f.plugstack->way[1].mode = 0777; }, "belongs to uid 0 and has mode 0777"},
    {"plugin-way", [](Facts &f) { f.plugstack->way[2].uid = 1001; }, "/tmp/l, on the way"},
    {"plugin-loads", [](Facts &f) { f.plugstack->load_error = "libx.so: cannot open"; }, "libx.so"},
    {"plugin-version", [](Facts &f) { f.plugstack->version = 0x160508; },
     "is for Slurm 22.05.8, and this is 24.11.5"},
    {"configuration",
     [](Facts &f) { f.configuration = std::unexpected(Error{"read", "x.yaml", "line 3 is odd"}); },
     "line 3 is odd"},
    {"elastic-enabled", [](Facts &f) { f.configuration->elastic.enabled = false; },
     "elastic.enabled is false"},
    {"decide", [](Facts &f) { f.configuration->slurmctld.decide = false; }, "slurmctld.decide is false"},
    {"run-without-slurm", [](Facts &f) { f.configuration->agents.run_without_slurm = true; },
     "agents.run_without_slurm is true"},
    {"configuration-way", [](Facts &f) { f.configuration_way->back().uid = 64030; },
     "/etc/slurm, on the way to singularity.yaml, belongs to uid 64030 and has mode 0755"},
    {"configuration-way", [](Facts &f) { f.configuration_way->front().mode = 0775; }, "chmod go-w /etc"},
    {"store-quota", [](Facts &f) { f.configuration->store.quota_gib = 0; }, "store.quota_gib is 0"},
    {"agents-address", [](Facts &f) { f.configuration->agents.address = ""; }, "the cluster has 2 nodes"},
    {"agents-address-own", [](Facts &f) { f.configuration->agents.address = "10.0.0.9"; },
     "agents.address is 10.0.0.9"},
    {"store-missing", [](Facts &f) { f.stores->front().directory.kind = FileKind::kMissing; },
     "install -d -m 0700 -o root /shared/store"},
    {"store-owner", [](Facts &f) { f.stores->front().directory.uid = 1001; }, "belongs to uid 1001"},
    {"store-owner", [](Facts &f) { f.stores->front().directory.mode = 0750; }, "mode 0750"},
    {"store-owner", [](Facts &f) { f.stores->front().directory.kind = FileKind::kRegular; },
     "is no directory"},
    {"store-way", [](Facts &f) { f.stores->front().way[1].mode = 0777; },
     "/shared, above the checkpoint store"},
    {"store-way", [](Facts &f) { f.stores->front().way[1].uid = 1001; }, "belongs to uid 1001"},
    {"store-way", [](Facts &f) { f.stores->front().way[1].kind = FileKind::kLink; }, "a symbolic link"},
    {"store-shared", [](Facts &f) { f.stores->front().type = "xfs"; }, "is on xfs"},
    {"store-memory", [](Facts &f) { f.stores->front().type = "tmpfs"; }, "is on tmpfs"},
    {"store-memory", [](Facts &f) { f.stores->back().type = "tmpfs"; }, "/shared/fast is on tmpfs"},
    {"store-space", [](Facts &f) { f.stores->front().free = 9; }, "9 B are free"},
    {"staging-owner", [](Facts &f) { f.staging->directory.mode = 0755; }, "mode 0755"},
    {"staging-memory", [](Facts &f) { f.staging->type = "tmpfs"; }, "is on tmpfs"},
    {"staging-space", [](Facts &f) { f.staging->free = 9; }, "9 B are free"},
    {"local-owner", [](Facts &f) { f.local->directory.mode = 0755; }, "chmod 0700"},
    {"local-way", [](Facts &f) { f.local->way.back().mode = 0777; }, "has mode 0777"},
    {"local-shared", [](Facts &f) { f.local->type = "nfs4"; }, "is on nfs4"},
    {"local-memory", [](Facts &f) { f.local->type = "tmpfs"; }, "is on tmpfs"},
    {"local-subvolumes", [](Facts &f) { f.local->type = "btrfs"; }, "is on btrfs"},
    {"local-quota", [](Facts &f) { f.local->options = "rw,relatime"; }, "without prjquota"},
    {"images-overlay", [](Facts &f) { f.images->overlay = "No such device"; }, "modprobe overlay"},
    {"images-fuse", [](Facts &f) { f.images->fuse = "No such file or directory"; },
     "/dev/fuse cannot be opened: No such file or directory"},
    {"images-server", [](Facts &f) { f.images->server.clear(); }, "install the package squashfuse"},
    {"agent-silent", [](Facts &f) { f.agent->silence = "connection refused"; }, "connection refused"},
    {"agent-owner", [](Facts &f) { f.agent->uid = 1001; }, "uid 1001 listens"},
    {"agent-version", [](Facts &f) { f.agent_program->version = "1.2.2"; },
     "is version 1.2.2, and this program 1.2.3"},
    {"agent-replaced", [](Facts &f) { f.agent_program->replaced = true; }, "has been replaced"},
    {"libraries", [](Facts &f) { f.libraries->missing = {"/l/singularity-init", "/l/b"}; },
     "/l/singularity-init, /l/b"},
    {"nccl", [](Facts &f) { f.nccl->trouble = "Permission denied"; },
     "/usr/lib/libnccl.so.2, cannot be used: Permission denied"},
    {"criu-version",
     [](Facts &f) { f.criu->version = std::unexpected(Error{"use CRIU", "", "it is not installed"}); },
     "it is not installed"},
    {"criu-run", [](Facts &f) { f.criu->run_is_memory = false; }, "/run is no tmpfs"},
    {"criu-kernel", [](Facts &f) { f.criu_kernel->trouble = "no prctl"; }, "no prctl"},
    {"driver-missing", [](Facts &f) { f.driver->control = false; }, "no /dev/nvidiactl"},
    {"driver-library", [](Facts &f) { f.driver->library_error = "not found"; },
     "libcuda.so.1 cannot be used: not found"},
    {"device-files", [](Facts &f) { f.driver->devices = 3; }, "4 GPUs, and /dev has 3"},
    {"munge", [](Facts &f) { f.munge->trouble = "Socket communication error"; },
     "Socket communication error"},
    {"host-resolves",
     [](Facts &f) {
         f.host_name->resolved.clear();
         f.host_name->trouble = "Name or service not known";
     },
     "Name or service"},
    {"host-loopback", [](Facts &f) { f.host_name->resolved = {"127.0.1.1"}; }, "stands for 127.0.1.1"},
    {"host-address", [](Facts &f) { f.host_name->resolved.push_back("10.77.0.9"); }, "10.77.0.9"},
    {"kernel-network", [](Facts &f) { f.kernel_network->broken = {{"vxlan", "not supported"}}; },
     "vxlan cannot be used: not supported"},
    {"key-files", [](Facts &f) { f.keys->front().mode = 0444; }, "/etc/munge/munge.key has mode 0444"},
    {"key-files", [](Facts &f) { f.keys->back().mode = 0620; }, "chmod 0600 /etc/slurm/slurm.key"},
    {"ptrace-scope", [](Facts &f) { f.ptrace_scope->value = 0; }, "kernel.yama.ptrace_scope is 0"},
};

void good_facts_give_nothing(void **) {
    const auto diagnosis = diagnose(good());
    for (const auto &finding : diagnosis.findings)
        fail(fmt::format("{}: {}", finding.check, finding.problem.what));
    assert_true(diagnosis.unlooked.empty());
    expect_equal(in_words(diagnosis), "no problem found\n");
    assert_int_equal(exit_status(diagnosis), 0);
}

void each_misconfiguration_is_found_alone(void **) {
    for (const Case &test : kCases) {
        Facts facts = good();
        test.spoil(facts);
        const auto diagnosis = diagnose(facts);
        if (diagnosis.findings.size() != 1 || diagnosis.findings[0].check != test.check)
            fail(fmt::format("{} ({}): {} findings: {}", test.check, test.what, diagnosis.findings.size(),
                             in_words(diagnosis)));
        const auto &problem = diagnosis.findings[0].problem;
        expect_contains(problem.what + "\n" + problem.fix, test.what);
        assert_false(problem.why.empty() || problem.fix.empty());
        assert_int_equal(exit_status(diagnosis), 1);
    }
}

void each_check_has_a_case(void **) {
    std::set<std::string_view> tested;
    for (const Case &test : kCases)
        tested.insert(test.check);
    for (const auto table : {slurm_checks(), plugstack_checks(), configuration_checks(), host_checks()})
        for (const Check &check : table)
            if (tested.erase(check.name) != 1)
                fail(fmt::format("'{}' has no case, or two checks have that name", check.name));
    assert_true(tested.empty());
}

// Where nothing could be seen nothing is found: neither a problem nor health.
void what_was_not_seen_is_not_judged(void **) {
    Facts facts = good();
    facts.slurm = std::unexpected(NotSeen{.why = Unseen::kFailed, .words = "slurmctld does not answer"});
    facts.criu_kernel = std::unexpected(NotSeen{.why = Unseen::kNeedsRoot, .words = "it is root's"});
    facts.kernel_network = std::unexpected(facts.criu_kernel.error());
    auto diagnosis = diagnose(facts);
    assert_true(diagnosis.findings.empty());
    assert_int_equal(exit_status(diagnosis), 2);
    const auto words = in_words(diagnosis);
    expect_contains(words, "not looked at (cannot look: slurmctld does not answer): slurm.conf");
    expect_contains(words,
                    "not looked at (needs root: it is root's): what CRIU needs of the kernel; what private");
    assert_false(words.contains("no problem found"));
    // What only needs root leaves the verdict on the rest.
    facts.slurm = good().slurm;
    diagnosis = diagnose(facts);
    assert_int_equal(exit_status(diagnosis), 0);
    facts.slurm->settings["JobRequeue"] = "0";
    assert_int_equal(exit_status(diagnose(facts)), 1);
    // What a site has not turned on is not mentioned.
    facts = good();
    facts.local = std::unexpected(NotSeen{.why = Unseen::kUnused, .words = "none"});
    facts.images = std::unexpected(NotSeen{.why = Unseen::kUnused, .words = "none"});
    assert_string_equal(in_words(diagnose(facts)).c_str(), "no problem found\n");
}

void one_node_needs_no_others(void **) {
    Facts facts = good();
    facts.slurm->nodes = {"n1"};
    facts.stores->front().type = "ext4";
    facts.configuration->agents.address = "";
    expect_equal(in_words(diagnose(facts)), "no problem found\n");
}

void errors_come_first(void **) {
    Facts facts = good();
    facts.slurm->settings["KillWait"] = "5";
    facts.munge->trouble = "gone";
    const auto words = in_words(diagnose(facts));
    assert_true(words.starts_with("error: munged"));
    expect_contains(words, "\n\nwarning: KillWait is 5\n  why: ");
}

void json_holds_the_same(void **) {
    Facts facts = good();
    facts.munge->trouble = "a \"quoted\"\nline \xff";
    facts.slurm = std::unexpected(NotSeen{.why = Unseen::kFailed, .words = "gone"});
    const auto diagnosis = diagnose(facts);
    const auto &problem = diagnosis.findings.at(0).problem;
    expect_equal(
        in_json(diagnosis),
        fmt::format(
            R"({{"status": 2, "findings": [{{"check": "munge", "severity": "error", "what": )"
            R"("munged at /run/munge/munge.socket.2 makes or reads no credential: a \"quoted\"\\nline \\xff", )"
            R"("why": "{}", "fix": "{}"}}], "not_looked_at": [{{"part": "slurm.conf, as slurmctld has it", )"
            R"("reason": "cannot look", "words": "gone"}}]}})"
            "\n",
            problem.why, problem.fix));
    expect_equal(in_json(diagnose(good())), "{\"status\": 0, \"findings\": [], \"not_looked_at\": []}\n");
}

void slurms_words_are_read(void **) {
    const auto config =
        parse_config("Configuration data as of 2026\nKillWait                = 5 sec\nAuthInfo = (null)\n"
                     "PreemptMode=REQUEUE\n\nCgroup Support:\nKillWait = 7\n");
    assert_int_equal(config.size(), 2);
    expect_equal(config.at("KillWait"), "5 sec");
    expect_equal(config.at("PreemptMode"), "REQUEUE");
    std::tm when{};
    when.tm_year = 2026 - 1900;
    when.tm_mday = 31;
    when.tm_hour = 12;
    when.tm_isdst = -1;
    assert_true(written_at("Configuration data as of 2026-01-31T12:00:00\nKillWait = 5") ==
                std::mktime(&when));
    for (const auto *const text : {"", "Configuration data as of 2026-01-31 12:00", "KillWait = 5",
                                   "Configuration data as of 2026-01-31T12:00:00.5\n"})
        assert_false(written_at(text).has_value());
    const auto records =
        parse_records("PartitionName=a PreemptMode=OFF Nodes=(null)\nPartitionName=b   X=y=z\n");
    assert_int_equal(records.size(), 2);
    assert_int_equal(records[0].size(), 2);
    expect_equal(records[1].at("X"), "y=z");
    const auto conf = parse_conf(
        "# ConstrainDevices=no\nconstraindevices=yes # why\nConstrainRAMSpace=yes CgroupPlugin=a\n");
    assert_int_equal(conf.size(), 3);
    expect_equal(conf.at("constraindevices"), "yes");
    assert_int_equal(gpus_of("gpu:4"), 4);
    assert_int_equal(gpus_of("gpu:a100:2(S:0,1),shard:8,gpu:h100:3(S:0-1)"), 5);
    assert_int_equal(gpus_of("(null)"), 0);
    assert_int_equal(gpus_of("gpu:"), 0);
    assert_int_equal(gpus_of("mygpu:3,gpu:-1"), 0);
    assert_int_equal(number_of("30 sec").value_or(0), 30);
    assert_false(number_of("UNLIMITED").has_value());
    expect_equal(option_of("a=1, Cred_Expire=5", "cred_expire").value_or("none"), "5");
    assert_false(option_of("my_cred_expire=5", "cred_expire").has_value());
    assert_true(has_word("task/affinity,task/cgroup", "task/cgroup"));
    assert_false(has_word("task/cgroup2", "task/cgroup"));
    assert_int_equal(version_of("slurm-wlm 22.05.8\n"), 0x160508);
    assert_int_equal(version_of("slurm 24.11.0-0rc1"), 0x180b00);
    for (const char *none : {"", "slurm", "24.11", "24.11.x", "999.1.1"})
        assert_int_equal(version_of(none), 0);
    expect_equal(release_of(0x160508), "22.05.8");
}

void plugstack_lines_are_read(void **) {
    const auto words = parse_plugstack(
        "# required x.so\n\n  Required\t/lib/spank_singularity.so a=b\ninclude d/*.conf\noptional\n");
    assert_int_equal(words.size(), 2);
    assert_int_equal(words[0].number, 3);
    expect_equal(words[0].kind, "required");
    expect_equal(words[0].what, "/lib/spank_singularity.so");
    expect_equal(words[1].kind, "include");
    expect_equal(words[1].what, "d/*.conf");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(good_facts_give_nothing),  cmocka_unit_test(each_misconfiguration_is_found_alone),
        cmocka_unit_test(each_check_has_a_case),    cmocka_unit_test(what_was_not_seen_is_not_judged),
        cmocka_unit_test(one_node_needs_no_others), cmocka_unit_test(errors_come_first),
        cmocka_unit_test(json_holds_the_same),      cmocka_unit_test(slurms_words_are_read),
        cmocka_unit_test(plugstack_lines_are_read),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
