// SPDX-License-Identifier: GPL-2.0-or-later
#include "module_variables.hpp"

#include "log.hpp"
#include "ptx/fatbin.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <optional>

#include <elf.h>

namespace singularity::proxyd {

namespace {

bool is_word(char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_' || letter == '$' ||
           letter == '.' || letter == '%';
}

template <class T>
std::optional<T> read_at(std::span<const std::byte> image, std::uint64_t at) {
    if (at > image.size() || image.size() - at < sizeof(T))
        return std::nullopt;
    T value;
    std::memcpy(&value, image.data() + at, sizeof(T));
    return value;
}

std::string string_at(std::span<const std::byte> image, std::uint64_t at) {
    if (at >= image.size())
        return {};
    const auto *text = static_cast<const char *>(static_cast<const void *>(image.data() + at));
    return {text, strnlen(text, image.size() - at)};
}

std::optional<Elf64_Shdr> section_at(std::span<const std::byte> image, const Elf64_Ehdr &header,
                                     std::uint64_t index) {
    if (index >= header.e_shnum)
        return std::nullopt;
    return read_at<Elf64_Shdr>(image, header.e_shoff + index * sizeof(Elf64_Shdr));
}

// Which sections hold variables: .nv.global, .nv.global.init, .nv.constant3. Others have symbols of the same
// type that are offsets into a block's shared memory (.nv.shared.*).
std::vector<bool> sections_of_variables(std::span<const std::byte> image, const Elf64_Ehdr &header) {
    std::vector<bool> hold(header.e_shnum, false);
    const auto names = section_at(image, header, header.e_shstrndx);
    for (std::uint64_t index = 0; names && index < header.e_shnum; ++index)
        if (const auto section = section_at(image, header, index)) {
            const auto name = string_at(image, names->sh_offset + section->sh_name);
            hold[index] = name.starts_with(".nv.global") || name.starts_with(".nv.constant");
        }
    return hold;
}

// Symbols of type OBJECT, and those of malloc.
ModuleNames names_of_elf(std::span<const std::byte> image) {
    ModuleNames names;
    const auto header = read_at<Elf64_Ehdr>(image, 0);
    if (!header || header->e_shentsize != sizeof(Elf64_Shdr))
        return names;
    const auto hold = sections_of_variables(image, *header);
    for (std::uint64_t index = 0; index < header->e_shnum; ++index) {
        const auto section = section_at(image, *header, index);
        if (!section || section->sh_type != SHT_SYMTAB)
            continue;
        const auto strings = section_at(image, *header, section->sh_link);
        if (!strings)
            continue;
        for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= section->sh_size; at += sizeof(Elf64_Sym)) {
            const auto symbol = read_at<Elf64_Sym>(image, section->sh_offset + at);
            if (!symbol)
                break;
            auto name = string_at(image, strings->sh_offset + symbol->st_name);
            if (name == "malloc")
                names.allocates = true;
            if (ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT && !name.empty() &&
                symbol->st_shndx < hold.size() && hold[symbol->st_shndx])
                names.variables.push_back(std::move(name));
        }
    }
    return names;
}

} // namespace

// A statement of the module's own level that declares memory: `.visible .global .align 4 .b8 name[16] =
// {...};` What is inside of a function is in braces.
ModuleNames names_of_ptx(std::string_view text) {
    ModuleNames names;
    unsigned depth = 0;
    bool memory = false;  // the statement has said .global or .const
    bool named = false;   // its name has been found
    bool pointer = false; // behind it: an initialiser
    std::string_view last;
    for (std::size_t at = 0; at < text.size();) {
        const char letter = text[at];
        if (text.substr(at, 2) == "//") {
            at = std::min(text.find('\n', at), text.size());
            continue;
        }
        if (text.substr(at, 2) == "/*") {
            const auto end = text.find("*/", at);
            at = end == std::string_view::npos ? text.size() : end + 2;
            continue;
        }
        if (letter == '"') {
            at = std::min(text.find('"', at + 1), text.size() - 1) + 1;
            continue;
        }
        if (is_word(letter)) {
            const auto begin = at;
            while (at < text.size() && is_word(text[at]))
                ++at;
            const auto word = text.substr(begin, at - begin);
            if (word == "malloc")
                names.allocates = true;
            if (depth != 0 || pointer)
                continue;
            if (word == ".global" || word == ".const")
                memory = true;
            else if (word.front() != '.' && std::isdigit(static_cast<unsigned char>(word.front())) == 0)
                last = word;
            continue;
        }
        ++at;
        if (letter == '{')
            ++depth;
        else if (letter == '}' && depth != 0)
            --depth;
        if (depth != 0)
            continue;
        const bool ends = letter == ';' || letter == ',' || letter == '}';
        if (memory && !named && !last.empty() && (letter == '[' || letter == '=' || ends)) {
            names.variables.emplace_back(last);
            named = true;
        }
        if (letter == '=')
            pointer = true;
        if (letter == ',')
            named = pointer = false;
        // A closing brace ends a function's body, but not an initialiser in the middle of a statement.
        if (letter == ';' || (letter == '}' && !memory)) {
            memory = named = pointer = false;
            last = {};
        }
    }
    return names;
}

ModuleNames names_of_module(std::span<const std::byte> image, unsigned compute_capability) {
    const auto entries = ptx::read_image(image);
    if (!entries) {
        kLog.debug("the variables of a module are not known: {}", entries.error().message());
        return {};
    }
    // What the driver takes: machine code for this device, else the newest PTX.
    for (const auto &entry : *entries) {
        if (entry.kind != ptx::EntryKind::elf || (entry.sm != 0 && entry.sm / 10 != compute_capability / 10))
            continue;
        if (const auto code = ptx::payload(entry))
            return names_of_elf(*code);
    }
    const auto *best = ptx::select_ptx(*entries, compute_capability);
    if (best == nullptr)
        return {};
    const auto text = ptx::ptx_text(*best);
    return text ? names_of_ptx(*text) : ModuleNames{};
}

} // namespace singularity::proxyd
