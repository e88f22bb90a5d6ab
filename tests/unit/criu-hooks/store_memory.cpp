// SPDX-License-Identifier: GPL-2.0-or-later
// Content of any size goes through the store in bounded memory: 2 GB written, verified and read back while
// the process's largest resident set stays below 256 MB.
#include "store_fixture.hpp"

namespace {

using namespace singularity;
using namespace singularity::test;
using store::Store;

constexpr std::size_t kPiece = 1'000'000; // no divisor of a chunk
constexpr std::uint64_t kPieces = kSanitized ? 60 : 2000;
constexpr long kMostKiB = 256L << 10U;

// Half of it is noise, half compresses.
Bytes piece(std::uint64_t number) {
    Bytes data = noise(kPiece, number);
    if (number % 2 == 0)
        for (std::size_t i = 0; i < data.size(); ++i)
            data[i] = static_cast<std::byte>(std::to_integer<unsigned>(data[i & ~std::size_t{63}]));
    return data;
}

// Since the beginning of the program, in KiB.
long peak() {
    rusage usage{};
    assert_int_equal(::getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

void two_gigabytes(void ** /*state*/) {
    const TemporaryDirectory directory;
    auto options = creating();
    options.threads = 8; // as many as there are at most: each has buffers of its own
    const Store store = must(Store::open(directory.path() / "store", options));
    auto writer = must(store.begin(request_of(kAlice)));
    auto image = must(writer.image({"node0", "", "pages"}));
    for (std::uint64_t number = 0; number < kPieces; ++number)
        must(image.append(piece(number)));
    must(image.finish());
    const auto id = must(writer.commit()).id;
    print_message("written: %ld MiB\n", peak() >> 10U);

    assert_int_equal(must(store::verify(store, kAlice, id)).damage.size(), 0);
    print_message("verified: %ld MiB\n", peak() >> 10U);

    const auto checkpoint = must(store.read(kAlice, id));
    auto reader = must(checkpoint.image({"node0", "", "pages"}));
    assert_int_equal(reader.size(), kPieces * kPiece);
    Bytes data(kPiece);
    for (std::uint64_t number = 0; number < kPieces; ++number) {
        assert_int_equal(must(reader.read(data)), data.size());
        assert_true(data == piece(number));
    }
    assert_int_equal(must(reader.read(data)), 0);
    print_message("read: %ld MiB\n", peak() >> 10U);
    if (!kSanitized)
        assert_true(peak() < kMostKiB);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(two_gigabytes)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
