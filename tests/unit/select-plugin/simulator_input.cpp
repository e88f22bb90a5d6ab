// SPDX-License-Identifier: GPL-2.0-or-later
// What the simulator reads: traces, descriptions, the numbers made of them, and what it says to bad ones.
#include "costs.hpp"
#include "pool.hpp"
#include "simulator_helpers.hpp"
#include "statistics.hpp"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <unistd.h>

namespace {

using namespace singularity;
using namespace singularity::simulator;
using test::expect_contains;
using test::expect_equal;

std::vector<TraceJob> good(std::string_view text) {
    auto jobs = parse_trace(text, "t.csv");
    if (!jobs)
        test::fail(jobs.error().message());
    return *jobs;
}

std::string refusal(std::string_view text) {
    const auto jobs = parse_trace(text, "t.csv");
    if (jobs)
        test::fail(fmt::format("not refused: {}", text));
    return jobs.error().message();
}

void trace_columns_are_found_by_name(void ** /*state*/) {
    const auto jobs =
        good("gpus,vc,tier,duration_s,submit_s,job_id\r\n8,x,premium,60,30,1\r\n\r\n1,y,basic,5,10,2\n");
    assert_int_equal(jobs.size(), 2);
    assert_int_equal(jobs[0].id, 2); // in the order of submission
    assert_int_equal(jobs[0].submit, 10 * kSecond);
    assert_int_equal(jobs[1].gpus, 8);
    assert_int_equal(jobs[1].duration, 60 * kSecond);
    assert_true(jobs[1].tier == Tier::kPremium);
    assert_false(good("job_id,submit_s,gpus,duration_s\n1,2,3,4")[0].tier.has_value());
}

void bad_traces_are_refused_with_their_line(void ** /*state*/) {
    const std::string header = "job_id,submit_s,gpus,duration_s\n";
    expect_equal(refusal(header + "1,0,1,60\n2,5,0,60\n"),
                 "cannot read t.csv:3: gpus: expected a whole number from 1 to 1000000, found '0'");
    expect_contains(refusal(header + "1,0,1.5,60\n"), "t.csv:2: gpus: expected a whole number");
    expect_contains(refusal(header + "1,-4,1,60\n"),
                    "submit_s: expected a whole number from 0 to 3155760000, found '-4'");
    expect_contains(refusal(header + "1,0,1\n"), "t.csv:2: expected 4 fields as in the header, found 3");
    expect_contains(refusal("job_id,submit,gpus,duration_s\n"),
                    "expected a column submit_s in the header, found 'job_id,submit,");
    expect_contains(refusal(""), "expected a header line");
    expect_contains(refusal(header), "expected at least one job");
    expect_contains(refusal("tier," + header + "gold,1,0,1,60\n"),
                    "tier: expected one of premium, standard, basic, found 'gold'");
    const auto missing = read_trace("/no/such/trace.csv");
    assert_false(missing.has_value());
    expect_contains(missing.error().message(), "/no/such/trace.csv: No such file");
}

void the_traces_of_the_project_are_whole(void ** /*state*/) {
#ifndef SINGULARITY_WITH_ZSTD
    test::skip("built without zstd");
#else
    const auto check = [](std::string_view name, std::size_t count, double gpu_hours, std::int64_t peak) {
        const auto jobs = read_trace(std::filesystem::path(SINGULARITY_TRACES) / name);
        if (!jobs)
            test::fail(jobs.error().message());
        double sum = 0;
        for (const TraceJob &job : *jobs)
            sum += static_cast<double>(job.gpus) * static_cast<double>(job.duration) / kHour;
        assert_int_equal(jobs->size(), count);
        assert_true(sum > gpu_hours - 1 && sum < gpu_hours + 1);
        assert_int_equal(peak_demand(*jobs), peak);
    };
    check("philly2017.csv.zst", 82247, 978078, 1243);
    check("itp2021.csv.zst", 69351, 1632720, 2859);
#endif
}

void a_damaged_archive_is_refused(void ** /*state*/) {
    const auto path = std::filesystem::temp_directory_path() / fmt::format("simulator-{}.zst", getpid());
    std::ofstream(path, std::ios::binary) << "\x28\xb5\x2f\xfd this is not zstd";
    const auto read = read_trace(path);
    std::filesystem::remove(path);
    assert_false(read.has_value());
    expect_contains(read.error().message(), path.string());
}

void a_scaled_trace_keeps_its_shape(void ** /*state*/) {
    const std::vector<TraceJob> jobs{{0, 0, 10 * kSecond, 1, {}}, {1, 99 * kSecond, 10 * kSecond, 2, {}}};
    const auto more = scaled(jobs, {.gang = 8, .copies = 2});
    // Span 100 s, the copy 50 s later; what comes behind the end comes at the beginning.
    assert_int_equal(more.size(), 4);
    assert_int_equal(more[0].submit, 0);
    assert_int_equal(more[1].submit, 49 * kSecond);
    assert_int_equal(more[1].gpus, 16);
    assert_int_equal(more[1].id, 3);
    assert_int_equal(more[2].submit, 50 * kSecond);
    assert_int_equal(more[3].submit, 99 * kSecond);
    assert_int_equal(parse_scale("8x11")->copies, 11);
    assert_int_equal(parse_scale("8")->gang, 8);
    for (const std::string_view bad : {"", "x", "0x1", "8x", "8x11x2", "-1x1", "8x2000"})
        expect_contains(parse_scale(bad).error().message(), "expected GANGxCOPIES");
}

void peak_demand_counts_an_end_before_a_beginning(void ** /*state*/) {
    assert_int_equal(peak_demand({{0, 0, 10 * kSecond, 4, {}},
                                  {1, 10 * kSecond, 5 * kSecond, 3, {}},
                                  {2, 12 * kSecond, kSecond, 2, {}}}),
                     5);
}

std::string bad_description(std::string_view text) {
    const auto description = parse_description(text, "c.yaml");
    if (description)
        test::fail(fmt::format("not refused: {}", text));
    return description.error().message();
}

void bad_descriptions_are_refused_with_their_line(void ** /*state*/) {
    expect_contains(bad_description("cluster:\n  nodes: many\n"), "c.yaml:2: cluster.nodes: expected");
    expect_contains(bad_description("cluster:\n  node: 3\n"), "cluster.nodes"); // the nearest key
    expect_contains(bad_description("tiers:\n  mix: 30/40/40\n"),
                    "sum to 100, as in 30/40/30, found '30/40/40'");
    expect_contains(bad_description("elastic:\n  share: 1.5\n"),
                    "expected a decimal number from 0 to 1, found '1.5'");
    expect_contains(bad_description("tiresias:\n  queue_thresholds: \"7,3\"\n"),
                    "expected ascending positive numbers");
    expect_contains(bad_description("costs:\n  restore_fixed: 10\n"), "expected a duration");
    expect_contains(parse_mix("1/2").error().message(), "expected three percentages");
}

void a_description_reads_what_it_writes(void ** /*state*/) {
    const std::string text =
        to_yaml(test::description("tiers: {mix: 20/30/50}\ntiresias: {queue_thresholds: \"5,6.5\"}\n"));
    expect_equal(to_yaml(test::description(text)), text);
    expect_contains(text, "mix: 20/30/50");
}

// 8 ranks on 8 GPUs of one node: images of 20 GiB (8 replicas are one) and 8 x 2 GiB, at 2 GiB/s: 18 s each
// way. Device images: 20 GiB at 3 and 7 GiB/s.
void costs_follow_bytes_and_bandwidths(void ** /*state*/) {
    const Costs costs{Description()};
    test::expect_seconds(static_cast<double>(costs.checkpoint(8, 8)) / kSecond, 5 + 20.0 / 3 + 18);
    test::expect_seconds(static_cast<double>(costs.restore(8, 8)) / kSecond, 10 + 20.0 / 7 + 18);
    // 16 ranks: two images of 20 GiB and 32 GiB of hosts, from two nodes at a time, or from one.
    test::expect_seconds(static_cast<double>(costs.restore(16, 16)) / kSecond, 10 + 20.0 / 7 + 18);
    test::expect_seconds(static_cast<double>(costs.restore(16, 8)) / kSecond, 10 + 20.0 / 7 + 36);
}

void speed_is_that_of_the_fullest_gpu(void ** /*state*/) {
    const Costs costs{test::description(test::kPlain)};
    assert_true(costs.speed(8, 8) == 1);
    assert_true(costs.speed(8, 7) == 0.5);
    assert_true(costs.speed(8, 4) == 0.5);
    assert_true(costs.speed(8, 3) == 1.0 / 3);
    assert_true(Costs(Description()).speed(8, 4) == 0.97 / 2);
    assert_int_equal(costs.minimum(8), 2);
    assert_int_equal(costs.minimum(1), 1);
    assert_int_equal(Costs::useful_size(8, 7, 2), 4);
    assert_int_equal(Costs::useful_size(8, 3, 2), 3);
    assert_int_equal(Costs::useful_size(8, 1, 2), 0);
    assert_int_equal(Costs::next_size(8, 2), 3);
    assert_int_equal(Costs::next_size(8, 3), 4);
    assert_int_equal(Costs::next_size(8, 4), 8);
}

void gangs_get_whole_blocks(void ** /*state*/) {
    Pool pool(3, 8);
    assert_int_equal(pool.block_of(3), 3);
    assert_int_equal(pool.block_of(12), 4);
    assert_int_equal(pool.block_of(16), 8);
    assert_true(pool.find(3) == Placement({{0, 3}}));
    pool.take({{0, 3}}, 0);
    // The smallest gap that holds it; whole nodes for more than one.
    assert_true(pool.find(4) == Placement({{0, 4}}));
    assert_true(pool.find(16) == Placement({{1, 8}, {2, 8}}));
    assert_true(pool.find(12) == Placement({{1, 8}, {2, 4}}));
    assert_false(pool.fits(24));
    assert_true(pool.fits_empty(24));
    // 5 + 8 + 8 are free, but 20 in blocks of 4 need 4 + 8 + 8.
    assert_true(pool.fits(20));
    pool.take({{0, 2}}, 0);
    assert_false(pool.fits(20));
    assert_true(pool.find_with(16, {{0, 5}}) == Placement({{0, 8}, {1, 8}}));
}

void gpus_that_a_checkpoint_reads_can_be_used_later(void ** /*state*/) {
    Pool pool(1, 8);
    pool.take({{0, 8}}, 0);
    pool.release({{0, 4}}, 1000, 5000);
    assert_true(pool.releasing() == 4 * 4000.0);
    pool.release({{0, 2}}, 1000, 1000);
    assert_int_equal(pool.take({{0, 2}}, 2000), 2000); // those that are ready
    assert_int_equal(pool.take({{0, 1}}, 2000), 5000); // one that is not
    assert_true(pool.releasing() == 4 * 4000.0 - 3000);
    assert_int_equal(pool.take({{0, 3}}, 9000), 9000);
}

void what_is_not_there_cannot_be_given_away(void ** /*state*/) {
    Pool pool(2, 8);
    pool.take({{0, 6}}, 0);
    const auto refused = [&pool](const Placement &placement) {
        try {
            pool.take(placement, 0);
        } catch (const std::logic_error &) {
            return true;
        }
        return false;
    };
    assert_true(refused({{0, 3}}));
    pool.fail(1, 0);
    assert_true(refused({{1, 1}}));
    assert_int_equal(pool.up(), 8);
    pool.repair(1);
    assert_false(refused({{1, 8}}));
}

void distributions_are_by_nearest_rank(void ** /*state*/) {
    std::vector<double> values{4, 1, 3, 2};
    const Distribution found = distribution_of(values);
    assert_true(found.mean == 2.5);
    assert_true(found.p50 == 2);
    assert_true(found.p99 == 4);
    std::vector<double> none;
    assert_true(distribution_of(none).p99 == 0);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(trace_columns_are_found_by_name),
        cmocka_unit_test(bad_traces_are_refused_with_their_line),
        cmocka_unit_test(the_traces_of_the_project_are_whole),
        cmocka_unit_test(a_damaged_archive_is_refused),
        cmocka_unit_test(a_scaled_trace_keeps_its_shape),
        cmocka_unit_test(peak_demand_counts_an_end_before_a_beginning),
        cmocka_unit_test(bad_descriptions_are_refused_with_their_line),
        cmocka_unit_test(a_description_reads_what_it_writes),
        cmocka_unit_test(costs_follow_bytes_and_bandwidths),
        cmocka_unit_test(speed_is_that_of_the_fullest_gpu),
        cmocka_unit_test(gangs_get_whole_blocks),
        cmocka_unit_test(gpus_that_a_checkpoint_reads_can_be_used_later),
        cmocka_unit_test(what_is_not_there_cannot_be_given_away),
        cmocka_unit_test(distributions_are_by_nearest_rank),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
