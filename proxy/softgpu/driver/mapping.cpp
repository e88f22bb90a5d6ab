// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/mapping.hpp"

#include <bit>
#include <iterator>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace singularity::softgpu::driver {

namespace {

// Below: AddressSanitizer's shadow and what programs choose themselves; above: position independent
// executables, libraries and the heap (0x55.. and 0x7f..). ThreadSanitizer forbids all of it but 0x7b.. to
// 0x7f.. .
#if defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kAreaBegin = 0x7C00'0000'0000;
constexpr std::uint64_t kAreaEnd = 0x7D80'0000'0000;
#else
constexpr std::uint64_t kAreaBegin = 0x1100'0000'0000;
constexpr std::uint64_t kAreaEnd = 0x5400'0000'0000;
#endif

void *pointer(std::uint64_t address) { return std::bit_cast<void *>(address); }

} // namespace

bool Account::take(std::uint64_t bytes) {
    std::uint64_t used = used_.load(std::memory_order_relaxed);
    do {
        if (bytes > size_ - used)
            return false;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
}

bool AddressSpace::take(std::uint64_t address, std::uint64_t size) {
    void *const got = mmap(pointer(address), size, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED)
        return false;
    if (got == pointer(address))
        return true;
    munmap(got, size); // a kernel before 4.17 takes the flag for a mere hint
    return false;
}

Result<std::uint64_t> AddressSpace::anywhere(std::uint64_t size, std::uint64_t alignment) {
    const auto map = [](std::uint64_t bytes) {
        return mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    };
    void *const got = map(size);
    if (got == MAP_FAILED)
        return refused(CUDA_ERROR_OUT_OF_MEMORY);
    if (address_of(got) % alignment == 0)
        return address_of(got);
    munmap(got, size);
    // Somewhere in more than that.
    void *const more = map(size + alignment);
    if (more == MAP_FAILED)
        return refused(CUDA_ERROR_OUT_OF_MEMORY);
    const auto begin = round_up(address_of(more), alignment);
    if (begin != address_of(more))
        munmap(more, begin - address_of(more));
    munmap(pointer(begin + size), address_of(more) + alignment - begin);
    return begin;
}

Result<std::uint64_t> AddressSpace::reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t wish) {
    const std::scoped_lock lock(mutex_);
    if (wish != 0 && wish % alignment == 0 && take(wish, size)) {
        ++taken_;
        return wish;
    }
    if (system_) {
        auto found = anywhere(size, std::max(alignment, kPage));
        taken_ += found ? 1 : 0;
        return found;
    }
    // Addresses go up and begin anew at the end: a stale pointer hits nothing for a long time.
    constexpr unsigned kTries = 65536;
    for (unsigned tries = 0; tries < kTries; ++tries) {
        std::uint64_t address = round_up(cursor_ == 0 ? kAreaBegin : cursor_, alignment);
        if (address < kAreaBegin || address > kAreaEnd || size > kAreaEnd - address) {
            if (cursor_ == 0)
                break;
            cursor_ = 0;
            continue;
        }
        const bool taken = take(address, size);
        cursor_ = address + (taken ? size : std::max(kGranularity, alignment));
        if (taken) {
            ++taken_;
            return address;
        }
    }
    return refused(CUDA_ERROR_OUT_OF_MEMORY);
}

void AddressSpace::release(std::uint64_t address, std::uint64_t size) {
    const std::scoped_lock lock(mutex_);
    munmap(pointer(address), size);
    // Whoever is alone gets the same addresses, whatever was there before it.
    if (--taken_ == 0)
        cursor_ = 0;
}

AddressSpace &address_space() {
    static auto &space = *new AddressSpace; // outlives every thread
    return space;
}

Result<std::shared_ptr<Mapping>> map_device(std::uint64_t size, Account *account) {
    size = round_up(size, kPage);
    if (account != nullptr && !account->take(size))
        return refused(CUDA_ERROR_OUT_OF_MEMORY);
    const auto fail = [&](CUresult why) {
        if (account != nullptr)
            account->give_back(size);
        return refused(why);
    };
    const auto address = address_space().reserve(size, kGranularity, 0);
    if (!address)
        return fail(address.error());
    if (mprotect(pointer(*address), size, PROT_READ | PROT_WRITE) != 0) {
        address_space().release(*address, size);
        return fail(CUDA_ERROR_OUT_OF_MEMORY);
    }
    madvise(pointer(*address), size, MADV_HUGEPAGE); // faster where the kernel has it, no harm where not
    return std::make_shared<Mapping>(*address, size, [at = *address, size, account] {
        address_space().release(at, size);
        if (account != nullptr)
            account->give_back(size);
    });
}

Result<std::shared_ptr<Mapping>> map_host(std::uint64_t size) {
    size = round_up(size, kPage);
    void *const got =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED)
        return refused(CUDA_ERROR_OUT_OF_MEMORY);
    return std::make_shared<Mapping>(std::bit_cast<std::uint64_t>(got), size,
                                     [got, size] { munmap(got, size); });
}

CUresult PhysicalMemory::open() {
    if (file_ >= 0)
        return CUDA_SUCCESS;
    file_ = memfd_create("singularity-softgpu", MFD_CLOEXEC);
    if (file_ < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    // Holes everywhere until written. Twice the device's memory: free space may be in pieces.
    if (ftruncate(file_, static_cast<off_t>(account_.size() * 2)) != 0) {
        close(file_);
        file_ = -1;
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return CUDA_SUCCESS;
}

Result<std::uint64_t> PhysicalMemory::allocate(std::uint64_t size) {
    if (!account_.take(size))
        return refused(CUDA_ERROR_OUT_OF_MEMORY);
    const std::scoped_lock lock(mutex_);
    if (const CUresult opened = open(); opened != CUDA_SUCCESS) {
        account_.give_back(size);
        return refused(opened);
    }
    for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
        if (hole->second < size)
            continue;
        const auto [offset, room] = *hole;
        free_.erase(hole);
        if (room > size)
            free_.emplace(offset + size, room - size);
        return offset;
    }
    if (size > (account_.size() * 2) - end_) {
        account_.give_back(size);
        return refused(CUDA_ERROR_OUT_OF_MEMORY);
    }
    return std::exchange(end_, end_ + size);
}

void PhysicalMemory::free(std::uint64_t offset, std::uint64_t size) {
    const std::scoped_lock lock(mutex_);
    // The pages go back to the system, and whoever gets the place next reads zeros.
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(size));
    account_.give_back(size);
    auto [hole, added] = free_.emplace(offset, size);
    if (hole != free_.begin())
        if (const auto before = std::prev(hole); before->first + before->second == offset) {
            before->second += size;
            free_.erase(hole);
            hole = before;
        }
    if (const auto after = std::next(hole);
        after != free_.end() && hole->first + hole->second == after->first) {
        hole->second += after->second;
        free_.erase(after);
    }
}

Result<std::shared_ptr<Mapping>> PhysicalMemory::map(std::uint64_t offset, std::uint64_t size,
                                                     std::uint64_t address, std::shared_ptr<void> owner) {
    void *const got = mmap(pointer(address), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
                           static_cast<off_t>(offset));
    if (got == MAP_FAILED)
        return refused(CUDA_ERROR_OPERATING_SYSTEM);
    return std::make_shared<Mapping>(address, size, [address, size, held = std::move(owner)] {
        mmap(pointer(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0);
    });
}

} // namespace singularity::softgpu::driver
