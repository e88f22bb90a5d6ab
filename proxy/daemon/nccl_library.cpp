// SPDX-License-Identifier: GPL-2.0-or-later
#include "nccl_library.hpp"

#include <bit>
#include <cerrno>
#include <initializer_list>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

constexpr int kLeastVersion = 21800; // communicators that do not block, and end in order, are older

} // namespace

Expected<std::shared_ptr<const NcclLibrary>> NcclLibrary::open(const std::filesystem::path &path) {
    void *const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char *const why = dlerror();
        return failure("open", path.native(), why != nullptr ? why : "no reason is given", ENOENT);
    }
    auto out = std::make_shared<NcclLibrary>();
    const char *missing = nullptr;
    const auto find = [&](auto &function, const char *name) {
        function = std::bit_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
        if (function == nullptr)
            missing = name;
    };
    find(out->ncclGetVersion, "ncclGetVersion");
    find(out->ncclGetUniqueId, "ncclGetUniqueId");
    find(out->ncclCommInitRankConfig, "ncclCommInitRankConfig");
    find(out->ncclCommGetAsyncError, "ncclCommGetAsyncError");
    find(out->ncclCommFinalize, "ncclCommFinalize");
    find(out->ncclCommDestroy, "ncclCommDestroy");
    find(out->ncclCommAbort, "ncclCommAbort");
    find(out->ncclGroupStart, "ncclGroupStart");
    find(out->ncclGroupEnd, "ncclGroupEnd");
    find(out->ncclSend, "ncclSend");
    find(out->ncclRecv, "ncclRecv");
    find(out->ncclGetErrorString, "ncclGetErrorString");
    find(out->ncclGetLastError, "ncclGetLastError");
    if (missing != nullptr)
        return failure("use", path.native(), fmt::format("it has no {}", missing), ENOSYS);
    if (out->ncclGetVersion(&out->version) != nccl::Result::success || out->version < kLeastVersion)
        return failure(
            "use", path.native(),
            fmt::format("it is version {}: {} or a later one is needed", out->version, kLeastVersion),
            ENOSYS);
    return out;
}

} // namespace singularity::proxyd
