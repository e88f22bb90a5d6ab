// SPDX-License-Identifier: GPL-2.0-or-later
#include "module_variables.hpp"

#include "cmocka.hpp"
#include "fatbins.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <elf.h>

namespace {

using namespace singularity;
using namespace singularity::proxyd;

constexpr std::string_view kText = R"(
.version 8.0
.target sm_90
.address_size 64
// .global .b8 in_a_comment[4];
/* .global .b8 in_another[4]; */
.file 1 "a.global .b8 in_a_string[4];"
.extern .func (.param .b32 func_retval0) vprintf(.param .b64 vprintf_param_0, .param .b64 vprintf_param_1);
.visible .global .align 4 .u32 counter;
.global .align 8 .b8 table[64] = {1, 2, 3};
.visible .const .align 4 .f32 factor = 0f3F800000;
.global .u64 pointer = generic(table);
.global .attribute(.managed) .align 4 .u32 managed_one;
.extern .shared .align 16 .b8 dynamic_shared[];
.visible .entry kernel(.param .u64 kernel_param_0)
.maxntid 256, 1, 1
{
    .shared .align 4 .b8 scratch[1024];
    .reg .b32 %r<2>;
    mov.u32 %r1, counter;
    ret;
}
.global .align 1 .b8 behind_the_kernel[3];
)";

void variables_of_a_module(void ** /*state*/) {
    const auto names = names_of_ptx(kText);
    const std::vector<std::string> expected{"counter", "table",       "factor",
                                            "pointer", "managed_one", "behind_the_kernel"};
    std::string found;
    for (const auto &name : names.variables)
        found += name + " ";
    std::string wanted;
    for (const auto &name : expected)
        wanted += name + " ";
    test::expect_equal(found, wanted);
    assert_false(names.allocates);
}

void a_kernel_that_allocates(void ** /*state*/) {
    constexpr std::string_view kDeclared =
        ".extern .func (.param .b64 r) malloc(.param .b64 s);\n"
        ".visible .func (.param .b64 r) helper(.param .b64 s)\n"
        "{ call.uni (r), malloc, (s); ret; }\n"
        ".visible .func pointed_to() { .reg .b64 %f; mov.u64 %f, helper; ret; }\n";
    const auto allocates = [&](std::string_view rest) {
        return names_of_ptx(std::string(kDeclared).append(rest)).allocates;
    };
    // Declared, and called by functions that nothing calls.
    assert_false(allocates(""));
    assert_false(allocates(".visible .entry k(.param .b64 malloc_size) .maxntid 256, 1, 1 { ret; }"));
    assert_false(allocates(".global .align 8 .u64 table[1] = {1};"));
    assert_true(allocates(".entry k() { call.uni (r), malloc, (s); ret; }"));
    assert_true(
        allocates(".visible .entry k(.param .u64 p) .maxntid 256, 1, 1 { call.uni (r), helper, (s); ret; }"));
    assert_true(allocates(".entry k() { call.uni pointed_to, (); ret; }"));
    assert_true(allocates(".global .align 8 .u64 table[2] = {generic(k), pointed_to};"));
    assert_true(allocates(".alias other, helper;\n.entry k() { call.uni (r), other, (s); ret; }"));
}

void garbage_has_no_names(void ** /*state*/) {
    for (const std::string_view text : {"", "}", "{{{", "\"", "/*", ".global", ".global .b8", ";;;,,,==="})
        assert_true(names_of_ptx(text).variables.empty());
}

constexpr std::array<std::string_view, 7> kSections{"",           ".shstrtab",     ".strtab",     ".symtab",
                                                    ".nv.global", ".nv.constant3", ".nv.shared.k"};
constexpr std::uint16_t kGlobal = 4;
constexpr std::uint16_t kConstant = 5;
constexpr std::uint16_t kShared = 6;

struct Symbol {
    std::string_view name;
    unsigned char type;
    std::uint16_t section;
};

template <class T>
void put(std::vector<std::byte> &bytes, std::uint64_t at, const T &value) {
    if (bytes.size() < at + sizeof(T))
        bytes.resize(at + sizeof(T));
    std::memcpy(bytes.data() + at, &value, sizeof(T));
}

std::uint32_t name_in(std::string &table, std::string_view name) {
    const auto at = table.size();
    table.append(name).push_back('\0');
    return static_cast<std::uint32_t>(at);
}

// Machine code with these symbols: as nvcc -cubin makes it, but for all that nobody looks at here.
std::vector<std::byte> machine_code(const std::vector<Symbol> &symbols) {
    constexpr std::uint64_t kHeaders = sizeof(Elf64_Ehdr);
    constexpr std::uint64_t kTables = kHeaders + kSections.size() * sizeof(Elf64_Shdr);
    std::string section_names;
    std::string names(1, '\0');
    std::vector<Elf64_Sym> entries(1);
    for (const auto &symbol : symbols) {
        Elf64_Sym entry{};
        entry.st_name = name_in(names, symbol.name);
        entry.st_info = ELF64_ST_INFO(STB_GLOBAL, symbol.type);
        entry.st_shndx = symbol.section;
        entry.st_size = 4;
        entries.push_back(entry);
    }
    std::vector<std::byte> bytes;
    for (std::size_t index = 0; index < kSections.size(); ++index) {
        Elf64_Shdr section{};
        section.sh_name = name_in(section_names, kSections[index]);
        section.sh_type = index == 3   ? SHT_SYMTAB
                          : index == 0 ? SHT_NULL
                          : index < 3  ? SHT_STRTAB
                                       : SHT_NOBITS;
        section.sh_offset = kTables + index * 4096;
        section.sh_size = index == 3 ? entries.size() * sizeof(Elf64_Sym) : 4096;
        section.sh_link = index == 3 ? 2 : 0;
        section.sh_entsize = index == 3 ? sizeof(Elf64_Sym) : 0;
        put(bytes, kHeaders + index * sizeof(section), section);
    }
    bytes.resize(kTables + kSections.size() * 4096);
    std::memcpy(bytes.data() + kTables + 4096, section_names.data(), section_names.size());
    std::memcpy(bytes.data() + kTables + 2 * 4096, names.data(), names.size());
    std::memcpy(bytes.data() + kTables + 3 * 4096, entries.data(), entries.size() * sizeof(Elf64_Sym));
    Elf64_Ehdr header{};
    std::memcpy(static_cast<void *>(header.e_ident), ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_machine = 190; // EM_CUDA
    header.e_flags = 90;
    header.e_ehsize = sizeof(header);
    header.e_shoff = kHeaders;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = kSections.size();
    header.e_shstrndx = 1;
    put(bytes, 0, header);
    return bytes;
}

void variables_lie_in_their_sections(void ** /*state*/) {
    const auto code = machine_code({{"global", STT_OBJECT, kGlobal},
                                    {"constant", STT_OBJECT, kConstant},
                                    {"function", STT_FUNC, kGlobal},
                                    {"shared", STT_OBJECT, kShared},
                                    {".nv.reservedSmem.offset0", STT_OBJECT, SHN_UNDEF},
                                    {"elsewhere", STT_OBJECT, 77}});
    const auto found = names_of_module(code, 90);
    assert_true(found.variables == (std::vector<std::string>{"global", "constant"}));
    assert_false(found.allocates);
    assert_true(names_of_module(machine_code({{"malloc", STT_FUNC, SHN_UNDEF}}), 90).allocates);
}

// A fatbin with one entry: kind 1 is PTX, 2 machine code.
std::vector<std::byte> fatbin(std::uint16_t kind, std::uint32_t sm, std::span<const std::byte> payload) {
    constexpr std::uint32_t kEntryHeader = 64;
    std::vector<std::byte> bytes;
    put(bytes, 0, std::uint32_t{0xBA55ED50});
    put(bytes, 4, std::uint16_t{1});
    put(bytes, 6, std::uint16_t{16});
    put(bytes, 8, std::uint64_t{kEntryHeader + payload.size()});
    put(bytes, 16, kind);
    put(bytes, 18, std::uint16_t{0x101});
    put(bytes, 20, kEntryHeader);
    put(bytes, 24, std::uint64_t{payload.size()});
    put(bytes, 44, sm);
    put(bytes, 56, std::uint64_t{1}); // 64-bit addresses
    bytes.resize(16 + kEntryHeader);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    return bytes;
}

void append_fatbin(std::vector<std::byte> &all, const std::vector<std::byte> &one) {
    all.resize((all.size() + 7) / 8 * 8);
    all.insert(all.end(), one.begin(), one.end());
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

void parts_that_are_linked_have_the_names_of_all(void ** /*state*/) {
    const auto one = fatbin(1, 80,
                            bytes_of(".version 8.0\n.target sm_80\n.visible .global .u32 counter;\n"
                                     ".extern .const .u32 table[4];\n"));
    const auto other = fatbin(1, 80,
                              bytes_of(".version 8.0\n.target sm_80\n.visible .const .u32 table[4];\n"
                                       ".extern .func (.param .b64 r) malloc(.param .b64 s);\n"
                                       ".visible .func take() { call (r), malloc, (s); ret; }\n"));
    const auto caller = fatbin(1, 80,
                               bytes_of(".version 8.0\n.target sm_80\n.extern .func take();\n"
                                        ".visible .entry k() { call take, (); ret; }\n"));
    std::vector<std::byte> image;
    append_fatbin(image, one);
    assert_false(names_of_module(image, 90).allocates);
    append_fatbin(image, other);
    const auto found = names_of_module(image, 90);
    assert_true(found.variables == (std::vector<std::string>{"counter", "table"}));
    assert_false(found.allocates);
    append_fatbin(image, caller);
    assert_true(names_of_module(image, 90).allocates);
    // Machine code that was linked of them has the last word, on the device that it is for.
    std::vector<std::byte> linked;
    append_fatbin(linked, fatbin(2, 90, machine_code({{"counter", STT_OBJECT, kGlobal}})));
    append_fatbin(linked, one);
    append_fatbin(linked, other);
    append_fatbin(linked, caller);
    assert_true(names_of_module(linked, 90).variables == std::vector<std::string>{"counter"});
    assert_false(names_of_module(linked, 90).allocates);
    assert_int_equal(names_of_module(linked, 100).variables.size(), 2);
}

void the_parts_of_an_image_are_found(void ** /*state*/) {
    std::vector<std::byte> image;
    for (const std::size_t size : {5, 8, 100})
        append_fatbin(image, fatbin(1, 80, std::vector<std::byte>(size)));
    const auto parts = fatbins_of(image);
    assert_true(parts.has_value());
    assert_int_equal(parts->size(), 3);
    assert_int_equal((*parts)[0].size(), 16 + 64 + 5);
    assert_ptr_equal((*parts)[1].data(), image.data() + 88);
    assert_int_equal((*parts)[2].size(), 16 + 64 + 100);
    // One that says more than there is, wherever it stands.
    for (const std::size_t at : {std::size_t{8}, std::size_t{88 + 8}, std::size_t{176 + 8}})
        for (const std::uint64_t size : {image.size() - at - 7, ~std::uint64_t{0}, ~std::uint64_t{15}}) {
            auto changed = image;
            put(changed, at, size);
            assert_false(fatbins_of(changed).has_value());
        }
    auto short_header = image;
    put(short_header, 88 + 6, std::uint16_t{15});
    assert_false(fatbins_of(short_header).has_value());
    assert_false(fatbins_of(bytes_of(".version 8.0")).has_value());
    assert_false(fatbins_of({}).has_value());
    // What follows the last one is nobody's.
    image.resize(image.size() + 20, std::byte{1});
    assert_int_equal(fatbins_of(image)->size(), 3);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(variables_of_a_module),
        cmocka_unit_test(a_kernel_that_allocates),
        cmocka_unit_test(garbage_has_no_names),
        cmocka_unit_test(variables_lie_in_their_sections),
        cmocka_unit_test(parts_that_are_linked_have_the_names_of_all),
        cmocka_unit_test(the_parts_of_an_image_are_found),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
