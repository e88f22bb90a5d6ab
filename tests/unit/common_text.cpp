// SPDX-License-Identifier: GPL-2.0-or-later
#include "cmocka.hpp"
#include "common/text.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace {

using namespace singularity;
using namespace std::string_literals;
using test::expect_equal;

void escaped_table(void ** /*state*/) {
    const struct {
        std::string text;
        std::string_view expected;
    } rows[] = {
        {"plain text, 100 %", "plain text, 100 %"},
        {"", ""},
        {"two\nlines\r\n", R"(two\nlines\r\n)"},
        {"a\tb", R"(a\tb)"},
        {"nul\0byte"s, "nul\\x00byte"},
        {"\x1b[2Jclear", "\\x1b[2Jclear"},
        {"\x7f", "\\x7f"},
        {"\xc2\x9b"
         "2J",
         "\\u{009b}2J"}, // C1: the one-character CSI
        {"Z\u00fcrich \u4e2d\u6587 \U0001f600",
         "Z\u00fcrich \u4e2d\u6587 \U0001f600"}, // two, three, four bytes
        // Byte by byte: a literal with such characters would mislead readers of this file.
        {"line" + std::string{'\xe2', '\x80', '\xa8'} + "paragraph" + std::string{'\xe2', '\x80', '\xa9'},
         R"(line\u{2028}paragraph\u{2029})"},
        {std::string{'\xe2', '\x80', '\xae'} + "gnp.exe", R"(\u{202e}gnp.exe)"}, // right-to-left override
        {"\ufeffmark", "\\u{feff}mark"},
        {"\xff\xfe", R"(\xff\xfe)"},
        {"cut \xe4\xb8", R"(cut \xe4\xb8)"},         // sequence ends too early
        {"\xc3(", "\\xc3("},                         // no continuation
        {"\xc0\xaf", R"(\xc0\xaf)"},                 // overlong '/'
        {"\xed\xa0\x80", R"(\xed\xa0\x80)"},         // surrogate
        {"\xf4\x90\x80\x80", R"(\xf4\x90\x80\x80)"}, // above U+10FFFF
        {R"(C:\path\new)", R"(C:\path\new)"},
    };
    for (const auto &row : rows) {
        expect_equal(escaped(row.text), row.expected);
        expect_equal(escaped(escaped(row.text)), row.expected);
    }
}

void quote_cuts_long_text_between_characters(void ** /*state*/) {
    expect_equal(quote("a\nb"), "'a\\nb'");
    std::string text(79, 'x');
    text += "\u4e2d\u4e2d";
    expect_equal(quote(text), "'" + std::string(79, 'x') + "...' (85 bytes)");
}

void nearest_table(void ** /*state*/) {
    const std::string_view keys[] = {"log_level", "elastic.enabled", "elastic.min_gpus", "elastic.max_gpus"};
    const struct {
        std::string_view word;
        std::string_view expected;
    } rows[] = {
        {"loglevel", "log_level"},
        {"log-level", "log_level"},
        {"elastic.mni_gpus", "elastic.min_gpus"}, // swap
        {"elastic.maxgpu", "elastic.max_gpus"},
        {"elastic.min_gpus", "elastic.min_gpus"},
        {"", "log_level"},
    };
    for (const auto &row : rows)
        expect_equal(nearest(row.word, keys), row.expected);
    expect_equal(nearest("x", {}), "");
    const std::string_view swap_is_one_change[] = {"axcd", "acbx", "acbd"};
    expect_equal(nearest("abcd", std::span(swap_is_one_change).subspan(1)), "acbd");
}

void byte_count_table(void ** /*state*/) {
    const struct {
        std::uint64_t bytes;
        std::string_view expected;
    } rows[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {1536, "1.5 KiB"},
        {std::uint64_t{1} << 20U, "1.0 MiB"},
        {std::uint64_t{5} << 29U, "2.5 GiB"},
        {std::uint64_t{1} << 40U, "1.0 TiB"},
        {std::uint64_t{1} << 50U, "1.0 PiB"},
        {~std::uint64_t{0}, "16.0 EiB"},
    };
    for (const auto &row : rows)
        expect_equal(byte_count(row.bytes), row.expected);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(escaped_table),
        cmocka_unit_test(quote_cuts_long_text_between_characters),
        cmocka_unit_test(nearest_table),
        cmocka_unit_test(byte_count_table),
    };
    return cmocka_run_group_tests_name("common_text", tests, nullptr, nullptr);
}
