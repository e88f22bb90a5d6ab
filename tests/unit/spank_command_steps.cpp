// SPDX-License-Identifier: GPL-2.0-or-later
// What becomes of the steps that a script begins, where that is decided with the first one.
#include "cmocka.hpp"
#include "commands/runner.hpp"
#include "commands/stand_in.hpp"
#include "common/unique_fd.hpp"
#include "stand_in.hpp"

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace {

using namespace singularity;
using namespace test;
using commands::StepsAre;

// The runner of a script's.
struct Deciding {
    std::filesystem::path srun;
    StepsAre steps = StepsAre::unknown;
    int asked = 0;    // how often
    int numbered = 0; // commands that may go on
    Runner runner;

    explicit Deciding(const Scratch &scratch) : srun(scratch.path / "srun"), runner(setting()) {
        std::filesystem::create_symlink(kShell, srun);
        runner.open(scratch.listen());
    }
    commands::Setting setting() {
        auto out = only({srun, kShell});
        out.number = [this](std::vector<std::string> & /*environment*/, const commands::Run & /*run*/) {
            ++numbered;
        };
        out.steps_are = [this] {
            ++asked;
            return steps;
        };
        return out;
    }
};

void nothing_but_a_step_waits(void **) {
    const Scratch scratch;
    Deciding script(scratch);
    StandIn other;
    other.run(scratch.door(), "exit 3");
    expect_exit(script.runner, other, 3);
    assert_int_equal(script.asked, 0);
    rests(script.runner);
}

void a_step_waits_until_it_is_known_what_it_is(void **) {
    for (const auto steps : {StepsAre::apart, StepsAre::with_rank}) {
        const Scratch scratch;
        Deciding script(scratch);
        StandIn one;
        one.in = UniqueFd(open("/dev/null", O_RDONLY));
        one.run(scratch.door(), "exit 4", script.srun);
        until(script.runner, [&] { return script.asked > 2; }, "the stand-in to come again");
        assert_false(one.ended());
        assert_int_equal(script.numbered, 0);
        script.steps = steps;
        until(script.runner, [&] { return one.ended() || script.runner.withholds(); }, "the command's end");
        assert_int_equal(script.numbered, steps == StepsAre::with_rank ? 1 : 0);
        script.runner.deliver(); // one that may go on has failed without a step
        expect_exit(script.runner, one, 4);
        rests(script.runner);
    }
}

// Nobody says that such a step has begun.
void a_step_apart_has_its_input(void **) {
    const Scratch scratch;
    Deciding script(scratch);
    script.steps = StepsAre::apart;
    std::array<int, 2> ends{};
    assert_int_equal(pipe2(ends.data(), O_CLOEXEC), 0);
    StandIn one;
    one.in = UniqueFd(ends[0]);
    UniqueFd writing(ends[1]);
    one.run(scratch.door(), "cat", script.srun);
    one.in.reset();
    constexpr std::string_view kText = "through a pipe";
    assert_int_equal(write(writing.get(), kText.data(), kText.size()), kText.size());
    until(script.runner, [&] { return content(one.out) == kText; }, "its input");
    writing.reset();
    expect_exit(script.runner, one, 0);
    assert_int_equal(script.numbered, 0);
    rests(script.runner);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(nothing_but_a_step_waits),
        cmocka_unit_test(a_step_waits_until_it_is_known_what_it_is),
        cmocka_unit_test(a_step_apart_has_its_input),
    };
    return cmocka_run_group_tests_name("command steps", tests, nullptr, nullptr);
}
