// SPDX-License-Identifier: GPL-2.0-or-later
#include "reader.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/core.h>
#include <sys/uio.h>
#include <unistd.h>

namespace singularity::records {

namespace {

// Addresses are numbers here: they may point anywhere, so there is no arithmetic on them as pointers.
using Address = std::uintptr_t;

Address address_of(const void *pointer) { return reinterpret_cast<Address>(pointer); }

std::string name_of(const FieldLayout &field) { return fmt::format("{}.{}", field.record->name, field.name); }

std::unexpected<Error> no_table(const StructLayout &layout) {
    return failure("read", std::string(layout.name),
                   "there is no table of records for this release of Slurm; make one with make-table.py");
}

// Bytes copied, less than asked for where unreadable memory begins. -1 and errno where nothing can be read.
ssize_t copy_own_memory(Address from, void *to, std::size_t size) noexcept {
    const iovec local{.iov_base = to, .iov_len = size};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel checks it, nothing here follows it
    const iovec remote{.iov_base = reinterpret_cast<void *>(from), .iov_len = size};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
}

Expected<void> copy_all(std::string_view what, Address from, void *to, std::size_t size) {
    const ssize_t copied = copy_own_memory(from, to, size);
    if (copied == static_cast<ssize_t>(size))
        return {};
    const int code = copied < 0 ? errno : EFAULT;
    return std::unexpected(errno_error("read", fmt::format("{}, {} bytes at {:#x}", what, size, from), code));
}

Expected<void> check_magic(const StructLayout &layout, const std::byte *record) {
    if (layout.magic_offset == kNowhere)
        return {};
    std::uint32_t found = 0;
    std::memcpy(&found, record + layout.magic_offset, sizeof(found));
    if (found == layout.magic)
        return {};
    return failure("recognise", std::string(layout.name),
                   fmt::format("its magic number is {:#010x}, expected {:#010x}", found, layout.magic));
}

} // namespace

Expected<void> SafeReader::usable() {
    const std::uint64_t original = 0x5349'4e47'554c'4152ULL;
    std::uint64_t copied = 0;
    return copy_all("this process's own memory", address_of(&original), &copied, sizeof(copied));
}

// NOLINTNEXTLINE(readability-convert-member-functions-to-static): readers are passed as objects
Expected<SafeReader::View> SafeReader::open(const StructLayout &layout, const void *record) const {
    if (layout.size == kNowhere)
        return no_table(layout);
    BlockHeader block{};
    if (auto done = copy_all(layout.name, address_of(record) - sizeof(block), &block, sizeof(block)); !done)
        return propagate(done);
    if (block.magic != BlockHeader::kMagic)
        return failure("recognise", std::string(layout.name),
                       fmt::format("{} is not the start of a block that Slurm allocated", record));
    if (block.size != layout.size)
        return failure("recognise", std::string(layout.name),
                       fmt::format("its block is {} bytes, the table says {}", block.size, layout.size));
    std::vector<std::byte> bytes(layout.size);
    if (auto done = copy_all(layout.name, address_of(record), bytes.data(), bytes.size()); !done)
        return propagate(done);
    if (auto done = check_magic(layout, bytes.data()); !done)
        return propagate(done);
    return View(std::move(bytes));
}

const void *SafeReader::View::pointer(const FieldLayout &field) const noexcept {
    const void *value = nullptr;
    std::memcpy(static_cast<void *>(&value), bytes_.data() + field.offset, sizeof(value));
    return value;
}

Expected<void> SafeReader::View::read(const FieldLayout &field, Text &text) const {
    text.clear();
    const void *const start = pointer(field);
    if (start == nullptr)
        return {};
    // A chunk never crosses a boundary of its own size, hence never the end of a page that the text does not
    // reach.
    constexpr std::size_t kChunk = 256;
    std::array<char, kChunk> chunk{};
    for (Address address = address_of(start); text.size() < kLongestText;) {
        const std::size_t size = kChunk - (address % kChunk);
        if (auto done = copy_all(name_of(field), address, chunk.data(), size); !done)
            return done;
        const auto *const last = chunk.data() + size;
        const auto *const end = std::find(static_cast<const char *>(chunk.data()), last, '\0');
        text.append(static_cast<const char *>(chunk.data()), end);
        if (end != last)
            return {};
        address += size;
    }
    return failure("read", name_of(field), fmt::format("no end of text within {} bytes", kLongestText));
}

// NOLINTNEXTLINE(readability-convert-member-functions-to-static): readers are passed as objects
Expected<DirectReader::View> DirectReader::open(const StructLayout &layout, const void *record) const {
    if (layout.size == kNowhere)
        return no_table(layout);
    if (auto done = check_magic(layout, static_cast<const std::byte *>(record)); !done)
        return propagate(done);
    return View(record);
}

const void *DirectReader::View::pointer(const FieldLayout &field) const noexcept {
    const void *value = nullptr;
    std::memcpy(static_cast<void *>(&value), record_ + field.offset, sizeof(value));
    return value;
}

Expected<void> DirectReader::View::read(const FieldLayout &field, Text &text) const {
    const void *const start = pointer(field);
    text = start == nullptr ? "" : static_cast<const char *>(start);
    return {};
}

} // namespace singularity::records
