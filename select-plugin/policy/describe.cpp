// SPDX-License-Identifier: GPL-2.0-or-later
// A plan in words.
#include "select-plugin/policy/plan.hpp"

#include <array>

#include <fmt/format.h>

namespace singularity::policy {
namespace {

constexpr std::array<std::string_view, kTiers> kTierNames{"premium", "standard", "basic"};
constexpr std::array<std::string_view, 5> kKindNames{"start", "shrink", "grow", "migrate", "yield"};
constexpr std::array<std::string_view, 5> kReasonNames{"guarantee", "service", "idle", "defragment", "drain"};

// Why a job makes room, and why one gets something, by reason.
constexpr std::array<std::string_view, 5> kMakesRoom{
    "makes room for", "makes room, having received more, for", "makes room for",
    "makes room in one piece for", "leaves a draining node, with"};
constexpr std::array<std::string_view, 5> kGets{"its guarantee", "it has received least", "GPUs are idle",
                                                "GPUs are free in one piece", "its node is draining"};

template <class Enum, std::size_t N>
std::string_view pick(const std::array<std::string_view, N> &names, Enum value) {
    const auto index = static_cast<std::size_t>(value);
    return index < N ? names[index] : "unknown";
}

std::string named(const Job &job) { return fmt::format("job {} ({})", job.id, name_of(job.tier)); }

std::string shortfall_text(Fraction shortfall) {
    const std::int64_t tenths = shortfall * 1000 / kOne;
    return shortfall == 0 ? std::string()
                          : fmt::format(", {}.{} % below its guarantee", tenths / 10, tenths % 10);
}

std::uint64_t gpus_of(std::span<const Share> shares) {
    std::uint64_t sum = 0;
    for (const Share &share : shares)
        sum += share.gpus;
    return sum;
}

} // namespace

std::string_view name_of(Tier tier) { return pick(kTierNames, tier); }
std::string_view name_of(ActionKind kind) { return pick(kKindNames, kind); }
std::string_view name_of(Reason reason) { return pick(kReasonNames, reason); }

std::string describe(const Action &action, const Snapshot &snapshot) {
    const Job &job = snapshot.jobs[action.job];
    const auto sizes = snapshot.sizes_of(job);
    const std::uint64_t before = gpus_of(snapshot.shares_of(job));
    const std::uint32_t after = action.kind == ActionKind::kYield ? 0 : sizes[action.size].gpus;
    const std::string gpus = before == after || before == 0 ? fmt::format("{} GPUs", after)
                                                            : fmt::format("{} to {} GPUs", before, after);
    const std::string why =
        action.beneficiary == kNobody
            ? std::string(pick(kGets, action.reason))
            : fmt::format("{} {}", pick(kMakesRoom, action.reason), named(snapshot.jobs[action.beneficiary]));
    return fmt::format("{} {}, {}: {}{}", name_of(action.kind), named(job), gpus, why,
                       shortfall_text(action.shortfall));
}

std::string describe(const Wait &wait, const Snapshot &snapshot) {
    const Job &job = snapshot.jobs[wait.job];
    const std::string_view why = wait.obstacle == Obstacle::kTooLarge
                                     ? "even its smallest size is more than the cluster has in such blocks"
                                     : "nothing is idle or may be taken that would help";
    return fmt::format("{} {}: {}{}", named(job),
                       job.state == JobState::kPending ? "waits" : "runs below its need", why,
                       shortfall_text(wait.shortfall));
}

} // namespace singularity::policy
