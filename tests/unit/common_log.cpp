// SPDX-License-Identifier: GPL-2.0-or-later
#include "cmocka.hpp"
#include "common/log.hpp"
#include "common/unique_fd.hpp"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <regex.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

struct Unprintable {};

} // namespace

template <>
struct fmt::formatter<Unprintable> : fmt::formatter<int> {
    template <class Context>
    auto format(const Unprintable & /*value*/, Context &context) const {
        throw std::runtime_error("no words for it");
        return context.out(); // gives the type
    }
};

namespace {

using namespace singularity;
using test::expect_equal;

constexpr log::Channel kLog("test");

std::mutex kept_mutex;
std::vector<std::pair<log::Level, std::string>> kept;

void keep(log::Level level, std::string_view line) {
    const std::scoped_lock lock(kept_mutex);
    kept.emplace_back(level, line);
}

void refuse(log::Level /*level*/, std::string_view /*line*/) { throw std::runtime_error("sink"); }

int with_sink(void ** /*state*/) {
    kept.clear();
    log::set_level(log::Level::kInfo);
    log::set_sink(keep);
    return 0;
}

int without_sink(void ** /*state*/) {
    log::set_sink(nullptr);
    log::set_level(log::Level::kInfo);
    return 0;
}

// What a piece of work writes to descriptor 2.
template <class Work>
std::string stderr_of(Work work) {
    std::FILE *const file = std::tmpfile();
    if (file == nullptr)
        test::fail("cannot make a temporary file");
    const UniqueFd before(::dup(STDERR_FILENO));
    if (!before || ::dup2(::fileno(file), STDERR_FILENO) < 0)
        test::fail("cannot redirect stderr");
    work();
    assert_true(::dup2(before.get(), STDERR_FILENO) >= 0);
    assert_int_equal(std::fseek(file, 0, SEEK_SET), 0);
    std::string text;
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file))
        text += static_cast<char>(c);
    assert_int_equal(std::fclose(file), 0);
    return text;
}

void line_has_component_and_job(void ** /*state*/) {
    kLog.info("started {} of {}", 3, "four");
    kLog.for_job(4711).error("lost");
    assert_int_equal(kept.size(), 2);
    expect_equal(kept[0].second, "singularity: test: started 3 of four");
    expect_equal(kept[1].second, "singularity: test: job 4711: lost");
    assert_true(kept[0].first == log::Level::kInfo);
    assert_true(kept[1].first == log::Level::kError);
}

void hostile_names_stay_in_their_line(void ** /*state*/) {
    kLog.warning("job name {}", "a\nsingularity: test: job 1: root has logged in\x1b[1A\xff");
    assert_int_equal(kept.size(), 1);
    expect_equal(kept[0].second,
                 R"(singularity: test: job name a\nsingularity: test: job 1: root has logged in\x1b[1A\xff)");
}

void braces_in_values_are_not_a_format(void ** /*state*/) {
    kLog.info("job name {}", "{} {0} {x} %s %n");
    expect_equal(kept.at(0).second, "singularity: test: job name {} {0} {x} %s %n");
}

void threshold_drops_what_is_less_important(void ** /*state*/) {
    const struct {
        log::Level threshold;
        std::size_t lines;
    } rows[] = {
        {log::Level::kError, 1}, {log::Level::kWarning, 2}, {log::Level::kInfo, 3}, {log::Level::kDebug, 4}};
    for (const auto &row : rows) {
        kept.clear();
        log::set_level(row.threshold);
        kLog.error("e");
        kLog.warning("w");
        kLog.info("i");
        kLog.debug("d");
        assert_int_equal(kept.size(), row.lines);
        assert_true(kept.back().first == row.threshold);
        assert_true(log::enabled(row.threshold));
    }
    log::set_level(log::Level::kError);
    assert_false(log::enabled(log::Level::kWarning));
}

void event_that_cannot_be_formatted_is_not_silent(void ** /*state*/) {
    kLog.for_job(5).error("value {}", Unprintable{});
    assert_int_equal(kept.size(), 1);
    expect_equal(
        kept[0].second,
        "singularity: test: job 5: value (an event of this place could not be formatted: no words for it)");
}

void sink_that_throws_is_contained(void ** /*state*/) {
    log::set_sink(refuse);
    expect_equal(stderr_of([] { kLog.error("x"); }), "singularity: log: an event was lost\n");
}

void without_sink_lines_go_to_stderr_with_time_and_level(void ** /*state*/) {
    log::set_sink(nullptr);
    const std::string text = stderr_of([] {
        kLog.for_job(7).warning("disk {} is full", "sda");
        kLog.debug("not shown");
    });
    regex_t expected;
    assert_int_equal(regcomp(&expected,
                             "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{3}[-+][0-9]{2}:[0-9]{2} warning: "
                             "singularity: test: job 7: disk sda is full\n$",
                             REG_EXTENDED | REG_NOSUB),
                     0);
    const bool matches = regexec(&expected, text.c_str(), 0, nullptr, 0) == 0;
    regfree(&expected);
    if (!matches)
        test::fail(text);
}

void threads_write_whole_lines(void ** /*state*/) {
    constexpr int kThreads = 4;
    constexpr int kLines = 200;
    const auto write_all = [] {
        std::vector<std::jthread> threads;
        threads.reserve(kThreads);
        for (int t = 0; t < kThreads; ++t) {
            threads.emplace_back([t] {
                for (int i = 0; i < kLines; ++i)
                    kLog.info("thread {} line {} end", t, i);
            });
        }
        // Changed meanwhile: ThreadSanitizer looks at these.
        log::set_level(log::Level::kDebug);
        log::set_level(log::Level::kInfo);
    };
    write_all();
    assert_int_equal(kept.size(), kThreads * kLines);

    log::set_sink(nullptr);
    const std::string text = stderr_of(write_all);
    int lines = 0;
    for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
        const auto line = std::string_view(text).substr(begin, end - begin);
        if (!line.contains(" info: singularity: test: thread ") || !line.ends_with(" end"))
            test::fail(line);
        ++lines;
    }
    assert_int_equal(lines, kThreads * kLines);
}

// A detached thread that logs while exit handlers and static destructors run, as in a plugin's host program.
void logging_during_exit_is_safe(void ** /*state*/) {
    const std::string text = stderr_of([] {
        const pid_t child = ::fork();
        if (child == 0) {
            log::set_sink(nullptr);
            static_cast<void>(std::atexit([] { kLog.info("from an exit handler"); }));
            kLog.info("before");
            std::exit(0); // NOLINT(concurrency-mt-unsafe): this is what is tested
        }
        assert_true(child > 0);
        int status = 0;
        assert_int_equal(::waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    });
    test::expect_contains(text, "singularity: test: before\n");
    test::expect_contains(text, "singularity: test: from an exit handler\n");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(line_has_component_and_job, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(hostile_names_stay_in_their_line, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(braces_in_values_are_not_a_format, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(threshold_drops_what_is_less_important, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(event_that_cannot_be_formatted_is_not_silent, with_sink,
                                        without_sink),
        cmocka_unit_test_setup_teardown(sink_that_throws_is_contained, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(without_sink_lines_go_to_stderr_with_time_and_level, with_sink,
                                        without_sink),
        cmocka_unit_test_setup_teardown(threads_write_whole_lines, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(logging_during_exit_is_safe, with_sink, without_sink),
    };
    return cmocka_run_group_tests_name("common_log", tests, nullptr, nullptr);
}
