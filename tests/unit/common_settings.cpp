// SPDX-License-Identifier: GPL-2.0-or-later
// The engine and every type of value, on a table of its own; what the real table says is common_config's.
#include "cmocka.hpp"
#include "common/settings.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace {

using namespace singularity;
using namespace singularity::settings;
using namespace std::chrono_literals;
using test::expect_contains;
using test::expect_equal;

struct Example {
    std::string title;
    std::filesystem::path store;
    std::int64_t offset{};
    std::chrono::milliseconds pause{};
    int colour{};
    bool loud{};
    bool operator==(const Example &) const = default;
};

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::array<std::pair<std::string_view, int>, 2> kColours{{{"red", 1}, {"green", 2}}};

constexpr std::tuple kKeys{
    Key{"title", Text{1, 20}, std::string_view("none"), [](auto &e) -> auto & { return e.title; }},
    Key{"store.path", AbsolutePath{}, std::string_view("/srv"), [](auto &e) -> auto & { return e.store; }},
    Key{"store.offset", Integer{kLeast, kMost}, -3, [](auto &e) -> auto & { return e.offset; }},
    Key{"pace.pause", Duration{0ms, std::chrono::milliseconds::max()}, 1500ms,
        [](auto &e) -> auto & { return e.pause; }},
    Key{"pace.colour", Choice{kColours}, 2, [](auto &e) -> auto & { return e.colour; }},
    Key{"loud", Boolean{}, false, [](auto &e) -> auto & { return e.loud; }},
};

Example defaults() {
    Example example;
    set_defaults(kKeys, example);
    return example;
}

Example good(std::string_view text) {
    Example example = defaults();
    if (const auto lines = settings::read(kKeys, example, text, "f"); !lines)
        test::fail(fmt::format("{}\nin: {}", lines.error().message(), text));
    return example;
}

std::string bad(std::string_view text) {
    Example example = defaults();
    const auto lines = settings::read(kKeys, example, text, "f");
    if (lines)
        test::fail(fmt::format("accepted: {}", text));
    return lines.error().message();
}

void integers(void ** /*state*/) {
    const auto value = [](std::string_view text) {
        return good(fmt::format("store: {{offset: {}}}", text)).offset;
    };
    assert_true(value("0") == 0);
    assert_true(value("-1") == -1);
    assert_true(value("9223372036854775807") == kMost);
    assert_true(value("-9223372036854775808") == kLeast);
    for (const std::string_view text :
         {"9223372036854775808", "-9223372036854775809", "+1", "010", "-0", "0x10", "1_000", "1e3", "1.0",
          "ten", "'1'", "\"1\"", "-", "true", "[1]", "~", "1 2"}) {
        expect_contains(bad(fmt::format("store: {{offset: {}}}", text)),
                        "f:1: store.offset: expected a whole number from -9223372036854775808 to "
                        "9223372036854775807, found ");
    }
}

void durations(void ** /*state*/) {
    const auto value = [](std::string_view text) {
        return good(fmt::format("pace: {{pause: {}}}", text)).pause;
    };
    assert_true(value("500ms") == 500ms);
    assert_true(value("30s") == 30s);
    assert_true(value("5m") == 5min);
    assert_true(value("2h") == 2h);
    assert_true(value("0s") == 0s);
    assert_true(value("'7s'") == 7s);
    assert_true(value("9223372036854775807ms") == std::chrono::milliseconds::max());
    for (const std::string_view text :
         {"30", "s", "ms", "-1s", "1.5s", "1 s", "1S", "1d", "1us", "01s", "1s30ms", "9223372036854775807s",
          "9223372036854775808ms", "2562047788016h", "true", "{}", "[]", "null", "''"})
        expect_contains(bad(fmt::format("pace: {{pause: {}}}", text)),
                        "f:1: pace.pause: expected a duration from 0s to ");
}

void durations_are_printed_in_the_largest_exact_unit(void ** /*state*/) {
    const Duration type{0ms, 1h};
    const std::pair<std::chrono::milliseconds, std::string_view> rows[] = {
        {0ms, "0s"},  {1ms, "1ms"},  {1500ms, "1500ms"}, {60s, "1m"},
        {90s, "90s"}, {3600s, "1h"}, {5400s, "90m"}};
    for (const auto &[value, text] : rows)
        expect_equal(settings::to_yaml(type, value), text);
}

void booleans(void ** /*state*/) {
    assert_true(good("loud: true").loud);
    assert_false(good("loud: false").loud);
    for (const std::string_view text :
         {"yes", "no", "on", "True", "FALSE", "1", "0", "'true'", "~", "{a: 1}"})
        expect_contains(bad(fmt::format("loud: {}", text)), "f:1: loud: expected true or false, found ");
}

void choices(void ** /*state*/) {
    assert_int_equal(good("pace: {colour: red}").colour, 1);
    assert_int_equal(good("pace: {colour: 'green'}").colour, 2);
    for (const std::string_view text : {"Red", "blue", "1", "''", "~"})
        expect_contains(bad(fmt::format("pace: {{colour: {}}}", text)),
                        "pace.colour: expected one of red, green, found ");
}

void paths(void ** /*state*/) {
    expect_equal(good("store: {path: /var/lib/x}").store.native(), "/var/lib/x");
    expect_equal(good("store: {path: '/with space/\u00e4'}").store.native(), "/with space/\u00e4");
    for (const std::string text : {"relative", "./x", "~", "~/x", "''", R"("/a\nb")", R"("/a\0b")"})
        expect_contains(bad(fmt::format("store: {{path: {}}}", text)),
                        "f:1: store.path: expected an absolute path, found ");
    expect_contains(bad("store: {path: /" + std::string(5000, 'x') + "}"),
                    "store.path: expected an absolute path, found '/xxx");
    const AbsolutePath or_none{.may_be_empty = true};
    assert_true(settings::value_of(or_none, {.text = "", .quoted = true}) == std::filesystem::path());
    assert_true(settings::value_of(or_none, {.text = "/a", .quoted = false}) == std::filesystem::path("/a"));
    assert_false(settings::value_of(or_none, {.text = "a", .quoted = false}).has_value());
    expect_equal(settings::expected(or_none), "an absolute path, or ''");
    expect_equal(settings::to_yaml(or_none, {}), R"("")");
}

void texts(void ** /*state*/) {
    expect_equal(good("title: a b # comment").title, "a b");
    expect_equal(good("title: '# no comment'").title, "# no comment");
    expect_equal(good(R"(title: "\u00e4")").title, "\u00e4");
    expect_equal(good("title: 'null'").title, "null");
    for (const std::string_view text : {"''", "null", "", "'this is longer than twenty bytes'", R"("a\tb")",
                                        R"("\e[1m")", "|\n  block\n", R"("\L")", R"("\N")", R"("\0")"})
        expect_contains(bad(fmt::format("title: {}", text)),
                        "f:1: title: expected one line of 1 to 20 bytes");
}

void what_is_printed_is_read_again(void ** /*state*/) {
    Example example = defaults();
    expect_equal(settings::to_yaml(kKeys, std::as_const(example)), "title: \"none\"\n"
                                                                   "store:\n"
                                                                   "  path: \"/srv\"\n"
                                                                   "  offset: -3\n"
                                                                   "pace:\n"
                                                                   "  pause: 1500ms\n"
                                                                   "  colour: green\n"
                                                                   "loud: false\n");
    example = {R"(a "b" \n 'c' #: {})", R"(/x "y" \z)", kLeast, std::chrono::milliseconds::max(), 1, true};
    assert_true(good(settings::to_yaml(kKeys, std::as_const(example))) == example);
}

void lines_of_keys_are_reported(void ** /*state*/) {
    Example example = defaults();
    const auto lines = settings::read(
        kKeys, example, "# comment\n\nloud: true\nstore:\n  # comment\n  offset:\n    5\n", "f");
    assert_true(lines.has_value());
    assert_int_equal(lines->at("loud"), 3);
    assert_int_equal(lines->at("store"), 4);
    assert_int_equal(lines->at("store.offset"), 6);
    assert_false(lines->contains("title"));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(integers),
        cmocka_unit_test(durations),
        cmocka_unit_test(durations_are_printed_in_the_largest_exact_unit),
        cmocka_unit_test(booleans),
        cmocka_unit_test(choices),
        cmocka_unit_test(paths),
        cmocka_unit_test(texts),
        cmocka_unit_test(what_is_printed_is_read_again),
        cmocka_unit_test(lines_of_keys_are_reported),
    };
    return cmocka_run_group_tests_name("common_settings", tests, nullptr, nullptr);
}
