// SPDX-License-Identifier: GPL-2.0-or-later
// How hosts hear that nobody is at a job's nodes any more.
#include "agent/job/let_go.hpp"
#include "cmocka.hpp"

#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace {

using namespace singularity;
using namespace singularity::agent;
using namespace std::chrono_literals;
namespace wire = peers::wire;

// Keeps what was asked until the test answers it.
class Hosts : public HostAsker {
  public:
    std::map<std::string, std::vector<peers::Peers::OnReply>> asked;

    void ask(const std::string &host, wire::Envelope request, std::chrono::milliseconds /*patience*/,
             peers::Peers::OnReply on_reply) override {
        assert_int_equal(request.save_job().step(), wire::SaveJob::LET_GO);
        assert_true(request.save_job().job() == "a job");
        asked[host].push_back(std::move(on_reply));
    }
    [[nodiscard]] std::optional<peers::Peers::Addresses>
    addresses(const std::string & /*host*/) const override {
        return std::nullopt;
    }
    [[nodiscard]] const std::string &own_host() const override { return own_; }
    void run_again(Rerun /*rerun*/) override {}
    void script_saved(const StepKey & /*key*/) override {}
    void forget_image(const StepKey & /*key*/, std::string /*image*/) override {}

    void answer(const std::string &host, Expected<wire::Envelope> reply) {
        const auto on_reply = std::move(asked[host].back());
        asked[host].pop_back();
        on_reply(std::move(reply));
    }
    [[nodiscard]] std::size_t waiting(const std::string &host) { return asked[host].size(); }

  private:
    std::string own_ = "n1";
};

wire::Envelope done_so() {
    wire::Envelope out;
    out.mutable_saved_job();
    return out;
}

Expected<wire::Envelope> lost() { return failure("ask", "a host", "the connection was lost", ECONNRESET); }

void handle_when_due(LetGo &letting_go) {
    assert_true(letting_go.next_deadline().has_value());
    while (!letting_go.next_deadline()->expired())
        usleep(1000);
    letting_go.handle();
}

constexpr LetGo::Patience kShort{.pause = 2ms, .tries = 60s, .answer = 60s};

void a_host_that_has_not_heard_it_is_told_again(void **) {
    Hosts hosts;
    int ended = 0;
    const auto letting_go = LetGo::start(hosts, "a job", {"n1", "n2"}, [&] { ++ended; }, kShort);
    hosts.answer("n1", done_so());
    for (int times = 0; times < 3; ++times) {
        hosts.answer("n2", lost());
        assert_int_equal(hosts.waiting("n2"), 0);
        handle_when_due(*letting_go);
        assert_int_equal(hosts.waiting("n2"), 1);
        assert_int_equal(hosts.waiting("n1"), 0);
    }
    assert_int_equal(ended, 0);
    hosts.answer("n2", done_so());
    assert_int_equal(ended, 1);
    assert_false(letting_go->next_deadline().has_value());
}

// What its nodes can do is not changed by being told twice.
void a_host_that_refuses_has_heard_it(void **) {
    Hosts hosts;
    int ended = 0;
    const auto letting_go = LetGo::start(hosts, "a job", {"n1"}, [&] { ++ended; }, kShort);
    wire::Envelope refusal;
    refusal.mutable_fault()->set_why("it has ended");
    refusal.mutable_fault()->set_code(ECHILD);
    hosts.answer("n1", refusal);
    assert_int_equal(ended, 1);
}

void a_host_that_never_hears_is_given_up(void **) {
    Hosts hosts;
    int ended = 0;
    const auto letting_go =
        LetGo::start(hosts, "a job", {"n1"}, [&] { ++ended; }, {.pause = 1ms, .tries = 5ms, .answer = 60s});
    while (ended == 0) {
        hosts.answer("n1", lost());
        if (ended == 0)
            handle_when_due(*letting_go);
    }
    assert_int_equal(ended, 1);
}

void nobody_is_told_of_one_that_was_dropped(void **) {
    Hosts hosts;
    int ended = 0;
    const auto letting_go = LetGo::start(hosts, "a job", {"n1"}, [&] { ++ended; }, kShort);
    letting_go->drop();
    hosts.answer("n1", done_so());
    assert_int_equal(ended, 0);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_host_that_has_not_heard_it_is_told_again),
        cmocka_unit_test(a_host_that_refuses_has_heard_it),
        cmocka_unit_test(a_host_that_never_hears_is_given_up),
        cmocka_unit_test(nobody_is_told_of_one_that_was_dropped),
    };
    return cmocka_run_group_tests_name("let_go", tests, nullptr, nullptr);
}
