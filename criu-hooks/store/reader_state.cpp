// SPDX-License-Identifier: GPL-2.0-or-later
#include "reader_state.hpp"

#include "common/text.hpp"
#include "manifest_file.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace singularity::store {
namespace {

bool names_chunk(const Manifest &manifest, const Hash &hash) {
    bool found = false;
    for_each_image(manifest, [&](const auto &, const auto *, const Image &image) {
        found = found || std::ranges::find(image.chunks, hash, &Chunk::hash) != image.chunks.end();
    });
    return found;
}

// Of several, the newest; what cannot be read is no way out.
std::string newest_without(const UserSpace &space, const Manifest &damaged, const Hash &hash) {
    std::string best;
    std::int64_t best_time = 0;
    const auto names = space.checkpoints.names();
    if (!names)
        return best;
    for (const std::string &name : *names) {
        const auto manifest = load_manifest(space, name);
        if (!manifest || manifest->job != damaged.job || name == damaged.id)
            continue;
        const auto key = std::pair(manifest->time, manifest->id);
        if (key < std::pair(damaged.time, damaged.id) && key > std::pair(best_time, best) &&
            !names_chunk(*manifest, hash)) {
            best = manifest->id;
            best_time = manifest->time;
        }
    }
    return best;
}

} // namespace

Error CheckpointState::with_way_out(Error error, const Hash &hash) const {
    error.why += fmt::format("; checkpoint {} of job {} needs it", manifest_.id, quote(manifest_.job));
    const std::string other = newest_without(*space_, manifest_, hash);
    error.why += other.empty() ? std::string("; there is no earlier checkpoint of the job without it")
                               : fmt::format("; the previous checkpoint that does without it is {}", other);
    return error;
}

} // namespace singularity::store
