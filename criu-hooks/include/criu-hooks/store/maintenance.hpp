// SPDX-License-Identifier: GPL-2.0-or-later
// Looking after a store: what users take, whether everything is whole, removing what no checkpoint names.
#pragma once

#include "common/error.hpp"
#include "criu-hooks/store/store.hpp"
#include "criu-hooks/store/verify_report.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace singularity::store {

// What a user is charged for: the files of distinct chunks that the user's manifests name. Chunks of one user
// are never shared with another's, so nobody's use depends on, or tells of, what others store.
struct Usage {
    std::size_t checkpoints = 0;
    std::uint64_t bytes = 0;
    std::size_t chunks = 0;
};

[[nodiscard]] Expected<Usage> usage(const Store &store, uid_t uid);

// Called again and again while something long goes on; returning false ends it as soon as possible.
struct Phase {
    std::string_view what;
    std::uint64_t done = 0;
    std::uint64_t total = 0; // 0: not known
    std::uint64_t bytes = 0; // read or freed
};
using ProgressCallback = std::function<bool(const Phase &)>;

// One checkpoint: its manifest and every chunk that it names.
[[nodiscard]] Expected<VerifyReport> verify(const Store &store, uid_t uid, const std::string &id,
                                            const ProgressCallback &progress = {});

// Everything of one user: all manifests, all chunk files whether named or not, and that nothing else is
// there. With `set_aside` damaged chunk files are moved to the directory "damaged": the next checkpoint with
// that content writes it again, and thereby also heals older ones. Checkpoints that name the chunk stay
// damaged until then.
[[nodiscard]] Expected<VerifyReport> verify_all(const Store &store, uid_t uid, bool set_aside,
                                                const ProgressCallback &progress = {});

struct GcOptions {
    // Chunks younger than this are left alone: most belong to checkpoints being written. No matter of safety.
    std::chrono::seconds grace{std::chrono::hours(1)};
    // How long another host may believe in a name that has been removed: the attribute cache of NFS keeps
    // directories for up to acdirmax, 60 s unless mounted otherwise. A chunk is condemned in one run and
    // removed by one that comes at least so much later. 0 is right for local file systems and Lustre.
    std::chrono::seconds settle{std::chrono::minutes(2)};
    ProgressCallback progress;
};

struct GcReport {
    std::uint64_t removed_chunks = 0;
    std::uint64_t removed_bytes = 0;
    std::uint64_t condemned = 0; // chunks that nothing names, out of reach of new writers since now
    std::uint64_t restored = 0;  // were condemned, but a checkpoint committed meanwhile names them
    std::uint64_t waiting =
        0; // condemned chunks that a later run will remove, because of `writers` or settle
    std::uint64_t writers = 0;   // writers and readers at work
    std::uint64_t broken = 0;    // dead writers whose checkpoints can no longer be committed
    std::uint64_t leftovers = 0; // files of dead writers that were removed
    bool complete = true;        // false: cancelled
};

// May be killed or cancelled at any time, and run on several hosts at once beside any writers and readers.
// Refuses to remove anything while a manifest of the user cannot be read.
[[nodiscard]] Expected<GcReport> collect_garbage(const Store &store, uid_t uid,
                                                 const GcOptions &options = {});

} // namespace singularity::store
