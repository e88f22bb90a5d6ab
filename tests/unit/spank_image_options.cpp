// SPDX-License-Identifier: GPL-2.0-or-later
// --singularity-image, --singularity-mount and --singularity-workdir: what they take, and that a refusal
// names the value and the fix.
#include "cmocka.hpp"
#include "image_options.hpp"
#include "pyxis_options.hpp"

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace {

using singularity::spank::add_pyxis_option;
using singularity::spank::check_image_option;
using singularity::spank::check_root_option;
using singularity::spank::check_workdir_option;
using singularity::spank::ImageWords;
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
    assert_true(check_root_option("writable").has_value() && check_root_option("read-only").has_value());
    const auto wrong = check_root_option("ro");
    assert_false(wrong.has_value());
    expect_contains(wrong.error().message(), "accept --singularity-root ro: expected writable or read-only");
}

std::size_t number_of(std::string_view name) {
    for (std::size_t number = 0; const auto &one : singularity::spank::pyxis_options()) {
        if (one.name == name)
            return number;
        ++number;
    }
    fail(fmt::format("there is no {}", name));
    return 0;
}

void takes_options_of_pyxis(void ** /*state*/) {
    ImageWords words;
    words.mounts = "/x:/y:ro";
    for (const auto &[name, argument] :
         {std::pair("container-image", "/shared/one.sqsh"), std::pair("container-workdir", "/work"),
          std::pair("container-mounts", "/a,/b:/c,/d:/e:ro,/f:/g:rw"), std::pair("container-readonly", ""),
          std::pair("container-mount-home", "")})
        if (const auto added = add_pyxis_option(number_of(name), argument, words); !added)
            fail(added.error().message());
    expect_equal(*words.image, "/shared/one.sqsh");
    expect_equal(*words.workdir, "/work");
    expect_equal(*words.mounts, "/x:/y:ro,/a:/a,/b:/c,/d:/e:ro,/f:/g");
    expect_equal(*words.root, "read-only");
    const auto both = add_pyxis_option(number_of("container-writable"), "", words);
    assert_false(both.has_value());
    expect_contains(both.error().message(), "read-only is given for the same already");
    const auto again = add_pyxis_option(number_of("container-image"), "/shared/two.sqsh", words);
    assert_false(again.has_value());
    expect_contains(again.error().message(), "/shared/one.sqsh is given for the same already");
}

void refuses_options_of_pyxis(void ** /*state*/) {
    for (const auto &[name, argument, why] :
         {std::tuple("container-image", "docker://debian:12", "enroot import"),
          std::tuple("container-image", "debian", "enroot import"),
          std::tuple("container-image", "./a", "enroot"), std::tuple("container-mounts", "", "SRC:DST:ro"),
          std::tuple("container-mounts", "/a:", "SRC:DST:ro"),
          std::tuple("container-mounts", "/a:/b:rbind", "SRC:DST:ro"),
          std::tuple("container-mounts", "/a,,/b", "SRC:DST:ro"),
          std::tuple("container-name", "one", "each step has its own layer"),
          std::tuple("container-save", "/a", "mksquashfs"),
          std::tuple("container-remap-root", "", "nobody is root"),
          std::tuple("no-container-mount-home", "", "containers.mounts")}) {
        ImageWords words;
        const auto added = add_pyxis_option(number_of(name), argument, words);
        if (added)
            fail(fmt::format("--{}={} is taken", name, argument));
        expect_contains(added.error().message(), fmt::format("accept --{}", name));
        expect_contains(added.error().message(), why);
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(takes_mounts),           cmocka_unit_test(refuses_what_is_no_mount),
        cmocka_unit_test(refuses_too_much),       cmocka_unit_test(takes_plain_paths),
        cmocka_unit_test(takes_options_of_pyxis), cmocka_unit_test(refuses_options_of_pyxis)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
