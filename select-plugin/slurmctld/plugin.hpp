// SPDX-License-Identifier: GPL-2.0-or-later
// The life of the two plugins. What slurmctld calls is in select_plugin.cpp and priority_plugin.cpp, one line
// each.
#pragma once

#include "background.hpp"
#include "backing.hpp"
#include "dispatch.hpp"
#include "trust.hpp"

#include <cstddef>
#include <span>
#include <utility>

namespace singularity {

// What both plugins are: a stock plugin behind, to which every operation goes.
class Plugin {
  public:
    Plugin(const char *backing, std::span<const char *const> operations) noexcept
        : backing_type_(backing), operations_(operations) {}

    // SLURM_SUCCESS, or SLURM_ERROR after a line in the log that says what is missing.
    [[nodiscard]] int load() noexcept;
    int unload() noexcept;

    // slurmctld decides what it does with the answer.
    template <class Returns, class... Arguments>
    Returns forward( // NOLINT(modernize-use-nodiscard)
        std::size_t operation, Arguments... arguments) const {
        return reinterpret_cast<Returns (*)(Arguments...)>(backing_.operation(operation))(arguments...);
    }

  private:
    const char *backing_type_;
    std::span<const char *const> operations_;
    Backing backing_;
};

class SelectPlugin : public Plugin {
  public:
    SelectPlugin(Shared &shared, const char *backing, std::span<const char *const> operations) noexcept
        : Plugin(backing, operations), shared_(shared) {}

    int fini() noexcept;

    // slurmctld calls it once it controls the cluster and has read its configuration, and again after a
    // reconfiguration; clients and a controller in standby never do. So here, not in init(), begins what only
    // a controller does.
    template <class Forward>
    [[nodiscard]] int node_init(Forward &&forward) noexcept {
        const int answer = dispatch::nodes_change(&shared_, std::forward<Forward>(forward));
        start();
        return answer;
    }
    template <class Forward>
    [[nodiscard]] int reconfigure(Forward &&forward) noexcept {
        return dispatch::nodes_change(&shared_, std::forward<Forward>(forward));
    }
    template <class Forward>
    [[nodiscard]] int job_test(hooks::JobRecord *job, hooks::Bitmap *nodes, std::uint32_t min_nodes,
                               std::uint32_t max_nodes, std::uint32_t wanted_nodes, std::uint16_t mode,
                               hooks::List *&candidates, hooks::List **preempted,
                               Forward &&forward) noexcept {
        return dispatch::job_test(
            &shared_, {job, nodes, min_nodes, max_nodes, wanted_nodes, mode, candidates, preempted},
            [&](hooks::List *allowed) {
                candidates = allowed; // which is what `forward` hands on
                return std::forward<Forward>(forward)();
            });
    }
    template <class Forward>
    [[nodiscard]] int job_begin(hooks::JobRecord *job, Forward &&forward) noexcept {
        return dispatch::job_begin(&shared_, job, std::forward<Forward>(forward));
    }
    template <class Forward>
    [[nodiscard]] int job_fini(hooks::JobRecord *job, Forward &&forward) noexcept {
        return dispatch::job_fini(&shared_, job, std::forward<Forward>(forward));
    }

  private:
    void start() noexcept;
    void only_forward(const Error &why) noexcept;

    Shared &shared_;
    Background verification_;
    Background protection_;
};

class PriorityPlugin : public Plugin {
  public:
    using Plugin::Plugin;

    [[nodiscard]] int init() noexcept;

    template <class Forward>
    [[nodiscard]] std::uint32_t priority_set(hooks::JobRecord *job, Forward &&forward) noexcept {
        return dispatch::priority_set(shared_, job, std::forward<Forward>(forward));
    }

  private:
    Shared *shared_ =
        nullptr; // that of the select plugin; nullptr where it is not loaded: nothing is ever trusted
};

} // namespace singularity
