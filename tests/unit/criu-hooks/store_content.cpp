// SPDX-License-Identifier: GPL-2.0-or-later
// What goes into the store comes out of it, and equal content takes room once.
#include "account.hpp"
#include "criu-hooks/store/configured.hpp"
#include "store_fixture.hpp"

#include <random>
#include <thread>

namespace {

using namespace singularity;
using namespace singularity::test;
using store::Store;

Store make(const TemporaryDirectory &directory) {
    return must(Store::open(directory.path() / "store", creating()));
}

void round_trip_of_every_size(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    const Bytes data = noise((9 * kMiB) + 17, 1);
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, 4 * kMiB - 1, 4 * kMiB, 4 * kMiB + 1, data.size()}) {
        const auto content = std::span(data).first(size);
        const auto id = save(store, content);
        assert_true(std::ranges::equal(must(load(store, id)), content));
    }
    expect_whole(store);
}

void manifest_keeps_everything(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    auto request = request_of(kAlice);
    request.parent = save(store, noise(1000, 1));
    request.attributes = {
        {"world size", "4"}, {"", std::string("\0\n%s", 4)}, {"job", std::string(8 << 20U, 'j')}};
    auto writer = must(store.begin(request));
    must(writer.describe("node0", "", {{"hostname", "n1"}}));
    must(writer.describe("node0", "GPU-1", {{"kind", "H200"}}));
    write_image(writer, {"node0", "", "core"}, noise(5 * kMiB, 2));
    write_image(writer, {"node0", "GPU-1", "slabs"}, noise(100, 3));
    write_image(writer, {"node1", "GPU-2", "slabs"}, noise(100, 4));
    const auto committed = must(writer.commit());
    const auto read = must(store.manifest(kAlice, committed.id));
    assert_true(read == committed);
    expect_equal(read.parent, request.parent);
    expect_equal(read.job, "4711");
    expect_equal(read.user, "alice");
    expect_equal(read.tier, "standard");
    assert_int_equal(read.uid, kAlice);
    assert_true(read.attributes == request.attributes);
    assert_int_equal(read.nodes.size(), 2);
    expect_equal(read.nodes[0].devices[0].attributes[0].second, "H200");
    assert_int_equal(read.nodes[0].images[0].size(), 5 * kMiB);
    assert_int_equal(read.sizes.content, (5 * kMiB) + 200);
    assert_true(read.sizes.stored >= read.sizes.content);

    const auto listing = must(store.list(kAlice));
    assert_int_equal(listing.checkpoints.size(), 2);
    assert_true(listing.damaged.empty());
    assert_int_equal(listing.checkpoints[0].images + listing.checkpoints[1].images, 4);
    assert_true(must(store.users()) == std::vector<uid_t>{kAlice});
}

// Whoever asks for the newest one gets it, however fast they come.
void the_newest_comes_first(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    std::vector<std::string> ids;
    for (std::uint64_t number = 0; number < 12; ++number)
        ids.insert(ids.begin(), save(store, noise(100, number)));
    const auto listing = must(store.list(kAlice));
    assert_int_equal(listing.checkpoints.size(), ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i)
        expect_equal(listing.checkpoints[i].id, ids[i]);
}

void equal_content_is_stored_once(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    const Bytes data = noise(16 * kMiB, 7);
    auto writer = must(store.begin(request_of(kAlice)));
    // Four replicas, each behind a header of another length: boundaries make their slabs' chunks equal.
    for (std::size_t rank = 0; rank < 4; ++rank) {
        auto image = must(writer.image({"node0", "GPU-" + std::to_string(rank), "slabs"}));
        must(image.append(noise(1000 + rank, 100 + rank)));
        must(image.boundary());
        must(image.append(data));
        must(image.finish());
    }
    const auto first = must(writer.commit());
    assert_true(first.sizes.added < data.size() + (64 << 10U));
    assert_int_equal(first.sizes.added, first.sizes.stored);
    assert_int_equal(files_below(user_directory(directory) / "chunks").size(), 4 + 4);

    // Nothing changed: nothing is added. One byte changed: one chunk is.
    Bytes changed = data;
    auto second = must(store.begin(request_of(kAlice)));
    write_image(second, {"node0", "", "pages"}, changed);
    assert_int_equal(must(second.commit()).sizes.added, 0);
    changed[5 * kMiB] ^= std::byte{1};
    auto third = must(store.begin(request_of(kAlice)));
    write_image(third, {"node0", "", "pages"}, changed);
    const auto progress = third.progress();
    assert_int_equal(progress.given, data.size());
    const auto manifest = must(third.commit());
    assert_true(manifest.sizes.added > 4 * kMiB && manifest.sizes.added < (4 * kMiB) + 100);
    assert_true(must(load(store, manifest.id)) == changed);
    assert_int_equal(must(store::usage(store, kAlice)).chunks, 9);
}

void zeros_are_free(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    auto writer = must(store.begin(request_of(kAlice)));
    auto image = must(writer.image({"node0", "", "pages"}));
    must(image.append(Bytes(100, std::byte{5})));
    must(image.append_zeros(std::uint64_t{40} << 30U)); // 40 GiB
    must(image.append(Bytes(8 * kMiB)));
    must(image.finish());
    const auto manifest = must(writer.commit());
    assert_int_equal(files_below(user_directory(directory) / "chunks").size(), 1);
    assert_true(manifest.sizes.stored < 4096);
    const auto checkpoint = must(store.read(kAlice, manifest.id));
    const auto reader = must(checkpoint.image({"node0", "", "pages"}));
    assert_int_equal(reader.size(), (std::uint64_t{40} << 30U) + 100 + (8 * kMiB));
    Bytes some(300, std::byte{1});
    must(reader.read_at(0, some));
    assert_true(some[99] == std::byte{5} && some[100] == std::byte{0});
    must(reader.read_at(reader.size() - some.size(), some));
    assert_true(some == Bytes(300));
    expect_contains(must_fail(reader.read_at(reader.size() - 1, some)).message(), "300 at");
}

void compression_only_where_it_pays(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    Bytes text(8 * kMiB);
    for (std::size_t i = 0; i < text.size(); ++i)
        text[i] = static_cast<std::byte>(static_cast<unsigned char>("the quick brown fox "[i % 20]) +
                                         ((i / 4096) % 2));
    const auto easy = must(store.manifest(kAlice, save(store, text)));
    assert_true(easy.sizes.stored < text.size() / 10);
    const auto hard = must(store.manifest(kAlice, save(store, noise(8 * kMiB, 3))));
    assert_int_equal(hard.sizes.stored, (8 * kMiB) + 64U);
    assert_true(must(load(store, easy.id)) == text);
    // Files of a store that does not compress are the same content.
    auto options = creating();
    options.compression_level = 0;
    const Store plain = must(Store::open(directory.path() / "store", options));
    assert_int_equal(must(plain.manifest(kAlice, save(plain, text))).sizes.added, 0);
}

void any_part_can_be_read_by_several_threads(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    const Bytes data = noise((30 * kMiB) + 5, 11);
    const auto checkpoint = must(store.read(kAlice, save(store, data)));
    const auto reader = must(checkpoint.image({"node0", "", "pages"}));
    std::vector<std::thread> threads;
    threads.reserve(3);
    std::atomic<int> wrong{0};
    for (unsigned number = 0; number < 3; ++number)
        threads.emplace_back([&, number] {
            std::mt19937_64 random(number);
            for (int round = 0; round < (is_short() ? 8 : 60); ++round) {
                const std::size_t at = random() % data.size();
                Bytes part(
                    std::min<std::size_t>(data.size() - at, random() % (is_short() ? kMiB : 6 * kMiB)));
                if (!reader.read_at(at, part) ||
                    !std::ranges::equal(part, std::span(data).subspan(at, part.size())))
                    ++wrong;
            }
        });
    for (auto &thread : threads)
        thread.join();
    assert_int_equal(wrong, 0);
}

void several_threads_write_one_checkpoint(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    auto writer = must(store.begin(request_of(kAlice)));
    std::vector<std::thread> threads;
    threads.reserve(4);
    std::atomic<int> failed{0};
    for (unsigned rank = 0; rank < 4; ++rank)
        threads.emplace_back([&, rank] {
            auto image = writer.image({"node0", "GPU-" + std::to_string(rank), "slabs"});
            const Bytes same = noise(9 * kMiB, 5);
            const Bytes own = noise(9 * kMiB, 50 + rank);
            if (!image || !image->append(same) || !image->append(own) || !image->finish())
                ++failed;
        });
    for (auto &thread : threads)
        thread.join();
    assert_int_equal(failed, 0);
    const auto manifest = must(writer.commit());
    Bytes expected = noise(9 * kMiB, 5);
    const Bytes own = noise(9 * kMiB, 53);
    expected.insert(expected.end(), own.begin(), own.end());
    assert_true(must(load(store, manifest.id, kAlice, {"node0", "GPU-3", "slabs"})) == expected);
    assert_true(manifest.sizes.added < (56 * kMiB) + 4096); // (2 + 4 * 3) * 4 MiB
}

void parts_of_several_hosts_are_one_checkpoint(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    auto writer = must(store.begin(request_of(kAlice)));
    write_image(writer, {"node0", "", "pages"}, noise(5 * kMiB, 1));
    std::vector<Bytes> parts;
    for (unsigned host = 1; host < 3; ++host) {
        const Store there = must(Store::open(directory.path() / "store"));
        auto joined = must(there.join(kAlice, writer.id()));
        write_image(joined, {"node" + std::to_string(host), "", "pages"}, noise(5 * kMiB, host / 2));
        expect_contains(must_fail(joined.commit()).message(), "only joined");
        auto again = must(there.join(kAlice, writer.id()));
        write_image(again, {"node" + std::to_string(host), "", "pages"}, noise(5 * kMiB, host / 2));
        parts.push_back(must(again.finish_part()));
    }
    for (const Bytes &part : parts)
        must(writer.add_part(part));
    expect_contains(must_fail(writer.add_part(parts[0])).message(), "twice");
    expect_contains(must_fail(writer.add_part(std::span(parts[0]).first(50))).message(),
                    "part of a checkpoint");
    const auto manifest = must(writer.commit());
    assert_int_equal(manifest.nodes.size(), 3);
    assert_true(must(load(store, manifest.id, kAlice, {"node2", "", "pages"})) == noise(5 * kMiB, 1));
    assert_true(manifest.sizes.stored < 12 * kMiB);
    must_fail(store.join(kAlice, manifest.id));
    assert_int_equal(must(store::verify(store, kAlice, manifest.id)).damage.size(), 0);
    collect_all(directory);
}

void what_is_not_committed_is_not_there(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    {
        auto writer = must(store.begin(request_of(kAlice)));
        write_image(writer, {"node0", "", "pages"}, noise(9 * kMiB, 1));
        auto open = must(writer.image({"node0", "", "half"}));
        must(open.append(Bytes(10)));
        expect_contains(must_fail(writer.image({"node0", "", "half"})).message(), "there already");
        expect_contains(must_fail(writer.commit()).message(),
                        "'half' of virtual node 'node0' was not finished");
        must_fail(writer.commit());
    }
    assert_true(must(store.list(kAlice)).checkpoints.empty());
    assert_int_equal(collect_all(directory).removed_chunks, 3);
    must_fail(store.read(kAlice, "20260101T000000-0000000000000000"));
}

void removal_and_collection(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    const auto first = save(store, noise(12 * kMiB, 1));
    Bytes both = noise(8 * kMiB, 1);
    const Bytes more = noise(4 * kMiB, 2);
    both.insert(both.end(), more.begin(), more.end());
    const auto second = save(store, both);
    assert_true(must(store.remove(kAlice, first)));
    assert_false(must(store.remove(kAlice, first)));
    auto report = must(store::collect_garbage(store, kAlice, at_once()));
    assert_int_equal(report.removed_chunks, 1);
    assert_true(report.removed_bytes > 4 * kMiB);
    assert_true(must(load(store, second)) == both);
    expect_tidy(directory);

    // A reader keeps what it reads although the checkpoint is removed.
    {
        const auto checkpoint = must(store.read(kAlice, second));
        assert_true(must(store.remove(kAlice, second)));
        report = must(store::collect_garbage(store, kAlice, at_once()));
        assert_int_equal(report.removed_chunks, 0);
        assert_int_equal(report.waiting, 3);
        assert_int_equal(report.writers, 1);
        auto reader = must(checkpoint.image({"node0", "", "pages"}));
        Bytes content(both.size());
        assert_int_equal(must(reader.read(content)), content.size());
        assert_true(content == both);
    }
    report = must(store::collect_garbage(store, kAlice, at_once()));
    assert_int_equal(report.removed_chunks, 3);
    expect_tidy(directory);

    // Young chunks and those that other hosts may still see wait.
    must(store.remove(kAlice, save(store, noise(4 * kMiB, 9))));
    auto options = at_once();
    options.grace = std::chrono::hours(1);
    assert_int_equal(must(store::collect_garbage(store, kAlice, options)).condemned, 0);
    options = at_once();
    options.settle = std::chrono::hours(1);
    report = must(store::collect_garbage(store, kAlice, options));
    assert_int_equal(report.condemned, 1);
    assert_int_equal(report.waiting, 1);
    report = must(store::collect_garbage(store, kAlice, options));
    assert_int_equal(report.waiting, 1);
    assert_int_equal(must(store::collect_garbage(store, kAlice, at_once())).removed_chunks, 1);
    expect_tidy(directory);
}

void collection_can_be_cancelled(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    must(store.remove(kAlice, save(store, noise(40 * kMiB, 1))));
    for (int calls = 0;; ++calls) {
        auto options = at_once();
        int left = calls;
        options.progress = [&left](const store::Phase &) { return left-- > 0; };
        const auto report = must(store::collect_garbage(store, kAlice, options));
        expect_whole(store);
        if (report.complete)
            break;
        assert_true(calls < 10000);
        calls += 40;
    }
    expect_tidy(directory);
    assert_true(files_below(user_directory(directory) / "chunks").empty());
}

Store make_with_quota(const TemporaryDirectory &directory, std::uint64_t quota) {
    auto options = creating();
    options.quota = quota;
    return must(Store::open(directory.path() / "store", options));
}

void quota_is_kept(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make_with_quota(directory, 20 * kMiB);
    const Bytes data = noise(12 * kMiB, 1);
    save(store, data);
    save(store, data); // the same bytes are counted once
    auto writer = must(store.begin(request_of(kAlice)));
    auto image = must(writer.image({"node0", "", "pages"}));
    Expected<void> appended;
    for (std::uint64_t seed = 2; appended && seed < 20; ++seed)
        appended = image.append(noise(4 * kMiB, seed));
    if (appended)
        appended = image.finish();
    const auto refused = must_fail(writer.commit());
    assert_int_equal(refused.code, EDQUOT);
    expect_contains(refused.message(), "user 'alice' (uid 1001) may keep 20971520 bytes (20.0 MiB)");
    expect_contains(refused.message(), "has 12.0 MiB there in 2 checkpoints");
    expect_contains(refused.message(), "raise store.quota_gib");
    assert_int_equal(must(store.list(kAlice)).checkpoints.size(), 2);
    // What an unsuccessful writer left is not charged, goes with the next collection, and another user's use
    // makes no difference.
    assert_true(must(store::usage(store, kAlice)).bytes < 13 * kMiB);
    save(store, data, request_of(kBob));
    save(store, noise(4 * kMiB, 2));
    assert_int_equal(must(store.list(kAlice)).checkpoints.size(), 3);
    expect_tidy(directory);
    collect_all(directory);

    // Two that each fit alone: the second to commit is refused.
    auto one = must(store.begin(request_of(kBob)));
    auto two = must(store.begin(request_of(kBob)));
    write_image(one, {"node0", "", "pages"}, noise(5 * kMiB, 30));
    write_image(two, {"node0", "", "pages"}, noise(5 * kMiB, 31));
    must(one.commit());
    assert_int_equal(must_fail(two.commit()).code, EDQUOT);
    // And once something was removed there is room again.
    must(store.remove(kBob, one.id()));
    save(store, noise(5 * kMiB, 31), request_of(kBob));
}

void quota_counts_what_other_hosts_wrote(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make_with_quota(directory, 8 * kMiB);
    // Too much on one host: it learns that at once.
    auto writer = must(store.begin(request_of(kAlice)));
    auto joined = must(store.join(kAlice, writer.id()));
    auto image = must(joined.image({"node1", "", "pages"}));
    auto written = image.append(noise(9 * kMiB, 1));
    if (written)
        written = image.finish();
    const auto refused = written ? must_fail(joined.finish_part()) : written.error();
    assert_int_equal(refused.code, EDQUOT);
    expect_contains(refused.message(), "uid 1001 may keep 8388608 bytes");
    // Too much together: the one that commits does.
    auto other = must(store.join(kAlice, writer.id()));
    write_image(other, {"node1", "", "pages"}, noise(5 * kMiB, 2));
    must(writer.add_part(must(other.finish_part())));
    write_image(writer, {"node0", "", "pages"}, noise(5 * kMiB, 3));
    assert_int_equal(must_fail(writer.commit()).code, EDQUOT);
    assert_true(must(store.list(kAlice)).checkpoints.empty());
}

void quota_of_the_configuration(void ** /*state*/) {
    assert_int_equal(store::configured({}).quota, 0);
    assert_int_equal(store::configured({.directory = "/x", .others = {}, .quota_gib = 500}).quota,
                     std::uint64_t{500} << 30U);
}

// And what nobody takes, a collection finds.
void parts_go_through_the_store(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    const auto temporary = directory.path() / "store/users/1001/temporary";
    auto writer = must(store.begin(request_of(kAlice)));
    const auto leave = [&](const std::string &node) {
        auto joined = must(store.join(kAlice, writer.id()));
        write_image(joined, {node, "", "pages"}, noise(5 * kMiB, 7));
        return must(joined.leave_part());
    };
    const auto name = leave("node1");
    must(writer.take_part(name));
    assert_false(std::filesystem::exists(temporary / name));
    assert_int_equal(must_fail(writer.take_part(name)).code, ENOENT);
    auto other = must(store.begin(request_of(kAlice)));
    const auto left = leave("node2");
    expect_contains(must_fail(other.take_part(left)).message(), "no part of it");
    expect_contains(must_fail(writer.take_part(writer.id() + ".part./../x")).message(), "");
    other.abort();
    const auto manifest = must(writer.commit());
    assert_int_equal(manifest.nodes.size(), 1);
    assert_true(std::filesystem::exists(temporary / left));
    collect_all(directory);
    assert_false(std::filesystem::exists(temporary / left));
}

// What is known of use without reading manifests again is what reading them all says.
void use_is_known_without_reading_everything(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make_with_quota(directory, std::uint64_t{1} << 40U);
    const fs::path account = user_directory(directory) / "usage" / "named";
    std::mt19937 random(7);
    std::vector<std::string> there;
    const auto check = [&] {
        const auto space = must(store.state()->space(kAlice, store::Missing::kRefuse));
        const auto known = must(store::Account::open(*space));
        const auto used = must(store::usage(store, kAlice));
        assert_int_equal(known.bytes(), used.bytes);
        assert_int_equal(known.checkpoints(), used.checkpoints);
        const auto again = store::Account::decode(known.encode());
        assert_true(again && again->encode() == known.encode() && again->bytes() == used.bytes);
    };
    for (int round = 0; round < 40; ++round) {
        // Some of ten small chunks that all share, in some order, zeros and one of its own.
        auto writer = must(store.begin(request_of(kAlice)));
        auto image = must(writer.image({"node0", "", "pages"}));
        for (int part = 0; part < 6; ++part) {
            must(image.append(noise(500, random() % 10)));
            must(image.boundary());
        }
        must(image.append_zeros(5000));
        must(image.boundary());
        must(image.append(noise(300, 100 + static_cast<std::uint64_t>(round))));
        must(image.finish());
        there.push_back(must(writer.commit()).id);
        while (random() % 3 == 0 && !there.empty()) {
            const std::size_t which = random() % there.size();
            must(store.remove(kAlice, there[which]));
            there.erase(there.begin() + static_cast<std::ptrdiff_t>(which));
        }
        if (round % 4 == 0)
            check();
        if (round == 20)
            fs::remove(account);
        if (round == 30) {
            fs::resize_file(account, fs::file_size(account) - 1);
            const auto report = must(store::verify_all(store, kAlice, false));
            assert_int_equal(report.damage.size(), 1);
            expect_contains(report.damage[0].message(), "the next checkpoint with a quota writes it anew");
        }
    }
    check();
    expect_whole(store);
    // A manifest that is known is not read again: damaged, it still counts.
    const auto before = must(store::usage(store, kAlice)).bytes;
    fs::resize_file(user_directory(directory) / "checkpoints" / there.at(0), 10);
    const auto space = must(store.state()->space(kAlice, store::Missing::kRefuse));
    assert_int_equal(must(store::Account::open(*space)).bytes(), before);
    // Small: the manifests' chunks are named in runs.
    assert_true(fs::file_size(account) < std::uintmax_t{40} * 120);
}

void users_share_nothing(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    const Bytes data = noise(8 * kMiB, 1);
    const auto alice = save(store, data);
    auto writer = must(store.begin(request_of(kBob)));
    write_image(writer, {"node0", "", "pages"}, data);
    const auto bob = must(writer.commit());
    assert_int_equal(bob.sizes.added, bob.sizes.stored); // as if alice had stored nothing
    must_fail(store.read(kBob, alice));
    must_fail(store.manifest(kBob, alice));
    assert_false(must(store.remove(kBob, alice)));
    assert_true(must(store.remove(kAlice, alice)));
    must(store::collect_garbage(store, kAlice, at_once()));
    assert_true(must(load(store, bob.id, kBob)) == data);

    // A manifest that someone copied to another user's place is not believed.
    const auto from = user_directory(directory, kBob) / "checkpoints" / bob.id;
    fs::copy_file(from, user_directory(directory) / "checkpoints" / bob.id);
    expect_contains(must_fail(store.manifest(kAlice, bob.id)).message(), "it is one of uid 1002");
    fs::copy_file(from, user_directory(directory, kBob) / "checkpoints" / "20260101T000000-other");
    expect_contains(must_fail(store.manifest(kBob, "20260101T000000-other")).message(), "that of checkpoint");
}

void names_are_data(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = make(directory);
    const std::string all_bytes = [] {
        std::string text;
        for (int c = 0; c < 256; ++c)
            text += static_cast<char>(c);
        return text;
    }();
    const std::vector<std::string> names{
        "../../../../etc/passwd", "/etc/shadow", "%s%n%n{}{0}", "", ".", "..",
        std::string("a\0b", 3),   "\x1b[2J\n",   all_bytes};
    const auto before = files_below(directory.path() / "store");
    auto request = request_of(kAlice, names[2]);
    request.user = names[0];
    request.tier = names[7];
    auto writer = must(store.begin(request));
    for (std::size_t i = 0; i < names.size(); ++i)
        write_image(writer, {names[i], names[names.size() - 1 - i], names[i]}, noise(100, i));
    const auto manifest = must(writer.commit());
    expect_equal(must(store.manifest(kAlice, manifest.id)).user, names[0]);
    for (std::size_t i = 0; i < names.size(); ++i)
        assert_true(must(load(store, manifest.id, kAlice,
                              {names[i], names[names.size() - 1 - i], names[i]})) == noise(100, i));
    assert_int_equal(files_below(directory.path() / "store").size(), before.size() + names.size() + 1);
    for (const std::string &id : names) {
        must_fail(store.manifest(kAlice, id));
        must_fail(store.read(kAlice, id));
        must_fail(store.remove(kAlice, id));
        must_fail(store.join(kAlice, id));
        must_fail(store::verify(store, kAlice, id));
    }
    request.parent = "../x";
    must_fail(store.begin(request));
    request.parent.clear();
    request.user = std::string(100'000, 'u');
    auto long_name = must(store.begin(request));
    expect_contains(must_fail(long_name.commit()).message(), "100000 bytes");
    const auto missing = must_fail(load(store, manifest.id, kAlice, {"\x1b[2J", "", "x"}));
    assert_true(missing.message().find('\x1b') == std::string::npos);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(round_trip_of_every_size),
        cmocka_unit_test(manifest_keeps_everything),
        cmocka_unit_test(the_newest_comes_first),
        cmocka_unit_test(equal_content_is_stored_once),
        cmocka_unit_test(zeros_are_free),
        cmocka_unit_test(compression_only_where_it_pays),
        cmocka_unit_test(any_part_can_be_read_by_several_threads),
        cmocka_unit_test(several_threads_write_one_checkpoint),
        cmocka_unit_test(parts_of_several_hosts_are_one_checkpoint),
        cmocka_unit_test(parts_go_through_the_store),
        cmocka_unit_test(what_is_not_committed_is_not_there),
        cmocka_unit_test(removal_and_collection),
        cmocka_unit_test(collection_can_be_cancelled),
        cmocka_unit_test(quota_is_kept),
        cmocka_unit_test(quota_counts_what_other_hosts_wrote),
        cmocka_unit_test(quota_of_the_configuration),
        cmocka_unit_test(use_is_known_without_reading_everything),
        cmocka_unit_test(users_share_nothing),
        cmocka_unit_test(names_are_data),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
