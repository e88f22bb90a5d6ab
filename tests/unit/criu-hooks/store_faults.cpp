// SPDX-License-Identifier: GPL-2.0-or-later
// The disk under a store is full, cannot be read or written, or loses what was not synced.
#include "power_loss.hpp"
#include "store_scenes.hpp"

#include <csignal>

#include <sched.h>
#include <sys/mount.h>

namespace {

using namespace singularity;
using namespace singularity::test;
using store::Store;

constexpr int kMostCalls = 2000;

// ---- power loss
// -----------------------------------------------------------------------------------------------------

// On a store that lies where the power came back.
void expect_recovered(const fs::path &top, const Scene &scene, bool done, const std::string &where) {
    const auto opened = Store::open(top, options_of_scene());
    if (!opened)
        fail(where + ": " + opened.error().message());
    const auto found = contents_of(*opened);
    // Until the directory is synced the checkpoint may be there or not.
    if (found != scene.after && (done || found != scene.before))
        fail(where + ": other checkpoints than expected");
    expect_whole(*opened);
    expect_account_is_right(*opened);
}

// The power fails before every call that changes something. What is found then are also all states in
// between: the process does not notice.
int lose_power_at_every_call(const Scene &scene) {
    const TemporaryDirectory directory;
    scene.prepare(directory.path() / "store");
    Disk disk(directory.path());
    bool decided = false;
    bool done = false; // what decides has happened and was synced
    int points = 0;
    const auto lose_power = [&](const std::string &where) {
        for (const auto lost : {Disk::Lost::kNames, Disk::Lost::kContents}) {
            const TemporaryDirectory elsewhere;
            disk.recover(elsewhere.path() / "disk", lost);
            expect_recovered(elsewhere.path() / "disk" / "store", scene, done, where);
            ++points;
        }
    };
    const auto outcome = supervise(
        directory.path(), [&] { return scene.body(directory.path() / "store") ? 0 : 1; },
        [&](const Call &call) {
            if (call.changes && call.number % kStride == 0)
                lose_power(text_of(call));
            decided = decided || scene.decides(call);
            const auto verdict = disk.decide(call);
            done = done || (decided && call.name == "fsync" && call.path.ends_with("/checkpoints"));
            return verdict;
        });
    assert_int_equal(outcome.status, 0);
    done = decided; // it returned, so it is durable
    lose_power("the end");
    return points;
}

void power_is_lost_at_every_call(void ** /*state*/) {
    for (const Scene &scene : scenes()) {
        const int points = lose_power_at_every_call(scene);
        print_message("%s: %d points of power loss tried and survived\n", scene.name, points);
        assert_true(points * kStride >= 2 * scene.least);
    }
}

// ---- calls that fail
// ------------------------------------------------------------------------------------------------

struct Failure {
    const char *name;
    int code;
    bool for_good; // all later calls of the kind fail as well
    bool (*meets)(const Call &call);
};

const Failure kFailures[] = {
    {"disk full from here on", ENOSPC, true,
     [](const Call &call) {
         return call.name == "openat" || call.name == "mkdirat" || call.name == "pwrite64" ||
                call.name == "fsync" || call.name == "fdatasync" || call.name == "renameat";
     }},
    {"one write error", EIO, false, [](const Call &call) { return call.changes; }},
    {"one read error", EIO, false, [](const Call &call) { return !call.changes; }},
    {"read errors from here on", EIO, true, [](const Call &call) { return !call.changes; }},
};

int fail_every_call(const Scene &scene, const Failure &failure) {
    for (int point = 0;; point += kStride) {
        assert_true(point < kMostCalls);
        const TemporaryDirectory directory;
        const fs::path top = directory.path() / "store";
        scene.prepare(top);
        int met = 0;
        std::string where = "nothing";
        const auto outcome = supervise(
            directory.path(), [&] { return scene.body(top) ? 0 : 1; },
            [&](const Call &call) -> Verdict {
                if (!failure.meets(call))
                    return Proceed{};
                const int number = met++;
                if (number == point)
                    where = text_of(call);
                return number == point || (failure.for_good && number > point) ? Verdict(Fail{failure.code})
                                                                               : Proceed{};
            });
        {
            const Store store = must(Store::open(top, options_of_scene()));
            const auto found = contents_of(store);
            if (found != scene.after && (outcome.status == 0 || found != scene.before))
                fail(fmt::format("{} at '{}': other checkpoints than expected", failure.name, where));
            expect_account_is_right(store);
        }
        collect_all(directory);
        if (met <= point) {
            assert_int_equal(outcome.status, 0);
            return point;
        }
    }
}

void every_call_fails(void ** /*state*/) {
    for (const Scene &scene : scenes())
        for (const Failure &failure : kFailures) {
            const int points = fail_every_call(scene, failure);
            print_message("%s: %s: %d points tried and survived\n", scene.name, failure.name,
                          (points + kStride - 1) / kStride);
        }
}

// ---- a disk that is really full
// -------------------------------------------------------------------------------------

// In the mount namespace that main has made, which ends with the program.
class SmallDisk {
  public:
    explicit SmallDisk(const std::string &options) {
        if (!private_mounts)
            skip("only root mounts a file system");
        assert_int_equal(
            ::mount("none", directory_.path().c_str(), "tmpfs", 0, (options + ",mode=700").c_str()), 0);
    }
    SmallDisk(const SmallDisk &) = delete;
    SmallDisk &operator=(const SmallDisk &) = delete;
    SmallDisk(SmallDisk &&) = delete;
    SmallDisk &operator=(SmallDisk &&) = delete;
    ~SmallDisk() { ::umount2(path().c_str(), MNT_DETACH); }

    [[nodiscard]] const fs::path &path() const { return directory_.path(); }

    inline static bool private_mounts = false;

  private:
    TemporaryDirectory directory_;
};

// Whatever is free, until nothing is.
void fill_disk(const fs::path &file, std::uint64_t leave) {
    const std::uint64_t free = fs::space(file.parent_path()).available;
    if (free > leave)
        write_file(file, Bytes(static_cast<std::size_t>(free - leave), std::byte{1}));
}

// With every amount of space left, from none to enough: the checkpoint is written or refused, the earlier one
// stays, and a collection makes room, even where there is none at all.
void a_full_disk(void ** /*state*/) {
    const SmallDisk disk("size=2m");
    const fs::path top = disk.path() / "store";
    const fs::path ballast = disk.path() / "full";
    int written = 0;
    int refused = 0;
    for (std::uint64_t left = 0; left < 600'000; left += is_short() ? 40'960 : 4096) {
        {
            const Store store = must(Store::open(top, options_of_scene()));
            must(write_checkpoint(store, 0));
            must(store.remove(kAlice, must(write_checkpoint(store, 2))));
            fill_disk(ballast, left);
            const auto id = write_checkpoint(store, 1);
            ++(id ? written : refused);
            if (!id)
                expect_contains(id.error().message(), "No space left on device");
            const auto found = contents_of(store);
            assert_true(found == (id ? std::multiset<std::uint64_t>{0, 1} : std::multiset<std::uint64_t>{0}));
            expect_whole(store);
            must(store::collect_garbage(store, kAlice, at_once()));
            assert_true(fs::space(disk.path()).available >= 2 * kPiece);
            assert_true(contents_of(store) == found);
            expect_whole(store);
        }
        fs::remove_all(top);
        fs::remove(ballast);
    }
    print_message("a full disk: %d checkpoints refused, %d written\n", refused, written);
    assert_true(written > 0 && refused > 0);
}

// Inodes run out before blocks do.
void no_more_files(void ** /*state*/) {
    const SmallDisk disk("size=20m,nr_inodes=60");
    const Store store = must(Store::open(disk.path() / "store", options_of_scene()));
    must(write_checkpoint(store, 0));
    int files = 0;
    while (std::ofstream(disk.path() / std::to_string(files)))
        ++files;
    int refused = 0;
    for (; files > 0; --files, ++refused) {
        const auto id = write_checkpoint(store, 1);
        if (id)
            break;
        expect_contains(id.error().message(), "No space left on device");
        fs::remove(disk.path() / std::to_string(files - 1)); // reading needs one, for its lease
        assert_true(contents_of(store) == std::multiset<std::uint64_t>{0});
    }
    assert_true(refused > 2);
    fs::remove(disk.path() / "0");
    assert_true((contents_of(store) == std::multiset<std::uint64_t>{0, 1}));
    must(store::collect_garbage(store, kAlice, at_once()));
    expect_whole(store);
}

} // namespace

int main() {
    in_memory();
    SmallDisk::private_mounts =
        ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    const CMUnitTest tests[] = {
        cmocka_unit_test(power_is_lost_at_every_call),
        cmocka_unit_test(every_call_fails),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(no_more_files),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
