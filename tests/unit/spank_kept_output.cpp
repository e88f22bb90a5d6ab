// SPDX-License-Identifier: GPL-2.0-or-later
// What the agent keeps of output in its state directory: each user's share, and logs and spools that keep to
// it.
#include "agent/limits/budget.hpp"
#include "agent/limits/metrics.hpp"
#include "agent/output/kept_output.hpp"
#include "agent/output/task_log.hpp"
#include "cmocka.hpp"

#include <array>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using namespace singularity::agent;
using singularity::UniqueFd;
using singularity::test::expect_contains;

constexpr std::uint32_t kAlice = 1001;
constexpr std::uint32_t kBob = 1002;
constexpr std::uint64_t kLeast = KeptOutput::kLeast;
constexpr std::uint64_t kMost = std::uint64_t{8} << 20; // per_user.output_mib
constexpr std::size_t kPart = 4096;

int set_share(void ** /*state*/) {
    auto limits = singularity::Config().per_user;
    limits.output_mib = 8;
    budgets() = Budgets(limits);
    return 0;
}

std::uint64_t refusals() { return budgets().refusals().at(static_cast<std::size_t>(Budget::output_bytes)); }

class Scratch {
  public:
    Scratch() {
        std::string name = "/tmp/kept-XXXXXX";
        assert_non_null(mkdtemp(name.data()));
        path_ = name;
    }
    ~Scratch() { std::filesystem::remove_all(path_); }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;
    Scratch(Scratch &&) = delete;
    Scratch &operator=(Scratch &&) = delete;
    [[nodiscard]] std::filesystem::path log() const { return path_ / "log.1"; }

  private:
    std::filesystem::path path_;
};

std::uint64_t size_of(const std::filesystem::path &path) {
    struct stat about{};
    return stat(path.c_str(), &about) == 0 ? static_cast<std::uint64_t>(about.st_size) : 0;
}

std::uint64_t both(const std::filesystem::path &log) { return size_of(log) + size_of(TaskLog::older(log)); }

std::string content(const std::filesystem::path &path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

// A task and its log.
struct Written {
    UniqueFd task;
    std::optional<TaskLog> log;

    Written(const std::filesystem::path &path, TaskLog::Keep keep, std::uint32_t uid) {
        std::array<int, 2> ends{};
        assert_int_equal(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
        task = UniqueFd(ends[1]);
        auto opened = TaskLog::open(path, UniqueFd(ends[0]), keep, uid);
        assert_true(opened.has_value());
        log = std::move(*opened);
    }
    // Whether all of it was taken.
    bool say(const std::string &text) {
        for (std::size_t at = 0; at < text.size(); at += kPart) {
            const auto part = text.substr(at, kPart);
            if (write(task.get(), part.data(), part.size()) != static_cast<ssize_t>(part.size()))
                return false;
            assert_true(log->drain().has_value());
        }
        return log->drained();
    }
};

void a_user_has_a_share(void ** /*state*/) {
    const auto before = refusals();
    KeptOutput one(kAlice);
    KeptOutput other(kAlice);
    assert_int_equal(one.room(), kMost);
    one.set(kMost - 1000);
    assert_int_equal(one.room(), 1000);
    assert_int_equal(other.left(), 1000);
    assert_int_equal(other.room(), kLeast); // in any case
    other.set(kLeast);
    assert_int_equal(other.room(), 0);
    assert_true(one.over() && other.over());
    assert_int_equal(KeptOutput(kBob).room(), kMost);
    KeptOutput roots(0);
    roots.set(std::uint64_t{1} << 40);
    assert_false(roots.over());
    assert_true(roots.room() > kMost);
    one.tell(1);
    other.tell(1);
    assert_int_equal(refusals(), before + 1);
    one.set(0);
    assert_int_equal(other.room(), kMost - kLeast);
    one.set(kMost);
    one.tell(1);
    assert_int_equal(refusals(), before + 2);
}

void what_each_may_have_does_not_add_up(void ** /*state*/) {
    std::vector<KeptOutput> all;
    for (std::uint64_t sum = 0; sum < 2 * kMost; sum += kLeast) {
        KeptOutput one(kAlice);
        assert_true(one.room() >= kLeast);
        one.set(kLeast);
        all.push_back(std::move(one));
    }
    assert_int_equal(KeptOutput(kAlice).room(), 0);
    all.pop_back();
    assert_int_equal(KeptOutput(kAlice).room(), kLeast);
}

void a_log_has_the_newest(void ** /*state*/) {
    const Scratch scratch;
    Written one(scratch.log(), TaskLog::Keep::newest, kAlice);
    KeptOutput others(kAlice);
    assert_true(one.say(std::string(kMost / 2, 'a')));
    assert_int_equal(both(scratch.log()), kMost / 2);
    others.set(kMost);
    assert_true(one.say(std::string(3 * kLeast, 'b') + "end\n"));
    assert_true(both(scratch.log()) <= kLeast + 1000);
    assert_true(both(scratch.log()) >= kLeast / 2);
    const auto kept = content(TaskLog::older(scratch.log())) + content(scratch.log());
    assert_true(kept.ends_with("bbbend\n"));
    // There is room again.
    others.set(0);
    assert_true(one.say(std::string(kMost / 2, 'c')));
    assert_true(both(scratch.log()) >= kMost / 2);
    assert_true(TaskLog::remove(scratch.log()).has_value());
    assert_int_equal(both(scratch.log()), 0);
    one.log.reset();
    assert_int_equal(KeptOutput(kAlice).left(), kMost);
}

// However little comes when there is no room any more.
void the_end_of_a_log_stays(void ** /*state*/) {
    const Scratch scratch;
    Written one(scratch.log(), TaskLog::Keep::newest, kAlice);
    KeptOutput others(kAlice);
    assert_true(one.say(std::string(kMost / 4, 'a')));
    others.set(kMost);
    assert_true(one.say("end\n"));
    assert_true(both(scratch.log()) <= kLeast + 1000);
    assert_true(both(scratch.log()) >= kLeast / 2);
    assert_int_equal(others.left(), 0);
    assert_true(content(TaskLog::older(scratch.log())).ends_with("aaa"));
    assert_true(content(scratch.log()).ends_with("end\n"));
}

void a_log_says_why_it_is_short(void ** /*state*/) {
    const Scratch scratch;
    KeptOutput others(kAlice);
    others.set(kMost);
    Written one(scratch.log(), TaskLog::Keep::newest, kAlice);
    assert_true(one.say(std::string(kLeast / 2, 'a') + "b"));
    expect_contains(content(scratch.log()),
                    "singularity: only the end of this output is kept: per_user.output_mib");
}

void a_log_that_is_found_is_cut(void ** /*state*/) {
    const Scratch scratch;
    std::ofstream(TaskLog::older(scratch.log())) << std::string(kMost / 2, 'a');
    std::ofstream(scratch.log()) << std::string(kMost / 4, 'b') << "end\n";
    KeptOutput others(kAlice);
    {
        const Written whole(scratch.log(), TaskLog::Keep::newest, kAlice);
        assert_int_equal(others.left() + both(scratch.log()), kMost);
        assert_true(both(scratch.log()) > kMost / 2);
    }
    others.set(kMost);
    const Written cut(scratch.log(), TaskLog::Keep::newest, kAlice);
    assert_int_equal(both(scratch.log()), kLeast / 2);
    assert_true(content(scratch.log()).ends_with("bbbend\n"));
}

void the_memory_of_what_was_lent_comes_back(void ** /*state*/) {
    const Scratch scratch;
    Written one(scratch.log(), TaskLog::Keep::newest_of_proxy, kAlice);
    assert_true(one.say(std::string(kLeast / 2, 'a') + "b"));
    const UniqueFd lent(open(TaskLog::older(scratch.log()).c_str(), O_RDONLY | O_CLOEXEC));
    struct stat about{};
    assert_int_equal(fstat(lent.get(), &about), 0);
    assert_int_equal(about.st_size, kLeast / 2);
    assert_true(one.say(std::string(kLeast / 2, 'c')));
    assert_int_equal(fstat(lent.get(), &about), 0);
    assert_int_equal(about.st_blocks, 0);
    assert_true(both(scratch.log()) <= kLeast);
}

void a_task_waits(void ** /*state*/) {
    const Scratch scratch;
    Written one(scratch.log(), TaskLog::Keep::unread, kAlice);
    KeptOutput others(kAlice);
    others.set(kMost);
    assert_false(one.say(std::string(2 * kLeast, 'a')));
    auto &spool = one.log->spool();
    assert_int_equal(spool->end(), kLeast);
    assert_int_equal(one.log->fd(), -1);
    assert_false(one.log->drained());
    // Somebody else's goes on.
    const Scratch elsewhere;
    Written another(elsewhere.log(), TaskLog::Keep::unread, kBob);
    assert_true(another.say(std::string(4 * kLeast, 'b')));
    // What has been read makes room, as does what others of the user's give back.
    assert_true(spool->release(kLeast).has_value());
    assert_true(one.log->fd() >= 0);
    assert_true(one.log->drain().has_value());
    assert_true(one.log->drained());
    others.set(0);
    assert_true(one.say(std::string(8 * kLeast, 'c')));
}

void a_lent_pipe_does_not_wait(void ** /*state*/) {
    std::array<int, 2> ends{};
    assert_int_equal(pipe2(ends.data(), O_CLOEXEC), 0);
    const UniqueFd lent(ends[0]);
    UniqueFd task(ends[1]);
    auto own = open_lent_pipe(lent.get());
    assert_true(own.has_value());
    assert_int_equal(fcntl(lent.get(), F_GETFL) & O_NONBLOCK, 0);
    const Scratch scratch;
    auto log = TaskLog::open(scratch.log(), std::move(*own), TaskLog::Keep::newest, kAlice);
    assert_true(log->drain().has_value()); // somebody has been faster
    assert_int_equal(write(task.get(), "x", 1), 1);
    assert_true(log->drain().has_value());
    assert_true(content(scratch.log()) == "x");
    task.reset();
    assert_true(log->drain().has_value());
    assert_int_equal(log->fd(), -1);
}

void only_a_pipe_is_read(void ** /*state*/) {
    const Scratch scratch;
    const auto named = scratch.log();
    assert_int_equal(mkfifo(named.c_str(), 0600), 0);
    for (const auto *const path : {"/dev/zero", "/proc/self/stat", named.c_str()}) {
        const UniqueFd other(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
        const auto refused = open_lent_pipe(other.get());
        assert_false(refused.has_value());
        expect_contains(refused.error().message(), "is no pipe");
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_user_has_a_share),
        cmocka_unit_test(what_each_may_have_does_not_add_up),
        cmocka_unit_test(a_log_has_the_newest),
        cmocka_unit_test(the_end_of_a_log_stays),
        cmocka_unit_test(a_log_says_why_it_is_short),
        cmocka_unit_test(a_log_that_is_found_is_cut),
        cmocka_unit_test(the_memory_of_what_was_lent_comes_back),
        cmocka_unit_test(a_task_waits),
        cmocka_unit_test(a_lent_pipe_does_not_wait),
        cmocka_unit_test(only_a_pipe_is_read),
    };
    return cmocka_run_group_tests(tests, set_share, nullptr);
}
