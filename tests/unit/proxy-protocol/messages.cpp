// SPDX-License-Identifier: GPL-2.0-or-later
// Every hand-written message: what is encoded is decoded as it was, and what is not a message is refused.
#include "cmocka.hpp"
#include "proxy/driver-api/api.hpp"
#include "proxy/protocol/all.hpp"

#include <random>
#include <string>
#include <vector>

using namespace singularity;
using namespace singularity::protocol;

namespace {

using Random = std::mt19937_64;

template <class Fixed>
struct Filled {
    Fixed fixed{};
    std::array<std::vector<std::byte>, kBufferCount<Fixed>> storage{};
    std::array<View, kBufferCount<Fixed>> buffers{};
};

// The bytes of a fixed part and of its buffers, at random, as far as the message's own rules let them be.
template <class Fixed>
void fill(Random &random, Filled<Fixed> &out) {
    if constexpr (!std::is_empty_v<Fixed>) {
        std::array<std::byte, sizeof(Fixed)> bytes{};
        for (auto &byte : bytes)
            byte = static_cast<std::byte>(random());
        std::memcpy(&out.fixed, bytes.data(), bytes.size());
    }
    for (std::size_t index = 0; index < out.storage.size(); ++index) {
        const auto &description = Fixed::kBuffers[index];
        if (description.nullable == Nullable::yes && random() % 4 == 0)
            continue;
        out.storage[index].resize(random() % 9 * description.element);
        for (auto &byte : out.storage[index])
            byte = static_cast<std::byte>(random());
        out.buffers[index] = {.bytes = out.storage[index], .present = true};
    }
}

// Members whose values have rules.
template <class Fixed>
void obey(Random &random, Filled<Fixed> &out) {
    auto &fixed = out.fixed;
    if constexpr (requires { fixed.origin; })
        fixed.origin %= 2;
    if constexpr (std::is_same_v<Fixed, MapHostMemory> || std::is_same_v<Fixed, UnmapHostMemory>) {
        fixed.address = random() % 1000 * kPage;
        fixed.size = (random() % 100 + 1) * kPage;
    } else if constexpr (requires {
                             fixed.address;
                             fixed.size;
                         }) {
        fixed.address = random() % 1000 * kSlabUnit;
        fixed.size = (random() % 100 + 1) * kSlabUnit;
    }
    if constexpr (std::is_same_v<Fixed, ShareSlab>) {
        fixed.offset = random() % fixed.size;
        fixed.length = random() % (fixed.size - fixed.offset) + 1;
    }
    if constexpr (std::is_same_v<Fixed, BeginBlob>)
        fixed.size = random() % kMostBlob + 1;
    if constexpr (std::is_same_v<Fixed, ReadMemory> || std::is_same_v<Fixed, ReadBlob>)
        fixed.size = random() % (kReadPiece + 1);
    if constexpr (requires { fixed.direction; })
        fixed.direction %= static_cast<std::uint32_t>(CopyDirection::end);
    if constexpr (requires { fixed.destination.kind; })
        fixed.destination.kind = static_cast<std::uint32_t>(random() % 3 + 1);
    if constexpr (requires { fixed.source.kind; })
        fixed.source.kind = static_cast<std::uint32_t>(random() % 3 + 1);
    if constexpr (requires { fixed.box; })
        fixed.box = {.width = random() % 5 + 1, .height = random() % 5 + 1, .depth = random() % 5 + 1};
    if constexpr (std::is_same_v<Fixed, WriteBox>) {
        out.storage[0].assign(static_cast<std::size_t>(packed_size(fixed.box)), std::byte{7});
        out.buffers[0] = {.bytes = out.storage[0], .present = true};
    }
    if constexpr (requires { fixed.shape; })
        fixed.shape.flags &= kKnownLaunchFlags;
    if constexpr (std::is_same_v<Fixed, LaunchHostFunction>)
        fixed.kind = fixed.kind % 2 + 1;
    if constexpr (requires { fixed.question; })
        fixed.question %= static_cast<std::uint32_t>(ClusterQuestion::end);
    if constexpr (std::is_same_v<Fixed, JoinCommunicator>) {
        fixed.size = fixed.size % kMostRanks + 1;
        fixed.rank %= fixed.size;
    }
    if constexpr (requires { fixed.wait_ms; })
        fixed.wait_ms %= 1001;
    if constexpr (requires { fixed.more; })
        fixed.more %= 2;
    if constexpr (requires { fixed.abort; })
        fixed.abort %= 2;
    if constexpr (std::is_same_v<Fixed, IssueCollectives> || std::is_same_v<Fixed, ExchangeWithMembers>) {
        out.storage[0].resize(std::max(out.storage[0].size(), Fixed::kBuffers[0].element));
        out.buffers[0] = {.bytes = out.storage[0], .present = true};
    }
    if constexpr (std::is_same_v<Fixed, InstantiateParts>) {
        out.storage[1].assign(out.storage[0].size() + 8, std::byte{2});
        out.buffers[1] = {.bytes = out.storage[1], .present = true};
    }
    if constexpr (std::is_same_v<Fixed, AddLinkData>)
        for (auto &byte : out.storage[0])
            byte |= std::byte{1}; // no NUL in a name
    if constexpr (std::is_same_v<Fixed, AddNode> || std::is_same_v<Fixed, SetNode>) {
        static constexpr auto kTypes = std::to_array<std::uint32_t>({0, 1, 2, 3, 4, 5, 6, 7, 12});
        fixed.type = kTypes[random() % kTypes.size()];
        constexpr std::size_t kBody = std::is_same_v<Fixed, AddNode> ? 2 : 0;
        out.storage[kBody].assign(body_size(fixed.type), std::byte{1});
        out.buffers[kBody] = {.bytes = out.storage[kBody], .present = true};
    }
    if constexpr (std::is_same_v<Fixed, AddNode>) {
        out.storage[1] = out.storage[0];
        out.buffers[1] = {.bytes = out.storage[1], .present = out.buffers[0].present};
    }
}

bool same(const View &a, const View &b) {
    return a.present == b.present && std::ranges::equal(a.bytes, b.bytes);
}

template <class Fixed>
bool same_fixed(const Fixed &a, const Fixed &b) {
    if constexpr (std::is_empty_v<Fixed>)
        return true;
    else
        return std::memcmp(&a, &b, sizeof(Fixed)) == 0;
}

template <class Fixed>
std::vector<std::byte> encoded(const Message<Fixed> &message) {
    std::vector<std::byte> bytes(encoded_size(message));
    const auto size = encode(message, bytes);
    if (!size)
        test::fail(size.error().message());
    assert_int_equal(*size, bytes.size());
    return bytes;
}

constexpr int kRounds = 200;

void requests_come_back_as_they_were(void ** /*state*/) {
    Random random(1);
    for_each_message([&]<class Fixed>() {
        for (int round = 0; round < kRounds; ++round) {
            Filled<Fixed> filled;
            fill(random, filled);
            obey(random, filled);
            const Message<Fixed> message{.fixed = filled.fixed, .buffers = filled.buffers};
            const auto bytes = encoded(message);
            assert_int_equal(peek_id(bytes), std::to_underlying(Fixed::kId));
            const auto decoded = decode_request<Fixed>(bytes);
            if (!decoded)
                test::fail(decoded.error().message());
            assert_true(same_fixed(decoded->fixed, message.fixed));
            for (std::size_t index = 0; index < message.buffers.size(); ++index)
                assert_true(same(decoded->buffers[index], message.buffers[index]));
        }
    });
}

void in_place_is_the_same(void ** /*state*/) {
    Random random(2);
    for_each_message([&]<class Fixed>() {
        Filled<Fixed> filled;
        fill(random, filled);
        obey(random, filled);
        const Message<Fixed> message{.fixed = filled.fixed, .buffers = filled.buffers};
        const auto expected = encoded(message);
        std::array<std::uint64_t, kBufferCount<Fixed>> sizes{};
        for (std::size_t index = 0; index < sizes.size(); ++index)
            sizes[index] = message.buffers[index].present ? message.buffers[index].bytes.size() : kAbsent;
        std::vector<std::byte> bytes(expected.size(), std::byte{0xEE});
        const auto places = encode_in_place(filled.fixed, sizes, bytes);
        for (std::size_t index = 0; index < sizes.size(); ++index)
            std::ranges::copy(message.buffers[index].bytes, places[index].begin());
        assert_memory_equal(bytes.data(), expected.data(), bytes.size());
    });
}

void replies_come_back_as_they_were(void ** /*state*/) {
    Random random(3);
    for_each_message([&]<class Fixed>() {
        if constexpr (kReplies<Fixed>) {
            using Reply = typename Fixed::Reply;
            for (int round = 0; round < kRounds; ++round) {
                Filled<Reply> filled;
                fill(random, filled);
                const ReplyMessage<Reply> reply{.result = static_cast<std::int32_t>(random() % 1000),
                                                .fixed = filled.fixed,
                                                .buffers = filled.buffers};
                std::vector<std::byte> bytes(4096);
                const auto size = encode_reply<Fixed>(reply, bytes);
                if (!size)
                    test::fail(size.error().message());
                const auto decoded = decode_reply<Fixed>(std::span(bytes).first(*size));
                if (!decoded)
                    test::fail(decoded.error().message());
                assert_int_equal(decoded->result, reply.result);
                assert_true(same_fixed(decoded->fixed, reply.fixed));
                for (std::size_t index = 0; index < reply.buffers.size(); ++index)
                    assert_true(same(decoded->buffers[index], reply.buffers[index]));
            }
        }
    });
}

// Nothing outside of the message may be read (a sanitizer sees it), and what is accepted is what encode would
// write.
void changed_bytes_are_refused_or_harmless(void ** /*state*/) {
    Random random(4);
    for_each_message([&]<class Fixed>() {
        for (int round = 0; round < kRounds; ++round) {
            Filled<Fixed> filled;
            fill(random, filled);
            obey(random, filled);
            auto bytes = encoded(Message<Fixed>{.fixed = filled.fixed, .buffers = filled.buffers});
            for (auto changes = random() % 4 + 1; changes != 0; --changes)
                bytes[random() % bytes.size()] = static_cast<std::byte>(random());
            const auto decoded = decode_request<Fixed>(bytes);
            if (!decoded)
                continue;
            for (const auto &buffer : decoded->buffers)
                if (buffer.present && !buffer.bytes.empty()) {
                    assert_true(buffer.bytes.data() >= bytes.data());
                    assert_true(buffer.bytes.data() + buffer.bytes.size() <= bytes.data() + bytes.size());
                }
            assert_true(encoded(*decoded) == bytes);
        }
    });
}

void no_part_of_a_message_is_a_message(void ** /*state*/) {
    Random random(5);
    for_each_message([&]<class Fixed>() {
        Filled<Fixed> filled;
        fill(random, filled);
        obey(random, filled);
        auto bytes = encoded(Message<Fixed>{.fixed = filled.fixed, .buffers = filled.buffers});
        for (std::size_t size = 0; size < bytes.size(); ++size)
            assert_false(decode_request<Fixed>(std::span(bytes).first(size)).has_value());
        bytes.resize(bytes.size() + 8);
        assert_false(decode_request<Fixed>(bytes).has_value());
    });
}

void another_messages_bytes_are_refused(void ** /*state*/) {
    std::vector<std::byte> bytes(kRequestHead<DropBlob>);
    assert_true(encode(Message<DropBlob>{.fixed = {.blob = 1}}, bytes).has_value());
    const auto decoded = decode_request<DestroyContext>(bytes); // of the same size
    assert_false(decoded.has_value());
    test::expect_contains(decoded.error().message(), "DestroyContext");
}

void rules_are_kept_by_both_sides(void ** /*state*/) {
    std::vector<std::byte> bytes(kWritePiece * 2);
    const auto refused = [&]<class Fixed>(const Message<Fixed> &message, std::string_view why) {
        const auto size = encode(message, bytes);
        if (size)
            test::fail(std::string(Fixed::kName) + " was encoded");
        test::expect_contains(size.error().message(), why);
    };
    refused(Message<MapSlab>{.fixed = {.address = kSlabUnit, .size = 4096}}, "whole units");
    refused(Message<MapSlab>{.fixed = {.address = 0 - kSlabUnit, .size = 2 * kSlabUnit}}, "address space");
    refused(Message<BeginBlob>{.fixed = {.blob = 1, .size = 0}}, "empty");
    refused(Message<ReadMemory>{.fixed = {.size = kReadPiece + 1}}, "one piece");
    refused(Message<WriteMemory>{}, "must not be NULL");
    const std::vector<std::byte> data(kWritePiece + 1);
    refused(Message<WriteMemory>{.buffers = {{{.bytes = data, .present = true}}}}, "one piece");
    refused(Message<CopyMemory>{.fixed = {.direction = 4}}, "no such direction");
    // A box so large that its size is no number.
    refused(Message<ReadBox>{.fixed = {.source = {.kind = 1},
                                       .box = {.width = 1ULL << 40, .height = 1ULL << 40}}},
            "one piece");
    std::vector<std::byte> parameters(kMostParameters + 1);
    refused(Message<LaunchKernel>{.buffers = {{{.bytes = parameters, .present = true}, {}}}}, "parameters");
    refused(Message<JoinCommunicator>{.fixed = {.rank = 2, .size = 2}}, "no such rank");
    refused(Message<JoinCommunicator>{.fixed = {.rank = 0, .size = kMostRanks + 1}}, "no such rank");
    refused(Message<CommunicatorState>{.fixed = {.wait_ms = 1001}}, "more than a second");
    const std::vector<std::byte> operations((kMostCollectives + 1) * sizeof(CollectiveOperation));
    refused(Message<IssueCollectives>{.buffers = {{{.bytes = operations, .present = true}}}}, "operations");
    refused(Message<IssueCollectives>{.buffers = {{{.bytes = {}, .present = true}}}}, "operations");
    refused(
        Message<ExchangeWithMembers>{
            .buffers = {{{.bytes = std::span(operations).first(kMostExchanged + 1), .present = true}}}},
        "no such size");
    refused(Message<LeaveCommunicator>{.fixed = {.abort = 2}}, "aborted");
    const std::vector<std::byte> odd(17);
    refused(
        Message<AddNode>{
            .buffers = {{{.bytes = odd, .present = true}, {}, {.bytes = odd, .present = true}, {}}}},
        "not of the node's type");
}

void ids_do_not_meet_the_drivers(void ** /*state*/) {
    assert_true(std::to_underlying(Id::first) >= driver_api::api_table().size());
    for_each_message(
        []<class Fixed>() { assert_true(encoded_size(Message<Fixed>{}) == kRequestHead<Fixed>); });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(requests_come_back_as_they_were),
        cmocka_unit_test(in_place_is_the_same),
        cmocka_unit_test(replies_come_back_as_they_were),
        cmocka_unit_test(changed_bytes_are_refused_or_harmless),
        cmocka_unit_test(no_part_of_a_message_is_a_message),
        cmocka_unit_test(another_messages_bytes_are_refused),
        cmocka_unit_test(rules_are_kept_by_both_sides),
        cmocka_unit_test(ids_do_not_meet_the_drivers),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
