// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver_mappings.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SINGULARITY_KERNEL_PLACES_MAPPINGS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SINGULARITY_KERNEL_PLACES_MAPPINGS
#endif
#endif

namespace singularity::proxyd {

namespace {

struct LoadedCode {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
};

// The code of the library: who calls is known by where it returns to.
std::atomic<std::uintptr_t> code_begin = 0;
std::atomic<std::uintptr_t> code_end = 0;

Expected<LoadedCode> code_around(const void *function) {
    struct Search {
        std::uintptr_t wanted;
        LoadedCode found;
    } search{.wanted = std::bit_cast<std::uintptr_t>(function), .found = {}};
    const auto look = [](dl_phdr_info *library, std::size_t /*size*/, void *data) {
        auto &its = *static_cast<Search *>(data);
        for (unsigned index = 0; index < library->dlpi_phnum; ++index) {
            const auto &segment = library->dlpi_phdr[index];
            const std::uintptr_t begin = library->dlpi_addr + segment.p_vaddr;
            if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0 && its.wanted >= begin &&
                its.wanted - begin < segment.p_memsz) {
                its.found = {.begin = begin, .end = begin + segment.p_memsz};
                return 1;
            }
        }
        return 0;
    };
    if (dl_iterate_phdr(look, &search) == 0)
        return failure("find", "the code of the driver's library", "no library has it", EINVAL);
    return search.found;
}

} // namespace

Expected<void> place_mappings_of(const void *function) {
    auto code = code_around(function);
    if (!code)
        return propagate(code);
    code_begin = code->begin; // while the end is 0 nobody lies between
    code_end = code->end;
    return {};
}

namespace {
thread_local std::uint64_t piece = 0; // of the thread's session; 0: of none
} // namespace

void place_mappings_for(std::uint64_t session) { piece = session == 0 ? 0 : 1 + (session - 1) % kPieces; }

bool places_mappings() {
#ifdef SINGULARITY_KERNEL_PLACES_MAPPINGS
    return false;
#else
    return true;
#endif
}

#ifndef SINGULARITY_KERNEL_PLACES_MAPPINGS

namespace {

void *kernel_maps(void *address, std::size_t size, int protection, int flags, int file, off_t offset) {
    return std::bit_cast<void *>(syscall(SYS_mmap, address, size, protection, flags, file, offset));
}

// A part for each power of two, and so many slots of it: the lower half is nobody's, the upper is cut into
// pieces.
constexpr unsigned kSmallest = 12;
constexpr unsigned kLargest = 38;
constexpr std::uintptr_t kPart = std::uintptr_t{1} << kLargest;
constexpr std::uintptr_t kSlots = 4096;
static_assert(kMappingsBegin % kPart == 0 && kMappingsEnd - kMappingsBegin >= (kLargest + 1) * kPart);

struct Slots {
    std::uintptr_t first = 0;
    std::uintptr_t count = 0;
};

// Of one size, for the calling thread; and where it has none that is free.
std::array<Slots, 2> slots_of(unsigned power) {
    if (power > kLargest)
        return {};
    const auto all = kPart >> power;
    const auto own = piece == 0 ? 0 : all / 2 / (kPieces + 1);
    return {{{.first = all / 2 + piece * own, .count = std::min(kSlots, own)},
             {.first = 0, .count = std::min(kSlots, std::max<std::uintptr_t>(all / 2, 1))}}};
}

// The kernel knows which slots are free.
void *map_in_area(std::size_t size, int protection, int flags, int file, off_t offset) {
    const auto power =
        std::max(kSmallest, static_cast<unsigned>(std::bit_width(std::max<std::size_t>(size, 1) - 1)));
    for (const auto &[first, count] : slots_of(power))
        for (auto slot = first; slot < first + count; ++slot) {
            void *const wanted = std::bit_cast<void *>(kMappingsBegin + power * kPart + (slot << power));
            void *const mapped =
                kernel_maps(wanted, size, protection, flags | MAP_FIXED_NOREPLACE, file, offset);
            if (mapped != MAP_FAILED)
                return mapped;
            if (errno != EEXIST) // the kernel may know a place where that can be had
                return kernel_maps(nullptr, size, protection, flags, file, offset);
        }
    return kernel_maps(nullptr, size, protection, flags, file, offset);
}

void *map(const void *caller, void *address, std::size_t size, int protection, int flags, int file,
          off_t offset) {
    const auto from = std::bit_cast<std::uintptr_t>(caller);
    if (from < code_begin.load(std::memory_order_relaxed) ||
        from >= code_end.load(std::memory_order_relaxed) || address != nullptr ||
        (flags & (MAP_FIXED | MAP_32BIT)) != 0)
        return kernel_maps(address, size, protection, flags, file, offset);
    return map_in_area(size, protection, flags, file, offset);
}

} // namespace

#endif

} // namespace singularity::proxyd

#ifndef SINGULARITY_KERNEL_PLACES_MAPPINGS

extern "C" {

#pragma GCC visibility push(default)

void *mmap(void *address, std::size_t size, int protection, int flags, int file, off_t offset) noexcept {
    return singularity::proxyd::map(__builtin_return_address(0), address, size, protection, flags, file,
                                    offset);
}

void *mmap64(void *address, std::size_t size, int protection, int flags, int file, off64_t offset) noexcept {
    return singularity::proxyd::map(__builtin_return_address(0), address, size, protection, flags, file,
                                    offset);
}

#pragma GCC visibility pop

} // extern "C"

#endif
