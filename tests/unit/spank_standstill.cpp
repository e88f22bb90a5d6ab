// SPDX-License-Identifier: GPL-2.0-or-later
// What a wrapper does while its rank stands still, and what becomes of a checkpoint when it does not.
#include "agent/protocol/agent_messages.hpp"
#include "agent/step/standstill.hpp"
#include "cmocka.hpp"

#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace {

using namespace singularity;
using namespace singularity::agent;
using namespace std::chrono_literals;

struct Wrapper {
    bool left = false;
    std::string told;

    void watch(Standstill &standstill) {
        standstill.watch(
            {.token = 1, .answer = [this](const std::string &bytes, std::span<const int>) { told = bytes; }},
            [this] { return left; });
    }
    [[nodiscard]] std::string checkpoint() {
        const auto stands = node::decode<StandsStill>(std::exchange(told, {}));
        return stands ? stands->checkpoint : std::string();
    }
};

void a_wrapper_is_waited_for(void ** /*state*/) {
    Standstill standstill;
    Wrapper wrapper;
    wrapper.watch(standstill);
    int done = 0;
    for (const char *const checkpoint : {"c-1", "c-2"}) {
        const int before = done;
        standstill.tell("7.batch", {.checkpoint = checkpoint, .ends = false}, [&] { ++done; });
        assert_string_equal(wrapper.checkpoint().c_str(), checkpoint);
        standstill.look();
        assert_int_equal(done, before);
        assert_true(standstill.until().has_value());
        wrapper.watch(standstill);
        assert_int_equal(done, before + 1);
        assert_false(standstill.until().has_value());
    }
}

void nobody_watches(void ** /*state*/) {
    Standstill standstill;
    bool done = false;
    standstill.tell("7.batch", {.checkpoint = "c-1", .ends = true}, [&] { done = true; });
    assert_true(done);
    Wrapper wrapper;
    wrapper.watch(standstill);
    wrapper.left = true;
    done = false;
    standstill.tell("7.batch", {.checkpoint = "c-2", .ends = true}, [&] { done = true; });
    assert_true(done);
}

void one_that_leaves_or_is_late(void ** /*state*/) {
    Standstill standstill(50ms);
    Wrapper wrapper;
    bool done = false;
    wrapper.watch(standstill);
    standstill.tell("7.batch", {.checkpoint = "c-1", .ends = true}, [&] { done = true; });
    wrapper.left = true;
    standstill.look();
    assert_true(done);
    wrapper.left = done = false;
    wrapper.watch(standstill);
    standstill.tell("7.batch", {.checkpoint = "c-2", .ends = true}, [&] { done = true; });
    assert_false(done);
    std::this_thread::sleep_until(standstill.until()->when());
    standstill.look();
    assert_true(done);
    // The next save does not wait for it.
    done = false;
    standstill.tell("7.batch", {.checkpoint = "c-3", .ends = true}, [&] { done = true; });
    assert_true(done);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_wrapper_is_waited_for),
        cmocka_unit_test(nobody_watches),
        cmocka_unit_test(one_that_leaves_or_is_late),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
