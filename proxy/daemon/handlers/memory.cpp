// SPDX-License-Identifier: GPL-2.0-or-later
// Slabs, reserved addresses, shared host memory. Where a client asks for what its own bookkeeping cannot have
// said (a place outside of its window, something that is not there), it breaks a rule.
#include "handlers.hpp"
#include "host_shares.hpp"
#include "log.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace singularity::proxyd::handlers {

namespace {

// The descriptor was sent before the record: it takes no longer than the socket's reader takes to wake up.
constexpr std::chrono::seconds kForDescriptor{5};
// Memory of devices and the like is not the client's to register.
constexpr unsigned kRegisterFlags =
    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;

template <class Fixed>
std::string text(const Fixed &fixed) {
    return fmt::format("{:#x}+{:#x}", fixed.address, fixed.size);
}

// The file's size is what was said, and nobody can change it: touching the mapping cannot fail.
Expected<void> check_file(int fd, std::uint64_t size) {
    constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
    const auto refuse = [](std::string why) {
        return failure("map", "shared host memory", std::move(why), EPROTO);
    };
    struct stat about{};
    if (fstat(fd, &about) != 0)
        return std::unexpected(errno_error("look at", "shared host memory"));
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & kSeals) != kSeals)
        return refuse("it is not a memfd sealed against changing its size");
    if (!std::cmp_equal(about.st_size, size))
        return refuse(fmt::format("it has {} bytes, the message says {}", about.st_size, size));
    return {};
}

} // namespace

CUresult handle(Call &call, const Request<protocol::MapSlab> &request, Reply<protocol::MapSlab> & /*reply*/) {
    const Range slab{.address = request.fixed.address,
                     .size = request.fixed.size,
                     .kind = RangeKind::slab,
                     .context = call.header().context};
    if (auto added = call.session().addresses().add(slab); !added)
        return call.broken(added.error().message());
    const auto result = call.session().map_slab(slab);
    if (result != CUDA_SUCCESS)
        static_cast<void>(call.session().addresses().remove(slab));
    return result;
}

CUresult handle(Call &call, const Request<protocol::UnmapSlab> &request,
                Reply<protocol::UnmapSlab> & /*reply*/) {
    const Range slab{.address = request.fixed.address, .size = request.fixed.size, .kind = RangeKind::slab};
    if (!call.session().addresses().has(slab))
        return call.broken(fmt::format("there is no slab {}", text(request.fixed)));
    call.session().unmap_slab(slab);
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::ShareSlab> &request, Reply<protocol::ShareSlab> &reply) {
    const auto &fixed = request.fixed;
    auto &session = call.session();
    if (!session.addresses().has({.address = fixed.address, .size = fixed.size, .kind = RangeKind::slab}))
        return call.broken(fmt::format("there is no slab {}", text(fixed)));
    std::shared_ptr<SharedSlab> slab;
    const auto result =
        session.slabs().share(fixed.address, fixed.size, {}, session.place().device.number, slab);
    if (result != CUDA_SUCCESS)
        return result;
    reply.fixed.key = slab->key();
    reply.fixed.number = slab->add(fixed.offset, fixed.length).number;
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::EndExport> &request,
                Reply<protocol::EndExport> & /*reply*/) {
    const auto shared = call.session().slabs().shared_at(request.fixed.address);
    if (shared.slab == nullptr || !shared.made)
        return CUDA_ERROR_INVALID_VALUE;
    shared.slab->remove(request.fixed.offset);
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::OpenSlab> &request,
                Reply<protocol::OpenSlab> & /*reply*/) {
    const auto &fixed = request.fixed;
    auto &session = call.session();
    const Range range{.address = fixed.address,
                      .size = fixed.size,
                      .kind = RangeKind::slab,
                      .context = call.header().context};
    const auto slab = SharedSlabs::all().find(fixed.key);
    if (slab == nullptr || slab->size() != fixed.size || slab->device() != session.place().device.number ||
        !slab->has({.offset = fixed.offset, .size = fixed.length, .number = fixed.number}))
        return CUDA_ERROR_INVALID_VALUE;
    if (session.addresses().has(range))
        return session.slabs().shared_at(fixed.address).slab == slab ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_VALUE;
    if (auto added = session.addresses().add(range); !added)
        return call.broken(added.error().message());
    auto result = session.hold_slice();
    if (result == CUDA_SUCCESS)
        result = session.slabs().open(fixed.address, fixed.size, range.context, slab);
    if (result != CUDA_SUCCESS)
        static_cast<void>(session.addresses().remove(range));
    return result;
}

CUresult handle(Call &call, const Request<protocol::ReserveAddress> &request,
                Reply<protocol::ReserveAddress> & /*reply*/) {
    const auto &fixed = request.fixed;
    const Range range{.address = fixed.address, .size = fixed.size, .kind = RangeKind::reservation};
    auto &addresses = call.session().addresses();
    if (auto added = addresses.add(range); !added)
        return call.broken(added.error().message());
    const auto result = call.session().hold_slice();
    if (result != CUDA_SUCCESS)
        static_cast<void>(addresses.remove(range));
    else
        trace_made(reservation_mark(range.address));
    return result;
}

CUresult handle(Call &call, const Request<protocol::FreeAddress> &request,
                Reply<protocol::FreeAddress> & /*reply*/) {
    const Range range{
        .address = request.fixed.address, .size = request.fixed.size, .kind = RangeKind::reservation};
    auto &addresses = call.session().addresses();
    if (!addresses.has(range))
        return call.broken(fmt::format("nothing is reserved at {}", text(request.fixed)));
    // As the driver: not while something is mapped there.
    if (call.session().has_mappings(range))
        return CUDA_ERROR_INVALID_VALUE;
    static_cast<void>(addresses.remove(range));
    trace_gone(reservation_mark(range.address));
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::MapHostMemory> &request,
                Reply<protocol::MapHostMemory> & /*reply*/) {
    const auto &fixed = request.fixed;
    auto &session = call.session();
    auto descriptor = session.mailbox().take(fixed.descriptor, Deadline::after(kForDescriptor));
    if (!descriptor)
        return call.broken(descriptor.error().message());
    if (auto checked = check_file(descriptor->get(), fixed.size); !checked)
        return call.broken(checked.error().message());
    if (call.driver().cuMemHostRegister_v2 == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    if ((fixed.flags & ~std::uint64_t{kRegisterFlags}) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const Range range{.address = fixed.address, .size = fixed.size, .kind = RangeKind::host};
    if (auto added = session.addresses().add(range); !added)
        return call.broken(added.error().message());
    struct stat about{};
    const auto map = [&]() -> CUresult {
        void *wanted = std::bit_cast<void *>(fixed.address);
        void *got = mmap(wanted, fixed.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
                         descriptor->get(), 0);
        if (got == MAP_FAILED || got != wanted) {
            kLog.error("{}: {}", session.who(),
                       errno_error("map shared host memory at", text(fixed)).message());
            if (got != MAP_FAILED)
                munmap(got, fixed.size);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        // Portable: the client's memory is one for all its contexts.
        const auto registered = call.driver().cuMemHostRegister_v2(
            got, fixed.size, static_cast<unsigned>(fixed.flags) | CU_MEMHOSTREGISTER_PORTABLE);
        if (registered != CUDA_SUCCESS)
            munmap(got, fixed.size);
        return registered;
    };
    const auto result =
        fstat(descriptor->get(), &about) != 0
            ? CUDA_ERROR_OPERATING_SYSTEM
            : HostShares::all().add(fixed.address, fixed.size, about.st_dev, about.st_ino, map);
    if (result != CUDA_SUCCESS)
        static_cast<void>(session.addresses().remove(range));
    return result;
}

CUresult handle(Call &call, const Request<protocol::UnmapHostMemory> &request,
                Reply<protocol::UnmapHostMemory> & /*reply*/) {
    const Range range{.address = request.fixed.address, .size = request.fixed.size, .kind = RangeKind::host};
    if (!call.session().addresses().has(range))
        return call.broken(fmt::format("no host memory is shared at {}", text(request.fixed)));
    call.session().unmap_host(range);
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::MemoryInfo> & /*request*/,
                Reply<protocol::MemoryInfo> &reply) {
    if (call.driver().cuMemGetInfo_v2 == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    std::size_t free = 0;
    std::size_t total = 0;
    const auto result = call.driver().cuMemGetInfo_v2(&free, &total);
    // What other sessions have on the device leaves it when this one needs the room.
    const auto mine = call.session().slab_bytes();
    reply.fixed.free = std::min(free + call.session().taken_by_others(), total - std::min(total, mine));
    reply.fixed.total = total;
    return result;
}

CUresult handle(Call &call, const Request<protocol::RetainAllocation> &request,
                Reply<protocol::RetainAllocation> & /*reply*/) {
    if (call.driver().cuMemRetainAllocationHandle == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!call.session().addresses().reserved(request.fixed.address, 1))
        return CUDA_ERROR_INVALID_VALUE;
    if (const auto mapping = call.session().mapping_at(request.fixed.address))
        trace_used(mapping_mark(*mapping));
    CUmemGenericAllocationHandle allocation{};
    const auto result =
        call.driver().cuMemRetainAllocationHandle(&allocation, std::bit_cast<void *>(request.fixed.address));
    if (result == CUDA_SUCCESS)
        call.add(driver_api::kHandleAllocation, request.fixed.allocation, allocation);
    return result;
}

CUresult handle(Call &call, const Request<protocol::FinishRestore> & /*request*/,
                Reply<protocol::FinishRestore> & /*reply*/) {
    return call.session().finish_restore();
}

} // namespace singularity::proxyd::handlers
