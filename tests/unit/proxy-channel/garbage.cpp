// SPDX-License-Identifier: GPL-2.0-or-later
// A client that breaks the rules: the daemon's end must say so, and never read outside of the segment (which
// AddressSanitizer and the kernel would notice).
#include "pair.hpp"

#include <array>
#include <limits>
#include <random>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

using namespace singularity::test;
namespace channel = singularity::channel;
using channel::RecordHeader;
using singularity::Deadline;

// The segment as a liar has it: written at will.
struct Liar {
    ChannelPair pair;
    channel::Segment segment = need(channel::Segment::map(pair.server->segment_fd(), small_geometry()));

    void write(std::uint64_t position, const RecordHeader &header) {
        std::memcpy(segment.ring().data() + position % segment.ring().size(), &header, sizeof(header));
    }
    void publish(std::uint64_t head) { segment.control().head.store(head); }
    auto next() { return pair.server->next(Deadline::after(std::chrono::milliseconds(50))); }

    void refused(std::string_view rule) {
        const auto record = next();
        if (record)
            fail("the record was accepted");
        assert_int_equal(record.error().code, EPROTO);
        expect_contains(record.error().message(), rule);
    }
};

void ring_positions(void **) {
    for (const std::uint64_t head :
         {std::uint64_t{1}, std::uint64_t{63}, std::uint64_t{4096 + 64}, std::uint64_t{1} << 63,
          std::numeric_limits<std::uint64_t>::max(), std::uint64_t{0} - 64}) {
        Liar liar;
        liar.publish(head);
        liar.refused("it says that it ends at");
    }
    // Backwards, after something was read.
    Liar liar;
    liar.write(0, {.size = 8});
    liar.publish(64);
    assert_true(need(liar.next()).has_value());
    liar.publish(0);
    liar.refused("it says that it ends at");
}

void ring_never_holds_more_than_was_given_back(void **) {
    Liar liar;
    for (std::uint64_t at = 0; at < 4096; at += 64)
        liar.write(at, {.size = 8});
    liar.publish(4096);
    std::vector<channel::Record> records;
    for (int i = 0; i < 64; ++i)
        records.push_back(*need(liar.next()));
    // Nothing was released, so nothing new can be there.
    liar.publish(4096 + 64);
    liar.refused("room is given back up to 0x0");
}

void record_sizes(void **) {
    struct Case {
        std::uint32_t size;
        std::uint64_t head;
    };
    for (const auto &[size, head] :
         {Case{33, 64}, Case{1025, 2048}, Case{~0U, 4096}, Case{~0U - 31, 64}, Case{0x8000'0000U, 128}}) {
        Liar liar;
        liar.write(0, {.size = size});
        liar.publish(head);
        liar.refused("a record at 0x0 says");
    }
    // Longer than what is left up to the ring's end.
    Liar liar;
    for (std::uint64_t at = 0; at < 4096 - 64; at += 64)
        liar.write(at, {.size = 8});
    liar.publish(4096 - 64);
    for (int i = 0; i < 63; ++i)
        liar.pair.server->release(*need(liar.next()));
    liar.write(4096 - 64, {.size = 100});
    liar.publish(4096 + 64);
    liar.refused("100 bytes; 64 are there");
}

void padding(void **) {
    for (const std::uint32_t size : {0U, 32U, 4096U, 4096U - 32U - 64U, ~0U - 31U}) {
        Liar liar;
        liar.write(0, {.size = size, .flags = channel::kPaddingRecord});
        liar.publish(4096);
        liar.refused("does not end where the ring ends");
    }
    // Right in itself, but not published as a whole.
    Liar liar;
    liar.write(0, {.size = 4096 - 32, .flags = channel::kPaddingRecord});
    liar.publish(64);
    liar.refused("does not end where the ring ends");
    // Nothing but padding: no record, and no endless loop.
    Liar idle;
    idle.write(0, {.size = 4096 - 32, .flags = channel::kPaddingRecord});
    idle.publish(4096);
    assert_false(need(idle.next()).has_value());
}

void slots_and_pieces(void **) {
    struct Case {
        RecordHeader header;
        std::string_view rule;
    };
    const std::array cases{
        Case{{.size = 8, .reply_slot = 4}, "reply slot 4 of 4"},
        Case{{.size = 8, .reply_slot = ~0U - 1}, "reply slot 4294967294 of 4"},
        Case{{.size = 8, .reply_slot = 0, .piece = 2}, "piece 2 of 2"},
        Case{{.size = 8, .piece = 0}, "a record without reply names piece 0"},
    };
    for (const auto &[header, rule] : cases) {
        Liar liar;
        liar.write(0, header);
        liar.publish(64);
        liar.refused(rule);
    }
    for (const auto &[second, rule] :
         {Case{{.size = 8, .reply_slot = 1}, "reply slot 1 still waits"},
          Case{{.size = 8, .reply_slot = 2, .piece = 1}, "piece 1 still waits"}}) {
        Liar liar;
        liar.write(0, {.size = 8, .reply_slot = 1, .piece = 1});
        liar.write(64, second);
        liar.publish(128);
        assert_true(need(liar.next()).has_value());
        liar.refused(rule);
    }
}

// The words that sleepers wait on, at random while a reply is given and records are read.
void futex_words(void **) {
    Liar liar;
    std::mt19937 random(1);
    for (std::uint64_t i = 0; i < 200; ++i) {
        const std::uint64_t at = i * 64;
        liar.segment.control().consumer_sleeps.store(static_cast<std::uint32_t>(random()));
        liar.segment.control().producer_sleeps.store(static_cast<std::uint32_t>(random()));
        liar.segment.control().room_wanted.store(random());
        liar.segment.control().tail.store(random());
        liar.segment.slot(0).state.store(static_cast<std::uint32_t>(random()));
        liar.write(at, {.size = 8, .reply_slot = 0});
        liar.publish(at + 64);
        const auto record = *need(liar.next());
        liar.pair.server->release(record);
        need(liar.pair.server->reply(record.header, record.message, 0));
        assert_int_equal(liar.segment.slot(0).state.load(), std::to_underlying(channel::SlotState::done));
    }
}

// Anything at all in the whole segment.
void noise(void **) {
    std::mt19937_64 random(2);
    unsigned accepted = 0;
    for (int round = 0; round < 2000; ++round) {
        Liar liar;
        const auto ring = liar.segment.ring();
        // Mostly plausible headers with some fields broken, or the loop would only ever see the first check.
        for (std::uint64_t at = 0; at < ring.size(); at += 64) {
            RecordHeader header{.size = static_cast<std::uint32_t>(random() % 200)};
            if (random() % 3 == 0)
                header.reply_slot = static_cast<std::uint32_t>(random() % 6);
            if (random() % 6 == 0)
                header.piece = static_cast<std::uint32_t>(random() % 3);
            if (random() % 16 == 0)
                header.flags = static_cast<std::uint32_t>(random());
            if (random() % 16 == 0)
                header.size = static_cast<std::uint32_t>(random());
            liar.write(at, header);
        }
        liar.publish(random() % 65 * 64);
        for (int i = 0; i < 70; ++i) {
            const auto record = liar.pair.server->next(Deadline::after(std::chrono::milliseconds(0)));
            if (!record || !*record)
                break;
            ++accepted;
            const auto &bytes = (*record)->message;
            assert_true(bytes.empty() || (bytes.data() >= ring.data() - 8192 && bytes.size() <= 1024));
            std::vector<std::byte> copy(bytes.size());
            channel::copy_once(copy, bytes);
            if (random() % 2 == 0)
                liar.pair.server->release(**record);
            if ((*record)->header.reply_slot != channel::kNoReply && random() % 2 == 0)
                need(liar.pair.server->reply(
                    (*record)->header, std::span(copy).first(std::min<std::size_t>(copy.size(), 64)), 0));
        }
    }
    assert_true(accepted > 1000);
}

void geometry_is_checked(void **) {
    const auto refused = [](channel::Geometry geometry, std::string_view member) {
        const auto checked = channel::check(geometry);
        if (checked)
            fail("a wrong geometry was accepted: " + std::string(member));
        expect_contains(checked.error().message(), member);
    };
    auto geometry = small_geometry();
    need(channel::check(geometry));
    need(channel::check(channel::Geometry{}));
    geometry.ring_size = 5000;
    refused(geometry, "ring_size");
    geometry = small_geometry();
    geometry.record_limit = 2048;
    refused(geometry, "record_limit");
    geometry = small_geometry();
    geometry.slots = 65;
    refused(geometry, "slots");
    geometry.slots = 0;
    refused(geometry, "slots");
    geometry = small_geometry();
    geometry.inline_size = 0;
    refused(geometry, "inline_size");
    geometry = small_geometry();
    geometry.pieces = 65;
    refused(geometry, "pieces");
    geometry = small_geometry();
    geometry.piece_size = 5000;
    refused(geometry, "piece_size");
}

// A file that could shrink under the mapping is no segment.
void segment_must_be_sealed(void **) {
    const singularity::UniqueFd open(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const auto size = static_cast<off_t>(channel::segment_size(small_geometry()));
    assert_int_equal(ftruncate(open.get(), size), 0);
    const auto unsealed = channel::Segment::map(open.get(), small_geometry());
    assert_false(unsealed.has_value());
    expect_contains(unsealed.error().message(), "sealed");
    assert_int_equal(ftruncate(open.get(), size - 1), 0);
    const auto shorter = channel::Segment::map(open.get(), small_geometry());
    assert_false(shorter.has_value());
    expect_contains(shorter.error().message(), "its geometry says");
    // What the daemon made cannot be changed by whoever gets it.
    const auto server = need(channel::ServerEnd::create(small_geometry()));
    assert_int_equal(ftruncate(server->segment_fd(), 0), -1);
    assert_int_equal(fcntl(server->segment_fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(ring_positions),
        cmocka_unit_test(ring_never_holds_more_than_was_given_back),
        cmocka_unit_test(record_sizes),
        cmocka_unit_test(padding),
        cmocka_unit_test(slots_and_pieces),
        cmocka_unit_test(futex_words),
        cmocka_unit_test(noise),
        cmocka_unit_test(geometry_is_checked),
        cmocka_unit_test(segment_must_be_sealed),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
