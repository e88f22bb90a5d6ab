// SPDX-License-Identifier: GPL-2.0-or-later
// What slurmctld is told of elastic jobs, and asked about them once in a while: whether this node is to be
// left, and what their comments ask for. One question at a time; each is a process of its own (../slurm).
#pragma once

#include "agent/limits/share.hpp"
#include "agent/worker/paths.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "slurm_job.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <poll.h>
#include <sys/types.h>

namespace singularity::agent {

// As singularity-slurm look prints it.
struct SlurmView {
    std::string leave; // why the node is to be left; empty: it is not
    std::vector<std::uint32_t> move;
    std::vector<std::uint32_t> save;
};
// Of jobs that were not asked about nothing is taken.
[[nodiscard]] Expected<SlurmView> parse_slurm_view(std::string_view text,
                                                   const std::set<std::uint32_t> &asked);

class SlurmWatch {
  public:
    struct Here {
        std::string node;                    // our NodeName
        std::set<std::uint32_t> jobs;        // of Slurm's, whose steps can be saved, and have ranks here
        std::set<std::uint32_t> coordinated; // by us
        std::map<std::uint32_t, std::uint32_t> owners; // of all of these: uids
    };
    // every: 0: it never asks.
    SlurmWatch(const Libraries &libraries, std::chrono::milliseconds every)
        : libraries_(&libraries), every_(every) {}

    // To singularity-slurm: one of its commands for this job, and what that takes, after all that was told
    // before about jobs of this user. What fails is logged, and what is above per_user.notes is lost.
    void tell(const OwnedJob &job, std::string command, std::vector<std::string> words);

    void watch(std::vector<pollfd> &fds) const;
    [[nodiscard]] std::optional<Deadline> next_deadline() const;
    // save: hears of the jobs whose comment asks for a checkpoint.
    void handle(const std::function<Here()> &here, const std::function<void(std::uint32_t)> &save);

  private:
    void take(const std::function<void(std::uint32_t)> &save);
    void move(const Here &of, std::uint32_t job, std::string_view why);
    // Since the question was asked that has just been answered: what it says of the job's comment is old.
    [[nodiscard]] bool is_answered(std::uint32_t job) const;

    const Libraries *libraries_;
    std::chrono::milliseconds every_;
    std::optional<Deadline> next_;
    std::optional<Here> asked_; // what `request_` is about; nothing: it tells
    std::optional<SlurmRequest> request_;
    struct Note {
        OwnedJob job;
        std::string command;
        std::vector<std::string> words;
        Share share;
    };
    [[nodiscard]] std::vector<std::string> next_note();
    // slurmctld may be away for a while. Users take turns. Nothing is asked before all of them have been
    // told.
    std::map<uid_t, std::deque<Note>> waiting_;
    uid_t last_ = 0;      // whose turn it was
    bool failed_ = false; // the last question: it is logged once
};

} // namespace singularity::agent
