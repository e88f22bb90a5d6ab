// SPDX-License-Identifier: GPL-2.0-or-later
#include "reach.hpp"

#include "manifest_file.hpp"

#include <algorithm>
#include <cerrno>

namespace singularity::store {

void Reach::add(const Manifest &manifest) {
    ++manifests;
    for_each_image(manifest, [this](const auto &, const auto *, const Image &image) {
        for (const Chunk &chunk : image.chunks)
            if (chunk.stored != 0)
                add(chunk.hash, chunk.stored);
    });
    seal(); // between manifests as well: what successive checkpoints share takes memory once
}

void Reach::seal() {
    std::ranges::sort(entries_);
    const auto same = [](const auto &a, const auto &b) { return a.first == b.first; };
    entries_.erase(std::ranges::unique(entries_, same).begin(), entries_.end());
}

bool Reach::contains(const Hash &hash) const {
    return std::ranges::binary_search(entries_, hash.prefix(), {},
                                      [](const auto &entry) { return entry.first; });
}

std::uint64_t Reach::bytes() const {
    std::uint64_t sum = 0;
    for (const auto &[hash, stored] : entries_)
        sum += stored;
    return sum;
}

Expected<Reach> reach_of(const UserSpace &space) {
    Reach reach;
    auto names = space.checkpoints.names();
    if (!names)
        return propagate(names);
    for (const std::string &name : *names) {
        const auto manifest = load_manifest(space, name);
        if (manifest)
            reach.add(*manifest);
        else if (manifest.error().code != ENOENT) // removed meanwhile
            return std::unexpected(manifest.error());
    }
    return reach;
}

} // namespace singularity::store
