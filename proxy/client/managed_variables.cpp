// SPDX-License-Identifier: GPL-2.0-or-later
#include "managed_variables.hpp"

#include "copy.hpp"
#include "proxy/protocol/copy.hpp"

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace singularity::client {

namespace {

struct Variable {
    std::string name;
    std::uint64_t copy = 0; // in managed memory
    std::uint64_t size = 0;
    std::vector<std::uint64_t> addresses; // by device; 0: not asked yet
};

struct Variables {
    std::mutex lock;
    std::atomic<bool> any = false;
    std::map<std::uint64_t, std::vector<Variable>> of_library; // by handle
};

Variables &variables() {
    static auto &instance = *std::make_unique<Variables>().release(); // see process()
    return instance;
}

// Where the device has it.
CUresult address_on(const Route &route, std::uint64_t library, const char *name, std::uint64_t &address,
                    std::uint64_t &size) {
    CUdeviceptr found = 0;
    size_t bytes = 0;
    const auto request = driver_api::LibraryGetManagedCall::request(ApiId::kLibraryGetManaged, &found, &bytes,
                                                                    std::bit_cast<CUlibrary>(library), name);
    if (!request)
        return CUDA_ERROR_INVALID_VALUE;
    const Encoded encoded([&](std::span<std::byte> storage) { return encode(*request, storage); });
    const Exchange exchange(route, encoded.bytes(), kReplyOverhead);
    if (exchange.failure() != CUDA_SUCCESS)
        return exchange.failure();
    const auto reply = driver_api::decode_LibraryGetManagedReply(*request, exchange.reply());
    if (!reply)
        return broken(route, reply.error());
    if (reply->driver_result != CUDA_SUCCESS)
        return static_cast<CUresult>(reply->driver_result);
    driver_api::LibraryGetManagedCall::finish(*request, *reply, &found, &bytes);
    address = found;
    size = bytes;
    return CUDA_SUCCESS;
}

} // namespace

CUresult managed_variable(CodeObject &library, const char *name, std::uint64_t &address,
                          std::uint64_t &size) {
    auto &all = variables();
    const std::scoped_lock lock(all.lock);
    auto &known = all.of_library[library.handle];
    for (const auto &variable : known)
        if (variable.name == name) {
            address = variable.copy;
            size = variable.size;
            return CUDA_SUCCESS;
        }
    // A context to read what it begins with; the runtime asks before it has made one.
    Route route;
    if (const auto bad = route_without_context(route); bad != CUDA_SUCCESS)
        return bad;
    CUcontext retained = nullptr;
    if (route.context == nullptr) {
        if (const auto bad = cuDevicePrimaryCtxRetain(&retained, route.session->ordinal());
            bad != CUDA_SUCCESS)
            return bad;
        route.context = context_of(retained);
    }
    Variable made{.name = name, .addresses = std::vector<std::uint64_t>(process().sessions.size())};
    const auto ask_and_copy = [&] {
        if (const auto bad = ensure_code(library, *route.session); bad != CUDA_SUCCESS)
            return bad;
        std::uint64_t there = 0;
        if (const auto bad = address_on(route, library.handle, name, there, made.size); bad != CUDA_SUCCESS)
            return bad;
        void *memory = nullptr;
        if (const auto bad =
                allocate_host(made.size, HostKind::managed, CU_MEM_ATTACH_GLOBAL, *route.context, memory);
            bad != CUDA_SUCCESS)
            return bad;
        made.copy = std::bit_cast<std::uint64_t>(memory);
        return read_range(route, protocol::kLegacyStream, memory, there, made.size);
    };
    const auto result = ask_and_copy();
    if (retained != nullptr)
        static_cast<void>(cuDevicePrimaryCtxRelease_v2(route.session->ordinal()));
    if (result != CUDA_SUCCESS)
        return result;
    address = made.copy;
    size = made.size;
    known.push_back(std::move(made));
    all.any = true;
    return CUDA_SUCCESS;
}

CUresult move_managed_variables(const CodeObject &kernel, const Route &route, std::uint64_t stream,
                                Flow flow) {
    auto &all = variables();
    if (!all.any.load(std::memory_order_acquire))
        return CUDA_SUCCESS;
    const std::scoped_lock lock(all.lock);
    const auto found = all.of_library.find(kernel.owner);
    if (found == all.of_library.end())
        return CUDA_SUCCESS;
    for (auto &variable : found->second) {
        auto &there = variable.addresses[static_cast<std::size_t>(route.session->ordinal())];
        std::uint64_t size = 0;
        if (there == 0)
            if (const auto bad = address_on(route, found->first, variable.name.c_str(), there, size);
                bad != CUDA_SUCCESS)
                return bad;
        const bool in = flow == Flow::to_device;
        if (const auto bad = post(route,
                                  protocol::Message<protocol::CopyMemory>{
                                      .fixed = {.destination = in ? there : variable.copy,
                                                .source = in ? variable.copy : there,
                                                .size = variable.size,
                                                .stream = stream,
                                                .direction = static_cast<std::uint32_t>(
                                                    in ? protocol::CopyDirection::host_to_device
                                                       : protocol::CopyDirection::device_to_host)}});
            bad != CUDA_SUCCESS)
            return bad;
    }
    return CUDA_SUCCESS;
}

} // namespace singularity::client

extern "C" CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
                                        const char *name) {
    using namespace singularity::client;
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    auto *const object =
        find_as<CodeObject>(singularity::driver_api::kHandleLibrary, std::bit_cast<std::uint64_t>(library));
    if (object == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    if (name == nullptr || (dptr == nullptr && bytes == nullptr))
        return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    if (const auto bad = managed_variable(*object, name, address, size); bad != CUDA_SUCCESS)
        return bad;
    if (dptr != nullptr)
        *dptr = address;
    if (bytes != nullptr)
        *bytes = size;
    return CUDA_SUCCESS;
}
