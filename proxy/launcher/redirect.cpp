// SPDX-License-Identifier: GPL-2.0-or-later
// An auditor of the dynamic linker (rtld-audit(7)): libcuda.so.1, libnvidia-ml.so.1 and libnccl.so.2
// are found in the directory SINGULARITY_REDIRECT_TO, whatever name or path they are asked for by.
// LD_LIBRARY_PATH alone would miss a program that opens /usr/lib/x86_64-linux-gnu/libcuda.so.1.
//
// It is loaded before everything else, in a namespace of its own, into every program of the job: it must be
// small, link nothing but the C library, and keep little state. It also looks after NVRTC: nvrtc.hpp.
#include "nvrtc.hpp"

#include <array>
#include <bit>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <link.h>
#include <unistd.h>

namespace {

struct Redirection {
    const char *name; // as it is asked for, after the last slash
    const char *file; // in the directory
};
constexpr std::array<Redirection, 6> kRedirections{{{"libcuda.so", "libcuda.so.1"},
                                                    {"libcuda.so.1", "libcuda.so.1"},
                                                    {"libnvidia-ml.so", "libnvidia-ml.so.1"},
                                                    {"libnvidia-ml.so.1", "libnvidia-ml.so.1"},
                                                    {"libnccl.so", "libnccl.so.2"},
                                                    {"libnccl.so.2", "libnccl.so.2"}}};

// One place for each: the linker keeps the pointer.
std::array<std::array<char, PATH_MAX>, kRedirections.size()> paths;

const char *target(std::size_t which) {
    auto &path = paths[which];
    if (path[0] == '\0') {
        const char *const directory = std::getenv("SINGULARITY_REDIRECT_TO"); // NOLINT(concurrency-mt-unsafe)
        const char *const file = kRedirections[which].file;
        if (directory == nullptr)
            return nullptr;
        const int length = std::snprintf(path.data(), path.size(), "%s/%s", directory, file);
        if (length < 0 || static_cast<std::size_t>(length) >= path.size()) {
            path[0] = '\0';
            return nullptr;
        }
    }
    return access(path.data(), R_OK) == 0 ? path.data() : nullptr;
}

} // namespace

extern "C" {

[[gnu::visibility("default")]] unsigned la_version(unsigned version) {
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

[[gnu::visibility("default")]] char *la_objsearch(const char *name, std::uintptr_t * /*cookie*/,
                                                  unsigned /*flag*/) {
    const char *const slash = std::strrchr(name, '/');
    const char *const base = slash != nullptr ? slash + 1 : name;
    for (std::size_t at = 0; at < kRedirections.size(); ++at)
        if (std::strcmp(base, kRedirections[at].name) == 0)
            if (const char *const found = target(at); found != nullptr)
                return const_cast<char *>(found); // the interface's type; the linker does not write to it
    return const_cast<char *>(name);
}

// What this returns is which of the object's bindings to other objects an auditor wants to see: none.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): link.h's are the C library's own
[[gnu::visibility("default")]] unsigned la_objopen(link_map *object, Lmid_t space, std::uintptr_t *cookie) {
    *cookie = 0;
    if (space == LM_ID_BASE) {
        *cookie = reinterpret_cast<std::uintptr_t>(object);
        singularity::redirect::object_mapped(*object);
    }
    return 0;
}

// NOLINTNEXTLINE(readability-non-const-parameter): as link.h declares it
[[gnu::visibility("default")]] unsigned la_objclose(std::uintptr_t *cookie) {
    if (*cookie != 0)
        singularity::redirect::object_unmapped(*std::bit_cast<const link_map *>(*cookie));
    return 0;
}

} // extern "C"
