// SPDX-License-Identifier: GPL-2.0-or-later
// Processes that are told by what is mounted in their mount namespaces: real ones, of the test's own.
#include "cmocka.hpp"
#include "common/deadline.hpp"
#include "node/process.hpp"

#include <csignal>
#include <filesystem>
#include <string>

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace singularity;

// Directories that go with the object.
class Scratch {
  public:
    Scratch() {
        std::string name = (std::filesystem::temp_directory_path() / "node process.XXXXXX").native();
        assert_non_null(mkdtemp(name.data()));
        path_ = name;
        for (const char *below : {"source", "source/below", "other", "point"})
            std::filesystem::create_directory(path_ / below);
    }
    ~Scratch() { std::filesystem::remove_all(path_); }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;
    Scratch(Scratch &&) = delete;
    Scratch &operator=(Scratch &&) = delete;
    [[nodiscard]] std::filesystem::path operator/(const char *below) const { return path_ / below; }

  private:
    std::filesystem::path path_;
};

// A process with this directory at the point, in a mount namespace of its own. -1: may not be made here.
pid_t with_mounted(const std::filesystem::path &directory, const std::filesystem::path &point) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        const bool made =
            unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
            (directory.empty() || mount(directory.c_str(), point.c_str(), nullptr, MS_BIND, nullptr) == 0);
        const char byte = made ? 'y' : 'n';
        if (write(ends[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ends[1]);
    char made = 'n';
    assert_int_equal(read(ends[0], &made, 1), 1);
    close(ends[0]);
    if (made == 'y')
        return child;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return -1;
}

bool ends(pid_t child) {
    int status = 0;
    const auto ended = wait_until([&] { return waitpid(child, &status, WNOHANG) == child; },
                                  Deadline::after(std::chrono::seconds(20)), "a process");
    return ended && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

void strays_are_those_that_have_it_mounted(void ** /*state*/) {
    const Scratch scratch;
    const auto point = scratch / "point";
    const pid_t stray = with_mounted(scratch / "source", point);
    if (stray < 0)
        singularity::test::skip("mount namespaces cannot be made here");
    const pid_t others[] = {with_mounted(scratch / "other", point),
                            with_mounted(scratch / "source/below", point),
                            with_mounted(scratch / "source", scratch / "other"), with_mounted({}, point)};
    const auto ended = node::end_strays(scratch / "source", point);
    assert_true(ended.has_value());
    assert_int_equal(*ended, 1);
    assert_true(ends(stray));
    for (const pid_t other : others) {
        assert_int_equal(waitpid(other, nullptr, WNOHANG), 0);
        kill(other, SIGKILL);
        assert_true(ends(other));
    }
    const auto none = node::end_strays(scratch / "source", point);
    assert_true(none.has_value() && *none == 0);
}

void what_is_not_there_is_an_error(void ** /*state*/) {
    const Scratch scratch;
    const auto ended = node::end_strays(scratch / "missing", scratch / "point");
    assert_false(ended.has_value());
    assert_int_equal(ended.error().code, ENOENT);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(strays_are_those_that_have_it_mounted),
        cmocka_unit_test(what_is_not_there_is_an_error),
    };
    return cmocka_run_group_tests_name("spank_node_process", tests, nullptr, nullptr);
}
