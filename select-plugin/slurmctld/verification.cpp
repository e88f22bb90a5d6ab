// SPDX-License-Identifier: GPL-2.0-or-later
#include "verification.hpp"

#include "log.hpp"

#include <algorithm>

namespace singularity {

std::optional<Verification::Duration> Verification::step() {
    if (shared_.trust() == Trust::kForwarding)
        return std::nullopt;
    const auto finding = verifier_.compare();
    if (!std::holds_alternative<found::Unreachable>(finding))
        backoff_ = kSoon;
    return std::visit([this](const auto &what) { return act(what); }, finding);
}

std::optional<Verification::Duration> Verification::act(const found::Nothing &) {
    return std::min(kSoon, interval_);
}

std::optional<Verification::Duration> Verification::act(const found::Agreement &agreement) {
    const bool first = shared_.trust() == Trust::kUnverified;
    if (!shared_.grant())
        return std::nullopt;
    if (first)
        kLog.info("slurmctld's records are read correctly (Slurm {}; {}): {} jobs, {} nodes, {} values agree "
                  "with the "
                  "public API",
                  records::kRelease, records::kWhyThisTable, agreement.jobs, agreement.nodes,
                  agreement.fields);
    else
        kLog.debug("verified again: {} jobs, {} nodes, {} values agree with the public API", agreement.jobs,
                   agreement.nodes, agreement.fields);
    return interval_;
}

std::optional<Verification::Duration> Verification::act(const found::Suspicion &suspicion) {
    kLog.debug("looking again, because {}", suspicion.what);
    return std::min(kSoon, interval_);
}

std::optional<Verification::Duration> Verification::act(const found::Unreachable &unreachable) {
    kLog.debug("not verified: {}", unreachable.error.message());
    const auto delay = std::min(backoff_, interval_);
    backoff_ = delay * 2;
    return delay;
}

std::optional<Verification::Duration> Verification::act(const found::Wrong &wrong) {
    if (shared_.withdraw())
        kLog.error("only forwarding from now on: the table of slurmctld's records is wrong for this Slurm {} "
                   "({}): {}",
                   records::kRelease, records::kWhyThisTable, wrong.what);
    return std::nullopt;
}

} // namespace singularity
