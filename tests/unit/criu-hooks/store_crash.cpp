// SPDX-License-Identifier: GPL-2.0-or-later
// A writer or a garbage collection is killed at every step that changes something, and at random moments:
// earlier checkpoints stay whole, the interrupted one is there as a whole or not at all, and nothing is left
// behind.
#include "store_fixture.hpp"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <random>

#include <fmt/format.h>

namespace {

using namespace singularity;
using namespace singularity::test;
using store::Store;

constexpr int kMostSteps = 2000;

struct Content {
    Bytes common = noise(5 * kMiB, 1);
    Bytes changing;
};

Content content_of(std::uint64_t number) {
    Content content;
    content.changing = noise(5 * kMiB, 1000 + number);
    return content;
}

bool write_checkpoint(const Store &store, const Content &content) {
    auto writer = store.begin(request_of(kAlice));
    if (!writer)
        return false;
    for (const auto &[name, data] :
         {std::pair("common", &content.common), std::pair("changing", &content.changing)}) {
        auto image = writer->image({"node0", "", name});
        if (!image || !image->append(*data) || !image->append_zeros(kMiB) || !image->finish())
            return false;
    }
    return writer->commit().has_value();
}

// All checkpoints that there are, each whole and one of the contents; returns how many.
std::size_t expect_all_whole(const Store &store, const std::vector<Content> &contents) {
    const auto listing = must(store.list(kAlice));
    for (const Error &error : listing.damaged)
        fail(error.message());
    for (const auto &checkpoint : listing.checkpoints) {
        assert_int_equal(must(store::verify(store, kAlice, checkpoint.id)).damage.size(), 0);
        auto changing = must(load(store, checkpoint.id, kAlice, {"node0", "", "changing"}));
        changing.resize(changing.size() - kMiB);
        const bool known = std::ranges::any_of(
            contents, [&changing](const Content &content) { return content.changing == changing; });
        assert_true(known);
    }
    return listing.checkpoints.size();
}

// Options with which the process ends at the step of that number; the name of the step goes to the pipe.
store::Options killed_at(int number, int pipe) {
    auto options = creating();
    options.lease_timeout = std::chrono::milliseconds(0);
    auto count = std::make_shared<std::atomic<int>>(0);
    options.at_step = [number, pipe, count](std::string_view step) {
        if ((*count)++ != number)
            return;
        if (::write(pipe, step.data(), step.size()) < 0)
            ::_exit(99);
        ::kill(::getpid(), SIGKILL);
    };
    return options;
}

struct Ended {
    bool killed = false;
    std::string step;
};

// body(options) in a process that is killed at that step; a failure of the body fails the test.
template <class Body>
Ended run_until(int number, Body body) {
    int ends[2];
    assert_int_equal(::pipe(ends), 0);
    const pid_t child = start_process([&] { return body(killed_at(number, ends[1])); });
    ::close(ends[1]);
    const int status = wait_for(child);
    Ended ended;
    ended.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    char name[64];
    const ssize_t got = ::read(ends[0], name, sizeof name);
    ended.step.assign(name, got > 0 ? static_cast<std::size_t>(got) : 0);
    ::close(ends[0]);
    if (!ended.killed && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
        fail(fmt::format("step {}: the process failed, status {}", number, status));
    return ended;
}

void writer_killed_at_every_step(void ** /*state*/) {
    const TemporaryDirectory directory;
    const fs::path top = directory.path() / "store";
    std::vector<Content> contents{content_of(0)};
    assert_true(write_checkpoint(must(Store::open(top, creating())), contents[0]));
    std::size_t there = 1;
    int number = 0;
    for (;; ++number) {
        assert_true(number < kMostSteps);
        contents.push_back(content_of(static_cast<std::uint64_t>(number) + 1));
        const auto ended = run_until(number, [&](const store::Options &options) {
            const auto store = Store::open(top, options);
            return store && write_checkpoint(*store, contents.back());
        });
        const Store store = must(Store::open(top));
        const std::size_t now = expect_all_whole(store, contents);
        const bool committed =
            !ended.killed || ended.step == "manifest published" || ended.step == "checkpoint durable";
        if (now != there + (committed ? 1 : 0))
            fail(fmt::format("killed at '{}': {} checkpoints, before {}", ended.step, now, there));
        there = now;
        collect_all(directory);
        if (!ended.killed)
            break;
    }
    print_message("%d points of writing survived\n", number);
    assert_true(number > 12);
}

// Two checkpoints, and something of everything that a collection has to do: a removed checkpoint, condemned
// chunks that are named again, a dead writer.
void prepare_garbage(const TemporaryDirectory &directory) {
    const Store store = must(Store::open(directory.path() / "store", creating()));
    must(store.remove(kAlice, save(store, noise(5 * kMiB, 77))));
    {
        auto writer = must(store.begin(request_of(kAlice)));
        write_image(writer, {"node0", "", "changing"}, noise(5 * kMiB, 77)); // found, and named below
        wait_for_content(writer);
        must(store::collect_garbage(store, kAlice, at_once()));
        auto zeros = must(writer.image({"node0", "", "zeros"}));
        must(zeros.append_zeros(kMiB));
        must(zeros.finish());
        must(writer.commit());
    }
    assert_int_equal(must(store.list(kAlice)).checkpoints.size(), 2);
    must(store.remove(kAlice, save(store, noise(5 * kMiB, 88))));
    const auto lease = user_directory(directory) / "pending" / "20260101T000000-dead";
    const auto leftover = user_directory(directory) / "temporary" / "20260101T000000-dead.0.1";
    for (const fs::path &path : {lease, leftover}) {
        std::ofstream(path) << "x";
        fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    }
}

// Both checkpoints can be read right away, and are after another collection; then only the first is left.
void expect_survived(const TemporaryDirectory &directory, std::string_view step) {
    const Store store = must(Store::open(directory.path() / "store"));
    for (int round = 0; round < 2; ++round) {
        const auto listing = must(store.list(kAlice));
        assert_int_equal(listing.checkpoints.size(), 2);
        for (const auto &checkpoint : listing.checkpoints)
            if (const auto report = must(store::verify(store, kAlice, checkpoint.id)); !report.damage.empty())
                fail(fmt::format("killed at '{}': {}", step, report.damage[0].message()));
        if (round == 0)
            collect_all(directory);
    }
    for (const auto &checkpoint : must(store.list(kAlice)).checkpoints)
        if (must(store.manifest(kAlice, checkpoint.id)).nodes[0].images[0].name != "common")
            must(store.remove(kAlice, checkpoint.id));
    collect_all(directory);
}

void collection_killed_at_every_step(void ** /*state*/) {
    const TemporaryDirectory directory;
    const fs::path top = directory.path() / "store";
    assert_true(write_checkpoint(must(Store::open(top, creating())), content_of(0)));
    int number = 0;
    for (;; ++number) {
        assert_true(number < kMostSteps);
        prepare_garbage(directory);
        const auto ended = run_until(number, [&](const store::Options &options) {
            const auto opened = Store::open(top, options);
            return opened && store::collect_garbage(*opened, kAlice, at_once()).has_value();
        });
        expect_survived(directory, ended.step);
        if (!ended.killed)
            break;
    }
    print_message("%d points of garbage collection survived\n", number);
    assert_true(number > 10);
}

void killed_at_random_moments(void ** /*state*/) {
    const TemporaryDirectory directory;
    const fs::path top = directory.path() / "store";
    const auto seed = static_cast<std::uint64_t>(::getpid());
    print_message("seed %llu\n", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    std::vector<Content> contents{content_of(0)};
    assert_true(write_checkpoint(must(Store::open(top, creating())), contents[0]));
    std::size_t there = 1;
    std::size_t killed = 0;
    for (std::uint64_t round = 1; round <= 25; ++round) {
        contents.push_back(content_of(round));
        const pid_t writer = start_process([&] {
            const auto store = Store::open(top, creating());
            return store && write_checkpoint(*store, contents.back());
        });
        const pid_t collector = start_process([&] {
            const auto store = Store::open(top, creating());
            return store && store::collect_garbage(*store, kAlice, at_once()).has_value();
        });
        // The moment is what is random here; nothing waits for anything.
        ::usleep(static_cast<useconds_t>(random() % 120'000));
        ::kill(writer, SIGKILL);
        ::usleep(static_cast<useconds_t>(random() % 5'000));
        ::kill(collector, SIGKILL);
        killed += WIFSIGNALED(wait_for(writer)) ? 1 : 0;
        wait_for(collector);
        const Store store = must(Store::open(top));
        const std::size_t now = expect_all_whole(store, contents);
        assert_true(now == there || now == there + 1);
        there = now;
        if (round % 5 == 0)
            collect_all(directory);
    }
    collect_all(directory);
    print_message("%zu writers killed\n", killed);
}

// A checkpoint exists only after everything it names is durable: the order of steps in one process.
void durable_before_it_is_named(void ** /*state*/) {
    const TemporaryDirectory directory;
    std::mutex mutex;
    std::vector<std::string> steps;
    auto options = creating();
    options.at_step = [&](std::string_view step) {
        const std::lock_guard lock(mutex);
        steps.emplace_back(step);
    };
    assert_true(write_checkpoint(must(Store::open(directory.path() / "store", options)), content_of(0)));
    const auto first = [&](std::string_view step) {
        const auto found = std::ranges::find(steps, step);
        assert_true(found != steps.end());
        return found - steps.begin();
    };
    const auto last = [&](std::string_view step) {
        return steps.size() - 1 -
               static_cast<std::size_t>(std::ranges::find(steps.rbegin(), steps.rend(), step) -
                                        steps.rbegin());
    };
    assert_true(first("lease taken") < first("chunk begun"));
    assert_true(first("chunks durable") < first("chunk published"));
    assert_true(last("chunk published") < static_cast<std::size_t>(first("directories not durable")));
    assert_true(first("directories durable") < first("manifest not written"));
    assert_true(first("manifest not written") < first("manifest durable"));
    assert_true(first("manifest durable") < first("manifest published"));
}

// A writer that was stopped for longer than its lease cannot commit: what it relied on may be gone.
void a_writer_taken_for_dead_cannot_commit(void ** /*state*/) {
    const TemporaryDirectory directory;
    const fs::path top = directory.path() / "store";
    const Store store = must(Store::open(top, creating()));
    must(store.remove(kAlice, save(store, noise(5 * kMiB, 1))));
    auto writer = must(store.begin(request_of(kAlice)));
    write_image(writer, {"node0", "", "pages"}, noise(5 * kMiB, 1)); // found in the store
    wait_for_content(writer);
    assert_int_equal(collect_all(directory).broken, 1);
    const auto error = must_fail(writer.commit());
    assert_int_equal(error.code, ESTALE);
    expect_contains(error.message(), "its lease is gone");
    assert_true(must(store.list(kAlice)).checkpoints.empty());
    collect_all(directory);
}

// The same while nobody takes it for dead: what it found stays.
void a_living_writer_keeps_what_it_found(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = must(Store::open(directory.path() / "store", creating()));
    const Bytes data = noise(5 * kMiB, 1);
    must(store.remove(kAlice, save(store, data)));
    auto writer = must(store.begin(request_of(kAlice)));
    write_image(writer, {"node0", "", "pages"}, data);
    wait_for_content(writer);
    for (int round = 0; round < 3; ++round)
        assert_int_equal(must(store::collect_garbage(store, kAlice, at_once())).removed_chunks, 0);
    const auto id = must(writer.commit()).id;
    assert_true(must(load(store, id)) == data); // from among the condemned
    const auto report = must(store::collect_garbage(store, kAlice, at_once()));
    assert_int_equal(report.restored, 2);
    assert_true(must(load(store, id)) == data);
    expect_tidy(directory);
    collect_all(directory);
}

// The file system is full, and then there is room again.
void no_space_left(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Bytes data = noise(9 * kMiB, 1);
    const auto id = save(must(Store::open(directory.path() / "store", creating())), data);
    const pid_t child = start_process([&] {
        // EFBIG is what a limit gives; like ENOSPC it fails a write in the middle of a chunk.
        const rlimit limit{kMiB, kMiB};
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0 || std::signal(SIGXFSZ, SIG_IGN) == SIG_ERR)
            return false;
        const auto opened = Store::open(directory.path() / "store");
        return opened && !write_checkpoint(*opened, content_of(5));
    });
    expect_success(child);
    expect_tidy(directory);
    assert_true(must(load(must(Store::open(directory.path() / "store")), id)) == data);
    collect_all(directory);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(writer_killed_at_every_step),
        cmocka_unit_test(collection_killed_at_every_step),
        cmocka_unit_test(killed_at_random_moments),
        cmocka_unit_test(durable_before_it_is_named),
        cmocka_unit_test(a_writer_taken_for_dead_cannot_commit),
        cmocka_unit_test(a_living_writer_keeps_what_it_found),
        cmocka_unit_test(no_space_left),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
