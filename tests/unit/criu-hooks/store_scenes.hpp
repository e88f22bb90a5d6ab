// SPDX-License-Identifier: GPL-2.0-or-later
// What is done to a store while something goes wrong, and what must hold afterwards.
#pragma once

#include "account.hpp"
#include "store_fixture.hpp"
#include "supervised.hpp"

#include <set>

#include <fmt/format.h>

namespace singularity::test {

inline constexpr std::size_t kPiece = 64 << 10U;

// Every so many points are tried.
inline const int kStride = is_short() ? 7 : 1;

// A store is written to and collected with a quota: the account that goes with it is part of all this.
inline store::Options options_of_scene() {
    auto options = creating();
    options.quota = std::uint64_t{1} << 40U;
    return options;
}

inline Bytes content_of(std::uint64_t number) { return noise(2 * kPiece, 1000 + number); }

// Two images of two chunks and a piece of zeros each; the first is the same in all checkpoints.
inline Expected<void> fill(store::Writer &writer, std::uint64_t number) {
    for (const auto &[name, data] :
         {std::pair("common", noise(2 * kPiece, 1)), std::pair("changing", content_of(number))}) {
        auto image = writer.image({"node0", "", name});
        if (!image)
            return propagate(image);
        Expected<void> done;
        for (std::size_t at = 0; done && at < data.size(); at += kPiece) {
            done = image->append(std::span(data).subspan(at, kPiece));
            if (done)
                done = image->boundary();
        }
        if (done)
            done = image->append_zeros(kPiece);
        if (done)
            done = image->finish();
        if (!done)
            return done;
    }
    return {};
}

inline Expected<std::string> write_checkpoint(const store::Store &store, std::uint64_t number) {
    auto writer = store.begin(request_of(kAlice));
    if (!writer)
        return propagate(writer);
    if (auto filled = fill(*writer, number); !filled)
        return propagate(filled);
    auto manifest = writer->commit();
    if (!manifest)
        return propagate(manifest);
    return manifest->id;
}

// The checkpoints that there are, each of them whole and one of these contents; returns the numbers of the
// contents.
inline std::multiset<std::uint64_t> contents_of(const store::Store &store) {
    constexpr std::uint64_t kContents = 30;
    const auto listing = must(store.list(kAlice));
    for (const Error &error : listing.damaged)
        fail(error.message());
    std::multiset<std::uint64_t> found;
    for (const auto &checkpoint : listing.checkpoints) {
        for (const Error &error : must(store::verify(store, kAlice, checkpoint.id)).damage)
            fail(error.message());
        Bytes changing = must(load(store, checkpoint.id, kAlice, {"node0", "", "changing"}));
        changing.resize(changing.size() - kPiece);
        std::uint64_t number = 0;
        while (number < kContents && content_of(number) != changing)
            ++number;
        assert_true(number < kContents);
        found.insert(number);
    }
    return found;
}

// What is known of the user's use is what there is.
inline void expect_account_is_right(const store::Store &store) {
    const auto space = must(store.state()->space(kAlice, store::Missing::kCreate));
    assert_int_equal(must(store::Account::open(*space)).bytes(), must(store::usage(store, kAlice)).bytes);
}

// Checkpoints 0 and 1, and something of everything that a collection has to do: chunks of a removed
// checkpoint, chunks that were condemned before checkpoint 1 named them, leases and temporary files of the
// dead.
inline void prepare_garbage(const fs::path &top) {
    const store::Store store = must(store::Store::open(top, options_of_scene()));
    must(write_checkpoint(store, 0));
    must(store.remove(kAlice, must(write_checkpoint(store, 1))));
    {
        auto writer = must(store.begin(request_of(kAlice)));
        must(fill(writer, 1));
        wait_for_content(writer);
        must(store::collect_garbage(store, kAlice, at_once()));
        must(writer.commit());
    }
    must(store.remove(kAlice, must(write_checkpoint(store, 2))));
    const fs::path user = top / "users" / std::to_string(kAlice);
    for (const char *path : {"pending/20260101T000000-dead", "temporary/20260101T000000-dead.0.1"}) {
        std::ofstream(user / path) << "x";
        fs::permissions(user / path, fs::perms::owner_read | fs::perms::owner_write);
    }
}

// Something that is done to a store in a process of its own.
struct Scene {
    const char *name;
    void (*prepare)(const fs::path &top);
    bool (*body)(const fs::path &top); // whether it went well
    // The checkpoints before and after the call that decides.
    bool (*decides)(const Call &call);
    std::multiset<std::uint64_t> before;
    std::multiset<std::uint64_t> after;
    int least; // calls that change something
};

inline std::vector<Scene> scenes() {
    const auto commits = [](const Call &call) { return call.to.find("/checkpoints/") != std::string::npos; };
    const auto writes = []<std::uint64_t kNumber>() {
        return [](const fs::path &top) {
            const auto store = store::Store::open(top, options_of_scene());
            return store && write_checkpoint(*store, kNumber);
        };
    };
    const auto zero = [](const fs::path &top) {
        must(write_checkpoint(must(store::Store::open(top, options_of_scene())), 0));
    };
    return {
        {"first checkpoint", [](const fs::path &) {}, writes.operator()<0>(), commits, {}, {0}, 60},
        {"checkpoint", zero, writes.operator()<1>(), commits, {0}, {0, 1}, 20},
        {"removal",
         zero,
         [](const fs::path &top) {
             const auto store = store::Store::open(top);
             const auto listing = store ? store->list(kAlice) : Expected<store::Listing>();
             return listing && listing->checkpoints.size() == 1 &&
                    store->remove(kAlice, listing->checkpoints[0].id).value_or(false);
         },
         [](const Call &call) { return call.name == "unlinkat"; },
         {0},
         {},
         2},
        {"garbage collection",
         prepare_garbage,
         [](const fs::path &top) {
             auto options = options_of_scene();
             options.lease_timeout = std::chrono::milliseconds(0);
             const auto store = store::Store::open(top, options);
             return store && store::collect_garbage(*store, kAlice, at_once());
         },
         [](const Call &) { return false; },
         {0, 1},
         {0, 1},
         10},
    };
}

} // namespace singularity::test
