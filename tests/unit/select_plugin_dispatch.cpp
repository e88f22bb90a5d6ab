// SPDX-License-Identifier: GPL-2.0-or-later
// When a policy is asked, and that nothing it does keeps an operation from being forwarded.
#include "cmocka.hpp"
#include "common/log.hpp"
#include "dispatch.hpp"

#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace singularity;

// Answers as told and remembers what it was asked.
class Policy final : public hooks::Hooks {
  public:
    std::optional<int> before_job_test(const hooks::JobTest &test) override {
        note("before");
        min_nodes = test.min_nodes;
        return refuse;
    }
    int after_job_test(const hooks::JobTest &, int answer) override {
        note("after");
        return answer + add;
    }
    void job_began(hooks::JobRecord *) override { note("began"); }
    void job_ended(hooks::JobRecord *) override { note("ended"); }
    void nodes_changed() override { note("nodes"); }
    std::uint32_t priority(hooks::JobRecord *, std::uint32_t computed) override {
        note("priority");
        return computed + 1000;
    }

    hooks::Candidates candidates(const hooks::JobTest &test) override {
        note("candidates");
        return spare ? hooks::Candidates(nullptr, [](hooks::List *) {}) : Hooks::candidates(test);
    }

    bool spare = false;
    std::optional<int> refuse;
    int add = 0;
    bool broken = false;
    std::uint32_t min_nodes = 0;
    std::vector<std::string> asked;

  private:
    void note(const char *what) {
        asked.emplace_back(what);
        if (broken)
            throw std::runtime_error("division by zero");
    }
};

struct Plugin {
    Shared shared;
    Policy policy;
    int forwarded = 0;
    int owned = 0;
    hooks::List *own = reinterpret_cast<hooks::List *>(&owned);
    hooks::List *told = nullptr;

    explicit Plugin(Trust trust) {
        shared.install(&policy);
        if (trust == Trust::kTrusted)
            shared.grant();
        if (trust == Trust::kForwarding)
            shared.withdraw();
    }

    int job_test() {
        return dispatch::job_test(&shared, {nullptr, nullptr, 3, 4, 4, 0, own, nullptr},
                                  [this](hooks::List *candidates) {
                                      ++forwarded;
                                      told = candidates;
                                      return 5;
                                  });
    }
};

void without_trust_nobody_is_asked(void ** /*state*/) {
    for (const Trust trust : {Trust::kUnverified, Trust::kForwarding}) {
        Plugin plugin(trust);
        plugin.policy.refuse = 1;
        assert_int_equal(plugin.job_test(), 5);
        assert_int_equal(plugin.forwarded, 1);
        assert_ptr_equal(plugin.told, plugin.own);
        assert_int_equal(dispatch::job_begin(&plugin.shared, nullptr, [] { return 0; }), 0);
        assert_int_equal(dispatch::job_fini(&plugin.shared, nullptr, [] { return 0; }), 0);
        assert_int_equal(dispatch::nodes_change(&plugin.shared, [] { return 0; }), 0);
        assert_int_equal(dispatch::priority_set(&plugin.shared, nullptr, [] { return 9U; }), 9);
        assert_true(plugin.policy.asked.empty());
    }
}

void without_a_policy_all_is_forwarded(void ** /*state*/) {
    Shared shared;
    shared.grant();
    assert_int_equal(dispatch::job_test(&shared, {}, [](hooks::List *) { return 5; }), 5);
    assert_int_equal(dispatch::priority_set(&shared, nullptr, [] { return 9U; }), 9);
    // As in the priority plugin where the select plugin is not loaded.
    assert_int_equal(dispatch::job_test(nullptr, {}, [](hooks::List *) { return 5; }), 5);
    assert_int_equal(dispatch::priority_set(nullptr, nullptr, [] { return 9U; }), 9);
}

void policy_may_answer_a_job_test_itself(void ** /*state*/) {
    Plugin plugin(Trust::kTrusted);
    plugin.policy.refuse = 2016;
    assert_int_equal(plugin.job_test(), 2016);
    assert_int_equal(plugin.forwarded, 0);
    assert_int_equal(plugin.policy.min_nodes, 3);
    assert_true((plugin.policy.asked == std::vector<std::string>{"before"}));
}

void policy_may_change_the_answer_of_a_job_test(void ** /*state*/) {
    Plugin plugin(Trust::kTrusted);
    plugin.policy.add = 7;
    assert_int_equal(plugin.job_test(), 12);
    assert_int_equal(plugin.forwarded, 1);
    assert_true((plugin.policy.asked == std::vector<std::string>{"before", "candidates", "after"}));
}

void policy_may_spare_candidates(void ** /*state*/) {
    Plugin plugin(Trust::kTrusted);
    assert_int_equal(plugin.job_test(), 5);
    assert_ptr_equal(plugin.told, plugin.own);
    plugin.policy.spare = true;
    assert_int_equal(plugin.job_test(), 5);
    assert_null(plugin.told);
}

void policy_hears_of_what_has_happened_only(void ** /*state*/) {
    Plugin plugin(Trust::kTrusted);
    assert_int_equal(dispatch::job_begin(&plugin.shared, nullptr, [] { return -1; }), -1);
    assert_int_equal(dispatch::job_fini(&plugin.shared, nullptr, [] { return -1; }), -1);
    assert_true(plugin.policy.asked.empty());
    assert_int_equal(dispatch::job_begin(&plugin.shared, nullptr, [] { return 0; }), 0);
    assert_int_equal(dispatch::job_fini(&plugin.shared, nullptr, [] { return 0; }), 0);
    assert_int_equal(dispatch::nodes_change(&plugin.shared, [] { return 0; }), 0);
    assert_true((plugin.policy.asked == std::vector<std::string>{"began", "ended", "nodes"}));
}

void policy_adjusts_a_priority(void ** /*state*/) {
    Plugin plugin(Trust::kTrusted);
    assert_int_equal(dispatch::priority_set(&plugin.shared, nullptr, [] { return 9U; }), 1009);
}

std::vector<std::string> &lines() {
    static std::vector<std::string> all;
    return all;
}

void broken_policy_is_logged_and_never_asked_again(void ** /*state*/) {
    Plugin plugin(Trust::kTrusted);
    plugin.policy.broken = true;
    lines().clear();
    log::set_sink([](log::Level, std::string_view line) { lines().emplace_back(line); });
    assert_int_equal(plugin.job_test(), 5);
    assert_int_equal(plugin.forwarded, 1);
    assert_true(plugin.shared.trust() == Trust::kForwarding);
    assert_int_equal(dispatch::priority_set(&plugin.shared, nullptr, [] { return 9U; }), 9);
    assert_int_equal(plugin.job_test(), 5);
    log::set_sink(nullptr);
    assert_true((plugin.policy.asked == std::vector<std::string>{"before"}));
    assert_int_equal(lines().size(), 1);
    test::expect_contains(lines().front(), "before_job_test: division by zero");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(without_trust_nobody_is_asked),
        cmocka_unit_test(without_a_policy_all_is_forwarded),
        cmocka_unit_test(policy_may_answer_a_job_test_itself),
        cmocka_unit_test(policy_may_change_the_answer_of_a_job_test),
        cmocka_unit_test(policy_may_spare_candidates),
        cmocka_unit_test(policy_hears_of_what_has_happened_only),
        cmocka_unit_test(policy_adjusts_a_priority),
        cmocka_unit_test(broken_policy_is_logged_and_never_asked_again),
    };
    return cmocka_run_group_tests_name("select_plugin_dispatch", tests, nullptr, nullptr);
}
