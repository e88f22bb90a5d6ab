// SPDX-License-Identifier: GPL-2.0-or-later
// A batch script's output file, when the script goes on from a checkpoint after which it ran on.
#include "cmocka.hpp"
#include "common/unique_fd.hpp"
#include "task/output.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace {

using singularity::UniqueFd;
using namespace singularity::task;

constexpr const char *kJob = "0123 7";

// As slurmstepd opens it. In the working directory: not every /tmp has attributes of users.
class Output {
  public:
    Output() : fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
        assert_true(fd_.get() >= 0);
        assert_true(begin_output(fd_.get(), kJob).value());
        if (fgetxattr(fd_.get(), "user.singularity.job", nullptr, 0) < 0)
            singularity::test::skip("the file system has no extended attributes of users");
    }
    ~Output() { std::filesystem::remove(path_); }
    Output(const Output &) = delete;
    Output &operator=(const Output &) = delete;
    Output(Output &&) = delete;
    Output &operator=(Output &&) = delete;

    void say(std::string_view text) const {
        assert_int_equal(write(fd_.get(), text.data(), text.size()), text.size());
    }
    void note(const std::string &checkpoint, std::uint32_t run = 0, bool ends = false) const {
        assert_true(
            note_output(fd_.get(), kJob, {.checkpoint = checkpoint, .run = run, .ends = ends}).has_value());
    }
    void cut(const std::string &checkpoint, std::uint32_t run = 1, const char *job = kJob) const {
        assert_true(
            cut_output(fd_.get(), job, {.checkpoint = checkpoint, .run = run, .ends = false}).has_value());
    }
    void holds(std::string_view text) const {
        std::ifstream file(path_);
        const std::string content{std::istreambuf_iterator<char>(file), {}};
        assert_true(content == text);
    }

  private:
    std::filesystem::path path_ = std::filesystem::current_path() / fmt::format("output.{}", getpid());
    UniqueFd fd_;
};

void what_comes_again_is_cut_off(void ** /*state*/) {
    const Output output;
    output.say("1\n2\n");
    output.note("c-1");
    output.say("3\n");
    output.note("c-2");
    output.say("4\n5\n");
    output.cut("c-2");
    output.holds("1\n2\n3\n");
    output.say("4\n");
    output.cut("c-1");
    output.holds("1\n2\n");
    output.cut("c-1");
    output.holds("1\n2\n");
    // It was larger then than it is now.
    output.cut("c-2");
    output.holds("1\n2\n");
}

void slurms_lines_stay(void ** /*state*/) {
    const Output output;
    output.say("1\n");
    output.note("c-1");
    const std::string lost = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED ***\n";
    output.say("2\n" + lost + "a slurmstepd: \n" + std::string(100'000, 'x') +
               "\nsingularity-task: why\nslurmstepd: not a whole line");
    output.cut("c-1");
    output.holds("1\n" + lost + "singularity-task: why\n");
    // Where the script's line goes on, nothing comes between.
    output.say("12%\r");
    output.note("c-2");
    output.say("13%\n" + lost);
    output.cut("c-2");
    output.holds("1\n" + lost + "singularity-task: why\n12%\r");
}

void nothing_comes_again_after_a_run_that_ended_with_it(void ** /*state*/) {
    const Output output;
    output.say("1\n");
    output.note("c-1", 3, true);
    output.say("of a prolog\n");
    output.cut("c-1", 4);
    output.holds("1\nof a prolog\n");
    // But when that has died, before its first checkpoint.
    output.say("2\n");
    output.cut("c-1", 5);
    output.holds("1\n");
}

void nothing_else_is_cut(void ** /*state*/) {
    const Output output;
    output.say("1\n");
    output.note("c-1");
    output.say("2\n");
    output.cut("c-2");              // nobody has noted that
    output.cut("c-1", 1, "0123 8"); // another job
    output.holds("1\n2\n");
    const UniqueFd not_appending(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    assert_true(
        cut_output(not_appending.get(), kJob, {.checkpoint = "c-1", .run = 1, .ends = false}).has_value());
    // Many that were noted, and not committed.
    for (int number = 2; number < 100; ++number)
        output.note(fmt::format("c-{}", number));
    output.say("3\n");
    output.cut("c-99");
    output.holds("1\n2\n");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_again_is_cut_off),
        cmocka_unit_test(slurms_lines_stay),
        cmocka_unit_test(nothing_comes_again_after_a_run_that_ended_with_it),
        cmocka_unit_test(nothing_else_is_cut),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
