// SPDX-License-Identifier: GPL-2.0-or-later
// What is left in the store of jobs that have ended.
#include "jobs.hpp"
#include "saving.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

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
    auto opened = open_store(job.store, true);
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
    const auto is_replaced = [&](const auto &one) {
        return job.replaces && one.job == job.job && one.id != manifest->id;
    };
    if (auto removed = remove_all(*opened, job.uid, is_replaced); !removed)
        return propagate(removed);
    agent::ImageReport report;
    report.node = job.job;
    report.checkpoint = manifest->id;
    return report;
}

Expected<void> remove_from(const std::filesystem::path &directory, const agent::WorkForget &job) {
    auto opened = open_store(directory.native(), false);
    if (!opened && opened.error().code == ENOENT) // nothing was ever saved there
        return {};
    if (!opened)
        return propagate(opened);
    return remove_all(*opened, job.uid, [&](const auto &one) {
        return one.job.starts_with(job.prefix) &&
               (job.only.empty() || std::ranges::find(job.only, one.id) != job.only.end());
    });
}

Expected<agent::ImageReport> remove(const agent::WorkForget &job) {
    auto directories = store_directories();
    if (!directories)
        return propagate(directories);
    // One that cannot be used now keeps nothing in the others.
    std::optional<Error> trouble;
    for (const auto &directory : *directories) {
        auto removed = remove_from(directory, job);
        if (!removed && !trouble)
            trouble = removed.error();
    }
    if (trouble)
        return std::unexpected(*std::move(trouble));
    return agent::ImageReport{};
}

} // namespace

Outcome keep_end(const agent::WorkKeepEnd &job) { return {.report = keep(job)}; }

Outcome forget(const agent::WorkForget &job) { return {.report = remove(job)}; }

} // namespace singularity::worker
