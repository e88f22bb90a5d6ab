// SPDX-License-Identifier: GPL-2.0-or-later
// --singularity-image, --singularity-mount and --singularity-workdir: what they take, and that a refusal
// names the value and the fix.
#include "cmocka.hpp"
#include "image_options.hpp"

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace {

using singularity::spank::check_image_option;
using singularity::spank::check_workdir_option;
using singularity::spank::parse_image_mounts;
using singularity::test::expect_contains;
using singularity::test::expect_equal;
using singularity::test::fail;

std::string shown(std::string_view text) {
    const auto mounts = parse_image_mounts(text);
    if (!mounts)
        fail(mounts.error().message());
    std::string out;
    for (const auto &one : *mounts)
        out += fmt::format("{} on {}{};", one.source, one.target, one.read_only ? " read-only" : "");
    return out;
}

void takes_mounts(void ** /*state*/) {
    expect_equal(shown("/a:/b"), "/a on /b;");
    expect_equal(shown("/a b/c:/d:ro,/e:/f"), "/a b/c on /d read-only;/e on /f;");
}

void refuses_what_is_no_mount(void ** /*state*/) {
    for (const std::string_view text :
         {"", "/a", "/a:", ":/a", "/a:/b:rw", "/a:/b:ro:", "/a:/b:", "/a:/b,", "/a:/b,,/c:/d", "a:/b", "/a:b",
          "/a/../b:/c", "/a:/..", "/a/:/b", "//a:/b", "/a:/", "/:/a", "/a:/b\nc"}) {
        const auto mounts = parse_image_mounts(text);
        if (mounts)
            fail(fmt::format("'{}' is taken", text));
        expect_contains(mounts.error().message(), "--singularity-mount=/data:/data:ro");
    }
}

std::string refusal_of(std::string_view text) {
    const auto mounts = parse_image_mounts(text);
    if (mounts)
        fail(fmt::format("'{}' is taken", text));
    return mounts.error().message();
}

void refuses_too_much(void ** /*state*/) {
    expect_contains(refusal_of("/a:/b,/c:/b:ro"), "something else is to be mounted at /b already");
    std::string many = "/a:/m0";
    for (int number = 1; number < 32; ++number)
        many += fmt::format(",/a:/m{}", number);
    assert_true(parse_image_mounts(many).has_value());
    expect_contains(refusal_of(many + ",/a:/m32"), "there are 32 before it");
}

void takes_plain_paths(void ** /*state*/) {
    assert_true(check_image_option("/images/debian-12").has_value());
    assert_true(check_workdir_option("/").has_value());
    assert_true(check_workdir_option("/work").has_value());
    for (const std::string_view text :
         {"", "image", "/", "/a/..", "/a/", "docker://debian", "/a//b", "/./a"}) {
        const auto checked = check_image_option(text);
        if (checked)
            fail(fmt::format("'{}' is taken", text));
        expect_contains(checked.error().message(), "the directory of an unpacked image");
        expect_contains(checked.error().message(), text);
    }
    const auto relative = check_workdir_option("work");
    assert_false(relative.has_value());
    expect_contains(relative.error().message(), "accept --singularity-workdir work");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(takes_mounts), cmocka_unit_test(refuses_what_is_no_mount),
                                cmocka_unit_test(refuses_too_much), cmocka_unit_test(takes_plain_paths)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
