// SPDX-License-Identifier: GPL-2.0-or-later
// What an agent asks itself has the deadlines of what it asks others.
#include "agent/job/own_questions.hpp"
#include "cmocka.hpp"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace singularity;
using namespace std::chrono_literals;
using agent::OwnQuestions;
using peers::wire::Envelope;
using test::expect_contains;

// What comes back to who has asked.
struct Replies {
    std::vector<Expected<Envelope>> all;
    [[nodiscard]] peers::Peers::OnReply take() {
        return [this](Expected<Envelope> reply) { all.push_back(std::move(reply)); };
    }
};

Envelope done() {
    Envelope out;
    out.mutable_done();
    return out;
}

void each_question_has_its_answer(void **) {
    OwnQuestions questions("n1");
    Replies first;
    Replies second;
    const auto one = questions.ask(1min, first.take());
    const auto other = questions.ask(1min, second.take());
    questions.answer(other, done());
    assert_true(first.all.empty() && second.all.size() == 1 && second.all[0]->has_done());
    questions.answer(one, done());
    assert_int_equal(first.all.size(), 1);
    assert_false(questions.next_deadline().has_value());
}

void who_is_not_answered_in_time_hears_so_once(void **) {
    OwnQuestions questions("n1");
    Replies late;
    Replies waits;
    const auto one = questions.ask(0ms, late.take());
    static_cast<void>(questions.ask(1min, waits.take()));
    assert_true(questions.next_deadline()->expired());
    questions.handle();
    assert_true(late.all.size() == 1 && late.all[0].error().code == ETIMEDOUT && waits.all.empty());
    expect_contains(late.all[0].error().message(), "the agent of n1");
    questions.answer(one, done());
    questions.handle();
    assert_int_equal(late.all.size(), 1);
    assert_false(questions.next_deadline()->expired());
}

void who_is_answered_may_ask_again_at_once(void **) {
    OwnQuestions questions("n1");
    Replies again;
    static_cast<void>(questions.ask(
        0ms, [&](const Expected<Envelope> &) { static_cast<void>(questions.ask(0ms, again.take())); }));
    questions.handle();
    assert_true(again.all.empty());
    questions.handle();
    assert_int_equal(again.all.size(), 1);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(each_question_has_its_answer),
        cmocka_unit_test(who_is_not_answered_in_time_hears_so_once),
        cmocka_unit_test(who_is_answered_may_ask_again_at_once),
    };
    return cmocka_run_group_tests_name("own questions", tests, nullptr, nullptr);
}
