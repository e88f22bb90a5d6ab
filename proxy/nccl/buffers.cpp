// SPDX-License-Identifier: GPL-2.0-or-later
#include "buffers.hpp"

namespace singularity::nccl {

namespace {

constexpr int kWindowSymmetric = 1; // NCCL_WIN_COLL_SYMMETRIC

} // namespace

Result allocate(Library &library, void **out, std::size_t size) {
    if (out == nullptr)
        return refuse(Result::unhandled_cuda_error, "ncclMemAlloc : ptr argument is NULL");
    *out = nullptr;
    if (size == 0)
        return Result::success;
    const auto memory = library.driver.allocate(size);
    if (!memory)
        return refuse(Result::unhandled_cuda_error, memory.error());
    *out = *memory;
    return Result::success;
}

Result release(Library &library, void *memory) {
    if (memory == nullptr)
        return Result::success;
    const auto released = library.driver.release(memory);
    return released ? Result::success : refuse(Result::unhandled_cuda_error, released.error());
}

Result enroll(Library &library, CommunicatorHandle handle, void *memory, std::size_t size, void **out) {
    const auto communicator = known(library, handle, "ncclCommRegister");
    if (!communicator)
        return communicator.error();
    if (const auto bad = given(out, "ncclCommRegister", "handle"); bad != Result::success)
        return bad;
    const auto address = library.driver.memory((*communicator)->place, memory, size);
    if (!address)
        return refuse(Result::invalid_argument, "ncclCommRegister : buff {} is not a valid pointer: {}",
                      fmt::ptr(memory), address.error().message());
    *out = (*communicator)->registrations.add(*address, size);
    return Result::success;
}

Result withdraw(Library &library, CommunicatorHandle handle, void *registration) {
    const auto communicator = known(library, handle, "ncclCommRegister");
    if (!communicator)
        return communicator.error();
    if (registration == nullptr || (*communicator)->registrations.remove(registration))
        return Result::success;
    return refuse(Result::invalid_usage, "Deregister: Could not find handle");
}

Result open_window(Library &library, CommunicatorHandle handle, void *memory, std::size_t size,
                   WindowHandle *out, int flags) {
    constexpr const char *kName = "ncclCommWindowRegister";
    const auto communicator = known(library, handle, kName);
    if (!communicator)
        return communicator.error();
    if (const auto bad = given(out, kName, "win"); bad != Result::success)
        return bad;
    *out = nullptr;
    if (memory == nullptr || size == 0)
        return refuse(Result::invalid_argument, "invalid pointer {} / size {}", fmt::ptr(memory), size);
    if ((flags & ~kWindowSymmetric) != 0)
        return refuse(Result::invalid_argument, "{} : unknown flags {:#x}", kName, flags);
    return Result::success;
}

Result close_window(Library &library, CommunicatorHandle handle, WindowHandle window) {
    const auto communicator = known(library, handle, "ncclCommWindowDeregister");
    if (!communicator)
        return communicator.error();
    return window == nullptr
               ? Result::success
               : refuse(Result::invalid_argument, "ncclCommWindowDeregister : there is no such window");
}

} // namespace singularity::nccl
