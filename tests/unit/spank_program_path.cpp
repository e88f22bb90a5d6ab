// SPDX-License-Identifier: GPL-2.0-or-later
// Where slurmstepd would find a task's program: a table.
#include "cmocka.hpp"
#include "task/program_path.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

namespace fs = std::filesystem;
using singularity::task::program_path;
using singularity::test::expect_equal;

void as_slurmstepd_finds_it(void ** /*state*/) {
    std::string name = "/tmp/program-path-XXXXXX";
    assert_non_null(mkdtemp(name.data()));
    const fs::path top = name;
    fs::create_directories(top / "a/tool"); // a directory is no program
    fs::create_directory(top / "b");
    for (const char *const file : {"b/tool", "b/text", "own"})
        std::ofstream(top / file) << "x"; // none can be executed, which is seen later
    const std::string path = name + "/a::" + name + "/b:";
    expect_equal(program_path("/bin/tool", path, "/w"), "/bin/tool");
    expect_equal(program_path("./tool", path, "/w"), "/w/./tool");
    expect_equal(program_path("tool", path, "/w"), name + "/b/tool");
    expect_equal(program_path("text", path, "/w"), name + "/b/text");
    expect_equal(program_path("a/tool", name, "/w"), "/w/a/tool");
    expect_equal(program_path("b/tool", name, "/w"), name + "/b/tool");
    expect_equal(program_path("own", path, top), name + "/own");
    expect_equal(program_path("env", "", "/w"), "/w/env");
    fs::remove_all(top);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(as_slurmstepd_finds_it)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
