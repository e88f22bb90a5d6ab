// SPDX-License-Identifier: GPL-2.0-or-later
// Judging what a node has from what its programs and its kernel say.
#include "cmocka.hpp"
#include "node_checks.hpp"

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace {

using singularity::Expected;
using singularity::spank::judge_cgroup_mounts;
using singularity::spank::judge_criu_version;
using singularity::test::expect_contains;
using singularity::test::fail;

struct Case {
    std::string_view text;
    std::string_view found;  // what an accepting check says; empty where it must refuse
    std::string_view reason; // what a refusal must say
};

template <std::size_t N>
void judge(const Case (&cases)[N], Expected<std::string> (*judgement)(std::string_view)) {
    for (const Case &test : cases) {
        const auto result = judgement(test.text);
        const std::string said = result ? *result : result.error().message();
        if (result.has_value() == test.found.empty())
            fail(fmt::format("'{}' was {}: {}", test.text, result ? "accepted" : "refused", said));
        expect_contains(said, result ? test.found : test.reason);
    }
}

void criu_versions(void **) {
    constexpr Case kCases[] = {
        {"Version: 4.2.1\n", "4.2", ""},
        {"Version: 4.2\nGitID: v4.2\n", "4.2", ""},
        {"Version: 10.0\n", "10.0", ""},
        {"Version: 4.1.1\n", "", "before 4.2"},
        {"Version: 3.17.1\n", "", "before 4.2"},
        {"Version: four\n", "", "no line 'Version: MAJOR.MINOR'"},
        {"Version: 4\n", "", "no line 'Version: MAJOR.MINOR'"},
        {"Version: 4.", "", "no line 'Version: MAJOR.MINOR'"},
        {"", "", "no line 'Version: MAJOR.MINOR'"},
    };
    judge(kCases, judge_criu_version);
}

void cgroup_mounts(void **) {
    constexpr Case kCases[] = {
        {"cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n", "unified", ""},
        {"cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0\ncgroup /sys/fs/cgroup/devices cgroup "
         "rw,devices 0 0\n",
         "v1", ""},
        {"cgroup /sys/fs/cgroup/all cgroup rw,freezer,devices,memory 0 0\n", "v1", ""},
        {"cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0\n", "", "controller 'devices'"},
        {"cgroup /sys/fs/cgroup/devices cgroup rw,devices 0 0\n", "", "controller 'freezer'"},
        // A hybrid system's unified hierarchy has no controllers.
        {"cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n", "", "controller 'freezer'"},
        // A file system that only has the word among its options.
        {"tmpfs /freezer tmpfs rw,freezer,devices 0 0\n", "", "controller 'freezer'"},
        {"", "", "mount one"},
    };
    judge(kCases, judge_cgroup_mounts);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(criu_versions),
        cmocka_unit_test(cgroup_mounts),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
