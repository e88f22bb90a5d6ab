// SPDX-License-Identifier: GPL-2.0-or-later
// Every generated message: what is encoded is decoded, and nothing that arrives makes the decoder read what
// is not there.
#include "message_kinds.hpp"

#include <cstring>
#include <memory>

namespace {

using namespace singularity;
using namespace singularity::driver_api;

const int kRounds = test::is_short() ? 10 : 40;    // of random values, for each message
const int kAbused = test::is_short() ? 2 : 4;      // of these messages
const int kMutations = test::is_short() ? 30 : 60; // of each of the abused ones

// The message in memory of exactly its size: the address sanitizer sees one byte more.
class Exact {
  public:
    explicit Exact(std::span<const std::byte> bytes)
        : size_(bytes.size()), bytes_(new std::byte[bytes.size()]) {
        std::ranges::copy(bytes, bytes_.get());
    }
    [[nodiscard]] std::span<std::byte> span() const { return {bytes_.get(), size_}; }

  private:
    std::size_t size_;
    std::unique_ptr<std::byte[]> bytes_;
};

void set_size(std::span<std::byte> message) {
    const std::uint64_t size = message.size();
    if (size >= sizeof(MessageHeader))
        std::memcpy(message.data() + offsetof(MessageHeader, size), &size, sizeof(size));
}

void abuse(Random &random, std::span<const std::byte> message, const Message &kind) {
    std::vector<std::byte> again(message.size());
    for (std::size_t size = 0; size < message.size(); ++size) {
        const Exact cut(message.first(size));
        if (kind.read(cut.span(), again))
            fail("a truncated message was accepted");
        set_size(cut.span());
        (void)kind.read(cut.span(), again); // a shorter message may be a good one; it must only stay inside
    }
    for (int round = 0; round < kMutations; ++round) {
        const Exact bad(message);
        for (auto flips = 1 + random() % 4; flips > 0; --flips) {
            // Half of them in the fixed part, where the lengths are.
            const auto bound =
                (random() & 1) != 0 ? std::min<std::size_t>(bad.span().size(), 64) : bad.span().size();
            bad.span()[random() % bound] ^= static_cast<std::byte>(1U << random() % 8);
        }
        if ((random() & 3) == 0 && bad.span().size() >= sizeof(MessageHeader) + 8) {
            const std::uint64_t extreme[] = {0, ~0ULL, ~0ULL >> 1, 1ULL << 61, 1ULL << 32};
            const auto at =
                random() % ((bad.span().size() - sizeof(MessageHeader)) / 8) * 8 + sizeof(MessageHeader);
            std::memcpy(bad.span().data() + at, &extreme[random() % std::size(extreme)], 8);
        }
        std::ranges::fill(again, std::byte{0});
        const auto read = kind.read(bad.span(), again);
        if (!read)
            continue;
        const auto &size = read->rewritten;
        if (!size || *size != message.size())
            fail("a message was accepted that cannot be written: " +
                 (size ? "size" : size.error().message()));
        if (!std::ranges::equal(again, bad.span()))
            fail("a message was accepted of which something is not kept");
    }
}

// Wide values, or narrow ones if those do not fit together.
void fill(Message &message, Random &random) {
    if ((random() & 1) != 0 && message.fill(random, true))
        return;
    if (const auto filled = message.fill(random, false); !filled)
        fail("values that fit together were refused: " + filled.error().message());
}

// What was written, read again; the last check of a round.
void expect_same(Random &random, const Message &message, std::span<const std::byte> written, bool abused) {
    const Exact exact{written};
    std::vector<std::byte> again(written.size());
    const auto read = message.read(exact.span(), again);
    if (!read)
        fail(read.error().message());
    test::expect_equal(read->text, message.text());
    if (abused && written.size() < 4096)
        abuse(random, exact.span(), message);
}

void test_request(Random &random, Message &request) {
    std::vector<std::byte> storage(4 * kLargest);
    for (int round = 0; round < kRounds; ++round) {
        fill(request, random);
        const auto size = request.write(storage);
        if (!size)
            fail(size.error().message());
        assert_int_equal(*size % kBufferAlignment, 0);
        std::vector<std::byte> small(*size - 1);
        if (request.write(small))
            fail("a message was written into room that is too small");
        const auto written = std::span<const std::byte>(storage).first(*size);
        const auto which = peek(written);
        assert_true(which && request.text().starts_with(std::to_string(static_cast<unsigned>(*which)) + ' '));
        expect_same(random, request, written, round < kAbused);
    }
}

void test_reply(Random &random, Message &reply) {
    std::vector<std::byte> storage(4 * kLargest);
    for (int round = 0; round < kRounds; ++round) {
        if (!reply.fill(random, (random() & 1) != 0))
            continue; // outputs larger than memory: the daemon refuses the call
        const auto size = reply.write(storage);
        if (!size)
            fail(size.error().message());
        expect_same(random, reply, std::span<const std::byte>(storage).first(*size), round < kAbused);
    }
}

void every_request(void ** /*state*/) {
    Random random(20240501);
    assert_true(for_each_request([&](Message &request) { test_request(random, request); }) > 150);
}

void every_reply(void ** /*state*/) {
    Random random(20240502);
    assert_true(for_each_reply([&](Message &reply) { test_reply(random, reply); }) > 100);
}

void messages_of_other_functions_are_refused(void ** /*state*/) {
    EventRecordRequest request;
    request.hEvent = 1;
    std::array<std::byte, 128> storage{};
    const auto size = encode(request, storage);
    assert_true(size.has_value());
    const auto message = std::span(storage).first(*size);
    assert_true(decode_EventRecordRequest(message).has_value());
    assert_false(decode_StreamWaitEventRequest(message).has_value());
    const auto kind = static_cast<std::byte>(MessageKind::reply);
    storage[offsetof(MessageHeader, kind)] = kind;
    assert_false(decode_EventRecordRequest(message).has_value());
}

void the_error_names_function_and_parameter(void ** /*state*/) {
    MemcpyHtoDV2Request request;
    request.ByteCount = 5;
    const std::array<std::byte, 4> four{};
    request.srcHost = {.bytes = four, .present = true};
    const auto refused = check(request);
    assert_false(refused.has_value());
    test::expect_contains(refused.error().message(), "cuMemcpyHtoD_v2, srcHost");
    test::expect_contains(refused.error().message(), "it has 4 bytes; the other parameters say 5");
}

void unknown_ids_are_refused(void ** /*state*/) {
    MessageHeader header{
        .api = static_cast<std::uint32_t>(kApiCount), .kind = 1, .size = sizeof(MessageHeader)};
    assert_false(peek(std::as_bytes(std::span(&header, 1))).has_value());
    header.api = 0;
    assert_true(peek(std::as_bytes(std::span(&header, 1))).has_value());
    assert_false(peek(std::as_bytes(std::span(&header, 1)).first(15)).has_value());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(every_request),
        cmocka_unit_test(every_reply),
        cmocka_unit_test(messages_of_other_functions_are_refused),
        cmocka_unit_test(the_error_names_function_and_parameter),
        cmocka_unit_test(unknown_ids_are_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
