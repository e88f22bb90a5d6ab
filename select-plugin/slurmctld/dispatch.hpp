// SPDX-License-Identifier: GPL-2.0-or-later
// The operations at which a policy has a say. `forward` calls the plugin behind; it is called exactly once,
// unless the policy answers a job_test itself, and nothing a hook does can keep its result from slurmctld.
#pragma once

#include "select-plugin/hooks.hpp"
#include "trust.hpp"

#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>

namespace singularity::dispatch {

// Ends all decisions because a hook threw; logs which. Called inside a handler.
void hook_failed(Shared &shared, const char *hook) noexcept;

namespace detail {

// The hook's answer, or the fallback where there is no policy to ask or it fails.
template <class Answer, std::invocable<hooks::Hooks &> Ask>
[[nodiscard]] Answer ask(Shared *shared, const char *hook, Answer fallback, Ask &&ask_policy) noexcept {
    hooks::Hooks *const policy = shared == nullptr ? nullptr : shared->policy();
    if (policy == nullptr)
        return fallback;
    try {
        return std::forward<Ask>(ask_policy)(*policy);
    } catch (...) {
        hook_failed(*shared, hook);
        return fallback;
    }
}

template <std::invocable<hooks::Hooks &> Tell>
void tell(Shared *shared, const char *hook, Tell &&tell_policy) noexcept {
    (void)ask(shared, hook, true, [&](hooks::Hooks &policy) {
        std::forward<Tell>(tell_policy)(policy);
        return true;
    });
}

inline constexpr int kSuccess = 0; // SLURM_SUCCESS

} // namespace detail

// forward: is called with the jobs that may be preempted.
template <std::invocable<hooks::List *> Forward>
[[nodiscard]] int job_test(Shared *shared, const hooks::JobTest &test, Forward &&forward) noexcept {
    const auto answer = detail::ask(shared, "before_job_test", std::optional<int>(),
                                    [&](hooks::Hooks &policy) { return policy.before_job_test(test); });
    if (answer)
        return *answer;
    const auto candidates =
        detail::ask(shared, "candidates", hooks::Candidates(test.preemption_candidates, [](hooks::List *) {}),
                    [&](hooks::Hooks &policy) { return policy.candidates(test); });
    const int forwarded = std::forward<Forward>(forward)(candidates.get());
    return detail::ask(shared, "after_job_test", forwarded,
                       [&](hooks::Hooks &policy) { return policy.after_job_test(test, forwarded); });
}

template <std::invocable Forward>
[[nodiscard]] int job_begin(Shared *shared, hooks::JobRecord *job, Forward &&forward) noexcept {
    const int answer = std::forward<Forward>(forward)();
    if (answer == detail::kSuccess)
        detail::tell(shared, "job_began", [&](hooks::Hooks &policy) { policy.job_began(job); });
    return answer;
}

template <std::invocable Forward>
[[nodiscard]] int job_fini(Shared *shared, hooks::JobRecord *job, Forward &&forward) noexcept {
    const int answer = std::forward<Forward>(forward)();
    if (answer == detail::kSuccess)
        detail::tell(shared, "job_ended", [&](hooks::Hooks &policy) { policy.job_ended(job); });
    return answer;
}

// node_init and reconfigure.
template <std::invocable Forward>
[[nodiscard]] int nodes_change(Shared *shared, Forward &&forward) noexcept {
    const int answer = std::forward<Forward>(forward)();
    detail::tell(shared, "nodes_changed", [](hooks::Hooks &policy) { policy.nodes_changed(); });
    return answer;
}

template <std::invocable Forward>
[[nodiscard]] std::uint32_t priority_set(Shared *shared, hooks::JobRecord *job, Forward &&forward) noexcept {
    const std::uint32_t computed = std::forward<Forward>(forward)();
    return detail::ask(shared, "priority", computed,
                       [&](hooks::Hooks &policy) { return policy.priority(job, computed); });
}

} // namespace singularity::dispatch
