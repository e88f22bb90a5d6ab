// SPDX-License-Identifier: GPL-2.0-or-later
// Whatever is changed in the store is found and named, and what does not belong there is not followed.
#include "store_fixture.hpp"

#include <random>

namespace {

using namespace singularity;
using namespace singularity::test;
using store::Store;

Store make(const TemporaryDirectory &directory) {
    return must(Store::open(directory.path() / "store", creating()));
}

bool names(const store::VerifyReport &report, const fs::path &path) {
    return std::ranges::any_of(report.damage, [&path](const Error &error) {
        return error.message().find(path.filename().native()) != std::string::npos;
    });
}

// Calls check(what was done to it) for flipped bits and cut ends of the file, and puts it back.
template <class Check>
void spoil(const fs::path &path, Check check, std::size_t flips) {
    const Bytes original = read_file(path);
    std::mt19937_64 random(original.size());
    // Seven: every byte of the headers still has its turn, and all bits of a byte have theirs.
    const std::size_t stride = is_short() ? 7 : 1;
    for (std::size_t i = 0; i < flips; i += stride) {
        Bytes changed = original;
        // The first bytes each once: that is where headers are.
        constexpr std::size_t kFirst = 512; // bits
        const std::size_t bit = i < kFirst && flips > kFirst ? i : random() % (changed.size() * 8);
        changed[(bit / 8) % changed.size()] ^= static_cast<std::byte>(1U << (bit % 8));
        write_file(path, changed);
        check("bit " + std::to_string(bit));
    }
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, original.size() / 2, original.size() - 1}) {
        write_file(path, std::span(original).first(size));
        check("cut to " + std::to_string(size));
    }
    Bytes longer = original;
    longer.push_back(std::byte{0});
    write_file(path, longer);
    check("one byte more");
    write_file(path, original);
}

void every_kind_of_file(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    Bytes text(9000, std::byte{'a'});
    std::ranges::copy(noise(500, 3), text.begin());
    auto writer = must(store.begin(request_of(kAlice)));
    write_image(writer, {"node0", "", "compressed"}, text);
    write_image(writer, {"node0", "", "plain"}, noise(7000, 1));
    const auto id = must(writer.commit()).id;
    // A chunk that waits to be removed, and the round that says so.
    const auto removed = save(store, noise(6000, 2));
    const auto reading = must(store.read(kAlice, id));
    must(store.remove(kAlice, removed));
    must(store::collect_garbage(store, kAlice, at_once()));

    std::size_t kinds = 0;
    for (const char *part : {"chunks", "checkpoints", "condemned", "rounds"}) {
        for (const fs::path &path : files_below(user_directory(directory) / part)) {
            ++kinds;
            spoil(
                path,
                [&](const std::string &how) {
                    const auto report = must(store::verify_all(store, kAlice, false));
                    if (report.damage.size() != 1 || !names(report, path))
                        fail(path.native() + ", " + how + ": found " + std::to_string(report.damage.size()));
                    if (std::string_view(part) == "chunks") {
                        const auto one = must(store::verify(store, kAlice, id));
                        assert_true(one.damage.size() == 1 && names(one, path));
                    }
                },
                600);
        }
    }
    assert_int_equal(kinds, 2 + 1 + 1 + 1);
    expect_whole(store);
    // The file that says what this is: no use of the store without it.
    spoil(
        directory.path() / "store" / "store",
        [&](const std::string &how) {
            const auto error = must_fail(Store::open(directory.path() / "store"));
            if (error.message().find("says") == std::string::npos)
                fail(how + ": " + error.message());
        },
        100);
    must(Store::open(directory.path() / "store"));
}

void reading_names_the_file_and_offers_another_checkpoint(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    const Bytes data = noise(20 * kMiB, 1);
    const auto other = save(store, noise(kMiB, 5), request_of(kAlice, "another job"));
    const auto older = save(store, std::span(data).first(8 * kMiB));
    const auto before = files_below(user_directory(directory) / "chunks");
    const auto newer = save(store, data);
    fs::path victim;
    for (const fs::path &path : files_below(user_directory(directory) / "chunks"))
        if (std::ranges::find(before, path) == before.end())
            victim = path;
    Bytes changed = read_file(victim);
    changed[2 * kMiB] ^= std::byte{16};
    write_file(victim, changed);

    const auto error = must_fail(load(store, newer));
    expect_contains(error.message(), victim.filename().native());
    expect_contains(error.message(), "does not have the hash");
    // Both were made within a second: then the id decides which is the previous one.
    expect_contains(error.message(), newer > older ? "previous checkpoint that does without it is " + older
                                                   : "there is no earlier checkpoint");
    assert_true(error.message().find(other) == std::string::npos);
    // The rest is still there for a lazy restore, and the older one as a whole.
    const auto checkpoint = must(store.read(kAlice, newer));
    const auto reader = must(checkpoint.image({"node0", "", "pages"}));
    Bytes some(100);
    must(reader.read_at(100, some));
    assert_true(std::ranges::equal(some, std::span(data).subspan(100, 100)));
    assert_true(must(load(store, older)).size() == 8 * kMiB);

    // Set aside, it is missing; written again, everything is whole.
    assert_int_equal(must(store::verify_all(store, kAlice, true)).damage.size(), 1);
    expect_contains(must_fail(load(store, newer)).message(), "it is missing");
    const auto missing = must(store::verify_all(store, kAlice, true));
    assert_int_equal(missing.damage.size(), 1);
    expect_contains(missing.damage[0].message(), "it is missing");
    assert_int_equal(must(store::verify(store, kAlice, newer)).damage.size(), 1);
    assert_int_equal(must(store::verify(store, kAlice, older)).damage.size(), 0);
    save(store, data);
    assert_true(must(load(store, newer)) == data);
    expect_whole(store);
}

void a_cut_chunk_is_replaced_when_it_is_written_again(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    const Bytes data = noise(3 * kMiB, 1);
    const auto id = save(store, data);
    fs::resize_file(files_below(user_directory(directory) / "chunks").at(0), 1000);
    must_fail(load(store, id));
    save(store, data);
    assert_true(must(load(store, id)) == data);
    expect_whole(store);
}

void nothing_is_removed_while_a_manifest_is_damaged(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    const auto id = save(store, noise(3 * kMiB, 1));
    const auto path = user_directory(directory) / "checkpoints" / id;
    const Bytes original = read_file(path);
    write_file(path, std::span(original).first(original.size() - 1));
    const auto error = must_fail(store::collect_garbage(store, kAlice, at_once()));
    expect_contains(error.message(), id);
    assert_int_equal(files_below(user_directory(directory) / "chunks").size(), 1);
    const auto listing = must(store.list(kAlice));
    assert_true(listing.checkpoints.empty() && listing.damaged.size() == 1);
    must_fail(store::usage(store, kAlice));
    write_file(path, original);
    assert_true(must(load(store, id)).size() == 3 * kMiB);
}

void foreign_files_are_named(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    save(store, noise(100, 1));
    const auto chunk = files_below(user_directory(directory) / "chunks").at(0);
    const std::string wrong_name = std::string(64, 'f');
    fs::copy_file(chunk, chunk.parent_path() / wrong_name);
    fs::copy_file(chunk, chunk.parent_path() / "x\ny");
    const auto report = must(store::verify_all(store, kAlice, false));
    assert_int_equal(report.damage.size(), 2);
    assert_true(names(report, wrong_name) || report.damage[0].message().contains("ffff"));
}

// Whoever could make these would be root already, or have the parent directory: neither is obeyed.
void planted_links_are_refused(void ** /*state*/) {
    const TemporaryDirectory directory;
    const fs::path top = directory.path() / "store";
    const fs::path elsewhere = directory.path() / "elsewhere";
    fs::create_directory(elsewhere);
    fs::permissions(elsewhere, fs::perms::owner_all);
    const auto expect_refused = [](const Error &error) {
        if (error.message().find("symbolic link") == std::string::npos)
            fail(error.message());
    };
    fs::create_directory_symlink(elsewhere, top);
    expect_refused(must_fail(Store::open(top, creating())));
    fs::remove(top);
    fs::create_directory(elsewhere / "inner");
    fs::create_directory_symlink(elsewhere, directory.path() / "link");
    expect_refused(must_fail(Store::open(directory.path() / "link" / "inner", creating())));

    const auto id = save(make(directory), noise(100, 1));
    // Every directory and every file of the store in turn.
    std::vector<fs::path> places{top / "store", top / "users", user_directory(directory)};
    for (const auto &entry : fs::recursive_directory_iterator(user_directory(directory)))
        if (entry.path().parent_path().filename() != "blake3" || !fs::is_empty(entry.path()))
            places.push_back(entry.path());
    for (const fs::path &place : places) {
        const fs::path moved = directory.path() / "moved";
        fs::rename(place, moved);
        fs::create_symlink(moved, place);
        const auto store = Store::open(top);
        Expected<Bytes> read = store ? load(*store, id) : Expected<Bytes>(std::unexpected(store.error()));
        if (read)
            fail("followed: " + place.native());
        expect_refused(read.error());
        fs::remove(place);
        fs::rename(moved, place);
    }
    assert_int_equal(must(load(must(Store::open(top)), id)).size(), 100);
    assert_true(fs::is_empty(elsewhere / "inner"));
}

void others_must_not_reach_it(void ** /*state*/) {
    const TemporaryDirectory directory;
    const fs::path top = directory.path() / "store";
    const auto id = save(make(directory), noise(100, 1));
    for (const auto &entry : fs::recursive_directory_iterator(top)) {
        struct stat status{};
        assert_int_equal(::lstat(entry.path().c_str(), &status), 0);
        assert_int_equal(status.st_mode & 07777, S_ISDIR(status.st_mode) ? 0700 : 0600);
    }
    const std::vector<fs::path> places{top, top / "users", top / "store",
                                       user_directory(directory) / "checkpoints" / id,
                                       files_below(user_directory(directory) / "chunks").at(0)};
    for (const fs::path &place : places) {
        const auto before = fs::status(place).permissions();
        fs::permissions(place, fs::perms::group_read, fs::perm_options::add);
        const auto store = Store::open(top);
        const auto read = store ? load(*store, id) : Expected<Bytes>(std::unexpected(store.error()));
        expect_contains(must_fail(read).message(), "others may reach it");
        fs::permissions(place, before);
    }
    if (::geteuid() == 0) {
        for (const fs::path &place : places) {
            assert_int_equal(::lchown(place.c_str(), kAlice, 0), 0);
            const auto store = Store::open(top);
            const auto read = store ? load(*store, id) : Expected<Bytes>(std::unexpected(store.error()));
            expect_contains(must_fail(read).message(), "belongs to uid 1001");
            assert_int_equal(::lchown(place.c_str(), 0, 0), 0);
        }
        // Nor a directory on the way.
        assert_int_equal(::lchown(directory.path().c_str(), kAlice, 0), 0);
        expect_contains(must_fail(Store::open(top)).message(), "who could replace what is below");
        assert_int_equal(::lchown(directory.path().c_str(), 0, 0), 0);
    }
    fs::permissions(directory.path(), fs::perms::all);
    expect_contains(must_fail(Store::open(top)).message(), "others may write to it");
    fs::permissions(directory.path(), fs::perms::owner_all);
    assert_int_equal(must(load(must(Store::open(top)), id)).size(), 100);
}

void only_stores_are_opened(void ** /*state*/) {
    const TemporaryDirectory directory;
    const fs::path top = directory.path() / "store";
    expect_contains(must_fail(Store::open(top)).message(), "No such file");
    fs::create_directory(top);
    fs::permissions(top, fs::perms::owner_all);
    expect_contains(must_fail(Store::open(top)).message(), "there is none in that directory");
    write_file(top / "thesis.tex", Bytes(3));
    expect_contains(must_fail(Store::open(top, creating())).message(), "'thesis.tex' is there already");
    fs::remove(top / "thesis.tex");
    must(Store::open(top, creating()));
    expect_contains(must_fail(Store::open("store")).message(), "absolute");
    expect_contains(must_fail(Store::open("/")).message(), "must name a directory");
    expect_contains(must_fail(Store::open(directory.path() / ".." / "x")).message(), "..");
    // A FIFO in place of a file must not hold anybody up.
    fs::remove(top / "store");
    assert_int_equal(::mkfifo((top / "store").c_str(), 0600), 0);
    expect_contains(must_fail(Store::open(top, creating())).message(), "no regular file");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_file),
        cmocka_unit_test(reading_names_the_file_and_offers_another_checkpoint),
        cmocka_unit_test(a_cut_chunk_is_replaced_when_it_is_written_again),
        cmocka_unit_test(nothing_is_removed_while_a_manifest_is_damaged),
        cmocka_unit_test(foreign_files_are_named),
        cmocka_unit_test(planted_links_are_refused),
        cmocka_unit_test(others_must_not_reach_it),
        cmocka_unit_test(only_stores_are_opened),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
