// SPDX-License-Identifier: GPL-2.0-or-later
// The journal keeps what is needed, and no more.
#include "journal.hpp"

#include "cmocka.hpp"
#include "driver_api/handles.hpp"

#include <initializer_list>
#include <string>

namespace {

using namespace singularity;
using namespace singularity::proxyd;

constexpr std::uint64_t handle(unsigned kind, std::uint64_t index) {
    return std::uint64_t{0x0C} << 40 | std::uint64_t{kind} << 36 | index << 4;
}
constexpr auto kContext = handle(driver_api::kHandleContext, 1);
constexpr auto kModule = handle(driver_api::kHandleModule, 1);
constexpr auto kFunction = handle(driver_api::kHandleFunction, 1);
constexpr auto kGraph = handle(driver_api::kHandleGraph, 1);
constexpr auto kNode = handle(driver_api::kHandleGraphNode, 1);
constexpr auto kStream = handle(driver_api::kHandleStream, 1);
constexpr auto kOtherExec = handle(driver_api::kHandleGraphExec, 9);
constexpr auto kExec = handle(driver_api::kHandleGraphExec, 1);

using Handles = std::initializer_list<std::uint64_t>;

// A call is a letter and a number (its key).
class Recorder {
  public:
    void call(char name, Effect effect, Handles used, Handles made, Handles gone = {}, std::byte key = {}) {
        std::vector<std::byte> message(24);
        message[0] = static_cast<std::byte>(name);
        message[16] = key;
        Trace trace;
        trace.used = used;
        trace.made = made;
        trace.gone = gone;
        journal_.record({.effect = effect, .key_at = 16, .key_size = 1},
                        {.context = kContext, .message = message, .names = {}, .code = nullptr}, trace);
    }
    // One launch into a graph that is there.
    void capture(std::uint64_t graph, std::vector<std::uint64_t> nodes) {
        constexpr std::uint64_t kNumber = 7;
        const auto message = [](char name) {
            std::vector<std::byte> bytes(24);
            bytes[0] = static_cast<std::byte>(name);
            return JournalCall{.context = kContext, .message = bytes, .names = {}, .code = nullptr};
        };
        Trace begins;
        begins.used = {kStream, graph};
        journal_.begin_capture(kNumber, message('('), begins);
        Trace launches; // of a kernel, and of another graph
        launches.used = {kStream, kFunction, kOtherExec};
        journal_.add_to_capture(kNumber, message('k'), launches);
        Trace names;
        names.used = {kStream};
        names.invented = std::move(nodes);
        journal_.add_to_capture(kNumber, message('i'), names);
        Trace ends;
        ends.used = {kStream, graph};
        journal_.end_capture(kNumber, message(')'), ends, true);
    }
    [[nodiscard]] Journal &journal() { return journal_; }
    [[nodiscard]] std::string kept() const {
        std::string names;
        for (const auto *entry : journal_.entries())
            for (const auto &call : entry->calls)
                names += static_cast<char>(call.message[0]);
        return names;
    }
    void context() { call('C', Effect::makes, {}, {kContext}); }
    void module() {
        context();
        call('M', Effect::makes, {}, {kModule});
        call('F', Effect::makes, {kModule}, {kFunction});
    }
    void graph() {
        module();
        call('G', Effect::makes, {}, {kGraph});
        call('N', Effect::makes, {kGraph, kFunction}, {kNode});
    }

  private:
    Journal journal_;
};

void what_has_ended_is_forgotten(void ** /*state*/) {
    Recorder recorder;
    recorder.module();
    test::expect_equal(recorder.kept(), "CMF");
    recorder.call('U', Effect::ends, {kModule}, {}, {kModule, kFunction});
    test::expect_equal(recorder.kept(), "C");
    recorder.call('D', Effect::ends, {}, {}, {kContext});
    test::expect_equal(recorder.kept(), "");
}

void the_last_change_counts(void ** /*state*/) {
    Recorder recorder;
    recorder.module();
    for (int round = 0; round < 100; ++round) {
        recorder.call('a', Effect::changes, {kFunction}, {}, {}, std::byte{1});
        recorder.call('b', Effect::changes, {kFunction}, {}, {}, std::byte{2});
    }
    test::expect_equal(recorder.kept(), "CMFab");
}

// An executable graph keeps its graph, with the nodes that it had, and those keep the module.
void an_executable_graph_keeps_what_it_is_made_of(void ** /*state*/) {
    Recorder recorder;
    recorder.graph();
    recorder.call('E', Effect::makes, {kGraph}, {kExec});
    recorder.call('g', Effect::ends, {kGraph}, {}, {kGraph, kNode});
    recorder.call('u', Effect::ends, {kModule}, {}, {kModule, kFunction});
    test::expect_equal(recorder.kept(), "CMFGNEgu");
    recorder.call('e', Effect::ends, {kExec}, {}, {kExec});
    test::expect_equal(recorder.kept(), "C");
}

// A change before an instantiation is one for it, whatever comes later.
void a_change_that_was_looked_at_stays(void ** /*state*/) {
    Recorder recorder;
    recorder.graph();
    recorder.call('s', Effect::changes, {kNode}, {}, {}, std::byte{1});
    recorder.call('E', Effect::makes, {kGraph}, {kExec});
    recorder.call('s', Effect::changes, {kNode}, {}, {}, std::byte{1});
    recorder.call('s', Effect::changes, {kNode}, {}, {}, std::byte{1});
    // The first is in the executable graph; nobody has looked at the second.
    test::expect_equal(recorder.kept(), "CMFGNsEs");
}

// The pattern of a training loop: captured anew, updated, the new graph destroyed.
void updates_do_not_pile_up(void ** /*state*/) {
    Recorder recorder;
    recorder.graph();
    recorder.call('E', Effect::makes, {kGraph}, {kExec});
    for (unsigned round = 2; round < 100; ++round) {
        const auto graph = handle(driver_api::kHandleGraph, round);
        recorder.call('H', Effect::makes, {}, {graph});
        recorder.call('x', Effect::changes, {kNode, kExec}, {}, {}, std::byte{1});
        recorder.call('p', Effect::updates, {graph, kExec}, {});
        recorder.call('h', Effect::ends, {graph}, {}, {graph});
    }
    test::expect_equal(recorder.kept(), "CMFGNEHph");
}

void a_capture_is_one_entry(void ** /*state*/) {
    Journal journal;
    const auto call = [](char name) {
        std::vector<std::byte> message(24);
        message[0] = static_cast<std::byte>(name);
        return JournalCall{.context = kContext, .message = message, .names = {}, .code = nullptr};
    };
    Trace nothing;
    journal.begin_capture(5, call('('), nothing);
    journal.add_to_capture(5, call('k'), nothing);
    journal.end_capture(5, call(')'), nothing, false);
    assert_int_equal(journal.size(), 0);
    journal.begin_capture(6, call('('), nothing);
    journal.add_to_capture(6, call('k'), nothing);
    Trace made;
    made.made = {kGraph};
    journal.end_capture(6, call(')'), made, true);
    const auto entries = journal.entries();
    assert_int_equal(entries.size(), 1);
    assert_int_equal(entries.front()->calls.size(), 3);
    assert_true(entries.front()->of_graphs);
}

// It changes the graph that it was given, and goes with it; its nodes are parts of that graph.
void a_capture_into_a_graph_is_a_change(void ** /*state*/) {
    Recorder recorder;
    recorder.graph();
    recorder.call('O', Effect::makes, {}, {kOtherExec});
    constexpr auto kCaptured = handle(driver_api::kHandleGraphNode, 50);
    recorder.capture(kGraph, {kCaptured});
    test::expect_equal(recorder.kept(), "CMFGNO(ki)");
    recorder.call('E', Effect::makes, {kGraph}, {kExec});
    recorder.call('a', Effect::adds, {kCaptured}, {});
    test::expect_equal(recorder.kept(), "CMFGNO(ki)Ea");
    // The other one goes, and has to be made for what was captured of it.
    recorder.call('o', Effect::ends, {kOtherExec}, {}, {kOtherExec});
    test::expect_equal(recorder.kept(), "CMFGNO(ki)Eao");
    recorder.call('e', Effect::ends, {kExec}, {}, {kExec});
    recorder.call('g', Effect::ends, {kGraph}, {}, {kGraph});
    test::expect_equal(recorder.kept(), "CMF");
}

// A stream and an event that have their part in a capture, and are ended before it is. `(`: the capture's
// begin, `)`: its end.
class ForkedCapture {
  public:
    Recorder recorder;

    void begin(std::uint64_t number) {
        Trace uses;
        uses.used = {kStream};
        recorder.journal().begin_capture(number, call('('), uses);
        uses.used = {kStream, kEvent};
        recorder.journal().add_to_capture(number, call('r'), uses);
        uses.used = {kSide, kEvent};
        recorder.journal().add_to_capture(number, call('w'), uses);
    }
    void end(std::uint64_t number, bool made) {
        Trace ends;
        ends.used = {kStream};
        if (made)
            ends.made = {handle(driver_api::kHandleGraph, number)};
        recorder.journal().end_capture(number, call(')'), ends, made);
    }
    void make_all() {
        recorder.context();
        recorder.call('S', Effect::makes, {}, {kStream});
        recorder.call('T', Effect::makes, {}, {kSide});
        recorder.call('V', Effect::makes, {}, {kEvent});
    }
    void end_all() {
        recorder.call('v', Effect::ends, {kEvent}, {}, {kEvent});
        recorder.call('t', Effect::ends, {kSide}, {}, {kSide});
    }

  private:
    static constexpr auto kSide = handle(driver_api::kHandleStream, 2);
    static constexpr auto kEvent = handle(driver_api::kHandleEvent, 1);

    static JournalCall call(char name) {
        std::vector<std::byte> bytes(24);
        bytes[0] = static_cast<std::byte>(name);
        return JournalCall{.context = kContext, .message = bytes, .names = {}, .code = nullptr};
    }
};

void what_ends_in_a_capture_is_made_for_it(void ** /*state*/) {
    ForkedCapture forked;
    forked.make_all();
    forked.begin(21);
    forked.end_all();
    test::expect_equal(forked.recorder.kept(), "CSTV");
    forked.end(21, true);
    test::expect_equal(forked.recorder.kept(), "CSTV(rw)vt");
    // With the graph all of that has gone.
    const auto graph = handle(driver_api::kHandleGraph, 21);
    forked.recorder.call('g', Effect::ends, {graph}, {}, {graph});
    test::expect_equal(forked.recorder.kept(), "CS");
}

void a_capture_that_makes_nothing_leaves_nothing(void ** /*state*/) {
    ForkedCapture forked;
    forked.make_all();
    forked.begin(21);
    forked.end_all();
    forked.end(21, false);
    test::expect_equal(forked.recorder.kept(), "CS");
}

void what_ends_in_two_captures_ends_behind_both(void ** /*state*/) {
    ForkedCapture forked;
    forked.make_all();
    forked.begin(21);
    forked.begin(22);
    forked.end_all();
    forked.end(21, true);
    test::expect_equal(forked.recorder.kept(), "CSTV(rw)");
    forked.end(22, true);
    test::expect_equal(forked.recorder.kept(), "CSTV(rw)(rw)vt");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_has_ended_is_forgotten),
        cmocka_unit_test(the_last_change_counts),
        cmocka_unit_test(an_executable_graph_keeps_what_it_is_made_of),
        cmocka_unit_test(a_change_that_was_looked_at_stays),
        cmocka_unit_test(updates_do_not_pile_up),
        cmocka_unit_test(a_capture_is_one_entry),
        cmocka_unit_test(a_capture_into_a_graph_is_a_change),
        cmocka_unit_test(what_ends_in_a_capture_is_made_for_it),
        cmocka_unit_test(a_capture_that_makes_nothing_leaves_nothing),
        cmocka_unit_test(what_ends_in_two_captures_ends_behind_both),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
