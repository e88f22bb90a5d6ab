// SPDX-License-Identifier: GPL-2.0-or-later
// Judging what a node has from what its programs and its kernel say.
#include "cmocka.hpp"
#include "node_checks.hpp"

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace {

using singularity::Expected;
using singularity::spank::cgroup_mounts;
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

void cgroup_hierarchies(void **) {
    constexpr Case kCases[] = {
        {"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n", "unified", ""},
        {"31 23 0:27 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
         "32 23 0:28 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n",
         "v1", ""},
        {"31 23 0:27 / /sys/fs/cgroup/all rw - cgroup cgroup rw,freezer,devices,memory\n", "v1", ""},
        {"31 23 0:27 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n", "", "controller 'devices'"},
        {"31 23 0:27 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n", "", "controller 'freezer'"},
        // A hybrid system's unified hierarchy has no controllers.
        {"31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", "", "controller 'freezer'"},
        // A file system that only has the word among its options.
        {"31 23 0:27 / /freezer rw - tmpfs tmpfs rw,freezer,devices\n", "", "controller 'freezer'"},
        {"", "", "mount one"},
    };
    judge(kCases, [](std::string_view mountinfo) { return judge_cgroup_mounts(cgroup_mounts(mountinfo)); });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(criu_versions),
        cmocka_unit_test(cgroup_hierarchies),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
