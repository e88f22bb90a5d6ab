// SPDX-License-Identifier: GPL-2.0-or-later
// Every generated message: what is encoded is decoded, and nothing that arrives makes the decoder read what
// is not there.
#include "driver_api/messages.hpp"

#include "cmocka.hpp"
#include "proxy/driver-api/api.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace {

using namespace singularity;
using namespace singularity::driver_api;
using test::fail;

const int kRounds = test::is_short() ? 10 : 40;    // of random values, for each message
const int kAbused = test::is_short() ? 2 : 4;      // of these messages
const int kMutations = test::is_short() ? 30 : 60; // of each of the abused ones
constexpr std::uint64_t kSmall = 9;                // lengths above this only by chance
constexpr std::uint64_t kLargest = 1 << 16;

using Random = std::mt19937_64;

// Random values that fit together. Narrow ones always do; wide ones may not (a length that overflows): then
// the request is filled again.
class Fill {
  public:
    Fill(Random &random, bool wide) : random_(random), wide_(wide) {}

    template <class T>
    void value(std::string_view /*name*/, T &field) {
        const auto bits = random_();
        if constexpr (std::is_floating_point_v<T>)
            field = static_cast<T>(bits);
        else
            // tensorRank - 2 is the largest thing that is taken away from a length.
            field = wide_ ? static_cast<T>(bits) : static_cast<T>(2 + bits % kSmall);
    }
    void handle(std::string_view /*name*/, std::string_view kind, std::uint64_t &field, bool /*is_new*/) {
        if (kind.empty())
            fail("a handle of no kind");
        field = random_() | 1;
    }
    template <std::size_t N>
    void object(std::string_view /*name*/, std::array<std::byte, N> &field) {
        scatter(field);
    }
    void wanted(std::string_view /*name*/, bool &field) { field = (random_() & 1) != 0; }
    void range(std::string_view /*name*/, HostRange &field, Length length) {
        failed_ |= !length.valid();
        field = {.address = random_() >> 1, .size = length.value()};
        failed_ |= !(Length(field.address) + Length(field.size)).valid();
    }
    void string(std::string_view /*name*/, View &field, bool nullable) {
        if (nullable && (random_() & 1) != 0) {
            field = {};
            return;
        }
        auto &bytes = memory_.emplace_back(random_() % 40 + 1);
        for (auto &byte : bytes)
            byte = static_cast<std::byte>(1 + random_() % 255);
        bytes.back() = std::byte{0};
        field = {.bytes = bytes, .present = true};
    }
    void buffer(std::string_view /*name*/, View &field, Length length, bool nullable, bool nulls) {
        if (nullable && (random_() & 1) != 0) {
            field = {};
            return;
        }
        if (!length.valid() || length.value() > kLargest) {
            failed_ = true;
            return;
        }
        field = {.bytes = take(length.value(), nulls), .present = true};
    }
    void output(std::string_view /*name*/, View &field, const Output &output, bool nulls) {
        field = {};
        if (!output.wanted)
            return;
        std::uint64_t size = output.capacity.value();
        if (!output.exact && size > 0)
            size = random_() % (std::min<std::uint64_t>(size, 256) / output.element + 1) * output.element;
        field = {.bytes = take(size, nulls), .present = true};
    }

    [[nodiscard]] bool failed() const { return failed_; }

  private:
    void scatter(std::span<std::byte> bytes) {
        for (auto &byte : bytes)
            byte = static_cast<std::byte>(random_());
    }
    std::span<const std::byte> take(std::uint64_t size, bool nulls) {
        auto &bytes = memory_.emplace_back(size);
        if (nulls)
            return bytes;
        if (wide_)
            scatter(bytes);
        else if (size > 0)
            bytes.front() =
                static_cast<std::byte>(random_() % kSmall); // a count that others hang on stays small
        return bytes;
    }

    Random &random_;
    bool wide_;
    bool failed_ = false;
    std::deque<std::vector<std::byte>> memory_;
};

// All that a message says, by value.
class Digest {
  public:
    template <class T>
    void value(std::string_view name, T &field) {
        note(name, std::as_bytes(std::span(&field, 1)));
    }
    void handle(std::string_view name, std::string_view /*kind*/, std::uint64_t &field, bool /*is_new*/) {
        value(name, field);
    }
    template <std::size_t N>
    void object(std::string_view name, std::array<std::byte, N> &field) {
        note(name, field);
    }
    void wanted(std::string_view name, bool &field) { value(name, field); }
    void range(std::string_view name, HostRange &field, Length /*length*/) {
        value(name, field.address);
        value(name, field.size);
    }
    void string(std::string_view name, View &field, bool /*nullable*/) { view(name, field); }
    void buffer(std::string_view name, View &field, Length /*length*/, bool /*nullable*/, bool /*nulls*/) {
        view(name, field);
    }
    void output(std::string_view name, View &field, const Output & /*output*/, bool /*nulls*/) {
        view(name, field);
    }

    [[nodiscard]] const std::string &text() const { return text_; }

  private:
    void view(std::string_view name, View &field) {
        value(name, field.present);
        note(name, field.bytes);
    }
    void note(std::string_view name, std::span<const std::byte> bytes) {
        text_.append(name).append("=");
        for (const auto byte : bytes)
            text_.push_back(static_cast<char>(byte));
        text_.push_back(';');
    }

    std::string text_;
};

template <class... Message>
std::string digest(Message &...message) {
    Digest visitor;
    visit(message..., visitor);
    return visitor.text();
}

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

// decode: bytes -> Expected<M>; encode: M, storage -> Expected<size_t>.
void abuse(Random &random, std::span<const std::byte> message, auto decode, auto encode) {
    for (std::size_t size = 0; size < message.size(); ++size) {
        const Exact cut(message.first(size));
        if (decode(cut.span()))
            fail("a truncated message was accepted");
        set_size(cut.span());
        (void)decode(cut.span()); // a shorter message may be a good one; it must only stay inside
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
        auto decoded = decode(bad.span());
        if (!decoded)
            continue;
        std::vector<std::byte> again(message.size());
        const auto size = encode(*decoded, again);
        if (!size || *size != message.size())
            fail("a message was accepted that cannot be written: " +
                 (size ? "size" : size.error().message()));
        if (!std::ranges::equal(again, bad.span()))
            fail("a message was accepted of which something is not kept");
    }
}

template <class Request>
Request random_request(Random &random, std::unique_ptr<Fill> &fill) {
    for (bool wide = (random() & 1) != 0;; wide = false) {
        fill = std::make_unique<Fill>(random, wide);
        Request request;
        if ((random() & 1) != 0)
            request.api = api_info(request.api).per_thread;
        visit(request, *fill);
        if (!fill->failed() && check(request))
            return request;
        if (!wide)
            fail("values that fit together were refused: " + check(request).error().message());
    }
}

template <class Request>
void one_request(Random &random, auto decode) {
    for (int round = 0; round < kRounds; ++round) {
        std::unique_ptr<Fill> fill;
        auto request = random_request<Request>(random, fill);
        std::vector<std::byte> storage(4 * kLargest);
        const auto size = encode(request, storage);
        if (!size)
            fail(size.error().message());
        assert_int_equal(*size % kBufferAlignment, 0);
        std::vector<std::byte> small(*size - 1);
        if (encode(request, small))
            fail("a message was written into room that is too small");
        const Exact message{std::span<const std::byte>(storage).first(*size)};
        auto decoded = decode(message.span());
        if (!decoded)
            fail(decoded.error().message());
        assert_true(decoded->api == request.api);
        test::expect_equal(digest(*decoded), digest(request));
        const auto which = peek(message.span());
        assert_true(which && *which == request.api);
        if (round < kAbused && *size < 4096)
            abuse(random, message.span(), decode,
                  [](const Request &good, std::span<std::byte> room) { return encode(good, room); });
    }
}

template <class Request, class Reply>
void one_reply(Random &random, auto decode) {
    for (int round = 0; round < kRounds; ++round) {
        std::unique_ptr<Fill> fill;
        auto request = random_request<Request>(random, fill);
        const auto room = output_size(request);
        if (!room)
            continue; // outputs larger than memory: the daemon refuses the call
        Reply reply;
        Fill values(random, true);
        visit(request, reply, values);
        if ((random() & 1) != 0)
            reply.driver_result = 0;
        std::vector<std::byte> storage(4 * kLargest);
        if (*room > kLargest && !check(request, reply))
            continue;
        const auto size = encode(request, reply, storage);
        if (!size)
            fail(size.error().message());
        const Exact message{std::span<const std::byte>(storage).first(*size)};
        auto decoded = decode(request, message.span());
        if (!decoded)
            fail(decoded.error().message());
        const auto &asked = request;
        Digest before;
        Digest after;
        visit(asked, reply, before);
        visit(asked, *decoded, after);
        test::expect_equal(after.text(), before.text());
        if (round < kAbused && *size < 4096)
            abuse(
                random, message.span(),
                [&](std::span<const std::byte> bytes) { return decode(asked, bytes); },
                [&](const Reply &good, std::span<std::byte> there) { return encode(asked, good, there); });
    }
}

void every_request(void ** /*state*/) {
    Random random(20240501);
    int count = 0;
#define ONE(Name)                                                                                            \
    one_request<Name##Request>(                                                                              \
        random, [](std::span<const std::byte> bytes) { return decode_##Name##Request(bytes); });             \
    ++count;
    SINGULARITY_DRIVER_API_REQUESTS(ONE);
#undef ONE
    assert_true(count > 150);
}

void every_reply(void ** /*state*/) {
    Random random(20240502);
    int count = 0;
#define ONE(Name)                                                                                            \
    one_reply<Name##Request, Name##Reply>(                                                                   \
        random, [](const Name##Request &request, std::span<const std::byte> bytes) {                         \
            return decode_##Name##Reply(request, bytes);                                                     \
        });                                                                                                  \
    ++count;
    SINGULARITY_DRIVER_API_REPLIES(ONE);
#undef ONE
    assert_true(count > 100);
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
