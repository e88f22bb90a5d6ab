// SPDX-License-Identifier: GPL-2.0-or-later
#include "affected.hpp"

#include "chunk_file.hpp"
#include "manifest_file.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace singularity::store {
namespace {

struct Candidate {
    std::int64_t time;
    std::string id;
    std::string job;
    bool affected;
};

} // namespace

Expected<std::vector<Affected>> affected_by(UserSpace &space, const std::set<Hash> &damaged,
                                            const std::string &only) {
    std::vector<Affected> affected;
    if (damaged.empty())
        return affected;
    const auto names = space.checkpoints.names();
    if (!names)
        return std::unexpected(names.error());
    Scratch scratch;
    std::map<Hash, bool> readable;
    const auto can_read = [&](const Chunk &chunk) {
        const auto [known, first] = readable.try_emplace(chunk.hash);
        if (first) {
            std::vector<std::byte> content(chunk.size);
            known->second = read_chunk(space, chunk, content, scratch).has_value();
        }
        return known->second;
    };
    std::vector<Candidate> candidates;
    for (const std::string &name : *names) {
        const auto manifest = load_manifest(space, name);
        if (!manifest)
            continue; // reported as what it is, or removed meanwhile
        bool lost = false;
        for_each_image(*manifest, [&](const auto &, const auto *, const Image &image) {
            lost = lost || std::ranges::any_of(image.chunks, [&](const Chunk &chunk) {
                       return chunk.stored != 0 && damaged.contains(chunk.hash) && !can_read(chunk);
                   });
        });
        candidates.push_back({manifest->time, manifest->id, manifest->job, lost});
    }
    std::ranges::sort(candidates, [](const Candidate &a, const Candidate &b) {
        return std::tie(a.time, a.id) < std::tie(b.time, b.id);
    });
    std::map<std::string, std::string> whole; // the newest so far, by job
    for (Candidate &candidate : candidates) {
        if (!candidate.affected)
            whole[candidate.job] = candidate.id;
        else if (only.empty() || candidate.id == only)
            affected.push_back({candidate.id, candidate.job, whole[candidate.job]});
    }
    return affected;
}

} // namespace singularity::store
