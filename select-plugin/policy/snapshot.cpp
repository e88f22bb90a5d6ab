// SPDX-License-Identifier: GPL-2.0-or-later
#include "select-plugin/policy/snapshot.hpp"

namespace singularity::policy {

void Job::take(const Ledger &ledger) {
    elapsed = ledger.elapsed();
    work = ledger.work();
    hour_elapsed = ledger.hour_elapsed();
    hour_work = ledger.hour_work();
    gpu_time = ledger.gpu_time();
    hour_moves = ledger.hour_moves();
}

std::uint32_t Snapshot::add(Job job, std::span<const Size> job_sizes, std::span<const Share> job_shares) {
    job.first_size = static_cast<std::uint32_t>(sizes.size());
    job.sizes = static_cast<std::uint32_t>(job_sizes.size());
    job.first_share = static_cast<std::uint32_t>(shares.size());
    job.shares = static_cast<std::uint32_t>(job_shares.size());
    sizes.insert(sizes.end(), job_sizes.begin(), job_sizes.end());
    shares.insert(shares.end(), job_shares.begin(), job_shares.end());
    jobs.push_back(job);
    return static_cast<std::uint32_t>(jobs.size() - 1);
}

void Snapshot::clear_jobs() {
    jobs.clear();
    sizes.clear();
    shares.clear();
}

} // namespace singularity::policy
