// SPDX-License-Identifier: GPL-2.0-or-later
// How long a module image is. The images are made here, byte by byte, from facts about the formats.
#include "cmocka.hpp"
#include "image.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <elf.h>
#include <sys/mman.h>

using namespace singularity;
using namespace singularity::client;

namespace {

using Bytes = std::vector<std::byte>;

template <class T>
void append(Bytes &bytes, T value) {
    const auto *const from = static_cast<const std::byte *>(static_cast<const void *>(&value));
    bytes.insert(bytes.end(), from, from + sizeof(value));
}

Bytes fatbin(std::uint64_t size) {
    Bytes bytes;
    append(bytes, std::uint32_t{0xBA55ED50});
    append(bytes, std::uint16_t{1});
    append(bytes, std::uint16_t{16});
    append(bytes, size);
    bytes.resize(16 + size, std::byte{0x5A});
    return bytes;
}

// Header, one segment, a section of data behind it, a NOBITS section that reaches far, and the section table
// last.
Bytes elf() {
    constexpr std::size_t kData = 300;
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_machine = 190;
    header.e_ehsize = sizeof(header);
    header.e_phoff = sizeof(header);
    header.e_phnum = 1;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_shoff = 512;
    header.e_shnum = 3;
    header.e_shentsize = sizeof(Elf64_Shdr);
    Elf64_Phdr segment{};
    segment.p_offset = 128;
    segment.p_filesz = 64;
    Elf64_Shdr data{};
    data.sh_type = SHT_PROGBITS;
    data.sh_offset = 200;
    data.sh_size = kData;
    Elf64_Shdr nothing{};
    nothing.sh_type = SHT_NOBITS;
    nothing.sh_offset = 1 << 20;
    nothing.sh_size = 1 << 20;
    Bytes bytes(512);
    std::memcpy(bytes.data(), &header, sizeof(header));
    std::memcpy(bytes.data() + header.e_phoff, &segment, sizeof(segment));
    append(bytes, Elf64_Shdr{});
    append(bytes, data);
    append(bytes, nothing);
    return bytes;
}

constexpr std::string_view kPtx =
    "\n// a kernel\n.version 8.0\n.target sm_90\n.address_size 64\n.visible .entry f() { ret; }\n";

Bytes ptx() {
    Bytes bytes;
    for (const char each : kPtx)
        bytes.push_back(static_cast<std::byte>(each));
    bytes.push_back(std::byte{0});
    return bytes;
}

void each_kind_ends_where_it_ends(void ** /*state*/) {
    auto image = fatbin(1000);
    image.resize(image.size() + 100);
    assert_int_equal(*image_length(image), 1016);
    auto binary = elf();
    const auto whole = binary.size();
    binary.resize(whole + 100);
    assert_int_equal(*image_length(binary), whole);
    auto text = ptx();
    assert_int_equal(*image_length(text), kPtx.size());
    text.pop_back();
    assert_int_equal(*image_length(text), kPtx.size());
}

void an_elf_without_sections_ends_with_its_segments(void ** /*state*/) {
    auto bytes = elf();
    Elf64_Ehdr header{};
    std::memcpy(&header, bytes.data(), sizeof(header));
    header.e_shnum = 0;
    header.e_shoff = 0;
    std::memcpy(bytes.data(), &header, sizeof(header));
    assert_int_equal(*image_length(bytes), 128 + 64);
}

void a_wrapper_leads_to_its_fatbin(void ** /*state*/) {
    const auto image = fatbin(64);
    struct {
        std::uint32_t magic = 0x466243B1;
        std::uint32_t version = 1;
        const void *fatbin = nullptr;
        const void *list = nullptr;
    } wrapper;
    wrapper.fatbin = image.data();
    const auto found = image_at(&wrapper);
    assert_true(found.has_value());
    assert_ptr_equal(found->bytes.data(), image.data());
    assert_int_equal(found->bytes.size(), image.size());
    wrapper.fatbin = nullptr;
    assert_false(image_at(&wrapper).has_value());
    assert_false(image_at(nullptr).has_value());
}

void the_fatbins_of_a_list_travel_as_one_image(void ** /*state*/) {
    const auto linked = fatbin(20); // 36 bytes: the next one begins at 40
    const auto first = fatbin(64);
    const auto second = fatbin(7);
    const void *const list[] = {first.data(), second.data(), nullptr};
    struct {
        std::uint32_t magic = 0x466243B1;
        std::uint32_t version = 2;
        const void *fatbin = nullptr;
        const void *list = nullptr;
    } wrapper;
    wrapper.fatbin = linked.data();
    wrapper.list = list;
    auto wanted = linked;
    wanted.resize(40);
    wanted.insert(wanted.end(), first.begin(), first.end());
    wanted.insert(wanted.end(), second.begin(), second.end());
    const auto found = image_at(&wrapper);
    assert_true(found.has_value());
    assert_true(std::ranges::equal(found->bytes, wanted));
    // The list counts where the version says that there is one.
    wrapper.version = 1;
    assert_ptr_equal(image_at(&wrapper)->bytes.data(), linked.data());
    const void *const nothing[] = {nullptr};
    wrapper.version = 2;
    wrapper.list = nothing;
    assert_ptr_equal(image_at(&wrapper)->bytes.data(), linked.data());
    const void *const garbage[] = {first.data(), "no image at all", nullptr};
    wrapper.list = garbage;
    assert_false(image_at(&wrapper).has_value());
}

void nothing_behind_the_end_is_read(void ** /*state*/) {
    // Each image ends where readable memory ends.
    constexpr std::size_t kPage = 4096;
    auto *const pages = static_cast<std::byte *>(
        mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + kPage, kPage, PROT_NONE), 0);
    for (const auto &image : {fatbin(48), elf(), ptx()}) {
        std::byte *const at = pages + kPage - image.size();
        std::memcpy(at, image.data(), image.size());
        const auto found = image_at(at);
        if (!found)
            test::fail(found.error().message());
        assert_ptr_equal(found->bytes.data(), at);
        assert_true(found->bytes.size() <= image.size());
    }
    munmap(pages, 2 * kPage);
}

void garbage_is_refused(void ** /*state*/) {
    assert_false(image_length(Bytes{}).has_value());
    assert_false(image_length(Bytes(3)).has_value());
    assert_false(image_length(Bytes(100)).has_value());
    assert_false(image_length(Bytes(100, std::byte{'x'})).has_value());
    auto cut = fatbin(100);
    cut.resize(50);
    assert_false(image_length(cut).has_value());
    cut.resize(8);
    assert_false(image_length(cut).has_value());
}

void changed_images_never_end_outside(void ** /*state*/) {
    std::mt19937_64 random(3);
    for (const auto &image : {fatbin(100), elf(), ptx()})
        for (int round = 0; round < 20000; ++round) {
            auto changed = image;
            for (auto changes = random() % 4 + 1; changes != 0; --changes)
                changed[random() % std::min<std::size_t>(changed.size(), 96)] =
                    static_cast<std::byte>(random());
            changed.resize(random() % (changed.size() + 1));
            changed.shrink_to_fit();
            if (const auto length = image_length(changed))
                assert_true(*length <= changed.size());
        }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_ends_where_it_ends),
        cmocka_unit_test(an_elf_without_sections_ends_with_its_segments),
        cmocka_unit_test(a_wrapper_leads_to_its_fatbin),
        cmocka_unit_test(the_fatbins_of_a_list_travel_as_one_image),
        cmocka_unit_test(nothing_behind_the_end_is_read),
        cmocka_unit_test(garbage_is_refused),
        cmocka_unit_test(changed_images_never_end_outside),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
