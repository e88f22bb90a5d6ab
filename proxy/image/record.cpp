// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/image/record.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace singularity::image {

const char *record_name(RecordType type) {
    static constexpr std::array kNames{
        "stream", "client", "code", "code_data", "call",         "slab",       "place", "content",
        "access", "event",  "blob", "blob_data", "communicator", "client_end", "end",   "object_number"};
    const auto index = static_cast<std::size_t>(type) - 1;
    return index < kNames.size() ? kNames[index] : "unknown";
}

std::uint64_t check_of(RecordHead head, std::span<const std::byte> payload) {
    head.check = 0;
    const auto of_head = XXH3_64bits(&head, sizeof(head));
    return XXH3_64bits_withSeed(payload.data(), payload.size(), of_head);
}

Digest digest_of(std::span<const std::byte> bytes) {
    const auto hash = XXH3_128bits(bytes.data(), bytes.size());
    return {hash.low64, hash.high64};
}

} // namespace singularity::image
