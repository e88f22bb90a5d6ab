// SPDX-License-Identifier: GPL-2.0-or-later
#include "cmocka.hpp"
#include "common/installation.hpp"

#include <cstdlib>
#include <string>

namespace {

using singularity::library_directory;
using singularity::test::expect_equal;

void the_environment_names_it(void **) {
    setenv("SINGULARITY_LIBDIR", "/opt/parts", 1);
    expect_equal(library_directory().value().native(), "/opt/parts");
}

void it_lies_beside_the_programs(void **) {
    const auto program = std::filesystem::read_symlink("/proc/self/exe");
    for (const char *const none : {"", static_cast<const char *>(nullptr)}) {
        if (none != nullptr)
            setenv("SINGULARITY_LIBDIR", none, 1);
        else
            unsetenv("SINGULARITY_LIBDIR");
        const auto found = library_directory().value();
        expect_equal(found.filename().native(), "singularity");
        const auto up = found.lexically_relative(program.parent_path().parent_path());
        assert_true(up.native().starts_with("lib"));
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_names_it),
        cmocka_unit_test(it_lies_beside_the_programs),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
