// SPDX-License-Identifier: GPL-2.0-or-later
#include "module_variables.hpp"

#include "fatbins.hpp"
#include "log.hpp"
#include "ptx/fatbin.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

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

constexpr std::string_view kAllocator = "malloc";

// Functions and kernels by name, with the names that occur in them: which of them call what, at most.
struct Mentions {
    std::map<std::string, std::set<std::string, std::less<>>, std::less<>> of;
    std::set<std::string, std::less<>> roots; // kernels, and what variables may point to

    // Whether something that can run may call the allocator. Code that only declares it, as CUDA's own
    // library for the device does, says nothing.
    [[nodiscard]] bool reach_the_allocator() const {
        std::vector<std::string_view> open(roots.begin(), roots.end());
        std::set<std::string_view> seen(roots.begin(), roots.end());
        while (!open.empty()) {
            const auto name = open.back();
            open.pop_back();
            if (name == kAllocator)
                return true;
            if (const auto found = of.find(name); found != of.end())
                for (const auto &mentioned : found->second)
                    if (seen.insert(mentioned).second)
                        open.push_back(mentioned);
        }
        return false;
    }
};

// What PTX text says on the module's own level. A statement that declares memory:
// `.visible .global .align 4 .b8 name[16] = {...};`
// What is inside of a function is in braces.
class PtxNames {
  public:
    PtxNames(std::string_view text, Mentions *mentions, std::vector<std::string> &variables)
        : text_(text), mentions_(mentions), variables_(variables) {}

    void read() {
        for (std::size_t at = 0; at < text_.size();) {
            const char letter = text_[at];
            if (text_.substr(at, 2) == "//") {
                at = std::min(text_.find('\n', at), text_.size());
            } else if (text_.substr(at, 2) == "/*") {
                const auto end = text_.find("*/", at);
                at = end == std::string_view::npos ? text_.size() : end + 2;
            } else if (letter == '"') {
                at = std::min(text_.find('"', at + 1), text_.size() - 1) + 1;
            } else if (is_word(letter)) {
                const auto begin = at;
                while (at < text_.size() && is_word(text_[at]))
                    ++at;
                word(text_.substr(begin, at - begin));
            } else {
                ++at;
                sign(letter);
            }
        }
    }

  private:
    void word(std::string_view word) {
        const bool name = !word.contains('.') && word.front() != '%' &&
                          std::isdigit(static_cast<unsigned char>(word.front())) == 0;
        if (depth_ != 0 || initialiser_) {
            if (name && mentions_ != nullptr) {
                if (initialiser_)
                    mentions_->roots.emplace(word);
                else if (!function_.empty())
                    mentions_->of[function_].emplace(word);
            }
            return;
        }
        if (word == ".global" || word == ".const")
            memory_ = true;
        else if (word == ".func" || word == ".entry" || word == ".alias")
            keyword_ = word;
        else if (!word.starts_with('.') && std::isdigit(static_cast<unsigned char>(word.front())) == 0)
            last_ = word;
        // Its results come before its name, and its parameters behind it, both in parentheses.
        if (!name || parentheses_ != 0 || keyword_.empty() || mentions_ == nullptr)
            return;
        if (keyword_ == ".alias" && !function_.empty())
            mentions_->of[function_].emplace(word);
        if (function_.empty())
            function_ = word;
        if (keyword_ == ".entry")
            mentions_->roots.emplace(function_);
    }

    void sign(char letter) {
        if (letter == '(')
            ++parentheses_;
        else if (letter == ')' && parentheses_ != 0)
            --parentheses_;
        if (letter == '{')
            ++depth_;
        else if (letter == '}' && depth_ != 0)
            --depth_;
        if (depth_ != 0)
            return;
        const bool ends = letter == ';' || letter == ',' || letter == '}';
        if (memory_ && !named_ && !last_.empty() && (letter == '[' || letter == '=' || ends)) {
            variables_.emplace_back(last_);
            named_ = true;
        }
        if (letter == '=')
            initialiser_ = true;
        if (letter == ',')
            named_ = initialiser_ = false;
        // A closing brace ends a function's body, but not an initialiser in the middle of a statement.
        if (letter == ';' || (letter == '}' && !memory_)) {
            memory_ = named_ = initialiser_ = false;
            last_ = keyword_ = {};
            function_.clear();
            parentheses_ = 0;
        }
    }

    std::string_view text_;
    Mentions *mentions_; // nullptr: nobody asks
    std::vector<std::string> &variables_;
    unsigned depth_ = 0;
    unsigned parentheses_ = 0;
    bool memory_ = false;      // the statement has said .global or .const
    bool named_ = false;       // its name has been found
    bool initialiser_ = false; // behind it
    std::string_view last_;
    std::string_view keyword_; // .func, .entry or .alias, where the statement has said it
    std::string function_;     // the statement's
};

// Of all parts that are linked.
ModuleNames names_of_texts(std::span<const std::string_view> texts) {
    const bool asked = std::ranges::any_of(texts, [](auto text) { return text.contains(kAllocator); });
    ModuleNames names;
    Mentions mentions;
    for (const auto text : texts)
        PtxNames(text, asked ? &mentions : nullptr, names.variables).read();
    names.allocates = mentions.reach_the_allocator();
    return names;
}

} // namespace

ModuleNames names_of_ptx(std::string_view text) { return names_of_texts(std::span(&text, 1)); }

namespace {

// What the driver takes of one fatbin, an ELF file or a text: machine code for this device, else the newest
// PTX.
struct PartCode {
    std::optional<std::vector<std::byte>> machine_code;
    std::string text;
};

PartCode code_of_part(std::span<const std::byte> image, unsigned compute_capability) {
    const auto entries = ptx::read_image(image);
    if (!entries) {
        kLog.debug("the variables of a module are not known: {}", entries.error().message());
        return {};
    }
    for (const auto &entry : *entries) {
        if (entry.kind != ptx::EntryKind::elf || (entry.sm != 0 && entry.sm / 10 != compute_capability / 10))
            continue;
        if (auto code = ptx::payload(entry))
            return {.machine_code = *std::move(code), .text = {}};
    }
    const auto *best = ptx::select_ptx(*entries, compute_capability);
    if (best == nullptr)
        return {};
    auto text = ptx::ptx_text(*best);
    return {.machine_code = {}, .text = text ? *std::move(text) : std::string{}};
}

} // namespace

ModuleNames names_of_module(std::span<const std::byte> image, unsigned compute_capability) {
    const auto fatbins = fatbins_of(image).value_or(std::vector{image});
    std::vector<PartCode> parts;
    for (const auto &fatbin : fatbins) {
        parts.push_back(code_of_part(fatbin, compute_capability));
        // The first of several has what nvcc has linked of the others, as machine code alone; a driver that
        // cannot take it links the others.
        if (parts.size() == 1 && parts.front().machine_code)
            return names_of_elf(*parts.front().machine_code);
    }
    std::vector<std::string_view> texts;
    for (const auto &part : parts)
        texts.emplace_back(part.text);
    auto names = names_of_texts(texts);
    for (const auto &part : parts)
        if (part.machine_code) {
            auto more = names_of_elf(*part.machine_code);
            names.allocates |= more.allocates;
            std::ranges::move(more.variables, std::back_inserter(names.variables));
        }
    // What one part defines others declare.
    if (parts.size() > 1) {
        std::ranges::sort(names.variables);
        const auto twice = std::ranges::unique(names.variables);
        names.variables.erase(twice.begin(), twice.end());
    }
    return names;
}

} // namespace singularity::proxyd
