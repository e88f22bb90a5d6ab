// SPDX-License-Identifier: GPL-2.0-or-later
// What is left in the store of jobs that have ended.
#include "jobs.hpp"
#include "saving.hpp"

#include <cerrno>
#include <functional>
#include <string_view>

namespace singularity::worker {

namespace {

Expected<void> remove_all(const store::Store &opened, uid_t uid,
                          const std::function<bool(const store::Summary &)> &wanted) {
    const auto listing = opened.list(uid);
    if (!listing)
        return std::unexpected(listing.error());
    for (const auto &one : listing->checkpoints)
        if (wanted(one))
            if (auto removed = opened.remove(uid, one.id); !removed && removed.error().code != ENOENT)
                return propagate(removed);
    return {};
}

Expected<agent::ImageReport> keep(const agent::WorkKeepEnd &job) {
    auto opened = open_store(true);
    if (!opened)
        return propagate(opened);
    auto writer = opened->begin({.job = job.job,
                                 .uid = job.uid,
                                 .gid = job.gid,
                                 .user = user_name(job.uid),
                                 .tier = {},
                                 .parent = {},
                                 .attributes = {{kJob, std::string(job.record.begin(), job.record.end())}}});
    if (!writer)
        return propagate(writer);
    auto manifest = writer->commit();
    if (!manifest)
        return propagate(manifest);
    if (auto removed = remove_all(
            *opened, job.uid, [&](const auto &one) { return one.job == job.job && one.id != manifest->id; });
        !removed)
        return propagate(removed);
    agent::ImageReport report;
    report.node = job.job;
    report.checkpoint = manifest->id;
    return report;
}

Expected<agent::ImageReport> remove(const agent::WorkForget &job) {
    auto opened = open_store(false);
    if (!opened && opened.error().code == ENOENT) // nothing was ever saved
        return agent::ImageReport{};
    if (!opened)
        return propagate(opened);
    if (auto removed =
            remove_all(*opened, job.uid, [&](const auto &one) { return one.job.starts_with(job.prefix); });
        !removed)
        return propagate(removed);
    return agent::ImageReport{};
}

} // namespace

Outcome keep_end(const agent::WorkKeepEnd &job) { return {.report = keep(job)}; }

Outcome forget(const agent::WorkForget &job) { return {.report = remove(job)}; }

} // namespace singularity::worker
