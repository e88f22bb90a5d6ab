// SPDX-License-Identifier: GPL-2.0-or-later
// Writers, readers and garbage collections as processes of their own on one store, as on several hosts.
#include "store_fixture.hpp"

#include <csignal>
#include <random>

#include <fmt/format.h>

namespace {

using namespace singularity;
using namespace singularity::test;
using store::Store;

constexpr std::size_t kBlocks = 6; // kinds of content that all writers share

// Some shared content and some of the writer's own, different in every round.
Bytes content_of(unsigned writer, unsigned round) {
    std::mt19937 random(round);
    Bytes content;
    for (int block = 0; block < (is_short() ? 1 : 3); ++block) {
        const Bytes shared = noise(4 * kMiB, random() % kBlocks);
        content.insert(content.end(), shared.begin(), shared.end());
    }
    const Bytes own = noise(100'000, (writer * 1000) + round + 100);
    content.insert(content.end(), own.begin(), own.end());
    return content;
}

bool keep_writing(const fs::path &top, unsigned writer, unsigned rounds) {
    for (unsigned round = 0; round < rounds; ++round) {
        const auto store = Store::open(top, creating());
        if (!store)
            return false;
        const Bytes content = content_of(writer, round);
        auto checkpoint = store->begin(request_of(kAlice, fmt::format("{}", writer)));
        if (!checkpoint)
            return false;
        auto image = checkpoint->image({"node0", "", "pages"});
        if (!image || !image->append(content) || !image->finish())
            return false;
        auto manifest = checkpoint->commit();
        if (!manifest) {
            print_message("writer %u: %s\n", writer, manifest.error().message().c_str());
            return false;
        }
        const auto back = load(*store, manifest->id);
        if (!back || *back != content) {
            print_message("writer %u: %s\n", writer, back ? "other content" : back.error().message().c_str());
            return false;
        }
        // Every second one goes at once: garbage with content that others are about to name.
        if (round % 2 == 0 && !store->remove(kAlice, manifest->id))
            return false;
    }
    return true;
}

bool keep_collecting(const fs::path &top, int stop) {
    const auto store = Store::open(top, creating());
    if (!store)
        return false;
    for (char byte = 0; ::read(stop, &byte, 1) < 0;) { // not blocking: EAGAIN until it is closed
        const auto report = store::collect_garbage(*store, kAlice, at_once());
        if (!report) {
            print_message("collection: %s\n", report.error().message().c_str());
            return false;
        }
    }
    return true;
}

void expect_contents(const TemporaryDirectory &directory, unsigned writers, unsigned rounds) {
    const Store store = must(Store::open(directory.path() / "store"));
    const auto listing = must(store.list(kAlice));
    assert_int_equal(listing.checkpoints.size(), writers * (rounds / 2));
    for (const auto &checkpoint : listing.checkpoints) {
        const Bytes found = must(load(store, checkpoint.id));
        bool known = false;
        for (unsigned round = 1; !known && round < rounds; round += 2)
            known = found == content_of(static_cast<unsigned>(std::stoul(checkpoint.job)), round);
        assert_true(known);
    }
}

void run_writers(unsigned writers, unsigned rounds, unsigned collectors) {
    const TemporaryDirectory directory;
    const fs::path top = directory.path() / "store";
    int ends[2];
    assert_int_equal(::pipe2(ends, O_NONBLOCK), 0);
    std::vector<pid_t> writing;
    writing.reserve(writers);
    std::vector<pid_t> collecting;
    collecting.reserve(collectors);
    // All make the store at once.
    for (unsigned writer = 0; writer < writers; ++writer)
        writing.push_back(start_process([&] { return keep_writing(top, writer, rounds); }));
    for (unsigned i = 0; i < collectors; ++i)
        collecting.push_back(start_process([&] {
            ::close(ends[1]);
            return keep_collecting(top, ends[0]);
        }));
    for (const pid_t pid : writing)
        expect_success(pid);
    ::close(ends[1]);
    for (const pid_t pid : collecting)
        expect_success(pid);
    ::close(ends[0]);
    expect_contents(directory, writers, rounds);
    collect_all(directory);
    // All shared blocks once, and what each checkpoint has for itself.
    const auto used = must(store::usage(must(Store::open(top)), kAlice));
    assert_true(used.chunks <= kBlocks + used.checkpoints);
}

void two_writers(void ** /*state*/) { run_writers(2, 4, 0); }

void eight_writers(void ** /*state*/) { run_writers(8, 2, 0); }

void collections_beside_writers(void ** /*state*/) { run_writers(3, is_short() ? 4 : 16, 2); }

// The same content begun by all at the same moment: one file each, whoever is first.
void the_same_chunk_at_once(void ** /*state*/) {
    const TemporaryDirectory directory;
    const fs::path top = directory.path() / "store";
    must(Store::open(top, creating()));
    const Bytes content = noise(8 * kMiB, 1);
    for (int round = 0; round < (is_short() ? 2 : 5); ++round) {
        int ends[2];
        assert_int_equal(::pipe(ends), 0);
        std::vector<pid_t> writers;
        writers.reserve(4);
        for (int i = 0; i < 4; ++i)
            writers.push_back(start_process([&] {
                const auto store = Store::open(top);
                ::close(ends[1]);
                char byte = 0;
                if (!store || ::read(ends[0], &byte, 1) != 0) // until all may begin
                    return false;
                auto writer = store->begin(request_of(kAlice));
                if (!writer)
                    return false;
                auto image = writer->image({"node0", "", "pages"});
                return image && image->append(content) && image->finish() && writer->commit().has_value();
            }));
        ::close(ends[1]);
        for (const pid_t pid : writers)
            expect_success(pid);
        ::close(ends[0]);
        const Store store = must(Store::open(top));
        assert_int_equal(must(store.list(kAlice)).checkpoints.size(), 4);
        assert_int_equal(files_below(user_directory(directory) / "chunks").size(), 2);
        for (const auto &checkpoint : must(store.list(kAlice)).checkpoints) {
            assert_true(must(load(store, checkpoint.id)) == content);
            must(store.remove(kAlice, checkpoint.id));
        }
        assert_int_equal(collect_all(directory).removed_chunks, 2);
    }
}

// A writer on the way holds up the removal of what it might name, and no longer than it lives.
void a_dead_writer_holds_nothing_up(void ** /*state*/) {
    const TemporaryDirectory directory;
    const fs::path top = directory.path() / "store";
    auto options = creating();
    options.lease_timeout = std::chrono::milliseconds(300);
    {
        const Store store = must(Store::open(top, options));
        must(store.remove(kAlice, save(store, noise(5 * kMiB, 1))));
    }
    int ends[2];
    assert_int_equal(::pipe(ends), 0);
    const pid_t writer = start_process([&] {
        const auto there = Store::open(top, options);
        auto begun = there->begin(request_of(kAlice));
        if (::write(ends[1], "x", 1) != 1)
            return false;
        ::pause();
        return begun.has_value();
    });
    ::close(ends[1]); // or a writer that fails would be waited for
    char byte = 0;
    assert_int_equal(::read(ends[0], &byte, 1), 1);
    const Store store = must(Store::open(top, options));
    // It lives for several times the lease, and keeps it.
    const auto begun = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(900)) {
        const auto report = must(store::collect_garbage(store, kAlice, at_once()));
        assert_int_equal(report.broken + report.removed_chunks, 0);
    }
    ::kill(writer, SIGKILL);
    wait_for(writer);
    const auto gone = [&store] {
        return must(store::collect_garbage(store, kAlice, at_once())).removed_chunks == 2;
    };
    must(wait_until(gone, Deadline::after(std::chrono::seconds(30)), "the dead writer's lease to expire"));
    expect_tidy(directory);
    ::close(ends[0]);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(two_writers),
        cmocka_unit_test(eight_writers),
        cmocka_unit_test(collections_beside_writers),
        cmocka_unit_test(the_same_chunk_at_once),
        cmocka_unit_test(a_dead_writer_holds_nothing_up),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
