// SPDX-License-Identifier: GPL-2.0-or-later
// A script's steps, saved while all of it runs on: the test is the agent, and shells are the sruns.
#include "agent/protocol/agent_messages.hpp"
#include "agent/protocol/client.hpp"
#include "cmocka.hpp"
#include "commands/runner.hpp"
#include "commands/sent_input.hpp"
#include "common/unique_fd.hpp"
#include "common/unix_socket.hpp"
#include "node/seqpacket.hpp"
#include "stand_in.hpp"
#include "task/agent_line.hpp"
#include "task/steps_save.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using namespace singularity;
using namespace test;
using agent::FindSteps;
using agent::SavedStep;
using agent::SavedSteps;
using agent::SaveSteps;
using agent::StepsVerb;
using task::StepsSave;

constexpr StepsSave::Patience kQuick{.all = 60s, .run = 60s, .let_go = 60s, .again = 2ms, .find_again = 2ms};

// The agent's end of a script's connection.
class FakeAgent {
  public:
    explicit FakeAgent(const Scratch &scratch) : path_(scratch.path / "agent") {
        auto made = listen_unix(path_, 0600, 4);
        assert_true(made.has_value());
        listening_ = std::move(*made);
    }
    void connect(task::AgentLine &line) {
        auto client = agent::Client::connect(path_);
        assert_true(client.has_value());
        socket_ = UniqueFd(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        assert_true(static_cast<bool>(socket_));
        line.connect(std::make_shared<agent::Client>(std::move(*client)));
    }
    // Nothing: none has come.
    template <class Request>
    [[nodiscard]] std::optional<Request> take() {
        node::Packet packet;
        if (node::receive_packet(socket_.get(), packet) != node::Received::packet)
            return std::nullopt;
        token_ = node::header_of(packet.bytes)->token;
        auto out = node::decode<Request>(packet.bytes);
        assert_true(out.has_value());
        return out;
    }
    template <class Reply>
    void answer(const Reply &reply) const {
        assert_int_equal(node::send_packet(socket_.get(), node::encode(reply, token_)), 0);
    }
    void refuse(const char *why) const {
        answer(agent::Failed{.doing = "save", .on = "a step", .why = why, .code = EIO});
    }

  private:
    std::filesystem::path path_;
    UniqueFd listening_;
    UniqueFd socket_;
    std::uint32_t token_ = 0; // of the request that was taken last
};

// A script with sruns that run: each ends with 0 when it is told so, as one does whose step has ended.
class Script {
    Scratch scratch_;
    std::filesystem::path srun_ = scratch_.path / "srun";
    task::AgentLine line_;
    task::ScriptSteps steps_{.restarts = 0, .store = "/store", .hosts = {"n1", "n2"}};
    [[nodiscard]] commands::Setting setting() {
        auto out = only({srun_});
        out.number = [this](std::vector<std::string> & /*environment*/, const commands::Run &run) {
            numbers.push_back(run.number);
        };
        return out;
    }

  public:
    explicit Script(std::size_t count) {
        std::filesystem::create_symlink(kShell, srun_);
        runner.open(scratch_.listen());
        agent.connect(line_);
        for (std::size_t at = 0; at < count; ++at)
            begin(fmt::format("printf x >&3; until [ -e {}/end-{} ]; do sleep 0.01; done; exit 0",
                              scratch_.path.native(), at));
    }

    FakeAgent agent{scratch_};
    Runner runner{setting()};
    std::list<StandIn> sruns;
    std::vector<std::uint32_t> numbers; // theirs
    std::optional<StepsSave> save;

    StandIn &begin(const std::string &words, UniqueFd input = UniqueFd(::open("/dev/null", O_RDONLY))) {
        auto &one = sruns.emplace_back();
        one.in = std::move(input);
        one.run(scratch_.door(), words, srun_);
        until(runner, [&] { return numbers.size() == sruns.size(); }, "an srun");
        return one;
    }
    void begin_save(const StepsSave::Patience &patience = kQuick) {
        save.emplace(line_, runner, steps_, patience);
        save->work();
    }
    void wait(const std::function<bool()> &holds, const char *what, const char *file = __builtin_FILE(),
              int at = __builtin_LINE()) {
        until(
            runner,
            [&] {
                save->work();
                return holds();
            },
            what, file, at);
    }
    template <class Request = SaveSteps>
    Request next(const char *file = __builtin_FILE(), int at = __builtin_LINE()) {
        std::optional<Request> out;
        wait(
            [&] {
                out = agent.take<Request>();
                return out.has_value();
            },
            "a request", file, at);
        return *out;
    }
    void expect(StepsVerb verb, const char *file = __builtin_FILE(), int at = __builtin_LINE()) {
        const auto request = next(file, at);
        if (request.verb != verb || request.numbers.size() != sruns.size())
            fail(fmt::format("verb {} for {} steps", static_cast<int>(request.verb), request.numbers.size()),
                 file, at);
    }
    // All run, then all are saved.
    void look_and_save() {
        expect(StepsVerb::look);
        agent.answer(all({.there = true, .here = true, .checkpoint = {}}));
        expect(StepsVerb::save);
        agent.answer(all(saved()));
    }
    [[nodiscard]] SavedSteps all(const SavedStep &each) const {
        return {.steps = std::vector(sruns.size(), each)};
    }
    [[nodiscard]] static SavedStep saved() { return {.there = true, .here = true, .checkpoint = "an image"}; }
    [[nodiscard]] agent::FoundSteps found(const std::string &checkpoint) const {
        return {.checkpoints = std::vector(sruns.size(), checkpoint),
                .inputs = std::vector(sruns.size(), agent::StepInput())};
    }
    // Of its step.
    void end(std::size_t at) const {
        const UniqueFd made(
            ::open((scratch_.path / fmt::format("end-{}", at)).c_str(), O_CREAT | O_WRONLY, 0600));
        assert_true(static_cast<bool>(made));
    }
    void end_all() const {
        for (std::size_t at = 0; at < sruns.size(); ++at)
            end(at);
    }
    void await_trouble(const char *words, const char *file = __builtin_FILE(), int at = __builtin_LINE()) {
        wait([&] { return !save->trouble().empty(); }, "trouble", file, at);
        expect_contains(save->trouble(), words);
    }
    void expect_ends() {
        for (auto &one : sruns)
            expect_exit(runner, one, 0);
    }
    // As far as the word that all of them end.
    void save_and_end() {
        begin_save();
        look_and_save();
        expect(StepsVerb::end);
        agent.answer(all(saved()));
    }
    // They end, and this image is found of each.
    void find(const char *image) {
        end_all();
        static_cast<void>(next<FindSteps>());
        agent.answer(found(image));
        wait([&] { return save->resolved(); }, "the end of it");
    }
    void reconnect() {
        agent.connect(line_);
        save->reconnected();
    }
};

void steps_are_saved_end_and_are_sent_back(void **) {
    Script script(2);
    script.save_and_end();
    script.runner.pause();
    script.find("an image");
    assert_true(script.save->trouble().empty());
    rests(script.runner);
    assert_int_equal(script.runner.awaited().size(), 2);
}

// Their images are of no use to anybody.
void where_one_cannot_be_saved_all_run_on(void **) {
    Script script(2);
    script.begin_save();
    script.expect(StepsVerb::look);
    script.agent.answer(script.all({.there = true, .here = true, .checkpoint = {}}));
    script.expect(StepsVerb::save);
    script.agent.refuse("it holds something");
    script.await_trouble("it holds something");
    script.expect(StepsVerb::go_on);
    script.agent.answer(script.all({}));
    script.wait([&] { return script.save->resolved(); }, "the end of it");
    script.end_all();
    script.expect_ends();
}

// Else one would stand still for some minutes.
void that_they_run_on_is_said_until_it_is_heard(void **) {
    Script script(1);
    script.begin_save();
    script.expect(StepsVerb::look);
    script.agent.answer(script.all({.there = true, .here = true, .checkpoint = {}}));
    script.expect(StepsVerb::save);
    script.agent.refuse("it holds something");
    for (int times = 0; times < 3; ++times) {
        script.expect(StepsVerb::go_on);
        assert_false(script.save->resolved());
        script.agent.refuse("n2 does not answer");
    }
    script.expect(StepsVerb::go_on);
    script.reconnect(); // the agent has died before it answered
    script.expect(StepsVerb::go_on);
    script.agent.answer(script.all({}));
    script.wait([&] { return script.save->resolved(); }, "the end of it");
    expect_contains(script.save->trouble(), "it holds something");
}

void a_host_that_never_hears_of_it_is_given_up(void **) {
    Script script(1);
    auto patience = kQuick;
    patience.let_go = 20ms;
    script.begin_save(patience);
    script.expect(StepsVerb::look);
    script.agent.answer(script.all({.there = true, .here = true, .checkpoint = {}}));
    script.expect(StepsVerb::save);
    script.agent.refuse("it holds something");
    script.expect(StepsVerb::go_on);
    script.wait([&] { return script.save->resolved(); }, "the end of it");
}

// In each of the phases in which it waits for the agent.
void an_agent_that_does_not_answer_is_not_waited_for(void **) {
    for (const auto last : {StepsVerb::look, StepsVerb::save, StepsVerb::end}) {
        Script script(1);
        auto patience = kQuick;
        patience.all = 300ms;
        script.begin_save(patience);
        script.expect(StepsVerb::look);
        if (last != StepsVerb::look) {
            script.agent.answer(script.all({.there = true, .here = true, .checkpoint = {}}));
            script.expect(StepsVerb::save);
        }
        if (last == StepsVerb::end) {
            script.agent.answer(script.all(Script::saved()));
            script.expect(StepsVerb::end);
        }
        assert_true(script.save->next_deadline().has_value());
        script.await_trouble("cannot wait any longer");
        if (last != StepsVerb::look)
            script.expect(StepsVerb::go_on);
        // Of one that was told to end nobody knows yet whether it has.
        assert_int_equal(script.runner.running()[0].over, false);
        script.agent.answer(script.all({}));
        if (last == StepsVerb::end) {
            script.expect(StepsVerb::look);
            script.agent.answer(script.all({.there = true, .here = true, .checkpoint = {}}));
        }
        script.wait([&] { return script.save->resolved(); }, "the end of it");
        script.end_all();
        script.expect_ends();
    }
}

// So it cannot be begun again from there, and must not end: the job would be run again.
void input_that_passes_before_a_step_stands_still_keeps_it_running(void **) {
    Script script(0);
    std::array<int, 2> ends{};
    assert_int_equal(pipe2(ends.data(), O_CLOEXEC), 0);
    UniqueFd writing(ends[1]);
    script.begin("printf x >&3; cat > /dev/null; exit 0", UniqueFd(ends[0]));
    script.sruns.back().in.reset();
    script.begin_save();
    script.expect(StepsVerb::look);
    script.agent.answer(script.all({.there = true, .here = true, .checkpoint = {}}));
    script.expect(StepsVerb::save);
    {
        std::atomic<bool> written = false;
        const std::jthread writer([&] {
            const std::vector<char> bytes(std::size_t{1} << 20U);
            for (std::size_t sent = 0; sent < 2 * commands::kInputKept; sent += bytes.size())
                if (write(writing.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
                    return;
            written = true;
        });
        script.wait([&] { return script.runner.running()[0].kept_from != 0; }, "input to pass");
        script.agent.answer(script.all(Script::saved()));
        script.await_trouble("so much of it has passed");
        script.expect(StepsVerb::go_on);
        script.agent.answer(script.all({}));
        script.wait([&] { return script.save->resolved(); }, "the end of it");
        script.wait([&] { return written.load(); }, "the end of the input");
    }
    writing.reset();
    script.expect_ends();
}

void an_end_that_is_its_own_is_told(void **) {
    Script script(1);
    script.save_and_end();
    script.find("another image");
    script.expect_ends();
}

void whoever_is_killed_is_awaited_no_more(void **) {
    Script script(1);
    script.save_and_end();
    script.runner.pause();
    script.find("an image");
    assert_int_equal(script.runner.awaited().size(), 1);
    kill(script.sruns.back().pid, SIGKILL);
    until(script.runner, [&] { return script.runner.awaited().empty(); }, "nobody to be awaited");
}

void a_killed_stand_in_is_no_concern_of_the_save(void **) {
    Script script(2);
    script.begin_save();
    script.look_and_save();
    for (auto &one : script.sruns)
        kill(one.pid, SIGKILL);
    script.wait([&] { return script.save->resolved(); }, "the end of it");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_saved_end_and_are_sent_back),
        cmocka_unit_test(where_one_cannot_be_saved_all_run_on),
        cmocka_unit_test(that_they_run_on_is_said_until_it_is_heard),
        cmocka_unit_test(a_host_that_never_hears_of_it_is_given_up),
        cmocka_unit_test(an_agent_that_does_not_answer_is_not_waited_for),
        cmocka_unit_test(input_that_passes_before_a_step_stands_still_keeps_it_running),
        cmocka_unit_test(an_end_that_is_its_own_is_told),
        cmocka_unit_test(whoever_is_killed_is_awaited_no_more),
        cmocka_unit_test(a_killed_stand_in_is_no_concern_of_the_save),
    };
    return cmocka_run_group_tests_name("steps_save", tests, nullptr, nullptr);
}
