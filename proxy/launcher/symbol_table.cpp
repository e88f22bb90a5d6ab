// SPDX-License-Identifier: GPL-2.0-or-later
#include "symbol_table.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

namespace singularity::redirect {

namespace {

struct Table {
    ElfW(Sym) *symbols = nullptr;
    const char *strings = nullptr;
    std::size_t count = 0;
};

// A hash table of GNU's says where chains begin; the last one's end is where the symbols end.
std::size_t count_by_gnu_hash(const std::uint32_t *hash) {
    const std::uint32_t buckets = hash[0];
    const std::uint32_t first = hash[1];
    const std::uint32_t filter_words = hash[2];
    const auto *const bucket = hash + 4 + (filter_words * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t)));
    const auto *const chain = bucket + buckets;
    std::uint32_t last = 0;
    for (std::uint32_t at = 0; at < buckets; ++at)
        last = std::max(last, bucket[at]);
    if (last < first)
        return first;
    while ((chain[last - first] & 1U) == 0)
        ++last;
    return last + 1;
}

Table table_of(const link_map &object) {
    // The linker of the C library adds the object's address to these itself, where it can write to them.
    const auto address = [&](ElfW(Addr) value) {
        return value < object.l_addr ? value + object.l_addr : value;
    };
    Table table;
    const std::uint32_t *gnu_hash = nullptr;
    for (const ElfW(Dyn) *entry = object.l_ld; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
        const auto value = address(entry->d_un.d_ptr);
        if (entry->d_tag == DT_SYMTAB)
            table.symbols = std::bit_cast<ElfW(Sym) *>(value);
        else if (entry->d_tag == DT_STRTAB)
            table.strings = std::bit_cast<const char *>(value);
        else if (entry->d_tag == DT_HASH)
            table.count = std::bit_cast<const std::uint32_t *>(value)[1];
        else if (entry->d_tag == DT_GNU_HASH)
            gnu_hash = std::bit_cast<const std::uint32_t *>(value);
    }
    if (table.count == 0 && gnu_hash != nullptr)
        table.count = count_by_gnu_hash(gnu_hash);
    if (table.symbols == nullptr || table.strings == nullptr)
        table.count = 0;
    return table;
}

ElfW(Sym) * find(const link_map &object, const char *name) {
    const Table table = table_of(object);
    for (std::size_t at = 0; at < table.count; ++at)
        if (auto &one = table.symbols[at];
            one.st_shndx != SHN_UNDEF && std::strcmp(table.strings + one.st_name, name) == 0)
            return &one;
    return nullptr;
}

// How the segment that the address lies in is mapped; -1: the object does not say.
int protection_at(const link_map &object, std::uintptr_t address) {
    const auto *const header = std::bit_cast<const ElfW(Ehdr) *>(object.l_addr);
    if (object.l_addr == 0 || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return -1;
    const auto *const segments = std::bit_cast<const ElfW(Phdr) *>(object.l_addr + header->e_phoff);
    for (std::size_t at = 0; at < header->e_phnum; ++at) {
        const auto &one = segments[at];
        const auto begin = object.l_addr + one.p_vaddr;
        if (one.p_type == PT_LOAD && address >= begin && address < begin + one.p_memsz)
            return ((one.p_flags & PF_R) != 0 ? PROT_READ : 0) |
                   ((one.p_flags & PF_W) != 0 ? PROT_WRITE : 0) | ((one.p_flags & PF_X) != 0 ? PROT_EXEC : 0);
    }
    return -1;
}

} // namespace

std::uintptr_t symbol(const link_map &object, const char *name) {
    const auto *const found = find(object, name);
    return found != nullptr ? object.l_addr + found->st_value : 0;
}

bool replace_symbol(const link_map &object, const char *name, std::uintptr_t address) {
    auto *const found = find(object, name);
    if (found == nullptr)
        return false;
    const auto at = reinterpret_cast<std::uintptr_t>(&found->st_value);
    const int protection = protection_at(object, at);
    if (protection < 0)
        return false;
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = at & ~(page - 1);
    auto *const pages = std::bit_cast<void *>(begin);
    const std::size_t size = at + sizeof(found->st_value) - begin;
    // The pages become this process's own. Nobody runs code of the object yet.
    if (mprotect(pages, size, PROT_READ | PROT_WRITE) != 0)
        return false;
    found->st_value = address - object.l_addr; // modulo 2^64, as the linker adds it
    return mprotect(pages, size, protection) == 0;
}

} // namespace singularity::redirect
