// SPDX-License-Identifier: GPL-2.0-or-later
// Stands for the driver's library where it maps memory: calls that return to it.
#include <cstddef>

#include <sys/mman.h>

extern "C" {

__attribute__((visibility("default"))) void *map_somewhere(void *wish, std::size_t size) {
    void *volatile mapped = mmap(wish, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mapped;
}
__attribute__((visibility("default"))) void *map64_somewhere(std::size_t size) {
    void *volatile mapped =
        mmap64(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mapped;
}

} // extern "C"
