// SPDX-License-Identifier: GPL-2.0-or-later
// What a checkpoint consists of. A manifest names everything; what no manifest names does not exist.
#pragma once

#include "criu-hooks/store/hash.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace singularity::store {

// Chunks are this long, except the last before a boundary that the writer asked for.
inline constexpr std::size_t kChunkSize = std::size_t{4} << 20U;

// Of one checkpoint on one host, 4 TiB of full chunks: what is kept in memory per chunk stays below 128 MB.
inline constexpr std::size_t kMostChunks = std::size_t{1} << 20U;

struct Chunk {
    Hash hash;                // of the content; all zero where the content is
    std::uint32_t size = 0;   // of the content, 1 to kChunkSize
    std::uint32_t stored = 0; // of the file that holds it; 0: nothing but zeros, and no file

    bool operator==(const Chunk &) const = default;
};

// Names and values are data: any bytes, never used as a path or a format.
using Attributes = std::vector<std::pair<std::string, std::string>>;

struct Image {
    std::string name;
    std::vector<Chunk> chunks; // in the order of the content

    [[nodiscard]] std::uint64_t size() const;

    bool operator==(const Image &) const = default;
};

struct Device {
    std::string name; // of the virtual device: its UUID
    Attributes attributes;
    std::vector<Image> images;

    bool operator==(const Device &) const = default;
};

struct VirtualNode {
    std::string name;
    Attributes attributes;
    std::vector<Image> images;
    std::vector<Device> devices;

    bool operator==(const VirtualNode &) const = default;
};

// Where in a checkpoint an image belongs.
struct ImageAddress {
    std::string node;   // virtual node
    std::string device; // of the virtual node; empty: an image of the virtual node itself
    std::string name;
};

struct Sizes {
    std::uint64_t content = 0; // of all images, as a program sees them
    std::uint64_t zeros = 0;   // of that, chunks of zeros
    std::uint64_t stored = 0;  // bytes of distinct chunk files named
    std::uint64_t added = 0;   // of those, what was not in the store when the checkpoint was written

    bool operator==(const Sizes &) const = default;
};

struct Manifest {
    std::string id; // of the checkpoint; see is_id
    std::string
        parent;      // id of the checkpoint that the program was restored from or last saved in; may be empty
    std::string job; // 4711, or whatever names a job where there is no Slurm
    uid_t uid = 0;
    gid_t gid = 0;
    std::string user;
    std::string tier;
    std::int64_t time = 0; // seconds since the epoch when it was begun
    Sizes sizes;
    Attributes attributes;
    std::vector<VirtualNode> nodes;

    bool operator==(const Manifest &) const = default;
};

// 8 to 64 letters, digits and hyphens: ids are the only names in the store that come from outside.
[[nodiscard]] bool is_id(std::string_view text);

// Calls function(const VirtualNode &, const Device *, const Image &) for every image, in order.
template <class Function>
void for_each_image(const Manifest &manifest, Function function) {
    for (const VirtualNode &node : manifest.nodes) {
        for (const Image &image : node.images)
            function(node, static_cast<const Device *>(nullptr), image);
        for (const Device &device : node.devices)
            for (const Image &image : device.images)
                function(node, &device, image);
    }
}

} // namespace singularity::store
