// SPDX-License-Identifier: GPL-2.0-or-later
// How the wrappers that run Slurm's commands for a step's nodes come to rest.
#include "agent/job/job_save.hpp"
#include "agent/node/node_socket.hpp"
#include "agent/step/doors.hpp"
#include "agent/step/save_error.hpp"
#include "cmocka.hpp"
#include "common/unix_socket.hpp"
#include "node/door.hpp"

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using namespace singularity;
using namespace singularity::agent;
using test::expect_contains;

// Two nodes' directories, and where doors are in them.
struct Folders {
    std::filesystem::path top;
    Folders() {
        std::string name = (std::filesystem::temp_directory_path() / "doors.XXXXXX").native();
        assert_non_null(mkdtemp(name.data()));
        top = name;
        for (const char *const node : {"a", "b"})
            std::filesystem::create_directory(top / node);
    }
    Folders(const Folders &) = delete;
    Folders &operator=(const Folders &) = delete;
    Folders(Folders &&) = delete;
    Folders &operator=(Folders &&) = delete;
    ~Folders() { std::filesystem::remove_all(top); }
    [[nodiscard]] std::filesystem::path door(const char *node, std::uint32_t rank) const {
        return top / node / node::door_name(rank);
    }
};

class Wrapper {
  public:
    bool left = false;

    // What it is told last.
    [[nodiscard]] Responder responder() {
        return {.token = 1,
                .answer = [this](const std::string &bytes, std::span<const int>) { told_ = bytes; }};
    }
    template <class Reply>
    [[nodiscard]] bool hears() {
        return node::decode<Reply>(std::exchange(told_, {})).has_value();
    }
    [[nodiscard]] std::optional<SaveBegins> begins() {
        return node::decode<SaveBegins>(std::exchange(told_, {}));
    }
    [[nodiscard]] bool hears_nothing() const { return told_.empty(); }

    Expected<int> open(Doors &doors, const std::vector<std::filesystem::path> &paths) {
        return doors.open({.who = this, .left = [this] { return left; }}, paths,
                          {.uid = geteuid(), .gid = getegid()});
    }
    void begin(Doors &doors, const Folders &folders) {
        assert_true(open(doors, {folders.door("a", 0)}).has_value());
        doors.watch(this, true, responder());
        assert_true(hears_nothing());
    }
    void rest(Doors &doors, const std::string &trouble = {}) {
        doors.rest_of(this, {.trouble = trouble, .only_for_now = false, .named = {}}, responder());
    }

  private:
    std::string told_;
};

// What became of a wish that they rest.
struct JobRequest {
    std::optional<Expected<void>> outcome;
    [[nodiscard]] Doors::Then then() {
        return [this](const Expected<void> &told) {
            assert_false(outcome.has_value());
            outcome = told;
        };
    }
    [[nodiscard]] bool fulfilled() const { return outcome && outcome->has_value(); }
};

int connect_code(const std::filesystem::path &door) {
    const auto made = connect_unix(door, Deadline::after(std::chrono::seconds(5)));
    return made ? 0 : made.error().code;
}

// Which a wrapper needs that stands for several ranks.
// Whoever waits for a door and may not use it yet would take that for the last word.
void a_door_is_there_when_its_owner_is(void ** /*state*/) {
    const Folders folders;
    const auto folder = folders.top / "a";
    const UniqueFd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    assert_true(watch &&
                inotify_add_watch(watch.get(), folder.c_str(), IN_CREATE | IN_MOVED_TO | IN_ATTRIB) >= 0);
    const std::string name = node::door_name(0);
    assert_true(listen_in_node(folder, name, 1, {.uid = getuid(), .gid = getgid()}).has_value());
    alignas(inotify_event) std::array<char, 4096> events{};
    const auto size = read(watch.get(), events.data(), events.size());
    assert_true(size > 0);
    std::vector<std::uint32_t> seen; // of what has its name
    for (std::size_t at = 0; std::cmp_less(at, size);) {
        inotify_event event{};
        std::memcpy(&event, &events[at], sizeof(event));
        if (name == &events[at + sizeof(event)])
            seen.push_back(event.mask);
        at += sizeof(event) + event.len;
    }
    assert_true(seen == std::vector<std::uint32_t>{IN_MOVED_TO});
}

void a_door_may_be_in_several_places(void **) {
    const Folders folders;
    Doors doors("47.0");
    Wrapper one;
    Wrapper other;
    const std::vector both{folders.door("a", 0), folders.door("b", 1), folders.door("b", 2)};
    assert_true(one.open(doors, both).has_value());
    assert_true(other.open(doors, {folders.door("a", 3)}).has_value());
    for (const auto &door : both)
        assert_int_equal(connect_code(door), 0);
    assert_int_equal(connect_code(folders.door("a", 3)), 0);
    // Which closes the one before, and no other's.
    assert_true(one.open(doors, {both[1]}).has_value());
    assert_int_equal(connect_code(both[0]), ECONNREFUSED);
    assert_int_equal(connect_code(both[1]), 0);
    assert_int_equal(connect_code(folders.door("a", 3)), 0);
}

void nobody_is_found_while_they_rest(void **) {
    const Folders folders;
    Doors doors("47.0");
    Wrapper one;
    one.begin(doors, folders);
    JobRequest save;
    doors.rest(Doors::For::save, save.then());
    assert_int_equal(connect_code(folders.door("a", 0)), ECONNREFUSED);
    assert_int_equal(one.open(doors, {folders.door("a", 0)}).error().code, EAGAIN);
    assert_true(one.hears<SaveBegins>());
    assert_false(save.outcome.has_value());
    one.rest(doors);
    assert_true(save.fulfilled());
    assert_true(one.hears_nothing());
    doors.let_go(Doors::For::save);
    assert_true(one.hears<Done>());
    one.begin(doors, folders);
    assert_int_equal(connect_code(folders.door("a", 0)), 0);
}

void all_of_them_rest_first(void **) {
    const Folders folders;
    Doors doors("47.0");
    std::array<Wrapper, 3> all;
    for (auto &one : all)
        one.begin(doors, folders);
    JobRequest save;
    doors.rest(Doors::For::save, save.then());
    all[0].rest(doors);
    all[1].rest(doors);
    assert_false(save.outcome.has_value());
    all[2].left = true;
    doors.look();
    assert_true(save.fulfilled());
}

void where_nobody_serves_all_rest(void **) {
    Doors doors("47.0");
    JobRequest save;
    doors.rest(Doors::For::save, save.then());
    assert_true(save.fulfilled());
    assert_false(doors.until().has_value());
}

void who_watches_late_hears_at_once(void **) {
    const Folders folders;
    Doors doors("47.0");
    Wrapper one;
    assert_true(one.open(doors, {folders.door("a", 0)}).has_value());
    JobRequest save;
    doors.rest(Doors::For::save, save.then());
    doors.watch(&one, true, one.responder());
    assert_true(one.hears<SaveBegins>());
}

void what_does_not_rest_is_said_and_goes_on(void **) {
    const Folders folders;
    Doors doors("47.0");
    std::array<Wrapper, 2> all;
    for (auto &one : all)
        one.begin(doors, folders);
    JobRequest save;
    doors.rest(Doors::For::save, save.then());
    all[0].rest(doors);
    // A wrapper is a user's process: what it says may be anything.
    all[1].rest(doors, "it waits for srun\n" + std::string(5000, '!'));
    assert_true(save.outcome && !save.outcome->has_value());
    const auto &error = save.outcome->error();
    assert_int_equal(error.code, SaveError::kWaits);
    expect_contains(error.message(), "47.0: it waits for srun\\n!!!");
    assert_true(error.message().size() < 600);
    for (auto &one : all)
        assert_true(one.hears<Done>());
    assert_true(all[0].open(doors, {folders.door("a", 0)}).has_value());
    // Which is late: nobody waits for it.
    all[0].rest(doors);
    assert_true(all[0].hears<Done>());
    // Who has no door yet is not waited for.
    JobRequest again;
    doors.rest(Doors::For::save, again.then());
    assert_true(again.fulfilled());
}

void a_save_and_a_check_do_not_disturb_each_other(void **) {
    const Folders folders;
    Doors doors("47.0");
    Wrapper one;
    one.begin(doors, folders);
    JobRequest check;
    JobRequest save;
    doors.rest(Doors::For::check, check.then());
    doors.rest(Doors::For::save, save.then());
    one.rest(doors);
    assert_true(one.hears<SaveBegins>());
    assert_true(check.fulfilled() && save.fulfilled());
    doors.let_go(Doors::For::check);
    assert_true(one.hears_nothing());
    assert_int_equal(one.open(doors, {folders.door("a", 0)}).error().code, EAGAIN);
    JobRequest again;
    doors.rest(Doors::For::check, again.then());
    assert_true(again.fulfilled());
    doors.let_go(Doors::For::save);
    assert_true(one.hears_nothing());
    doors.let_go(Doors::For::check);
    doors.let_go(Doors::For::check);
    assert_true(one.hears<Done>());
}

// With what does not rest for a check, or for a save that goes on, the job can still be saved and end.
void steps_rest_only_for_the_last_save(void **) {
    const Folders folders;
    Doors doors("47.batch");
    Wrapper one;
    one.begin(doors, folders);
    JobRequest save;
    doors.rest(Doors::For::save, save.then());
    assert_false(one.begins()->ends);
    doors.rest_of(&one, {.trouble = "a step runs", .only_for_now = true, .named = {}}, one.responder());
    assert_true(save.outcome && !save.outcome->has_value());
    assert_int_equal(save.outcome->error().code, SaveError::kStepRuns);
    assert_false(SaveError::is_unsavable(SaveError::kStepRuns));
    assert_true(one.hears<Done>());
    one.begin(doors, folders);
    JobRequest last;
    doors.rest(Doors::For::save, last.then(), true);
    assert_true(one.begins()->ends);
    one.rest(doors);
    assert_true(last.fulfilled());
    // Whoever watches late hears the same.
    doors.let_go(Doors::For::save);
    assert_true(one.hears<Done>());
    assert_true(one.open(doors, {folders.door("a", 0)}).has_value());
    JobRequest again;
    doors.rest(Doors::For::save, again.then(), true);
    doors.watch(&one, true, one.responder());
    assert_true(one.begins()->ends);
}

void steps_that_run_are_saved_only_where_the_site_has_it_so(void **) {
    const Folders folders;
    Doors doors("47.0");
    Wrapper one;
    one.begin(doors, folders);
    JobRequest first;
    doors.rest(Doors::For::save, first.then());
    assert_true(one.begins()->saves);
    one.rest(doors, "a step runs");
    doors.watch(&one, false, one.responder());
    JobRequest second;
    doors.rest(Doors::For::save, second.then());
    assert_false(one.begins()->saves);
}

// A look at what could be saved stops no step.
void they_know_whether_anything_is_saved(void **) {
    for (const auto what : {Doors::For::save, Doors::For::check}) {
        const Folders folders;
        Doors doors("47.0");
        Wrapper one;
        one.begin(doors, folders);
        JobRequest wish;
        doors.rest(what, wish.then());
        assert_int_equal(one.begins()->saves, what == Doors::For::save);
        const auto until = doors.until()->when();
        doors.wait_longer();
        assert_true(doors.until()->when() > until);
    }
}

// Whose image would name what an earlier one did.
void a_script_that_is_late_to_name_its_steps_is_not_saved(void **) {
    const auto expire = [](Doors &doors) {
        while (!doors.until()->expired())
            usleep(1000);
        doors.look();
    };
    for (const bool saves : {true, false}) {
        const Folders folders;
        Doors doors("47.batch", {.rest = std::chrono::milliseconds(5), .last = std::chrono::milliseconds(5)});
        Wrapper one;
        assert_true(one.open(doors, {folders.door("a", 0)}).has_value());
        doors.watch(&one, saves, one.responder());
        JobRequest save;
        doors.rest(Doors::For::save, save.then());
        assert_int_equal(one.begins()->saves, saves);
        expire(doors);
        assert_true(save.outcome.has_value());
        assert_int_equal(save.fulfilled(), !saves);
        if (saves)
            assert_int_equal(save.outcome->error().code, SaveError::kStepRuns);
        doors.let_go(Doors::For::save);
        one.rest(doors); // late
        assert_true(one.hears<Done>());
        // Where both end, nothing is named.
        assert_true(one.open(doors, {folders.door("a", 0)}).has_value());
        doors.watch(&one, saves, one.responder());
        JobRequest last;
        doors.rest(Doors::For::save, last.then(), true);
        expire(doors);
        assert_true(last.fulfilled());
    }
}

void a_save_that_is_given_up_is_told_so(void **) {
    const Folders folders;
    Doors doors("47.0");
    Wrapper one;
    one.begin(doors, folders);
    JobRequest save;
    doors.rest(Doors::For::save, save.then());
    assert_true(one.hears<SaveBegins>());
    doors.let_go(Doors::For::save);
    assert_true(save.outcome && save.outcome->error().code == ECANCELED);
    one.rest(doors);
    assert_true(one.hears<Done>());
    assert_false(doors.until().has_value());
    assert_true(one.open(doors, {folders.door("a", 0)}).has_value());
}

void who_serves_none_says_nothing_about_rest(void **) {
    const Folders folders;
    Doors doors("47.0");
    Wrapper one;
    Wrapper stranger;
    one.begin(doors, folders);
    JobRequest save;
    doors.rest(Doors::For::save, save.then());
    stranger.rest(doors);
    assert_true(stranger.hears<Failed>());
    doors.watch(&stranger, true, stranger.responder());
    assert_true(stranger.hears<Failed>());
    assert_false(save.outcome.has_value());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_door_is_there_when_its_owner_is),
        cmocka_unit_test(a_door_may_be_in_several_places),
        cmocka_unit_test(nobody_is_found_while_they_rest),
        cmocka_unit_test(all_of_them_rest_first),
        cmocka_unit_test(where_nobody_serves_all_rest),
        cmocka_unit_test(who_watches_late_hears_at_once),
        cmocka_unit_test(what_does_not_rest_is_said_and_goes_on),
        cmocka_unit_test(a_save_and_a_check_do_not_disturb_each_other),
        cmocka_unit_test(steps_rest_only_for_the_last_save),
        cmocka_unit_test(they_know_whether_anything_is_saved),
        cmocka_unit_test(steps_that_run_are_saved_only_where_the_site_has_it_so),
        cmocka_unit_test(a_script_that_is_late_to_name_its_steps_is_not_saved),
        cmocka_unit_test(a_save_that_is_given_up_is_told_so),
        cmocka_unit_test(who_serves_none_says_nothing_about_rest),
    };
    return cmocka_run_group_tests_name("doors", tests, nullptr, nullptr);
}
