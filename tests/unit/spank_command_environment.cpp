// SPDX-License-Identifier: GPL-2.0-or-later
// What a command of Slurm's that a saved batch script runs finds in its environment outside of the node.
#include "cmocka.hpp"
#include "task/command_environment.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace {

using singularity::task::adapt_environment;
using Environment = std::vector<std::string>;

void expect_environment(Environment found, Environment expected, const char *file = __builtin_FILE(),
                        int line = __builtin_LINE()) {
    std::ranges::sort(found);
    std::ranges::sort(expected);
    const auto in_lines = [](const Environment &of) {
        std::string out;
        for (const auto &entry : of)
            out += entry + '\n';
        return out;
    };
    singularity::test::expect_equal(in_lines(found), in_lines(expected), file, line);
}

void what_finds_the_devices_stays_in_the_node(void **) {
    Environment environment{
        "HOME=/",        "LD_AUDIT=/usr/lib/singularity/x.so", "SINGULARITY_PROXY_SOCKETS=/a:/b",
        "LD_AUDITED=no", "SINGULARITY_REDIRECT_TO=/y",         "SLURM_JOB_NODELIST=n1"};
    adapt_environment(environment, {"SLURM_JOB_NODELIST=n7"}, false, 0);
    // In its first run, the script has what Slurm has told it, or has changed it.
    expect_environment(environment, {"HOME=/", "LD_AUDITED=no", "SLURM_JOB_NODELIST=n1"});
}

void a_moved_scripts_commands_know_the_new_allocation(void **) {
    const Environment own{"SLURM_JOB_NODELIST=n7",  "SLURMD_NODENAME=n7", "SLURM_RESTART_COUNT=2",
                          "CUDA_VISIBLE_DEVICES=4", "SLURM_NTASKS=8",     "PATH=/own"};
    Environment environment{"SLURM_JOB_NODELIST=n1,n2", "SLURMD_NODENAME=n1", "SLURM_JOB_QOS=high",
                            "SLURM_NTASKS=2",           "PATH=/scripts",      "A=SLURMD_NODENAME=n1",
                            "SLURMD_NODENAMES=n1"};
    adapt_environment(environment, own, true, 0);
    expect_environment(environment,
                       {"SLURM_JOB_NODELIST=n7", "SLURMD_NODENAME=n7", "SLURM_RESTART_COUNT=2",
                        "SLURM_NTASKS=2", "PATH=/scripts", "A=SLURMD_NODENAME=n1", "SLURMD_NODENAMES=n1"});
}

// The script may have taken variables away, so that its sruns do not see them.
void what_the_script_has_taken_away_stays_away(void **) {
    Environment environment{"PATH=/bin"};
    adapt_environment(environment, {"SLURM_JOB_NODELIST=n7", "SLURM_NNODES=1"}, true, 0);
    expect_environment(environment, {"PATH=/bin"});
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_finds_the_devices_stays_in_the_node),
        cmocka_unit_test(a_moved_scripts_commands_know_the_new_allocation),
        cmocka_unit_test(what_the_script_has_taken_away_stays_away),
    };
    return cmocka_run_group_tests_name("command_environment", tests, nullptr, nullptr);
}
