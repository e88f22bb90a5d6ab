// SPDX-License-Identifier: GPL-2.0-or-later
// Files of the store that somebody has made up: manifests, parts of manifests, accounts, rounds and chunks,
// mutated from well-formed ones by a generator with a seed (argument 1), most of them with a hash that is
// right again. Nothing must break, and what is accepted must be exactly what the store itself would have
// written.
#include "account.hpp"
#include "chunk_file.hpp"
#include "manifest_file.hpp"
#include "rounds.hpp"
#include "store_fixture.hpp"

#include <random>

#include <sys/mman.h>

namespace {

using namespace singularity;
using namespace singularity::test;

std::uint64_t seed = 1;
const int kInputs = is_short() ? 1'000 : 30'000;

void append(Bytes &to, std::span<const std::byte> more) { to.insert(to.end(), more.begin(), more.end()); }

class Mutator {
  public:
    explicit Mutator(std::vector<Bytes> originals) : originals_(std::move(originals)), random_(seed) {}

    // One of the originals, changed in one to four places; some as they are.
    Bytes next() {
        Bytes data = originals_[random_() % originals_.size()];
        const auto changes = random_() % 5;
        for (std::uint64_t change = 0; change < changes && !data.empty(); ++change)
            mutate(data);
        return data;
    }
    [[nodiscard]] bool chance(unsigned of) { return random_() % of == 0; }

  private:
    static constexpr std::uint32_t kEdges[] = {
        0,        1,        2,        7,        8,        0x20,       0x10000,    0x10001,    0x100000,
        0x100001, 0x400000, 0x400001, 0x400020, 0x400021, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};

    void mutate(Bytes &data) {
        const std::size_t at = random_() % data.size();
        const std::size_t length = std::min<std::size_t>(data.size() - at, 1 + (random_() % 40));
        const auto begin = data.begin() + static_cast<std::ptrdiff_t>(at);
        const auto end = begin + static_cast<std::ptrdiff_t>(length);
        switch (random_() % 6) {
        case 0:
            data[at] ^= static_cast<std::byte>(1U << (random_() % 8));
            break;
        case 1: // a number that is at the edge of something
            if (data.size() - at >= sizeof kEdges[0])
                std::memcpy(data.data() + at, &kEdges[random_() % std::size(kEdges)], sizeof kEdges[0]);
            break;
        case 2:
            data.erase(begin, end);
            break;
        case 3: {
            const Bytes copy(begin, end);
            data.insert(data.begin() + static_cast<std::ptrdiff_t>(random_() % data.size()), copy.begin(),
                        copy.end());
            break;
        }
        case 4:
            data.resize(at);
            break;
        default: {
            const Bytes &other = originals_[random_() % originals_.size()];
            append(data, std::span(other).subspan(random_() % other.size()));
        }
        }
    }

    std::vector<Bytes> originals_;
    std::mt19937_64 random_;
};

class MemoryFile {
  public:
    MemoryFile() : file_(::memfd_create("store-fuzz", MFD_CLOEXEC)) { assert_true(file_.get() >= 0); }

    const UniqueFd &with(std::span<const std::byte> data) {
        assert_int_equal(::ftruncate(file_.get(), 0), 0);
        must(store::write_all(file_, data, 0, "memory"));
        return file_;
    }
    Bytes content() {
        struct stat status{};
        assert_int_equal(::fstat(file_.get(), &status), 0);
        Bytes data(static_cast<std::size_t>(status.st_size));
        must(store::read_all(file_, data, 0, "memory"));
        return data;
    }
    [[nodiscard]] const UniqueFd &get() const { return file_; }

  private:
    UniqueFd file_;
};

store::Chunk chunk_of(std::uint64_t number, std::uint32_t size) {
    if (number % 3 == 0)
        return {{}, size, 0}; // zeros
    return {store::hash_of(noise(8, number)), size, (size / 2) + 40};
}

store::Manifest manifest_of(std::uint64_t number) {
    store::Manifest manifest{.id = "20261121T101500-6b1c04f2a93e7d58",
                             .parent = number % 2 == 0 ? "" : "20261121T101400-6b1c04f2a93e7d58",
                             .job = "4711",
                             .uid = 1001,
                             .gid = 1001,
                             .user = "alice",
                             .tier = "standard",
                             .time = 1'795'000'000,
                             .sizes = {1, 2, 3, 4},
                             .attributes = {{"world size", "4"}, {"", "x"}},
                             .nodes = {}};
    for (std::uint64_t node = 0; node < number; ++node) {
        store::VirtualNode one{"node" + std::to_string(node), {{"hostname", "n1"}}, {}, {}};
        one.images.push_back(
            {"pages", {chunk_of(node, 4 << 20U), chunk_of(node + 1, 4 << 20U), chunk_of(3, 17)}});
        one.images.push_back({"core", {}});
        one.devices.push_back({"GPU-1", {}, {{"slabs", {chunk_of(7, 4096)}}}});
        manifest.nodes.push_back(std::move(one));
    }
    return manifest;
}

void with_right_hash(Bytes &data) {
    const auto hash = store::hash_of(std::span(data).first(data.size() - store::Hash::kSize));
    std::ranges::copy(hash.bytes, data.end() - static_cast<std::ptrdiff_t>(store::Hash::kSize));
}

void expect_message(const Error &error) {
    const std::string message = error.message();
    assert_true(message.size() > 20 && message.size() < 2000);
    assert_true(message.find_first_of("\n\x1b") == std::string::npos);
}

void report(const char *what, int accepted) {
    print_message("%s: %d inputs of seed %llu, %d accepted\n", what, kInputs,
                  static_cast<unsigned long long>(seed), accepted);
}

void manifests(void ** /*state*/) {
    MemoryFile file;
    std::vector<Bytes> originals;
    for (const std::uint64_t number : {0U, 1U, 3U}) {
        const auto manifest = manifest_of(number);
        must(store::write_manifest(file.with({}), "memory", manifest));
        originals.push_back(file.content());
        assert_true(must(store::read_manifest(file.get(), "memory")) == manifest);
    }
    Mutator mutator(std::move(originals));
    MemoryFile again;
    int accepted = 0;
    for (int input = 0; input < kInputs; ++input) {
        Bytes data = mutator.next();
        if (data.size() >= store::Hash::kSize && !mutator.chance(5))
            with_right_hash(data);
        const auto manifest = store::read_manifest(file.with(data), "memory");
        if (!manifest) {
            expect_message(manifest.error());
            continue;
        }
        ++accepted;
        must(store::write_manifest(again.with({}), "memory", *manifest));
        assert_true(again.content() == data);
    }
    report("manifests", accepted);
    assert_true(accepted > kInputs / 10 && accepted < kInputs);
}

void parts_of_manifests(void ** /*state*/) {
    Mutator mutator({store::encode_nodes(manifest_of(1).nodes), store::encode_nodes(manifest_of(3).nodes)});
    int accepted = 0;
    for (int input = 0; input < kInputs; ++input) {
        const Bytes data = mutator.next();
        const auto nodes = store::decode_nodes(data);
        if (!nodes) {
            expect_message(nodes.error());
            continue;
        }
        ++accepted;
        assert_true(store::encode_nodes(*nodes) == data);
    }
    report("parts of manifests", accepted);
    assert_true(accepted > kInputs / 10 && accepted < kInputs);
}

// What a user of the store finds there, in a store that is real.
struct Place {
    Place() : store(must(store::Store::open(directory.path() / "store", creating()))) {
        save(store, noise(100, 1));
        auto text = Bytes(9000, std::byte{'a'});
        save(store, text);
        space = must(store.state()->space(kAlice, store::Missing::kRefuse));
    }
    TemporaryDirectory directory;
    store::Store store;
    std::shared_ptr<store::UserSpace> space;
};

void accounts(void ** /*state*/) {
    const Place place;
    Mutator mutator({must(store::Account::open(*place.space)).encode(), store::Account().encode()});
    int accepted = 0;
    for (int input = 0; input < kInputs; ++input) {
        Bytes data = mutator.next();
        if (data.size() >= store::Hash::kSize && !mutator.chance(5))
            with_right_hash(data);
        auto account = store::Account::decode(data);
        if (!account)
            continue;
        ++accepted;
        // Whatever it says, it follows what is there.
        must(account->refresh(*place.space));
        assert_int_equal(account->checkpoints(), 2);
    }
    report("accounts", accepted);
    assert_true(accepted > kInputs / 20 && accepted < kInputs);
}

void rounds(void ** /*state*/) {
    const Place place;
    const std::string name = store::hash_of({}).hex() + ".0123456789abcdef";
    must(store::write_rounds(*place.space, {{}, false, {"read-1234", place.store.state()->top.path()}, {}},
                             {&name, 1}));
    must(store::write_rounds(*place.space, {{}, true, {}, {}}, {&name, 1}));
    std::vector<Bytes> originals;
    for (const fs::path &path : files_below(user_directory(place.directory) / "rounds")) {
        originals.push_back(read_file(path));
        fs::remove(path);
    }
    for (const char *trick : {"file ../../../store\n", "file ./x\n", "lease ../checkpoints\n", "file \n"}) {
        Bytes &longer = originals.emplace_back(originals[0]);
        const auto bytes = std::as_bytes(std::span(trick, std::strlen(trick)));
        longer.insert(longer.begin() + 39, bytes.begin(), bytes.end());
    }
    const auto before = files_below(place.directory.path());
    Mutator mutator(std::move(originals));
    int accepted = 0;
    const fs::path path = user_directory(place.directory) / "rounds" / "round-1";
    for (int input = 0; input < kInputs / 20; ++input) {
        Bytes data = mutator.next();
        constexpr std::size_t kLine = 5 + 64 + 1; // "hash ...\n"
        if (data.size() >= kLine && !mutator.chance(5)) {
            const std::string hash =
                "hash " + store::hash_of(std::span(data).first(data.size() - kLine)).hex() + "\n";
            std::ranges::copy(std::as_bytes(std::span(hash)),
                              data.end() - static_cast<std::ptrdiff_t>(kLine));
        }
        write_file(path, data);
        accepted += static_cast<int>(must(store::read_rounds(*place.space)).whole.size());
        if (const auto collected = store::collect_garbage(place.store, kAlice, at_once()); !collected)
            expect_message(collected.error());
        fs::remove(path);
        assert_true(files_below(place.directory.path()) == before);
    }
    print_message("rounds: %d inputs of seed %llu, %d accepted\n", kInputs / 20,
                  static_cast<unsigned long long>(seed), accepted);
    assert_true(accepted > kInputs / 400);
    expect_whole(place.store);
}

void chunks(void ** /*state*/) {
    const Place place;
    std::vector<Bytes> originals;
    std::vector<fs::path> paths = files_below(user_directory(place.directory) / "chunks");
    originals.reserve(paths.size());
    for (const fs::path &path : paths)
        originals.push_back(read_file(path));
    const fs::path path = paths[0];
    const auto hash = store::Hash::from_hex(path.filename().native());
    const auto *shard = must(place.space->shard(*hash));
    Mutator mutator(originals);
    store::Scratch scratch;
    int accepted = 0;
    for (int input = 0; input < kInputs / 20; ++input) {
        const Bytes data = mutator.next();
        write_file(path, data);
        const auto checked = store::check_chunk_file(*shard, path.filename(), *hash, scratch);
        if (!checked) {
            expect_message(checked.error());
            continue;
        }
        ++accepted;
        assert_true(data == originals[0]);
    }
    print_message("chunks: %d inputs of seed %llu, %d accepted\n", kInputs / 20,
                  static_cast<unsigned long long>(seed), accepted);
    write_file(path, originals[0]);
    expect_whole(place.store);
}

// As many runs as a file has room for, each of which names all chunks, take no longer than reading them; one
// that names none is refused.
void overlapping_runs(void ** /*state*/) {
    const auto account = [](std::uint32_t entries, std::uint32_t runs, std::uint32_t first,
                            std::uint32_t count) {
        Bytes data;
        const auto number = [&data](auto value) { append(data, std::as_bytes(std::span(&value, 1))); };
        append(data, std::as_bytes(std::span(std::string_view("singularity-used"))));
        number(std::uint32_t{1});
        number(entries);
        for (std::uint64_t prefix = 0; prefix < entries; ++prefix) {
            number(prefix);
            number(std::uint32_t{1});
        }
        number(std::uint32_t{1});
        number(std::uint32_t{1});
        append(data, std::as_bytes(std::span(std::string_view("x"))));
        number(runs);
        for (std::uint32_t run = 0; run < runs; ++run) {
            number(first);
            number(count);
        }
        data.resize(data.size() + store::Hash::kSize);
        with_right_hash(data);
        return store::Account::decode(data);
    };
    constexpr std::uint32_t kMany = 1U << 19;
    const auto many = account(kMany, kMany, 0, kMany);
    assert_true(many && many->bytes() == kMany);
    assert_int_equal(account(4, 2, 1, 2)->bytes(), 2);
    assert_false(account(4, 1, 4, 0).has_value());
    assert_false(account(4, 1, 3, 2).has_value());
}

// What a few bytes promise is not believed: neither memory nor time goes into it.
void promises(void ** /*state*/) {
    MemoryFile file;
    rusage before{};
    assert_int_equal(::getrusage(RUSAGE_SELF, &before), 0);
    must(store::write_manifest(file.with({}), "memory", manifest_of(1)));
    const Bytes whole = file.content();
    for (std::size_t at = 20; at + 4 < whole.size(); ++at) {
        Bytes data = whole;
        const std::uint32_t many = 0x0fffff;
        std::memcpy(data.data() + at, &many, sizeof many);
        with_right_hash(data);
        (void)store::read_manifest(file.with(data), "memory");
    }
    for (const off_t size : {off_t{1} << 30U, off_t{1} << 45U}) {
        (void)file.with(whole);
        assert_int_equal(::ftruncate(file.get().get(), size), 0);
        expect_contains(must_fail(store::read_manifest(file.get(), "memory")).message(),
                        "more than any manifest");
    }
    rusage after{};
    assert_int_equal(::getrusage(RUSAGE_SELF, &after), 0);
    if (!kSanitized)
        assert_true(after.ru_maxrss - before.ru_maxrss < 64 << 10);
}

// Whole and well hashed, but nothing that a writer writes.
void lies(void ** /*state*/) {
    MemoryFile file;
    const auto refused = [&file](const char *says, auto change) {
        auto manifest = manifest_of(2);
        change(manifest);
        expect_contains(must_fail(store::write_manifest(file.with({}), "memory", manifest)).message(), says);
    };
    refused("no id of a checkpoint", [](store::Manifest &manifest) { manifest.id = "../../etc"; });
    refused("which is no id", [](store::Manifest &manifest) { manifest.parent = "\x1b[2J"; });
    refused("its time is",
            [](store::Manifest &manifest) { manifest.time = std::numeric_limits<std::int64_t>::max(); });
    refused("its time is", [](store::Manifest &manifest) { manifest.time = -1; });
    refused("same name", [](store::Manifest &manifest) { manifest.nodes[1].name = "node0"; });
    refused("same name", [](store::Manifest &manifest) { manifest.nodes[1].images[1].name = "pages"; });
    refused("same name", [](store::Manifest &manifest) {
        manifest.nodes[1].devices.push_back(manifest.nodes[1].devices[0]);
    });
    refused("in a file of",
            [](store::Manifest &manifest) { manifest.nodes[0].images[0].chunks[1].stored = 0x7fffffff; });
    refused("a chunk of 0 bytes",
            [](store::Manifest &manifest) { manifest.nodes[0].images[0].chunks[1].size = 0; });
}

} // namespace

int main(int argc, char **argv) {
    in_memory();
    if (argc > 1)
        seed = std::strtoull(argv[1], nullptr, 10);
    const CMUnitTest tests[] = {
        cmocka_unit_test(manifests), cmocka_unit_test(parts_of_manifests),
        cmocka_unit_test(accounts),  cmocka_unit_test(rounds),
        cmocka_unit_test(chunks),    cmocka_unit_test(overlapping_runs),
        cmocka_unit_test(promises),  cmocka_unit_test(lies),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
