// SPDX-License-Identifier: GPL-2.0-or-later
// What job_submit/singularity makes of descriptions: those of sbatch, salloc and srun, and hostile ones.
#include "cmocka.hpp"
#include "submission.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace {

using singularity::submission::Answer;
using singularity::submission::elastic_of;
using singularity::submission::examine;
using singularity::test::expect_contains;
using singularity::test::expect_equal;

const std::string kElastic = "_SLURM_SPANK_OPTION_singularity_singularity_elastic=";
const std::string kOff = "_SLURM_SPANK_OPTION_singularity_singularity_off=(null)";

// A description as slurm_init_job_desc_msg() leaves it, where it matters here.
class Description {
  public:
    explicit Description(std::vector<std::string> variables) : variables_(std::move(variables)) {
        for (std::string &variable : variables_)
            pointers_.push_back(variable.data());
        value.spank_job_env = pointers_.data();
        value.spank_job_env_size = static_cast<std::uint32_t>(pointers_.size());
        value.requeue = NO_VAL16;
        value.num_tasks = NO_VAL;
        value.cpus_per_task = NO_VAL16;
        value.overcommit = NO_VAL8;
        value.het_job_offset = NO_VAL;
        value.script = script_.data();
    }

    job_desc_msg_t value{};

  private:
    std::vector<std::string> variables_;
    std::vector<char *> pointers_;
    std::string script_ = "#!/bin/sh\n";
};

// A job of 8 tasks with so many CPUs per GPU.
Answer examine_cpus(const std::string &elastic, std::string per_tres, std::uint32_t tasks = 8,
                    std::uint16_t per_task = NO_VAL16) {
    Description description({kElastic + elastic});
    description.value.cpus_per_tres = per_tres.data();
    description.value.num_tasks = tasks;
    description.value.cpus_per_task = per_task;
    return examine(description.value);
}

void others_pass_as_they_are(void ** /*state*/) {
    for (const auto &variables : {std::vector<std::string>{},
                                  {"A=1"},
                                  {kElastic + "2-8", kOff},
                                  {kOff, kElastic + "2-8"},
                                  {"X" + kElastic + "2-8"},
                                  {kElastic.substr(0, kElastic.size() - 1)}}) {
        Description description(variables);
        description.value.open_mode = 0;
        const auto before = description.value;
        const auto answer = examine(description.value);
        assert_true(answer.accepted);
        expect_equal(answer.words, "");
        assert_memory_equal(&before, &description.value, sizeof before);
    }
}

void a_batch_job_is_requeued_and_its_output_goes_on(void ** /*state*/) {
    for (const std::string value : {"2-8", "(null)", ""}) {
        Description description({"A=1", kElastic + value});
        const auto answer = examine(description.value);
        assert_true(answer.accepted);
        expect_equal(answer.words, "");
        assert_int_equal(description.value.requeue, 1);
        assert_int_equal(description.value.open_mode, OPEN_MODE_APPEND);
        assert_true(answer.new_output);
    }
}

void what_the_user_says_is_kept(void ** /*state*/) {
    Description kept({kElastic + "2-8"});
    kept.value.requeue = 1;
    kept.value.open_mode = OPEN_MODE_TRUNCATE;
    const auto answer = examine(kept.value);
    assert_true(answer.accepted);
    assert_int_equal(kept.value.open_mode, OPEN_MODE_TRUNCATE);
    assert_false(answer.new_output);
    expect_contains(answer.words, "singularity: with --open-mode=truncate");

    Description once({kElastic + "2-8"});
    once.value.requeue = 0;
    once.value.open_mode = 0;
    const auto yes = examine(once.value);
    assert_true(yes.accepted);
    assert_int_equal(once.value.requeue, 0);
    assert_int_equal(once.value.open_mode, 0);
    expect_equal(yes.note, "");
    expect_contains(yes.words,
                    "singularity: with --no-requeue a job is saved only by `singularityctl checkpoint`");
}

void the_range_is_noted(void ** /*state*/) {
    const auto note = [](const std::string &value, bool batch = true, std::string taken = {}) {
        Description description({kElastic + value});
        if (!batch)
            description.value.script = nullptr;
        description.value.admin_comment = taken.data();
        return examine(description.value).note;
    };
    expect_equal(note("2-8"), "singularity: elastic=2-8");
    expect_equal(note("(null)"), "");
    expect_equal(note("8-2"), "");
    expect_equal(note("2-"), "");
    expect_equal(note("2-8", false), "");
    expect_equal(note("2-8", true, "the site's"), "");
}

void jobs_without_a_script_have_no_output_file(void ** /*state*/) {
    Description description({kElastic + "2-8"});
    description.value.script = nullptr;
    description.value.requeue = 0;
    assert_true(examine(description.value).accepted);
    assert_int_equal(description.value.requeue, 0);
    assert_int_equal(description.value.open_mode, 0);
}

void heterogeneous_jobs_are_refused(void ** /*state*/) {
    for (const std::uint32_t component : {0U, 1U}) {
        Description description({kElastic + "2-8"});
        description.value.het_job_offset = component;
        const auto answer = examine(description.value);
        assert_false(answer.accepted);
        expect_contains(answer.words,
                        "heterogeneous job cannot be saved together: submit it with --singularity-off");
        Description other({"A=1"});
        other.value.het_job_offset = component;
        assert_true(examine(other.value).accepted);
    }
}

void tasks_have_cpus_at_min(void ** /*state*/) {
    for (const std::string form : {"gres:gpu:{}", "gres/gpu:{}", "gres/gpu={}", "gpu:{}", "gres/gpu:a100:{}",
                                   "gres/nic:9,gres/gpu:{}"}) {
        const auto given = [&](int count) { return fmt::format(fmt::runtime(form), count); };
        assert_true(examine_cpus("2-8", given(4)).accepted);
        const auto refused = examine_cpus("2-8", given(3));
        assert_false(refused.accepted);
        expect_equal(refused.words,
                     "singularity: on MIN 2 GPUs the 8 tasks of this job would have 6 CPUs and need 8: give "
                     "--cpus-per-gpu=4, or --singularity-elastic with a MIN of 3");
        assert_true(examine_cpus("8-8", given(1)).accepted);
    }
    assert_true(examine_cpus("4-8", "gres/gpu:4", 8, 2).accepted);
    expect_contains(examine_cpus("4-8", "gres/gpu:3", 8, 2).words,
                    "would have 12 CPUs and need 16: give --cpus-per-gpu=4");
}

void without_min_it_is_only_said(void ** /*state*/) {
    for (const std::string value : {"(null)", ""}) {
        const auto answer = examine_cpus(value, "gres/gpu:2");
        assert_true(answer.accepted);
        expect_contains(answer.words, "on fewer than 4 GPUs the 8 tasks");
        expect_equal(examine_cpus(value, "gres/gpu:8").words, "");
    }
}

void what_cannot_be_seen_is_let_through(void ** /*state*/) {
    for (const std::string text :
         {"", ",", ",,,", "gres/gpu", "gres/gpu:", "gres/gpu:x", "gres/gpu:-1", "gres/gpu:0", "gpux:1",
          "gres/nic:1", "=", ":", "gres/gpu:99999999999", "gres/gpu:4294967294", "gres/gpu:1:", "gres/"})
        expect_equal(examine_cpus("2-8", text).words, "");
    expect_equal(examine_cpus("2-8", "gres/gpu:1", NO_VAL).words, "");
    expect_equal(examine_cpus("2-8", "gres/gpu:1", INFINITE).words, "");
    expect_equal(examine_cpus("2-8", "gres/gpu:1", 0).words, "");
    Description shared({kElastic + "2-8"});
    std::string cpus = "gres/gpu:1";
    shared.value.cpus_per_tres = cpus.data();
    shared.value.num_tasks = 8;
    shared.value.overcommit = 1;
    expect_equal(examine(shared.value).words, "");
}

void values_that_the_node_refuses_count_as_none(void ** /*state*/) {
    for (const std::string value : {"8", "-8", "-", "x-8", "0-8", "99999999999-8", " 2-8", "2 -8", "(nul"}) {
        Description description({kElastic + value});
        assert_false(elastic_of(description.value).has_value());
        assert_true(examine(description.value).accepted);
        assert_int_equal(description.value.requeue, NO_VAL16);
    }
    assert_int_equal(elastic_of(Description({kElastic + "4-8", kElastic + "2-8"}).value)->min_gpus.value(),
                     2);
}

void no_size_is_believed(void ** /*state*/) {
    Description none({});
    none.value.spank_job_env = nullptr;
    none.value.spank_job_env_size = UINT32_MAX;
    assert_true(examine(none.value).accepted);

    Description description({kElastic + "2-8"});
    std::vector<char *> many(4096, nullptr); // as many as are looked at, none of them anything
    description.value.spank_job_env = many.data();
    description.value.spank_job_env_size = UINT32_MAX;
    assert_true(examine(description.value).accepted);
    assert_int_equal(description.value.requeue, NO_VAL16);

    const auto largest = examine_cpus("4294967293-4294967293", "gres/gpu:1", 4294967293U, 65533);
    assert_false(largest.accepted);
    expect_contains(largest.words, "need 281462091612");
    assert_true(examine_cpus("2-" + std::string(1U << 20, '8'), "gres/gpu:4").accepted);
    assert_true(examine_cpus("2-8", std::string(1U << 20, ',') + "gres/gpu:1").accepted);
    // Text that is not the program's own is not repeated to the user.
    expect_equal(examine_cpus("2-8\n\x1b[2J", "gres/gpu:4").words, "");

    Description nothing({kElastic + "2-8"});
    nothing.value.cpus_per_tres = nullptr;
    assert_true(examine(nothing.value).accepted);
    job_desc_msg_t empty{};
    assert_true(examine(empty).accepted);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(others_pass_as_they_are),
        cmocka_unit_test(a_batch_job_is_requeued_and_its_output_goes_on),
        cmocka_unit_test(what_the_user_says_is_kept),
        cmocka_unit_test(the_range_is_noted),
        cmocka_unit_test(jobs_without_a_script_have_no_output_file),
        cmocka_unit_test(heterogeneous_jobs_are_refused),
        cmocka_unit_test(tasks_have_cpus_at_min),
        cmocka_unit_test(without_min_it_is_only_said),
        cmocka_unit_test(what_cannot_be_seen_is_let_through),
        cmocka_unit_test(values_that_the_node_refuses_count_as_none),
        cmocka_unit_test(no_size_is_believed),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
