// SPDX-License-Identifier: GPL-2.0-or-later
#include "module_variables.hpp"

#include "cmocka.hpp"

#include <array>
#include <cstdint>
#include <cstring>
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
    assert_true(names_of_ptx(".extern .func (.param .b64 r) malloc(.param .b64 s);").allocates);
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

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(variables_of_a_module),
        cmocka_unit_test(a_kernel_that_allocates),
        cmocka_unit_test(garbage_has_no_names),
        cmocka_unit_test(variables_lie_in_their_sections),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
