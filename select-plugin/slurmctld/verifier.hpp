// SPDX-License-Identifier: GPL-2.0-or-later
// Compares what is read of slurmctld's records with what slurmctld tells everybody about the same jobs and
// nodes.
#pragma once

#include "comparison.hpp"
#include "controller.hpp"
#include "slurm_records.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace singularity {

namespace found {

// Nothing to compare: no jobs, no nodes, or all of them went away in between.
struct Nothing {};
// Everything compared agreed; at least one job and one node were compared.
struct Agreement {
    std::size_t jobs = 0;
    std::size_t nodes = 0;
    std::size_t fields = 0;
};
// Something is wrong, but not yet often enough to be sure: a value may change and change back between the
// reads, and slurmctld may free a QOS a moment before it clears the pointers to it.
struct Suspicion {
    std::string what;
};
// The controller could not be asked.
struct Unreachable {
    Error error;
};
// The layout is wrong.
struct Wrong {
    std::string what;
};

} // namespace found

using Finding =
    std::variant<found::Nothing, found::Agreement, found::Suspicion, found::Unreachable, found::Wrong>;

class Verifier {
  public:
    // What is wrong in this many comparisons in a row is wrong.
    static constexpr int kTimesToBeSure = 3;

    Verifier(Controller &controller, std::size_t sample) : controller_(controller), sample_(sample) {}

    // One comparison: the next `sample` jobs and nodes, read, asked for, read again. The same ones again
    // after a suspicion.
    [[nodiscard]] Finding compare();

  private:
    template <class Snapshot, class Shown>
    struct Subject {
        const void *record = nullptr;
        Snapshot before{};
        std::optional<Snapshot> after; // nothing: the record was no longer there
        std::shared_ptr<const Shown> shown;
    };
    using JobSubject = Subject<records::Job, job_info_t>;
    using NodeSubject = Subject<records::Node, node_info_t>;
    struct Sample {
        std::vector<JobSubject> jobs;
        std::vector<NodeSubject> nodes;
        std::shared_ptr<const partition_info_msg_t> partitions;
        std::size_t jobs_seen = 0;
        std::size_t nodes_seen = 0;
    };

    [[nodiscard]] Expected<void> read_first(Sample &sample);
    [[nodiscard]] Expected<void> ask(Sample &sample);
    [[nodiscard]] Expected<void> read_again(Sample &sample);
    [[nodiscard]] Finding judge(const Sample &sample);
    [[nodiscard]] Finding suspect(std::string_view subject, std::string what);

    Controller &controller_;
    std::size_t sample_;
    // Where in the lists the next sample starts: over many comparisons every record gets its turn.
    std::size_t next_job_ = 0;
    std::size_t next_node_ = 0;
    std::string suspected_; // a field by name, or that records are unreadable
    int times_ = 0;
};

} // namespace singularity
