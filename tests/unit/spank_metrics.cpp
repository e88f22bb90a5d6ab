// SPDX-License-Identifier: GPL-2.0-or-later
// The agent's metrics: their text, to the letter where the format demands it.
#include "agent/limits/metrics.hpp"
#include "cmocka.hpp"

#include <algorithm>
#include <ranges>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace {

using namespace singularity::agent;
using singularity::test::expect_contains;
using singularity::test::expect_equal;
using singularity::test::fail;

// The lines of one metric, comments included.
std::string family(const std::string &text, std::string_view name) {
    std::string out;
    for (const auto part : std::views::split(text, '\n')) {
        const std::string_view line(part.begin(), part.end());
        const auto rest = line.starts_with("# ") ? line.substr(line.find(' ', 2) + 1) : line;
        if (rest.starts_with(name) && rest.substr(name.size()).find_first_of(" {_") == 0 &&
            !rest.substr(name.size()).starts_with("_total"))
            out += std::string(line) + '\n';
    }
    return out;
}

Gauges some() {
    return {.version = "1.2",
            .started = 1700000000,
            .nodes = {{"running", 2}, {"saving", 0}},
            .jobs = {{"ended", 1}},
            .waiting = 3,
            .running = {},
            .held = {}};
}

void nothing_has_happened(void ** /*state*/) {
    const auto text = metrics_text({}, some());
    expect_equal(family(text, "singularity_agent_info"),
                 "# HELP singularity_agent_info The node agent's release.\n"
                 "# TYPE singularity_agent_info gauge\n"
                 "singularity_agent_info{version=\"1.2\"} 1\n");
    expect_equal(family(text, "singularity_nodes"), "# HELP singularity_nodes Virtual nodes on this host.\n"
                                                    "# TYPE singularity_nodes gauge\n"
                                                    "singularity_nodes{state=\"running\"} 2\n"
                                                    "singularity_nodes{state=\"saving\"} 0\n");
    expect_contains(text, "\nsingularity_records_waiting 3\n");
    // Series that are there from the first moment on: rates are known from the first event on.
    for (const std::string_view line :
         {"singularity_checkpoints_total{kind=\"asked\",outcome=\"committed\"} 0\n",
          "singularity_checkpoints_total{kind=\"periodic\",outcome=\"failed\"} 0\n",
          "singularity_restores_total{outcome=\"failed\"} 0\n", "singularity_workers_died_total 0\n",
          "singularity_restore_duration_seconds_sum 0.000000\n",
          "singularity_restore_duration_seconds_count 0\n"})
        expect_contains(text, line);
    assert_true(text.ends_with('\n'));
}

void every_family_is_described_once(void ** /*state*/) {
    const auto text = metrics_text({}, some());
    std::set<std::string> described;
    std::string type;
    for (const auto part : std::views::split(text, '\n')) {
        const std::string line(part.begin(), part.end());
        if (line.starts_with("# HELP ")) {
            const auto name = line.substr(7, line.find(' ', 7) - 7);
            assert_true(described.insert(name).second);
            assert_true(name.starts_with("singularity_") && line.ends_with('.'));
        } else if (line.starts_with("# TYPE ")) {
            type = line.substr(7);
            const bool counter = type.ends_with(" counter");
            if (counter != type.contains("_total "))
                fail(type);
        } else if (!line.empty()) {
            assert_true(line.starts_with(type.substr(0, type.find(' '))));
        }
    }
    assert_true(described.size() >= 18);
}

void what_is_counted(void ** /*state*/) {
    Counters counters;
    ImageReport report;
    report.devices_bytes = 1000;
    report.host_bytes = 200;
    report.stored_bytes = 30;
    report.pause_us = 1'500'000;
    report.total_us = 61'000'001;
    counters.succeeded(Work::periodic, report);
    counters.succeeded(Work::periodic, report);
    counters.succeeded(Work::restore, report);
    counters.failed(Work::asked);
    ++counters.workers_died;
    counters.devices_lost = 2;
    counters.checks[static_cast<std::size_t>(Counters::Check::obstacle)] = 3;
    auto gauges = some();
    gauges.over_budget[static_cast<std::size_t>(Budget::nodes)] = 2;
    gauges.held.front() = {.by_all = 5, .by_one = 4};
    gauges.held.back() = {.by_all = 3, .by_one = 2};
    const auto text = metrics_text(counters, gauges);
    for (const std::string_view line :
         {"singularity_held_for_users{budget=\"workers\"} 5\n",
          "singularity_held_for_users{budget=\"notes\"} 0\n",
          "singularity_held_for_users{budget=\"ports\"} 3\n",
          "singularity_held_for_one_user{budget=\"workers\"} 4\n",
          "singularity_held_for_one_user{budget=\"ports\"} 2\n",
          "singularity_checkpoints_total{kind=\"asked\",outcome=\"committed\"} 0\n",
          "singularity_checkpoints_total{kind=\"asked\",outcome=\"failed\"} 1\n",
          "singularity_checkpoints_total{kind=\"periodic\",outcome=\"committed\"} 2\n",
          "singularity_checkpoints_total{kind=\"periodic\",outcome=\"failed\"} 0\n",
          "singularity_checkpoint_duration_seconds_sum{kind=\"periodic\"} 122.000002\n",
          "singularity_checkpoint_duration_seconds_count{kind=\"periodic\"} 2\n",
          "singularity_checkpoint_pause_seconds_sum{kind=\"periodic\"} 3.000000\n",
          "singularity_checkpoint_device_bytes_total 2000\n",
          "singularity_checkpoint_host_bytes_total 400\n",
          "singularity_checkpoint_stored_bytes_total 60\n",
          "singularity_restores_total{outcome=\"succeeded\"} 1\n",
          "singularity_restore_duration_seconds_sum 61.000001\n",
          "singularity_restore_duration_seconds_count 1\n",
          "singularity_workers_died_total 1\n",
          "singularity_devices_lost_total 2\n",
          "singularity_requests_refused_total 0\n",
          "singularity_node_checks_total{outcome=\"clear\"} 0\n",
          "singularity_node_checks_total{outcome=\"obstacle\"} 3\n",
          "singularity_requests_over_budget_total{budget=\"nodes\"} 2\n",
          "singularity_requests_over_budget_total{budget=\"program_mib\"} 0\n"})
        expect_contains(text, line);
}

void labels_are_escaped(void ** /*state*/) {
    expect_equal(escaped_label("plain, {} = \xc3\xa4"), "plain, {} = \xc3\xa4");
    expect_equal(escaped_label("a\\b\"c\nd"), R"(a\\b\"c\nd)");
    expect_equal(escaped_label(R"(\n)"), R"(\\n)");
    auto gauges = some();
    gauges.version = "1\"} 0\nsingularity_agent_info{version=\"2";
    gauges.running.push_back({.name = "a\"b", .started = 5, .every_s = 0, .saved = {}});
    const auto text = metrics_text({}, gauges);
    expect_contains(
        text, "singularity_agent_info{version=\"1\\\"} 0\\nsingularity_agent_info{version=\\\"2\"} 1\n");
    expect_contains(text, "singularity_job_start_time_seconds{job=\"a\\\"b\"} 5\n");
}

void running_jobs_have_their_times(void ** /*state*/) {
    auto gauges = some();
    gauges.running = {{.name = "u1-j1", .started = 100, .every_s = 1800, .saved = 160},
                      {.name = "u1-j2", .started = 110, .every_s = 0, .saved = {}}};
    const auto text = metrics_text({}, gauges);
    expect_contains(text, "singularity_job_start_time_seconds{job=\"u1-j1\"} 100\n");
    expect_contains(text, "singularity_job_checkpoint_interval_seconds{job=\"u1-j1\"} 1800\n");
    expect_contains(text, "singularity_job_last_checkpoint_time_seconds{job=\"u1-j1\"} 160\n");
    expect_contains(text, "singularity_job_checkpoint_interval_seconds{job=\"u1-j2\"} 0\n");
    assert_false(text.contains("last_checkpoint_time_seconds{job=\"u1-j2\"}"));
    expect_contains(text, "singularity_jobs_without_lines 0\n");
}

void of_many_jobs_those_saved_longest_ago_are_shown(void ** /*state*/) {
    auto gauges = some();
    constexpr std::size_t kMore = 3;
    for (std::size_t at = 0; at < kShownJobs + kMore; ++at)
        gauges.running.push_back({.name = fmt::format("j{}", at),
                                  .started = 0,
                                  .every_s = 60,
                                  .saved = static_cast<std::time_t>(10000 - at)}); // the first is the newest
    gauges.running[0].saved.reset();
    const auto text = metrics_text({}, gauges);
    expect_contains(text, fmt::format("singularity_jobs_without_lines {}\n", kMore));
    expect_contains(text, "start_time_seconds{job=\"j0\"} 0\n");
    for (std::size_t at = 1; at <= kMore; ++at)
        assert_false(text.contains(fmt::format("{{job=\"j{}\"}}", at)));
    assert_int_equal(std::ranges::count(family(text, "singularity_job_start_time_seconds"), '\n'),
                     kShownJobs + 2);
}

void ids_of_checkpoints_tell_their_time(void ** /*state*/) {
    assert_true(time_of_checkpoint("20261121T101500208177-6b1c04f2a93e7d58") == std::time_t{1795256100});
    for (const char *const other :
         {"", "x", "20261121", "20261121T1015", "2026-11-21T10:15:00", "20261321T101500208177-6b"})
        assert_false(time_of_checkpoint(other).has_value());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(nothing_has_happened),
        cmocka_unit_test(every_family_is_described_once),
        cmocka_unit_test(what_is_counted),
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(running_jobs_have_their_times),
        cmocka_unit_test(of_many_jobs_those_saved_longest_ago_are_shown),
        cmocka_unit_test(ids_of_checkpoints_tell_their_time),
    };
    return cmocka_run_group_tests_name("spank_metrics", tests, nullptr, nullptr);
}
