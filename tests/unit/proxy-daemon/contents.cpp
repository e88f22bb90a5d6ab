// SPDX-License-Identifier: GPL-2.0-or-later
// What chunks of memory contain, and that nobody's content changes because others have the same: on the
// software GPU, or on the driver library that SINGULARITY_TEST_DRIVER names.
#include "contents.hpp"

#include "cmocka.hpp"
#include "digest_kernel.hpp"
#include "need.hpp"
#include "shared_slabs.hpp"
#include "slabs.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace singularity;
using proxyd::Contents;
using proxyd::Digest;
using proxyd::HostCopy;
using proxyd::SharedSlab;
using proxyd::SharedSlabs;
using proxyd::Slabs;
using singularity::test::fail;
using singularity::test::need;

constexpr std::uint64_t kChunk = std::uint64_t{2} << 20; // as small as a driver has them
constexpr std::uint64_t kContext = 1;

void succeeds(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS)
        fail(fmt::format("{}: CUresult {}", what, std::to_underlying(result)));
}

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::size_t size, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Bytes out(size);
    for (std::size_t at = 0; at + sizeof(std::uint64_t) <= size; at += sizeof(std::uint64_t)) {
        const auto value = random();
        std::memcpy(out.data() + at, &value, sizeof(value));
    }
    return out;
}

// A device with room for so many chunks, a context on it, and what sessions have in common.
class Device {
  public:
    explicit Device(std::uint64_t chunks, Contents::Look look = Contents::Look::always) {
        const char *const named = std::getenv("SINGULARITY_TEST_DRIVER");
        back_end = need(proxyd::BackEnd::open(named == nullptr ? SINGULARITY_SOFTGPU : named, 0));
        succeeds(driver().cuCtxCreate_v2(&context, 0, back_end->device()), "cuCtxCreate");
        kernel = need(proxyd::DigestKernel::load(driver()));
        residency =
            std::make_shared<proxyd::Residency>(proxyd::Residency::Rules{.device_bytes = chunks * kChunk});
        contents = std::make_shared<Contents>(*back_end, look);
    }
    ~Device() {
        contents.reset();
        static_cast<void>(driver().cuCtxDestroy_v2(context));
    }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;
    Device(Device &&) = delete;
    Device &operator=(Device &&) = delete;
    [[nodiscard]] const driver_api::Backend &driver() const { return back_end->driver(); }

    std::unique_ptr<proxyd::BackEnd> back_end;
    CUcontext context = nullptr;
    std::shared_ptr<const proxyd::DigestKernel> kernel;
    std::shared_ptr<proxyd::Residency> residency;
    std::shared_ptr<Contents> contents;
};

// A session's memory: chunks in a row.
class Rank {
  public:
    Rank(Device &device, std::uint64_t chunks, std::uint64_t each = kChunk)
        : device_(device), size_(chunks * each), slabs_(*device.back_end, [&device](std::uint64_t context) {
              succeeds(device.driver().cuCtxSetCurrent(context == 0 ? nullptr : device.context),
                       "cuCtxSetCurrent");
          }) {
        slabs_.use_rules(device.residency, device.contents,
                         [&device](std::uint64_t) { return device.kernel; });
        if (chunks != 0)
            succeeds(device.driver().cuMemAddressReserve(&address_, size_, 0, 0, 0), "cuMemAddressReserve");
        for (std::uint64_t chunk = 0; chunk < chunks; ++chunk)
            succeeds(slabs_.map(address_ + (chunk * each), each, kContext, false), "map");
    }
    ~Rank() {
        slabs_.drop_all();
        if (size_ != 0)
            static_cast<void>(device_.driver().cuMemAddressFree(address_, size_));
    }
    Rank(const Rank &) = delete;
    Rank &operator=(const Rank &) = delete;
    Rank(Rank &&) = delete;
    Rank &operator=(Rank &&) = delete;

    void write(std::uint64_t chunk, const Bytes &bytes) {
        use(chunk, Slabs::Use::writes, [&](const Slabs::Piece &piece) {
            if (piece.host != nullptr)
                std::memcpy(piece.host, bytes.data() + piece.offset, piece.size);
            else
                succeeds(
                    device_.driver().cuMemcpyHtoD_v2(piece.address, bytes.data() + piece.offset, piece.size),
                    "write");
        });
    }
    [[nodiscard]] Bytes read(std::uint64_t chunk) {
        Bytes out(kChunk);
        use(chunk, Slabs::Use::reads, [&](const Slabs::Piece &piece) {
            if (piece.host != nullptr)
                std::memcpy(out.data() + piece.offset, piece.host, piece.size);
            else
                succeeds(
                    device_.driver().cuMemcpyDtoH_v2(out.data() + piece.offset, piece.address, piece.size),
                    "read");
        });
        return out;
    }
    void send_out() { succeeds(slabs_.send_out(), "send out"); }
    void bring_in() {
        succeeds(slabs_.bring_in(false, [] { return false; }), "bring in");
        assert_int_equal(slabs_.on_device(), size_);
    }
    [[nodiscard]] std::uint64_t on_device() const { return slabs_.on_device() / kChunk; }

    [[nodiscard]] std::shared_ptr<SharedSlab> share(std::uint64_t chunk, const SharedSlab::Key &key = {}) {
        std::shared_ptr<SharedSlab> slab;
        succeeds(slabs_.share(address_ + (chunk * kChunk), kChunk, key, 0, slab), "share");
        return slab;
    }
    // Instead of the chunk that was there.
    void open(std::uint64_t chunk, const std::shared_ptr<SharedSlab> &slab) {
        const auto at = address_ + (chunk * kChunk);
        slabs_.unmap(at, kChunk);
        assert_int_equal(slabs_.open(at, 2 * kChunk, kContext, slab), CUDA_ERROR_INVALID_VALUE);
        succeeds(slabs_.open(at, kChunk, kContext, slab), "open");
        assert_false(slabs_.shared_at(at).made);
        std::shared_ptr<SharedSlab> none; // whose it is not
        assert_int_equal(slabs_.share(at, kChunk, {}, 0, none), CUDA_ERROR_INVALID_VALUE);
    }
    void drop(std::uint64_t chunk) { slabs_.unmap(address_ + (chunk * kChunk), kChunk); }

  private:
    void use(std::uint64_t chunk, Slabs::Use how, const std::function<void(const Slabs::Piece &)> &what) {
        succeeds(device_.driver().cuCtxSetCurrent(device_.context), "cuCtxSetCurrent");
        need(slabs_.use(address_ + (chunk * kChunk), kChunk, how, [&](const Slabs::Piece &piece) {
            what(piece);
            return Expected<void>();
        }));
    }

    Device &device_;
    std::uint64_t size_;
    CUdeviceptr address_ = 0;
    Slabs slabs_;
};

// The same in a loop of the host's.
Digest digest_of(const Bytes &bytes) {
    Digest out;
    for (std::uint64_t place = 0; place < bytes.size() / sizeof(std::uint64_t); ++place) {
        std::uint64_t value = 0;
        std::memcpy(&value, bytes.data() + (place * sizeof(value)), sizeof(value));
        value += place * 0x9e3779b97f4a7c15ULL;
        value = (value ^ (value >> 33)) * 0xff51afd7ed558ccdULL;
        value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53ULL;
        value ^= value >> 33;
        out.sum += value;
        out.weighted += value * ((2 * place) + 1);
    }
    return out;
}

void digests_tell_contents_apart(void ** /*state*/) {
    Device device(4);
    CUdeviceptr memory = 0;
    succeeds(device.driver().cuMemAlloc_v2(&memory, kChunk), "cuMemAlloc");
    const auto digest = [&](const Bytes &bytes) {
        Digest out;
        succeeds(device.driver().cuMemcpyHtoD_v2(memory, bytes.data(), bytes.size()), "write");
        succeeds(device.kernel->digest(nullptr, memory, bytes.size(), out), "digest");
        return out;
    };
    std::vector<Digest> seen;
    const auto is_new = [&](const Digest &one) {
        const bool fresh = std::ranges::find(seen, one) == seen.end();
        seen.push_back(one);
        return fresh;
    };
    for (const std::size_t size :
         {std::size_t{16}, std::size_t{32}, std::size_t{4096}, std::size_t{4112}, std::size_t{kChunk}}) {
        auto bytes = random_bytes(size, size);
        assert_true(digest(bytes) == digest_of(bytes));
        assert_true(is_new(digest(bytes)));
        for (const std::size_t at : {std::size_t{0}, size / 2, size - 1})
            for (unsigned bit = 0; bit < 8; bit += 7) {
                bytes[at] ^= std::byte{1} << bit;
                assert_true(is_new(digest(bytes)));
                bytes[at] ^= std::byte{1} << bit;
            }
        std::swap_ranges(bytes.begin(), bytes.begin() + 8, bytes.begin() + 8); // the same words elsewhere
        assert_true(is_new(digest(bytes)));
        assert_true(is_new(digest(Bytes(size))));
    }
}

// Two ranks with the same content, on a device that has room for one and a half of them.
void what_is_there_is_not_copied(void ** /*state*/) {
    Device device(4);
    Rank one(device, 2);
    Rank other(device, 2);
    const std::array first{random_bytes(kChunk, 1), random_bytes(kChunk, 2)};
    for (auto *const rank : {&one, &other})
        for (std::uint64_t chunk = 0; chunk < first.size(); ++chunk)
            rank->write(chunk, first.at(chunk));
    one.send_out();
    one.send_out();
    assert_int_equal(device.contents->counts().copied, 2 * kChunk);
    assert_int_equal(one.on_device(), 0);
    other.send_out(); // as the first of `one`: neither out, nor in again
    assert_int_equal(device.contents->counts().copied, 2 * kChunk);
    assert_int_equal(device.contents->counts().spared, kChunk);
    one.bring_in();
    assert_true(device.contents->counts().spared >= 2 * kChunk);
    // What one does with it changes nothing for the other, wherever that has its own.
    const auto changed = random_bytes(kChunk, 3);
    one.write(0, changed);
    one.write(1, changed);
    for (std::uint64_t chunk = 0; chunk < first.size(); ++chunk)
        assert_true(other.read(chunk) == first.at(chunk));
    one.send_out();
    one.send_out();
    other.bring_in();
    for (std::uint64_t chunk = 0; chunk < first.size(); ++chunk) {
        assert_true(other.read(chunk) == first.at(chunk));
        assert_true(one.read(chunk) == changed);
    }
    other.send_out();
    other.send_out();
    one.bring_in();
    assert_true(one.read(0) == changed && one.read(1) == changed);
}

// A collective writes to the memory of a rank that is not on the device.
void a_common_copy_becomes_ones_own(void ** /*state*/) {
    Device device(4);
    Rank one(device, 1);
    Rank other(device, 1);
    const auto bytes = random_bytes(kChunk, 1);
    const auto changed = random_bytes(kChunk, 2);
    one.write(0, bytes);
    other.write(0, bytes);
    one.send_out();
    other.send_out();
    assert_int_equal(device.contents->counts().copied, kChunk);
    assert_true(one.read(0) == bytes && other.read(0) == bytes);
    one.write(0, changed);
    assert_true(one.read(0) == changed && other.read(0) == bytes);
    one.bring_in();
    other.bring_in();
    assert_true(one.read(0) == changed && other.read(0) == bytes);
    // Nobody finds the copy by the content that it had.
    one.send_out();
    one.write(0, bytes);
    other.write(0, changed);
    other.send_out();
    assert_true(one.read(0) == bytes && other.read(0) == changed);
    other.bring_in();
    one.bring_in();
    assert_true(one.read(0) == bytes && other.read(0) == changed);
}

void memory_that_was_left_is_given_back(void ** /*state*/) {
    Device device(3);
    Rank one(device, 2);
    one.write(0, random_bytes(kChunk, 1));
    one.send_out();
    one.send_out();
    assert_int_equal(device.residency->taken(), 2 * kChunk); // for who needs the same
    {
        Rank other(device, 1);
        assert_int_equal(device.residency->taken(), 3 * kChunk);
        other.bring_in(); // as everybody does before they have more
        const Rank third(device, 2);
        assert_int_equal(device.residency->taken(), 3 * kChunk);
    }
    assert_int_equal(device.residency->taken(), 0);
    one.bring_in();
    assert_int_equal(device.residency->taken(), 2 * kChunk);
}

void memory_of_another_size_makes_room(void ** /*state*/) {
    Device device(2);
    Rank small(device, 2);
    const std::array bytes{random_bytes(kChunk, 1), random_bytes(kChunk, 2)};
    for (std::uint64_t chunk = 0; chunk < bytes.size(); ++chunk)
        small.write(chunk, bytes.at(chunk));
    small.send_out();
    small.send_out();
    {
        Rank nothing(device, 0);
        nothing.bring_in();
    }
    Rank large(device, 1, 2 * kChunk);
    large.send_out();
    assert_int_equal(device.residency->taken(), 2 * kChunk);
    small.bring_in();
    assert_int_equal(device.residency->taken(), 2 * kChunk);
    for (std::uint64_t chunk = 0; chunk < bytes.size(); ++chunk)
        assert_true(small.read(chunk) == bytes.at(chunk));
}

void nobody_looks_where_that_is_not_wanted(void ** /*state*/) {
    Device device(4, Contents::Look::never);
    Rank one(device, 1);
    Rank other(device, 1);
    const auto bytes = random_bytes(kChunk, 1);
    one.write(0, bytes);
    other.write(0, bytes);
    one.send_out();
    other.send_out();
    assert_int_equal(device.contents->counts().looked, 0);
    assert_int_equal(device.contents->counts().copied, 2 * kChunk);
    one.bring_in();
    other.bring_in();
    assert_true(one.read(0) == bytes && other.read(0) == bytes);
}

// At first everything is looked at, and then as long as that has saved more time than it took.
void looking_ends_where_it_does_not_pay(void ** /*state*/) {
    using namespace std::chrono_literals;
    const Device device(1);
    constexpr std::uint64_t kMuch = std::uint64_t{1} << 30;
    Contents pays(*device.back_end, Contents::Look::when_it_pays);
    assert_true(pays.looks());
    pays.looked(kMuch, 1ms);
    pays.copied(kMuch, 1s);
    pays.spared(kMuch);
    assert_true(pays.looks() && pays.looks());
    Contents costs(*device.back_end, Contents::Look::when_it_pays);
    costs.looked(kMuch, 2s);
    costs.copied(kMuch, 1s);
    costs.spared(kMuch);
    unsigned looks = 0;
    for (unsigned asked = 0; asked < 640; ++asked)
        looks += costs.looks() ? 1 : 0;
    assert_int_equal(looks, 10);
}

void copies_are_known_as_long_as_somebody_has_them(void ** /*state*/) {
    const Device device(1);
    auto copy = HostCopy::make(kChunk);
    const Digest content{.sum = 1, .weighted = 2};
    device.contents->add(content, copy);
    assert_true(device.contents->copy_of(content, kChunk) == copy);
    assert_true(device.contents->copy_of(content, kChunk / 2) == nullptr);
    assert_true(device.contents->copy_of({.sum = 1, .weighted = 3}, kChunk) == nullptr);
    const auto newer = HostCopy::make(kChunk);
    device.contents->add(content, newer);
    device.contents->forget(content, *copy); // it is not the one that is known any more
    assert_true(device.contents->copy_of(content, kChunk) == newer);
    device.contents->forget(content, *newer);
    assert_true(device.contents->copy_of(content, kChunk) == nullptr);
    device.contents->add(content, copy);
    copy.reset();
    assert_true(device.contents->copy_of(content, kChunk) == nullptr);
}

void what_is_shared_stays_and_is_one(void ** /*state*/) {
    Device device(4);
    Rank opener(device, 1);
    SharedSlab::Key key{};
    const auto pattern = [](unsigned char byte) { return Bytes(kChunk, std::byte{byte}); };
    {
        Rank maker(device, 2);
        maker.write(0, pattern(1));
        maker.write(1, pattern(2));
        const auto slab = maker.share(0);
        key = slab->key();
        assert_true(maker.share(0) == slab && SharedSlabs::all().find(key) == slab);
        const auto exported = slab->add(512, 1024);
        assert_true(slab->has(exported) && slab->add(512, 1024) == exported);
        assert_false(slab->has({.offset = 512, .size = 1024, .number = exported.number + 1}));
        assert_false(slab->add({.offset = kChunk - 1, .size = 2, .number = 1}));
        opener.open(0, slab);
        opener.write(0, pattern(3));
        assert_true(maker.read(0) == pattern(3));
        // Only the other chunk is one that can leave.
        assert_int_equal(maker.on_device(), 1);
        maker.send_out();
        maker.send_out();
        assert_int_equal(maker.on_device(), 0);
        maker.write(0, pattern(4));
        assert_true(opener.read(0) == pattern(4));
        slab->remove(512);
        assert_false(slab->has(exported));
        assert_true(slab->add(512, 1024) != exported);
    }
    // Its maker has ended: nothing can be opened any more, and who has it keeps it.
    const auto left = SharedSlabs::all().find(key);
    assert_true(left != nullptr && left->exports().empty());
    assert_true(opener.read(0) == pattern(4));
    assert_int_equal(device.residency->taken() / kChunk, 0);
    opener.drop(0);
    assert_true(left.use_count() == 1);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(digests_tell_contents_apart),
        cmocka_unit_test(what_is_there_is_not_copied),
        cmocka_unit_test(a_common_copy_becomes_ones_own),
        cmocka_unit_test(memory_that_was_left_is_given_back),
        cmocka_unit_test(memory_of_another_size_makes_room),
        cmocka_unit_test(nobody_looks_where_that_is_not_wanted),
        cmocka_unit_test(looking_ends_where_it_does_not_pay),
        cmocka_unit_test(what_is_shared_stays_and_is_one),
        cmocka_unit_test(copies_are_known_as_long_as_somebody_has_them),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
