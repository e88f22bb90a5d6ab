// SPDX-License-Identifier: GPL-2.0-or-later
// Directories that jobs have for themselves: their names, how they are made, and that nothing of them stays.
#include "cmocka.hpp"
#include "common/unique_fd.hpp"
#include "local/notice.hpp"
#include "local/remove.hpp"
#include "local/tree.hpp"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace singularity;
using test::expect_equal;

constexpr uid_t kUser = 4711;
constexpr gid_t kGroup = 4712;

// Below a directory that only root can change.
struct Base {
    std::filesystem::path top;
    std::filesystem::path path;
    Base() {
        std::string name = std::filesystem::temp_directory_path() / "local.XXXXXX";
        assert_non_null(mkdtemp(name.data()));
        top = name;
        path = top / "some/base";
    }
    Base(const Base &) = delete;
    Base &operator=(const Base &) = delete;
    Base(Base &&) = delete;
    Base &operator=(Base &&) = delete;
    ~Base() { std::filesystem::remove_all(top); }
};

void need_root() {
    if (geteuid() != 0)
        test::skip("only root gives directories away");
}

struct stat about(const std::filesystem::path &path) {
    struct stat out{};
    assert_int_equal(lstat(path.c_str(), &out), 0);
    return out;
}

void names_of_paths_are_different(void ** /*state*/) {
    expect_equal(local::directory_name("/tmp"), "tmp");
    expect_equal(local::directory_name("/tmp/"), "tmp");
    expect_equal(local::directory_name("/var/tmp"), "var_tmp");
    expect_equal(local::directory_name("/var_tmp"), "var=5ftmp");
    expect_equal(local::directory_name("/.loaded"), "=2eloaded");
    expect_equal(local::directory_name("/a=b c"), "a=3db=20c");
}

void names_of_trees_are_read_again(void ** /*state*/) {
    local::SlurmTree tree;
    expect_equal(local::tree_name(1000, 17), "u1000-s17");
    assert_true(local::read_tree_name("u1000-s17", tree));
    assert_true(tree.uid == 1000 && tree.job == 17);
    for (const char *const name :
         {"u1000-j00002a", "u1000-s17-0", "u1000-s17.", "u-s1", "", "u1000-1", "u1000-s99999999999"})
        assert_false(local::read_tree_name(name, tree));
}

Expected<std::filesystem::path> made(const Base &base, const std::string &tree, std::uint32_t run,
                                     const std::string &slot = local::kMain,
                                     local::Owner owner = {.uid = kUser, .gid = kGroup}) {
    auto directory = local::open_tree(base.path, tree, run);
    return directory
               ? local::make_directory(*directory, local::place_of(base.path, tree), slot, owner, "/var/tmp")
               : propagate(directory);
}

void they_are_the_users_in_what_is_roots(void ** /*state*/) {
    need_root();
    const Base base;
    for (int time = 0; time < 2; ++time) {
        const auto one = made(base, "u4711-s1", 0);
        assert_true(one.has_value());
        expect_equal(one->native(), (base.path / "job.u4711-s1/main/var_tmp").native());
        assert_int_equal(about(*one).st_mode, S_IFDIR | 01777);
        assert_true(about(*one).st_uid == kUser && about(*one).st_gid == kGroup);
        for (auto above = one->parent_path(); above != base.path.parent_path(); above = above.parent_path())
            assert_true(about(above).st_uid == 0 && about(above).st_mode == (S_IFDIR | 0700));
    }
    // Neither for somebody else, nor by a name that leads elsewhere, nor through one that is not root's.
    assert_false(made(base, "u4711-s1", 0, local::kMain, {.uid = 1, .gid = 1}).has_value());
    for (const char *const name : {"..", "../x", "a/b", ""})
        assert_false(made(base, name, 0).has_value());
    for (const char *const slot : {"..", "../x", "", local::kOrigin, local::kRun})
        assert_false(made(base, "u4711-s1", 0, slot).has_value());
    std::filesystem::create_directory_symlink(base.top, base.path / "job.u4711-s2");
    assert_false(made(base, "u4711-s2", 0).has_value());
    std::filesystem::create_directory(base.path / "job.u4711-s3");
    assert_int_equal(chown((base.path / "job.u4711-s3").c_str(), kUser, kGroup), 0);
    assert_false(made(base, "u4711-s3", 0).has_value());
}

// One that is named by mistake.
void a_layer_is_nobody_elses(void ** /*state*/) {
    need_root();
    const Base base;
    const auto tree = local::open_tree(base.path, "u4711-s1", 0);
    assert_true(tree.has_value());
    const auto where = local::place_of(base.path, "u4711-s1");
    const auto slot = local::new_layer("u4711-s1-0-0");
    const auto layer = local::make_layer(*tree, where, slot, {.uid = kUser, .gid = kGroup});
    assert_true(layer.has_value());
    expect_equal(layer->native(), local::place_in(base.path, "u4711-s1", slot, local::kUpper).native());
    expect_equal(local::base_of(*layer).native(), base.path.native());
    assert_int_equal(about(*layer).st_mode, S_IFDIR | 0755); // of the root of a node
    assert_true(about(*layer).st_uid == kUser && about(layer->parent_path() / "work").st_uid == kUser);
    assert_true(about(layer->parent_path()).st_uid == 0 &&
                about(layer->parent_path()).st_mode == (S_IFDIR | 0700));
    assert_false(local::make_layer(*tree, where, slot, {.uid = kUser, .gid = kGroup}).has_value());
    assert_false(local::make_layer(*tree, where, "layer-/..", {.uid = kUser, .gid = kGroup}).has_value());
}

void a_directory_with_other_things_is_left_alone(void ** /*state*/) {
    need_root();
    const Base base;
    std::filesystem::create_directories(base.path / "precious");
    assert_int_equal(chmod(base.path.c_str(), 0755), 0);
    assert_false(made(base, "u4711-s1", 0).has_value());
    assert_false(local::look_into(base.path).has_value());
    assert_true(about(base.path).st_mode == (S_IFDIR | 0755));
    assert_int_equal(chmod(base.path.c_str(), 0700), 0);
    const auto found = local::look_into(base.path);
    assert_true(found.has_value() && found->trees.empty());
}

// Whoever was told that a run has ended does not end the next one.
void a_new_run_is_not_taken_for_the_one_before(void ** /*state*/) {
    need_root();
    const Base base;
    const auto old = local::open_tree(base.path, "u4711-s1", 0);
    const auto begun = local::begin_tree(base.path, "u4711-s1");
    assert_true(old.has_value() && begun.has_value());
    const auto its = local::identity_of(*old);
    const auto new_ones = local::identity_of(*begun);
    assert_true(its.has_value() && new_ones.has_value());
    const auto late = local::set_aside(base.path, "u4711-s1", *its);
    assert_true(late.has_value() && !*late);
    assert_true(std::filesystem::exists(local::place_of(base.path, "u4711-s1")));
    const auto right = local::set_aside(base.path, "u4711-s1", *new_ones);
    assert_true(right.has_value() && *right);
    assert_false(std::filesystem::exists(local::place_of(base.path, "u4711-s1")));
}

// Who begins it does not know its number; a step that says less than is known does not end it.
void each_run_has_its_own(void ** /*state*/) {
    need_root();
    const Base base;
    const auto leave = [&](std::uint32_t run) {
        const auto directory = made(base, "u4711-s1", run);
        assert_true(directory.has_value());
        const bool is_new = std::filesystem::is_empty(*directory);
        assert_true(open_file(*directory / "file", O_WRONLY | O_CREAT).has_value());
        return is_new;
    };
    assert_true(leave(0));
    assert_false(leave(0));
    assert_true(leave(2));
    assert_false(leave(1));
    assert_false(leave(2));
    assert_true(local::begin_tree(base.path, "u4711-s1").has_value());
    assert_true(leave(3));
    assert_false(leave(3));
    const auto found = local::look_into(base.path);
    assert_true(found.has_value() && found->aside && found->trees.size() == 1);
    assert_true(found->trees.front().name == "u4711-s1" && found->trees.front().run == 3);
}

// An srun that was not given its job's environment says 0, be it the first to come to a run's tree.
void who_does_not_know_the_run_decides_nothing(void ** /*state*/) {
    need_root();
    const Base base;
    const auto its = [](const Expected<UniqueFd> &tree) {
        assert_true(tree.has_value());
        const auto out = local::identity_of(*tree);
        assert_true(out.has_value());
        return *out;
    };
    const auto run = [&] {
        const auto found = local::look_into(base.path);
        assert_true(found.has_value() && found->trees.size() == 1);
        return found->trees.front().run;
    };
    const auto begun = its(local::begin_tree(base.path, "u4711-s1"));
    assert_true(its(local::open_tree(base.path, "u4711-s1", 0)) == begun);
    assert_false(run().has_value());
    assert_true(its(local::open_tree(base.path, "u4711-s1", 2)) == begun);
    assert_true(its(local::open_tree(base.path, "u4711-s1", 0)) == begun);
    assert_true(run() == 2);
    // Where no batch script begins, it is known by its time.
    if (begun.born == 0)
        return;
    assert_true(its(local::open_tree(base.path, "u4711-s1", 3, begun.born - 1)) == begun);
    assert_true(run() == 3);
    assert_false(its(local::open_tree(base.path, "u4711-s1", 4, begun.born + 1)) == begun);
    assert_true(run() == 4);
}

// It may come late: when a run after it has its tree, or somebody of the run before has been there.
void a_run_that_has_begun_moves_nothing(void ** /*state*/) {
    need_root();
    const Base base;
    constexpr std::int64_t kLater = std::int64_t{3600} * 1'000'000'000;
    assert_true(local::open_base(base.path).has_value());
    assert_true(local::confirm_run(base.path, "u4711-s1", 1, kLater).has_value());
    assert_false(std::filesystem::exists(local::place_of(base.path, "u4711-s1")));
    const auto begun = local::begin_tree(base.path, "u4711-s1");
    assert_true(begun.has_value());
    const auto its = local::identity_of(*begun);
    assert_true(its.has_value());
    const auto confirmed = [&](std::uint32_t run, std::int64_t when) {
        assert_true(local::confirm_run(base.path, "u4711-s1", run, when).has_value());
        const auto found = local::look_into(base.path);
        assert_true(found.has_value() && !found->aside && found->trees.size() == 1);
        assert_true(found->trees.front().identity == *its);
        return found->trees.front().run;
    };
    if (its->born != 0)
        assert_false(confirmed(0, its->born - 1).has_value());
    assert_true(confirmed(1, its->born + kLater) == 1);
    assert_true(confirmed(3, its->born + kLater) == 3);
    assert_true(confirmed(2, its->born + kLater) == 3);
}

void expect_only_the_lock(const Base &base) {
    const std::filesystem::directory_iterator left(base.path);
    expect_equal(left->path().filename().native(), ".lock");
    assert_int_equal(std::distance(left, {}), 1);
}

// A loss of power leaves a file of a run with nothing in it. Such a tree is of a run that has lost this host,
// unless it has been made since the machine started.
void a_tree_of_an_unknown_run_is_neither_believed_nor_removed(void ** /*state*/) {
    need_root();
    const Base base;
    const auto one = made(base, "u4711-s1", 2);
    assert_true(one.has_value() && open_file(*one / "file", O_WRONLY | O_CREAT).has_value());
    const auto place = local::place_of(base.path, "u4711-s1");
    const auto empty_its_run = [&] {
        assert_true(open_file(place / local::kRun, O_WRONLY | O_TRUNC).has_value());
    };
    empty_its_run();
    const auto found = local::look_into(base.path);
    assert_true(found.has_value() && found->trees.size() == 1 && !found->trees.front().run);
    assert_true(made(base, "u4711-s1", 2).has_value() && std::filesystem::exists(*one / "file"));
    empty_its_run();
    const std::array<timespec, 2> long_ago{};
    assert_int_equal(utimensat(AT_FDCWD, place.c_str(), long_ago.data(), 0), 0);
    assert_true(made(base, "u4711-s1", 2).has_value() && !std::filesystem::exists(*one / "file"));
    const auto after = local::look_into(base.path);
    assert_true(after.has_value() && after->aside && after->trees.front().run == 2);
}

// Steps begin, and a run ends, all at once: each gets a tree that is there, and the same one.
void all_that_come_at_once_get_the_same_tree(void ** /*state*/) {
    need_root();
    constexpr int kProcesses = 8;
    constexpr std::uint32_t kRuns = 40;
    const Base base;
    assert_true(local::open_base(base.path).has_value());
    std::vector<pid_t> processes;
    for (int number = 0; number < kProcesses; ++number) {
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            for (std::uint32_t run = 0; run < kRuns; ++run)
                if (const auto tree = local::open_tree(base.path, "u4711-s1", run); !tree)
                    _exit(EXIT_FAILURE);
            _exit(EXIT_SUCCESS);
        }
        processes.push_back(pid);
    }
    for (const pid_t pid : processes) {
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    // Each run has had one tree.
    int aside = 0;
    for (const auto &entry : std::filesystem::directory_iterator(base.path))
        aside += entry.path().filename().native().starts_with(local::kAside) ? 1 : 0;
    assert_int_equal(aside, kRuns - 1);
}

void the_agent_leaves_what_it_was_started_with(void ** /*state*/) {
    need_root();
    const Base base;
    const auto file = base.top / local::kNotice;
    const auto none = local::read_notice(file);
    assert_true(none.has_value() && !*none);
    for (const local::Notice &notice :
         {local::Notice{.base = "/disk/local", .paths = {}},
          local::Notice{.base = "/disk/a\nb c", .paths = {"/tmp", "/var/tmp", "/x\ny"}}}) {
        assert_true(local::leave_notice(file, notice).has_value());
        assert_true(std::filesystem::status(file).permissions() ==
                    (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
        const auto read = local::read_notice(file);
        assert_true(read.has_value() && *read && **read == notice);
    }
    assert_int_equal(chmod(file.c_str(), 0666), 0);
    assert_false(local::read_notice(file).has_value());
    assert_int_equal(chmod(file.c_str(), 0644), 0);
    assert_int_equal(truncate(file.c_str(), 4), 0);
    assert_false(local::read_notice(file).has_value());
    assert_int_equal(truncate(file.c_str(), 0), 0);
    assert_false(local::read_notice(file).has_value());
}

void nodes_that_had_other_directories_have_a_slot_of_their_own(void ** /*state*/) {
    need_root();
    const Base base;
    const auto slot = [&](std::uint32_t run, const char *origin) {
        const auto out = local::slot_for(base.path, "u4711-s1", run, origin);
        return out ? *out : out.error().message();
    };
    expect_equal(slot(1, "0-n3"), local::kMain);
    expect_equal(slot(1, "0-n4"), "0-n4");
    expect_equal(slot(1, "0-n3"), local::kMain);
    expect_equal(slot(2, "0-n4"), local::kMain);
    assert_false(local::slot_for(base.path, "u4711-s1", 2, "../n4").has_value());
    const auto place = local::place_in(base.path, "u4711-s1", local::kMain, "/var/tmp");
    expect_equal(local::base_of(place).native(), base.path.native());
    expect_equal(local::tree_of(1000, "u1000-s17-0", "node"), "u1000-s17");
    expect_equal(local::tree_of(1000, "u1001-s17-0", "node"), "u1001-s17-0");
    expect_equal(local::tree_of(1000, "u1000-j00002a", "node"), "u1000-j00002a");
    expect_equal(local::tree_of(1000, "", "node"), "node");
}

// What the user has locked, and what is linked to, which stays.
void nothing_of_them_stays_and_nothing_else_goes(void ** /*state*/) {
    need_root();
    const Base base;
    assert_int_equal(chmod(base.top.c_str(), 0711), 0);
    const auto others = base.top / "others";
    std::filesystem::create_directory(others);
    assert_int_equal(chmod(others.c_str(), 0777), 0);
    assert_true(open_file(others / "file", O_WRONLY | O_CREAT).has_value());
    const auto one = made(base, "u4711-s1", 0);
    assert_true(one.has_value());
    const auto inner = *one / "a/b";
    std::filesystem::create_directories(inner);
    std::filesystem::create_directory_symlink(others, inner / "link");
    assert_true(open_file(inner / "-rf", O_WRONLY | O_CREAT).has_value());
    assert_true(open_file(one->parent_path() / local::kLoaded, O_WRONLY | O_CREAT).has_value());
    for (const auto &path : {inner / "-rf", inner, *one / "a"})
        assert_int_equal(chown(path.c_str(), kUser, kGroup), 0);
    assert_int_equal(lchown((inner / "link").c_str(), kUser, kGroup), 0);
    for (const auto &path : {inner, *one / "a", *one})
        assert_int_equal(chmod(path.c_str(), 0), 0);

    const auto before = local::look_into(base.path);
    assert_true(before.has_value() && !before->aside && before->trees.size() == 1);
    const auto &its = before->trees.front().identity;
    const auto aside = local::set_aside(base.path, "u4711-s1", its);
    assert_true(aside.has_value() && *aside);
    const auto again = local::set_aside(base.path, "u4711-s1", its);
    assert_true(again.has_value() && !*again);
    const auto between = local::look_into(base.path);
    assert_true(between.has_value() && between->aside && between->trees.empty());
    for (const auto &error : local::remove_set_aside(base.path))
        test::fail(error.message());
    expect_only_the_lock(base);
    assert_true(std::filesystem::exists(others / "file"));
    assert_true(about(others).st_mode == (S_IFDIR | 0777));
}

void set_aside(const Base &base, const std::string &tree) {
    const auto directory = open_file(local::place_of(base.path, tree), O_RDONLY | O_DIRECTORY);
    assert_true(directory.has_value());
    const auto identity = local::identity_of(*directory);
    assert_true(identity.has_value());
    const auto aside = local::set_aside(base.path, tree, *identity);
    assert_true(aside.has_value() && *aside);
}

void set_aside_and_remove(const Base &base) {
    set_aside(base, "u4711-s1");
    for (const auto &error : local::remove_set_aside(base.path))
        test::fail(error.message());
    const auto found = local::look_into(base.path);
    assert_true(found.has_value() && !found->aside && found->trees.empty());
}

// What a process with the user's ids could not remove, which the user could stop besides: files of others in
// a directory of theirs, which the user cannot enter; and more directories in each other than a process may
// have descriptors, with a path that is too long for any call.
void files_of_others_and_deep_ones_go_as_well(void ** /*state*/) {
    need_root();
    constexpr int kDeep = 5000;
    const Base base;
    const auto one = made(base, "u4711-s1", 0);
    assert_true(one.has_value());
    std::filesystem::create_directories(*one / "theirs/a");
    assert_true(open_file(*one / "theirs/a/file", O_WRONLY | O_CREAT).has_value());
    for (const char *const name : {"theirs/a/file", "theirs/a", "theirs"})
        assert_int_equal(chown((*one / name).c_str(), kUser + 1, kGroup), 0);
    assert_int_equal(chmod((*one / "theirs").c_str(), 0700), 0);
    auto at = open_file(*one, O_RDONLY | O_DIRECTORY);
    for (int depth = 0; depth < kDeep; ++depth) {
        assert_true(at.has_value());
        assert_int_equal(mkdirat(at->get(), "d", 0700), 0);
        assert_int_equal(mkdirat(at->get(), "beside", 0700), 0);
        *at = UniqueFd(openat(at->get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    }
    set_aside_and_remove(base);
}

// Of the same file system, which a comparison of devices would take for a part of the tree.
void what_is_mounted_in_a_tree_stays_and_so_does_the_tree(void ** /*state*/) {
    need_root();
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
        test::skip("no mount namespace can be made here");
    const Base base;
    const auto precious = base.top / "precious";
    std::filesystem::create_directory(precious);
    assert_true(open_file(precious / "file", O_WRONLY | O_CREAT).has_value());
    const auto one = made(base, "u4711-s1", 0);
    const auto other = made(base, "u4711-s2", 0);
    assert_true(one.has_value() && other.has_value());
    std::filesystem::create_directories(*one / "a/mounted");
    assert_int_equal(mount(precious.c_str(), (*one / "a/mounted").c_str(), nullptr, MS_BIND, nullptr), 0);
    for (const char *const tree : {"u4711-s1", "u4711-s2"})
        set_aside(base, tree);
    const auto mounted = base.path / ".gone.0.job.u4711-s1";
    const auto errors = local::remove_set_aside(base.path);
    assert_int_equal(errors.size(), 1);
    assert_true(errors.front().message().find("u4711-s1") != std::string::npos);
    assert_true(std::filesystem::exists(precious / "file"));
    assert_true(std::filesystem::exists(mounted));
    // The other one has gone all the same.
    assert_false(std::filesystem::exists(base.path / ".gone.0.job.u4711-s2"));
    // And this one goes when nothing is mounted there any more.
    const auto inner = std::filesystem::directory_iterator(mounted)->path() / "mounted";
    assert_int_equal(umount2(inner.c_str(), MNT_DETACH), 0);
    for (const auto &error : local::remove_set_aside(base.path))
        test::fail(error.message());
    assert_false(std::filesystem::exists(mounted));
    assert_true(std::filesystem::exists(precious / "file"));
}

// An overlay moves none of the directories that lie in what it is made of: EXDEV.
void what_cannot_be_moved_is_emptied_where_it_is(void ** /*state*/) {
    need_root();
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
        test::skip("no mount namespace can be made here");
    const Base base;
    if (mount("tmpfs", base.top.c_str(), "tmpfs", 0, "mode=0700") != 0)
        test::skip("no tmpfs can be mounted here");
    for (const char *const name : {"upper", "work", "some"})
        std::filesystem::create_directory(base.top / name);
    for (const char *const tree : {"u4711-s1", "u4712-s1"}) {
        const auto one = made(base, tree, 0);
        assert_true(one.has_value());
        std::filesystem::create_directories(*one / "a/b/c/d");
        assert_true(open_file(*one / "a/b/c/file", O_WRONLY | O_CREAT).has_value());
        set_aside(base, tree);
    }
    const auto lower = base.top / "lower";
    std::filesystem::rename(base.top / "some", lower);
    std::filesystem::create_directory(base.top / "some");
    const auto options = "redirect_dir=off,lowerdir=" + lower.native() +
                         ",upperdir=" + (base.top / "upper").native() +
                         ",workdir=" + (base.top / "work").native();
    const bool is_mounted = mount("overlay", (base.top / "some").c_str(), "overlay", 0, options.c_str()) == 0;
    if (is_mounted) {
        for (const auto &error : local::remove_set_aside(base.path))
            test::fail(error.message());
        expect_only_the_lock(base);
        assert_int_equal(umount2((base.top / "some").c_str(), MNT_DETACH), 0);
    }
    assert_int_equal(umount2(base.top.c_str(), MNT_DETACH), 0);
    if (!is_mounted)
        test::skip("no overlay can be mounted here");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(names_of_paths_are_different),
        cmocka_unit_test(names_of_trees_are_read_again),
        cmocka_unit_test(they_are_the_users_in_what_is_roots),
        cmocka_unit_test(a_layer_is_nobody_elses),
        cmocka_unit_test(a_directory_with_other_things_is_left_alone),
        cmocka_unit_test(a_new_run_is_not_taken_for_the_one_before),
        cmocka_unit_test(each_run_has_its_own),
        cmocka_unit_test(who_does_not_know_the_run_decides_nothing),
        cmocka_unit_test(a_run_that_has_begun_moves_nothing),
        cmocka_unit_test(a_tree_of_an_unknown_run_is_neither_believed_nor_removed),
        cmocka_unit_test(all_that_come_at_once_get_the_same_tree),
        cmocka_unit_test(the_agent_leaves_what_it_was_started_with),
        cmocka_unit_test(nodes_that_had_other_directories_have_a_slot_of_their_own),
        cmocka_unit_test(nothing_of_them_stays_and_nothing_else_goes),
        cmocka_unit_test(files_of_others_and_deep_ones_go_as_well),
        cmocka_unit_test(what_is_mounted_in_a_tree_stays_and_so_does_the_tree),
        cmocka_unit_test(what_cannot_be_moved_is_emptied_where_it_is),
    };
    return cmocka_run_group_tests_name("local directories", tests, nullptr, nullptr);
}
