// SPDX-License-Identifier: GPL-2.0-or-later
#include "module_variables.hpp"

#include "cmocka.hpp"

namespace {

using namespace singularity;
using namespace singularity::proxyd;

constexpr std::string_view kText = R"(
.version 8.0
.target sm_90
.address_size 64
// .global .b8 in_a_comment[4];
/* .global .b8 in_another[4]; */
.file 1 "a.global .b8 in_a_string[4];"
.extern .func (.param .b32 func_retval0) vprintf(.param .b64 vprintf_param_0, .param .b64 vprintf_param_1);
.visible .global .align 4 .u32 counter;
.global .align 8 .b8 table[64] = {1, 2, 3};
.visible .const .align 4 .f32 factor = 0f3F800000;
.global .u64 pointer = generic(table);
.global .attribute(.managed) .align 4 .u32 managed_one;
.extern .shared .align 16 .b8 dynamic_shared[];
.visible .entry kernel(.param .u64 kernel_param_0)
.maxntid 256, 1, 1
{
    .shared .align 4 .b8 scratch[1024];
    .reg .b32 %r<2>;
    mov.u32 %r1, counter;
    ret;
}
.global .align 1 .b8 behind_the_kernel[3];
)";

void variables_of_a_module(void ** /*state*/) {
    const auto names = names_of_ptx(kText);
    const std::vector<std::string> expected{"counter", "table",       "factor",
                                            "pointer", "managed_one", "behind_the_kernel"};
    std::string found;
    for (const auto &name : names.variables)
        found += name + " ";
    std::string wanted;
    for (const auto &name : expected)
        wanted += name + " ";
    test::expect_equal(found, wanted);
    assert_false(names.allocates);
}

void a_kernel_that_allocates(void ** /*state*/) {
    assert_true(names_of_ptx(".extern .func (.param .b64 r) malloc(.param .b64 s);").allocates);
}

void garbage_has_no_names(void ** /*state*/) {
    for (const std::string_view text : {"", "}", "{{{", "\"", "/*", ".global", ".global .b8", ";;;,,,==="})
        assert_true(names_of_ptx(text).variables.empty());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(variables_of_a_module),
        cmocka_unit_test(a_kernel_that_allocates),
        cmocka_unit_test(garbage_has_no_names),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
