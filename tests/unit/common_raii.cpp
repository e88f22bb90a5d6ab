// SPDX-License-Identifier: GPL-2.0-or-later
// Owners of descriptors, mounts and namespaces. The latter two need root.
#include "cmocka.hpp"
#include "common/log.hpp"
#include "common/mount.hpp"
#include "common/name_space.hpp"
#include "common/unique_fd.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace singularity;
using test::expect_contains;
using test::expect_equal;

std::vector<std::string> logged;

void keep(log::Level /*level*/, std::string_view line) { logged.emplace_back(line); }

int with_sink(void ** /*state*/) {
    logged.clear();
    log::set_sink(keep);
    return 0;
}

int without_sink(void ** /*state*/) {
    log::set_sink(nullptr);
    return 0;
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

template <class T>
T must(Expected<T> result) {
    if (!result)
        test::fail(result.error().message());
    return *std::move(result);
}

void must(const Expected<void> &result) {
    if (!result)
        test::fail(result.error().message());
}

// Descriptors

void descriptor_is_closed_once(void ** /*state*/) {
    int number = -1;
    {
        UniqueFd first = must(open_file("/dev/null", O_RDONLY));
        number = first.get();
        assert_true(is_open(number));
        assert_true((::fcntl(number, F_GETFD) & FD_CLOEXEC) != 0);
        const UniqueFd second = std::move(first);
        assert_false(static_cast<bool>(first)); // NOLINT(bugprone-use-after-move): the state that is promised
        assert_int_equal(second.get(), number);
    }
    assert_false(is_open(number));
    assert_int_equal(logged.size(), 0);
}

void assignment_closes_what_was_held(void ** /*state*/) {
    UniqueFd kept = must(open_file("/dev/null", O_RDONLY));
    const int old = kept.get();
    UniqueFd other = must(open_file("/dev/zero", O_RDONLY));
    const int number = other.get();
    kept = std::move(other);
    assert_false(is_open(old));
    assert_int_equal(kept.get(), number);
    assert_int_equal(kept.release(), number);
    assert_false(static_cast<bool>(kept));
    assert_true(is_open(number));
    assert_int_equal(::close(number), 0);
}

void close_reports_and_destruction_logs_errors(void ** /*state*/) {
    UniqueFd fd = must(open_file("/dev/null", O_RDONLY));
    must(fd.close());
    assert_false(static_cast<bool>(fd));

    constexpr int kNeverOpened = 987654;
    const auto closed = UniqueFd(kNeverOpened).close();
    assert_false(closed.has_value());
    assert_int_equal(closed.error().code, EBADF);
    expect_equal(closed.error().message(), "cannot close descriptor 987654: Bad file descriptor");
    assert_int_equal(logged.size(), 0);

    errno = ENOSPC;
    {
        const UniqueFd wrong(kNeverOpened);
    }
    assert_int_equal(errno, ENOSPC);
    assert_int_equal(logged.size(), 1);
    expect_contains(logged[0], "singularity: descriptor: cannot close descriptor 987654");
}

void opening_names_the_file(void ** /*state*/) {
    const auto opened = open_file("/no/such/file", O_RDONLY);
    assert_false(opened.has_value());
    expect_equal(opened.error().message(), "cannot open /no/such/file: No such file or directory");
}

// Mounts

std::filesystem::path make_directory() {
    std::string pattern = std::filesystem::temp_directory_path() / "singularity-raii-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr)
        test::fail("cannot make " + pattern);
    return pattern;
}

bool is_mount_point(const std::filesystem::path &path) {
    struct stat at{};
    struct stat above{};
    assert_int_equal(::stat(path.c_str(), &at), 0);
    assert_int_equal(::stat(path.parent_path().c_str(), &above), 0);
    return at.st_dev != above.st_dev;
}

// The rest of the program is in a mount namespace of its own, whose mounts reach no other.
void need_own_mounts() {
    static const bool have_them = [] {
        if (::unshare(CLONE_NEWNS) != 0)
            return false;
        // EINVAL: the root directory is no mount point, as in a chroot, and what is mounted below it belongs
        // to others.
        return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 || errno == EINVAL;
    }();
    if (!have_them)
        test::skip("mounts and namespaces need CAP_SYS_ADMIN");
}

void mount_ends_with_its_owner(void ** /*state*/) {
    need_own_mounts();
    const auto directory = make_directory();
    {
        Mount first = must(Mount::make({"tmpfs", directory, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m"}));
        assert_true(is_mount_point(directory));
        const Mount second = std::move(first);
        // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move): the state that is promised
        assert_true(first.target().empty());
        expect_equal(second.target().native(), directory.native());
        assert_true(is_mount_point(directory));
    }
    assert_false(is_mount_point(directory));
    assert_int_equal(logged.size(), 0);
    assert_int_equal(::rmdir(directory.c_str()), 0);
}

void busy_mount_ends_too(void ** /*state*/) {
    need_own_mounts();
    const auto directory = make_directory();
    UniqueFd inside;
    {
        const Mount mount = must(Mount::make({"tmpfs", directory, "tmpfs", 0, "size=1m"}));
        inside = must(open_file(directory / "open", O_CREAT | O_RDWR));
    }
    assert_false(is_mount_point(directory));
    assert_int_equal(::write(inside.get(), "x", 1), 1);
    assert_int_equal(logged.size(), 0);
    assert_int_equal(::rmdir(directory.c_str()), 0);
}

void assignment_unmounts_what_was_held(void ** /*state*/) {
    need_own_mounts();
    const auto one = make_directory();
    const auto two = make_directory();
    Mount mount = must(Mount::make({"tmpfs", one, "tmpfs", 0, ""}));
    mount = must(Mount::make({"tmpfs", two, "tmpfs", 0, ""}));
    assert_false(is_mount_point(one));
    assert_true(is_mount_point(two));
    must(mount.unmount());
    assert_false(is_mount_point(two));
    assert_int_equal(::rmdir(one.c_str()), 0);
    assert_int_equal(::rmdir(two.c_str()), 0);
}

void released_mount_stays(void ** /*state*/) {
    need_own_mounts();
    const auto directory = make_directory();
    must(Mount::make({"tmpfs", directory, "tmpfs", 0, ""})).release();
    assert_true(is_mount_point(directory));
    assert_int_equal(::umount2(directory.c_str(), 0), 0);
    assert_int_equal(::rmdir(directory.c_str()), 0);
}

void mount_errors_are_reported_or_logged(void ** /*state*/) {
    need_own_mounts();
    const auto made = Mount::make({"tmpfs", "/no/such/directory", "tmpfs", 0, ""});
    assert_false(made.has_value());
    expect_equal(made.error().message(),
                 "cannot mount tmpfs on /no/such/directory: No such file or directory");

    const auto directory = make_directory();
    {
        const Mount mount = must(Mount::make({"tmpfs", directory, "tmpfs", 0, ""}));
        assert_int_equal(::umount2(directory.c_str(), 0), 0);
    }
    assert_int_equal(logged.size(), 1);
    expect_equal(logged[0],
                 fmt::format("singularity: mount: cannot unmount {}: Invalid argument", directory.native()));
    assert_int_equal(::rmdir(directory.c_str()), 0);
}

// Namespaces

constexpr std::array kAllKinds{NameSpaceKind::kMount, NameSpaceKind::kNetwork, NameSpaceKind::kUts,
                               NameSpaceKind::kIpc,   NameSpaceKind::kPid,     NameSpaceKind::kCgroup};

// A process in new namespaces of every kind, until the end of the object.
class Stranger {
  public:
    Stranger() {
        std::array<int, 2> to_us{};
        std::array<int, 2> to_it{};
        assert_int_equal(::pipe2(to_us.data(), O_CLOEXEC), 0);
        assert_int_equal(::pipe2(to_it.data(), O_CLOEXEC), 0);
        const UniqueFd write_to_us(to_us[1]);
        const UniqueFd read_from_us(to_it[0]);
        read_ = UniqueFd(to_us[0]);
        write_ = UniqueFd(to_it[1]);
        parent_ = ::fork();
        assert_true(parent_ >= 0);
        if (parent_ == 0)
            live(write_to_us.get(), read_from_us.get());
        // The number of its child, which alone is in the new PID namespace.
        assert_int_equal(::read(read_.get(), &pid_, sizeof pid_), sizeof pid_);
        assert_true(pid_ > 0);
    }
    Stranger(const Stranger &) = delete;
    Stranger &operator=(const Stranger &) = delete;
    Stranger(Stranger &&) = delete;
    Stranger &operator=(Stranger &&) = delete;
    ~Stranger() { end(); }

    [[nodiscard]] pid_t pid() const { return pid_; }

    void end() {
        write_.reset();
        if (parent_ > 0)
            ::waitpid(std::exchange(parent_, -1), nullptr, 0);
    }

  private:
    [[noreturn]] void live(int to_us, int from_us) {
        write_.reset(); // or the end of the pipe would never be seen
        constexpr int kFlags =
            CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWCGROUP;
        if (::unshare(kFlags) != 0 || ::sethostname("stranger", 8) != 0)
            ::_exit(1);
        const pid_t child = ::fork();
        char nothing = 0;
        if (child == 0)
            ::_exit(::read(from_us, &nothing, 1) == 0 ? 0 : 1);
        if (::write(to_us, &child, sizeof child) != sizeof child)
            ::_exit(1);
        ::_exit(::waitpid(child, nullptr, 0) == child ? 0 : 1);
    }

    UniqueFd read_;
    UniqueFd write_;
    pid_t parent_ = -1;
    pid_t pid_ = -1;
};

std::string identity(std::string_view process, NameSpaceKind kind) {
    const bool own_children = process == "thread-self" && kind == NameSpaceKind::kPid;
    return std::filesystem::read_symlink(
        fmt::format("/proc/{}/ns/{}", process, own_children ? "pid_for_children" : proc_name(kind)));
}

UniqueFd pidfd_of(pid_t pid) {
    UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    assert_true(static_cast<bool>(pidfd));
    return pidfd;
}

NameSpace found(const Stranger &stranger, NameSpaceKind kind, bool by_pidfd) {
    if (!by_pidfd)
        return must(NameSpace::open(fmt::format("/proc/{}/ns/{}", stranger.pid(), proc_name(kind)), kind));
    const UniqueFd pidfd = pidfd_of(stranger.pid());
    return must(NameSpace::of_process(pidfd.get(), kind, "the stranger"));
}

void visit_goes_and_returns(void ** /*state*/) {
    need_own_mounts();
    const Stranger stranger;
    const std::string number = std::to_string(stranger.pid());
    for (const bool by_pidfd : {false, true}) {
        for (const NameSpaceKind kind : kAllKinds) {
            const std::string home = identity("thread-self", kind);
            const std::string away = identity(number, kind);
            assert_true(home != away);
            const NameSpace there = found(stranger, kind, by_pidfd);
            {
                const NameSpaceVisit visit = must(NameSpaceVisit::to(there));
                expect_equal(identity("thread-self", kind), away);
            }
            expect_equal(identity("thread-self", kind), home);
        }
    }
    assert_int_equal(logged.size(), 0);
}

void visit_to_mounts_keeps_root_and_working_directory(void ** /*state*/) {
    need_own_mounts();
    const Stranger stranger;
    const auto directory = make_directory();
    std::filesystem::current_path(directory);
    const auto place = [](const char *path) {
        struct stat status{};
        assert_int_equal(::stat(path, &status), 0);
        return std::pair(status.st_dev, status.st_ino);
    };
    const auto root = place("/");
    const auto here = place(".");
    {
        const NameSpaceVisit visit = must(NameSpaceVisit::to(found(stranger, NameSpaceKind::kMount, true)));
        assert_true(place(".") != here);
    }
    assert_true(place("/") == root);
    assert_true(place(".") == here);
    expect_equal(std::filesystem::current_path().native(), directory.native());
    std::filesystem::current_path("/");
    assert_int_equal(::rmdir(directory.c_str()), 0);
}

void visit_moves_only_its_thread(void ** /*state*/) {
    need_own_mounts();
    const Stranger stranger;
    const NameSpace there = found(stranger, NameSpaceKind::kMount, true);
    const std::string home = identity("thread-self", NameSpaceKind::kMount);
    std::string seen;
    std::string problem;
    std::jthread visitor([&] {
        if (auto visit = NameSpaceVisit::to(there); visit)
            seen = identity("thread-self", NameSpaceKind::kMount);
        else
            problem = visit.error().message();
    });
    visitor.join();
    expect_equal(problem, "");
    expect_equal(seen, identity(std::to_string(stranger.pid()), NameSpaceKind::kMount));
    expect_equal(identity("thread-self", NameSpaceKind::kMount), home);
}

void failed_visit_stays_at_home(void ** /*state*/) {
    need_own_mounts();
    const std::string home = identity("thread-self", NameSpaceKind::kUts);
    // A file that is a namespace of another kind.
    const NameSpace wrong = must(NameSpace::open("/proc/self/ns/net", NameSpaceKind::kUts));
    const auto visit = NameSpaceVisit::to(wrong);
    assert_false(visit.has_value());
    expect_equal(visit.error().message(), "cannot enter /proc/self/ns/net: Invalid argument");
    expect_equal(identity("thread-self", NameSpaceKind::kUts), home);

    Stranger stranger;
    const NameSpace gone = found(stranger, NameSpaceKind::kUts, true);
    stranger.end();
    const auto late = NameSpaceVisit::to(gone);
    assert_false(late.has_value());
    expect_equal(late.error().message(), "cannot enter uts namespace of the stranger: No such process");
    assert_int_equal(late.error().code, ESRCH);
}

void namespaces_that_are_not_there_are_named(void ** /*state*/) {
    const auto opened = NameSpace::open("/proc/0/ns/net", NameSpaceKind::kNetwork);
    assert_false(opened.has_value());
    expect_equal(opened.error().message(), "cannot open /proc/0/ns/net: No such file or directory");
    const auto of_nothing = NameSpace::of_process(-1, NameSpaceKind::kNetwork, "job 7");
    assert_false(of_nothing.has_value());
    expect_equal(of_nothing.error().message(), "cannot keep the pidfd of job 7: Bad file descriptor");
}

void enter_moves_for_good(void ** /*state*/) {
    need_own_mounts();
    const Stranger stranger;
    const NameSpace there = found(stranger, NameSpaceKind::kUts, false);
    const pid_t child = ::fork();
    if (child == 0) {
        std::array<char, 64> name{};
        const bool entered = there.enter().has_value() && ::gethostname(name.data(), name.size()) == 0;
        ::_exit(entered && std::string_view(name.data()) == "stranger" ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

// Gives up what entering a namespace needs.
bool drop_capabilities() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, 2> none{};
    return ::syscall(SYS_capset, &header, none.data()) == 0;
}

void process_that_cannot_return_ends(void ** /*state*/) {
    need_own_mounts();
    const Stranger stranger;
    const NameSpace there = found(stranger, NameSpaceKind::kUts, false);
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit no_core{};
        static_cast<void>(::setrlimit(RLIMIT_CORE, &no_core));
        // cmocka and the sanitizers would turn it into something else.
        static_cast<void>(std::signal(SIGABRT, SIG_DFL)); // NOLINT(cert-err33-c)
        {
            const auto visit = NameSpaceVisit::to(there);
            if (!visit || !drop_capabilities())
                ::_exit(1);
        }
        ::_exit(0);
    }
    int status = 0;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(descriptor_is_closed_once, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(assignment_closes_what_was_held, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(close_reports_and_destruction_logs_errors, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(opening_names_the_file, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(mount_ends_with_its_owner, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(busy_mount_ends_too, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(assignment_unmounts_what_was_held, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(released_mount_stays, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(mount_errors_are_reported_or_logged, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(visit_goes_and_returns, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(visit_to_mounts_keeps_root_and_working_directory, with_sink,
                                        without_sink),
        cmocka_unit_test_setup_teardown(visit_moves_only_its_thread, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(failed_visit_stays_at_home, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(namespaces_that_are_not_there_are_named, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(enter_moves_for_good, with_sink, without_sink),
        cmocka_unit_test_setup_teardown(process_that_cannot_return_ends, with_sink, without_sink),
    };
    return cmocka_run_group_tests_name("common_raii", tests, nullptr, nullptr);
}
