// SPDX-License-Identifier: GPL-2.0-or-later
// BLAKE3 against the specification's test vectors, and the ways of computing it against each other.
#include "cmocka.hpp"
#include "criu-hooks/store/hash.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <random>
#include <span>
#include <string_view>
#include <vector>

namespace {

using namespace singularity;
using store::Hash;
using store::hash_of;
using store::Hasher;
using test::expect_equal;
using test::is_short;

// The input of the specification's test vectors: 0, 1, ..., 250, 0, 1, ...
std::vector<std::byte> pattern(std::size_t size) {
    std::vector<std::byte> data(size);
    for (std::size_t i = 0; i < size; ++i)
        data[i] = static_cast<std::byte>(i % 251);
    return data;
}

struct Vector {
    std::size_t size;
    std::string_view hash;
};

// test_vectors.json of the reference implementation, first 32 bytes of "hash".
constexpr Vector kVectors[] = {
    {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
    {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
    {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
    {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
    {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
    {2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
    {2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"},
    {3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"},
    {3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3"},
    {4096, "015094013f57a5277b59d8475c0501042c0b642e531b0a1c8f58d2163229e969"},
    {4097, "9b4052b38f1c5fc8b1f9ff7ac7b27cd242487b3d890d15c96a1c25b8aa0fb995"},
    {5121, "628bd2cb2004694adaab7bbd778a25df25c47b9d4155a55f8fbd79f2fe154cff"},
    {7169, "a003fc7a51754a9b3c7fae0367ab3d782dccf28855a03d435f8cfe74605e7817"},
    {8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b"},
    {16384, "f875d6646de28985646f34ee13be9a576fd515f76b5b0a26bb324735041ddde4"},
    {31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
    {102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"},
};

void test_vectors(void ** /*state*/) {
    for (const Vector &vector : kVectors)
        expect_equal(hash_of(pattern(vector.size)).hex(), vector.hash);
}

void pieces_make_no_difference(void ** /*state*/) {
    std::mt19937 random(4711);
    for (int round = 0; round < (is_short() ? 40 : 200); ++round) {
        const auto data = pattern(random() % 100'000);
        Hasher hasher;
        std::span<const std::byte> rest(data);
        while (!rest.empty()) {
            const auto piece = std::min<std::size_t>(rest.size(), random() % 5000);
            hasher.update(rest.first(piece));
            rest = rest.subspan(piece);
        }
        expect_equal(hasher.finish().hex(), hash_of(data).hex());
    }
}

// The kernels for many lanes take over at 4, 8 and 16 leaves; one leaf at a time never uses them.
void kernels_agree_with_single_leaves(void ** /*state*/) {
    for (std::size_t leaves = 1; leaves < 70; ++leaves) {
        for (const std::size_t extra : {std::size_t{0}, std::size_t{1}, std::size_t{1023}}) {
            const auto data = pattern((leaves * 1024) + extra);
            Hasher hasher;
            for (std::size_t at = 0; at < data.size(); at += 1024)
                hasher.update(std::span(data).subspan(at, std::min<std::size_t>(1024, data.size() - at)));
            expect_equal(hasher.finish().hex(), hash_of(data).hex());
        }
    }
}

void every_bit_counts(void ** /*state*/) {
    auto data = pattern(std::size_t{64} * 1024);
    const Hash original = hash_of(data);
    std::mt19937 random(1);
    for (int round = 0; round < (is_short() ? 60 : 300); ++round) {
        const std::size_t bit = random() % (data.size() * 8);
        data[bit / 8] ^= std::byte(1U << (bit % 8));
        assert_true(hash_of(data) != original);
        data[bit / 8] ^= std::byte(1U << (bit % 8));
    }
    assert_true(hash_of(data) == original);
}

void hexadecimal_and_back(void ** /*state*/) {
    const Hash hash = hash_of(pattern(10));
    const auto back = Hash::from_hex(hash.hex());
    assert_true(back && *back == hash);
    assert_false(Hash::from_hex("").has_value());
    assert_false(Hash::from_hex(hash.hex() + "0").has_value());
    std::string upper = hash.hex();
    upper[5] = 'G';
    assert_false(Hash::from_hex(upper).has_value());
    upper[5] = 'A'; // one name per chunk: the other case is another file
    assert_false(Hash::from_hex(upper).has_value());
}

} // namespace

int main() {
    const auto data = pattern(std::size_t{is_short() ? 8U : 64U} << 20U);
    const auto start = std::chrono::steady_clock::now();
    const Hash hash = hash_of(data);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    print_message("%s kernel: %.2f GB/s (%s)\n", std::string(store::hash_kernel()).c_str(),
                  static_cast<double>(data.size()) / taken.count() / 1e9, hash.hex().c_str());
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(pieces_make_no_difference),
        cmocka_unit_test(kernels_agree_with_single_leaves),
        cmocka_unit_test(every_bit_counts),
        cmocka_unit_test(hexadecimal_and_back),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
