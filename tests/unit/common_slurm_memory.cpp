// SPDX-License-Identifier: GPL-2.0-or-later
// On how few GPUs the memory of a job's ranks still fits.
#include "cmocka.hpp"
#include "common/slurm/memory.hpp"

#include <string>

namespace {

using namespace singularity::slurm;
using singularity::test::expect_equal;

Note note(const std::string &words) { return *Note::parse("singularity: " + words); }

void what_checkpoints_tell(void **) {
    const auto known = footprint_of(note("ranks=4 memory=245760:81920:12288"));
    assert_true(known.has_value());
    expect_equal(footprint_text(*known), "245760:81920:12288");
    for (const char *words :
         {"ranks=4", "memory=1:2:3", "ranks=0 memory=1:2:3", "ranks=4 memory=1:2", "ranks=4 memory=1:2:3:4",
          "ranks=4 memory=1:0:3", "ranks=4 memory=1:x:3", "ranks=4 memory=99999999999:2:3"})
        assert_false(footprint_of(note(words)).has_value());
}

// Four ranks of 60 GiB on devices of 80 GiB, 2 GiB of which are kept free where several share one.
void what_does_not_fit_on_devices(void **) {
    const Footprint four{.ranks = 4, .devices = 245760, .device = 81920, .host = 0};
    assert_int_equal(away_on(four, 4), 0);
    assert_int_equal(away_on(four, 8), 0);
    assert_int_equal(away_on(four, 3), 122880 - 79872);
    assert_int_equal(away_on(four, 2), 2 * (122880 - 79872));
    assert_int_equal(away_on(four, 1), 245760 - 79872);
    assert_int_equal(away_on(four, 0), 0);
    // A rank that has its device to itself fits, whatever else is there.
    assert_int_equal(away_on({.ranks = 2, .devices = 163840, .device = 81920, .host = 0}, 2), 0);
    assert_int_equal(away_on({.ranks = 8, .devices = 65536, .device = 81920, .host = 0}, 1), 0);
}

void jobs_that_do_not_fit_are_refused_with_the_numbers(void **) {
    const auto job = note("ranks=4 memory=245760:81920:12288");
    const auto refused = check_memory(1, job, {.all = 131072, .per_gpu = 0});
    assert_false(refused.has_value());
    expect_equal(
        refused.error().why,
        "to 1 GPUs: its 4 ranks have 240.0 GiB on devices of 80.0 GiB each, 162.0 GiB of which would be in "
        "memory of its hosts, beside 12.0 GiB of its programs, and Slurm gives it 128.0 GiB there: ask for "
        "more with --mem, or choose more GPUs");
    assert_true(check_memory(2, job, {.all = 131072, .per_gpu = 0}).has_value());
    assert_true(check_memory(4, job, {.all = 12288, .per_gpu = 0}).has_value());
    assert_true(check_memory(1, job, {.all = 178176, .per_gpu = 0}).has_value());
    assert_false(check_memory(1, job, {.all = 178175, .per_gpu = 0}).has_value());
    // It had 1 when it was saved, and may have 2 or 1 again.
    const auto runs = note("gpus=1 ranks=4 memory=245760:81920:12288");
    assert_true(check_memory(1, runs, {.all = 65536, .per_gpu = 0}).has_value());
    assert_true(check_memory(2, runs, {.all = 65536, .per_gpu = 0}).has_value());
    assert_false(
        check_memory(1, note("gpus=2 ranks=4 memory=245760:81920:12288"), {.all = 65536, .per_gpu = 0})
            .has_value());
    // --mem-per-gpu gives less on fewer.
    assert_false(check_memory(2, job, {.all = 1U << 30, .per_gpu = 32768}).has_value());
    assert_true(check_memory(2, job, {.all = 0, .per_gpu = 65536}).has_value());
    // Nobody knows: Slurm counts no memory, or gives less than is used, or there was no checkpoint.
    assert_true(check_memory(1, job, {}).has_value());
    assert_true(check_memory(1, job, {.all = 1, .per_gpu = 0}).has_value());
    assert_true(check_memory(1, note("ranks=4"), {.all = 131072, .per_gpu = 0}).has_value());
}

void slurms_texts(void **) {
    assert_int_equal(memory_in_tres("cpu=4,mem=4000M,node=1"), 4000);
    assert_int_equal(memory_in_tres("mem=1.5G"), 1536);
    assert_int_equal(memory_in_tres("mem=2T"), 2 << 20);
    assert_int_equal(memory_in_tres("mem=2048K"), 2);
    for (const char *text :
         {"", "cpu=4", "mem=", "mem=many", "mem=-1G", "mem=4X", "gres/gpumem=4G", "mem=nan"})
        assert_int_equal(memory_in_tres(text), 0);
    assert_int_equal(memory_per_gpu("gres/gpu:4096"), 4096);
    assert_int_equal(memory_per_gpu("gres:gpu:4096"), 4096);
    for (const char *text : {"", "gres/gpu", "gres/gpu:", "cpu:1", "gres/gpu:4G", "gres/gpu:1,gres/gpu:2"})
        assert_int_equal(memory_per_gpu(text), 0);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_checkpoints_tell),
        cmocka_unit_test(what_does_not_fit_on_devices),
        cmocka_unit_test(jobs_that_do_not_fit_are_refused_with_the_numbers),
        cmocka_unit_test(slurms_texts),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
