// SPDX-License-Identifier: GPL-2.0-or-later
// Containers made here byte by byte, whole and damaged.
#include "ptx/fatbin.hpp"

#include "cmocka.hpp"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <lz4.h>
#include <zstd.h>

namespace {

using namespace singularity;
using namespace singularity::ptx;
using test::expect_contains;
using test::expect_equal;
using Bytes = std::vector<std::byte>;

constexpr std::string_view kText =
    "//\n.version 9.0\n.target sm_90\n.address_size 64\n// text text text text text text\n";

template <class T>
void put(Bytes &bytes, std::size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
}

Bytes compressed(std::string_view text, Compression how) {
    Bytes out(text.size() + 200);
    if (how == Compression::none)
        std::memcpy(out.data(), text.data(), text.size());
    const std::size_t size = how == Compression::none ? text.size()
                             : how == Compression::lz4
                                 ? static_cast<std::size_t>(LZ4_compress_default(
                                       text.data(), reinterpret_cast<char *>(out.data()),
                                       static_cast<int>(text.size()), static_cast<int>(out.size())))
                                 : ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3);
    out.resize(size);
    return out;
}

// The entry's header has 8 bytes more than the least, and options behind them.
Bytes entry(std::uint16_t kind, std::uint32_t sm, Compression how, std::uint64_t flags = 0) {
    constexpr std::string_view options = "--maxrregcount=96";
    constexpr std::uint32_t header = 0x68;
    const Bytes payload = compressed(kText, how);
    const std::size_t padded = (payload.size() + 7) / 8 * 8;
    Bytes bytes(header + padded);
    put<std::uint16_t>(bytes, 0, kind);
    put<std::uint16_t>(bytes, 2, 0x0101);
    put<std::uint32_t>(bytes, 4, header);
    put<std::uint64_t>(bytes, 8, padded);
    put<std::uint32_t>(bytes, 16, how == Compression::none ? 0 : static_cast<std::uint32_t>(payload.size()));
    put<std::uint32_t>(bytes, 20, 64);
    put<std::uint32_t>(bytes, 64, 72);
    put<std::uint32_t>(bytes, 68, static_cast<std::uint32_t>(options.size()));
    put<std::uint16_t>(bytes, 26, 9);
    put<std::uint32_t>(bytes, 28, sm);
    put<std::uint64_t>(bytes, 40,
                       flags | fatbin_flag::kAddress64 |
                           (how == Compression::lz4    ? fatbin_flag::kLz4
                            : how == Compression::zstd ? fatbin_flag::kZstd
                                                       : 0));
    put<std::uint64_t>(bytes, 56, how == Compression::none ? 0 : kText.size());
    std::memcpy(bytes.data() + 72, options.data(), options.size());
    std::memcpy(bytes.data() + header, payload.data(), payload.size());
    return bytes;
}

Bytes fatbin(std::initializer_list<Bytes> entries) {
    Bytes bytes(16);
    for (const Bytes &one : entries)
        bytes.insert(bytes.end(), one.begin(), one.end());
    put<std::uint32_t>(bytes, 0, 0xBA55ED50);
    put<std::uint16_t>(bytes, 4, 1);
    put<std::uint16_t>(bytes, 6, 16);
    put<std::uint64_t>(bytes, 8, bytes.size() - 16);
    return bytes;
}

Bytes sample() {
    return fatbin({entry(1, 75, Compression::none), entry(1, 90, Compression::lz4),
                   entry(1, 120, Compression::zstd), entry(8, 90, Compression::none),
                   entry(1, 100, Compression::zstd, fatbin_flag::kFamilySpecific)});
}

void reads_every_compression(void ** /*state*/) {
    const Bytes bytes = sample();
    const auto entries = read_image(bytes);
    if (!entries)
        test::fail(entries.error().message());
    assert_int_equal(entries->size(), 5);
    for (const std::size_t i : {0U, 1U, 2U}) {
        const auto text = ptx_text((*entries)[i]);
        if (!text)
            test::fail(text.error().message());
        expect_equal(*text, kText);
        expect_equal((*entries)[i].options, "--maxrregcount=96");
    }
    assert_true((*entries)[1].compression == Compression::lz4 &&
                (*entries)[2].compression == Compression::zstd);
    assert_int_equal((*entries)[1].version_major, 9);
    assert_true((*entries)[3].kind == EntryKind::other && (*entries)[3].raw_kind == 8);
    expect_contains(ptx_text((*entries)[3]).error().message(), "kind 8");
}

void selects_what_the_device_can_run(void ** /*state*/) {
    const Bytes bytes = sample();
    const auto entries = read_image(bytes);
    assert_null(select_ptx(*entries, 70));
    assert_int_equal(select_ptx(*entries, 89)->sm, 75);
    assert_int_equal(select_ptx(*entries, 90)->sm, 90);
    assert_int_equal(select_ptx(*entries, 100)->sm, 100);
    assert_int_equal(select_ptx(*entries, 103)->sm, 90);
    assert_int_equal(select_ptx(*entries, 121)->sm, 120);
}

void takes_text_elf_and_sections(void ** /*state*/) {
    const auto text = read_image(std::as_bytes(std::span(kText)));
    assert_true(text.has_value() && (*text)[0].kind == EntryKind::ptx);
    expect_equal(*ptx_text((*text)[0]), kText);
    constexpr std::string_view elf = "\x7f"
                                     "ELF....";
    assert_true(read_image(std::as_bytes(std::span(elf)))->at(0).kind == EntryKind::elf);

    Bytes section = sample();
    section.resize(section.size() + 16);
    const Bytes second = sample();
    section.insert(section.end(), second.begin(), second.end());
    const auto all = read_fatbin_section(section);
    assert_true(all.has_value());
    assert_int_equal(all->size(), 10);
    assert_int_equal((*all)[5].offset, second.size() + 32);
    assert_int_equal(*fatbin_size(second), second.size());
}

void says_what_is_wrong_and_where(void ** /*state*/) {
    const auto refuse = [](auto change) {
        Bytes bytes = sample();
        change(bytes);
        const auto entries = read_image(bytes);
        if (!entries)
            return entries.error().message();
        for (const FatbinEntry &one : *entries)
            if (const auto unpacked = payload(one); !unpacked)
                return unpacked.error().message();
        return std::string("accepted");
    };
    const std::size_t second = 16 + entry(1, 75, Compression::none).size();
    const std::size_t third = second + entry(1, 90, Compression::lz4).size();
    const std::string at_second = "fatbin at offset " + std::to_string(second) + ": ";
    expect_contains(refuse([](Bytes &b) { b.resize(7); }), "7 bytes are left");
    expect_contains(refuse([](Bytes &b) { put<std::uint32_t>(b, 0, 0x466243B1); }), "wrapper");
    expect_contains(refuse([](Bytes &b) { put<std::uint32_t>(b, 0, 17); }), "magic is 0x00000011");
    expect_contains(refuse([](Bytes &b) { put<std::uint16_t>(b, 4, 2); }), "version 2");
    expect_contains(refuse([](Bytes &b) { put<std::uint64_t>(b, 8, UINT64_MAX); }), "is impossible");
    expect_contains(refuse([](Bytes &b) { b.pop_back(); }), "is more than the");
    expect_contains(refuse([&](Bytes &b) { put<std::uint32_t>(b, second + 4, 8); }),
                    at_second + "header size 8 is not");
    expect_contains(refuse([&](Bytes &b) { put<std::uint64_t>(b, second + 8, UINT64_MAX - 3); }),
                    at_second + "payload size 18446744073709551612");
    expect_contains(refuse([&](Bytes &b) { put<std::uint32_t>(b, second + 16, 100000); }),
                    at_second + "compressed size 100000");
    expect_contains(refuse([&](Bytes &b) { put<std::uint32_t>(b, second + 20, 0xFFFFFFF0); }),
                    at_second + "options record at 4294967280");
    expect_contains(refuse([&](Bytes &b) {
                        put<std::uint32_t>(b, second + 32, 64);
                        put<std::uint32_t>(b, second + 36, 1000);
                    }),
                    "text of 1000 bytes at 64");
    expect_contains(refuse([&](Bytes &b) { put<std::uint64_t>(b, second + 56, 1U << 24U); }),
                    "of LZ4 cannot become 16777216 bytes");
    expect_contains(refuse([&](Bytes &b) { put<std::uint64_t>(b, second + 56, UINT64_MAX); }),
                    "more than the 268435456");
    expect_contains(refuse([&](Bytes &b) { put<std::uint64_t>(b, second + 56, kText.size() + 1); }),
                    "is corrupt");
    expect_contains(refuse([&](Bytes &b) { put<std::uint64_t>(b, third + 56, 1U << 24U); }),
                    "the entry 16777216");
    expect_contains(refuse([&](Bytes &b) { put<std::uint32_t>(b, third + 0x68, 0); }), "no number of bytes");
}

void damaged_bytes_are_survived(void ** /*state*/) {
    const Bytes good = sample();
    std::mt19937 random(7);
    int refused = 0;
    for (int round = 0; round < 10000; ++round) {
        Bytes bytes = good;
        for (auto edits = 1 + random() % 4; edits > 0; --edits) {
            const std::size_t at = random() % bytes.size();
            if (random() % 8 == 0)
                bytes.resize(at + 1);
            else
                bytes[at] = random() % 4 == 0 ? std::byte{0xFF} : static_cast<std::byte>(random());
        }
        // On the heap, exactly as long: the sanitizer sees the first byte that is read behind the end.
        const Bytes exact(bytes.begin(), bytes.end());
        const auto entries = random() % 2 == 0 ? read_image(exact) : read_fatbin_section(exact);
        if (!entries) {
            ++refused;
            continue;
        }
        for (const FatbinEntry &one : *entries)
            if (const auto unpacked = payload(one); unpacked && unpacked->size() != one.size)
                test::fail("a payload of another size than the entry says");
    }
    assert_in_range(refused, 1, 9999);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_compression),     cmocka_unit_test(selects_what_the_device_can_run),
        cmocka_unit_test(takes_text_elf_and_sections), cmocka_unit_test(says_what_is_wrong_and_where),
        cmocka_unit_test(damaged_bytes_are_survived),
    };
    return cmocka_run_group_tests_name("proxy_softgpu_fatbin", tests, nullptr, nullptr);
}
