// SPDX-License-Identifier: GPL-2.0-or-later
// Steps of Slurm's on this host. Each of a step's tasks is a wrapper (singularity-task) with a connection to
// the agent; it brings the program and its streams, and hears of its end. The wrappers come one by one. When
// all of a host are there, the step can become a job, which the agent of the step's first host coordinates.
#pragma once

#include "agent/limits/program_memory.hpp"
#include "agent/node/live_node.hpp"
#include "agent/protocol/agent_messages.hpp"
#include "agent/worker/apart.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "doors.hpp"
#include "standstill.hpp"

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace singularity::agent {

struct StepKey {
    std::uint32_t uid = 0; // nobody gets into a step by a cgroup of his own making, but into his own
    std::string step;
    friend auto operator<=>(const StepKey &, const StepKey &) = default;
};

// Which of a host's tasks stands for each of its ranks: the one of its number, or else one that would have
// none, or else one that has others already. tasks: at least one.
[[nodiscard]] std::map<std::uint32_t, std::uint32_t> pair_ranks(const std::vector<std::uint32_t> &ranks,
                                                                const std::vector<std::uint32_t> &tasks);

struct StepFinish {
    bool saved = false;                         // it goes on another time
    bool lost = false;                          // the same, and Slurm ends its tasks
    std::map<std::uint32_t, std::int32_t> ends; // of ranks that may have had theirs in an earlier run
};

// A job of Slurm's that cannot go on as it is, but from its checkpoint.
struct Rerun {
    StepKey key;
    std::uint32_t restarts = 0; // of the run that cannot: one that runs for another time is left alone
    std::string hold;           // why it waits first, until somebody releases it; empty: it does not
};

// For a rerun's `hold`. what: "could not be restored", say.
[[nodiscard]] std::string why_held(std::string_view what);

// What one host has of a step.
class Step {
  public:
    struct User {
        std::uint32_t uid = 0;
        std::uint32_t gid = 0;
        std::vector<std::uint32_t> groups;
    };
    // Where a rank runs.
    struct Place {
        std::string node;
        std::uint32_t task = 0;
    };
    // What it brings.
    struct Brought {
        node::Program program;
        Streams descriptors;
        ProgramMemory memory; // of the program, as long as it waits
    };
    struct Wrapper {
        std::string cgroups;        // where it is, and its rank will be
        std::function<bool()> left; // has it
        Responder responder;        // hears when its rank runs, or why it does not
        std::optional<Responder> waiter;
        bool told = false; // that it runs
    };

    // `plan` is its first task's.
    Step(std::string name, User user, std::string cgroups, JoinStep plan, const Deadline &patience);
    // Of a job that an earlier agent has made: its wrappers come again.
    Step(std::string name, std::string job, const Deadline &patience);

    [[nodiscard]] const std::string &name() const { return name_; }
    [[nodiscard]] const std::string &job() const { return job_; } // empty: there is none yet
    [[nodiscard]] const JoinStep &plan() const { return plan_; }
    [[nodiscard]] const User &user() const { return user_; }
    [[nodiscard]] const std::string &cgroups() const { return cgroups_; }
    // Those that Slurm has made for one of its tasks here; those of the step, if it has left.
    [[nodiscard]] const std::string &cgroups_of(std::uint32_t task) const;
    // What the user of its first task here must know.
    void set_note(std::string note) { note_ = std::move(note); }
    // Who has looked for what was saved of it has died: whether somebody else is to look.
    [[nodiscard]] bool looks_again() {
        constexpr int kLooks = 3;
        return ++looks_ < kLooks;
    }
    [[nodiscard]] bool complete() const;
    [[nodiscard]] bool over() const; // nobody is interested in it any more

    [[nodiscard]] Expected<void> join(const JoinStep &request, Brought brought, Wrapper wrapper);
    // The wrapper of a task that runs.
    [[nodiscard]] Expected<void> join_again(std::uint32_t task, Wrapper wrapper);
    void wait(std::uint32_t task, const Responder &responder);
    [[nodiscard]] Doors &doors() { return doors_; }
    [[nodiscard]] Standstill &standstill() { return standstill_; }
    // Its ranks are restored from this checkpoint.
    void goes_on_from(std::string checkpoint) { goes_on_from_ = std::move(checkpoint); }
    // A line for the step's user: the first of its tasks here that is there says it on standard error.
    void say(std::string line);
    // Where the ranks that a task stands for run.
    [[nodiscard]] std::vector<Place> places_of(std::uint32_t task) const;
    // Of these ranks, those that have not ended, and their nodes. Nothing: one of them does not run yet.
    [[nodiscard]] std::optional<std::map<std::uint32_t, std::string>> nodes_of(std::uint32_t task) const;
    // Somebody of it is connected.
    [[nodiscard]] bool has_wrappers() const;
    // Of the first of its programs here.
    [[nodiscard]] std::vector<std::string> arguments() const;
    // Between how many GPUs, as the SPANK plugin tells that program: "2-8"; or empty.
    [[nodiscard]] std::string elastic() const;
    // What the wrapper of a batch script tells it of the job's GPUs (spank/gpu_view.hpp); or empty.
    [[nodiscard]] std::string gpus() const;

    // Slurm has told it to end (SIGTERM): the step's coordinator decides what becomes of that.
    void told_to_end(std::uint32_t task);

    // For the job's member here. Tasks are Slurm's; each stands for the rank of its number, unless it is told
    // otherwise.
    [[nodiscard]] std::vector<std::uint32_t> tasks() const;
    // It is one of this user's.
    [[nodiscard]] Expected<void> become(const std::string &job, const User &user);
    // The task that stands for each rank here. One that stands for none runs as long as the job does.
    void bind(const std::map<std::uint32_t, std::uint32_t> &task_of_rank);
    [[nodiscard]] Expected<Brought> take(std::uint32_t task);
    // What it has brought for a rank that has been restored; for as many ranks as it stands for.
    [[nodiscard]] Expected<GivenTask> give_again(std::uint32_t task) const;
    void start_idle();
    void started(std::uint32_t rank, Place place);
    void failed(std::uint32_t rank, const Error &why);
    void ended(std::uint32_t rank, std::int32_t status);
    // Its wrapper has left before it had ended: however it has then, that is no end of its own.
    [[nodiscard]] bool is_abandoned(std::uint32_t rank) const { return abandoned_.contains(rank); }
    [[nodiscard]] bool is_told_to_end() const { return !told_to_end_.empty(); }
    // Of tasks that have been told to end, the ranks, which are to hear it. Once.
    [[nodiscard]] std::vector<Place> take_told_to_end();
    // The job has ended; trouble: why, if not by itself.
    void finish(const std::string &trouble, const StepFinish &how = {});
    // One that was lost is not run again.
    void let_go();

    // Who has left, or has not come in time. abandoned: where ranks run that nobody waits for.
    void look_at_wrappers(const std::function<void(const Place &)> &abandoned);
    [[nodiscard]] const std::optional<Deadline> &patience() const { return patience_; }

  private:
    struct Rank {
        std::optional<Place> place;
        std::optional<std::int32_t> status;
    };
    struct Task {
        std::optional<Wrapper> wrapper;
        std::optional<Brought> brought;
        std::vector<std::uint32_t> ranks;
        bool has_come = false; // its wrapper, to this agent
    };
    [[nodiscard]] bool awaits_wrappers() const;
    // Of the environment of the first of its programs here; empty: it has none, or one that is not plain.
    [[nodiscard]] std::string variable(std::string_view name) const;
    [[nodiscard]] Task *task_of(std::uint32_t rank);
    void tell(Task &task) const;
    // When all of its ranks have ended: how.
    [[nodiscard]] std::optional<std::int32_t> status_of(const Task &task) const;
    [[nodiscard]] bool may_be_told(const Task &task) const;
    void tell_waiters();
    void tell_news();
    void tell_all(const StepFinish &how);
    void refuse_all(const std::string &why);

    std::string name_;
    User user_;
    std::string cgroups_;
    JoinStep plan_;
    std::map<std::uint32_t, Task> tasks_;
    std::map<std::uint32_t, Rank> ranks_;
    std::set<std::uint32_t> told_to_end_; // tasks
    std::set<std::uint32_t> abandoned_;   // ranks
    bool adopted_ = false;
    std::string job_;
    std::optional<Deadline> patience_; // for those who are not there yet
    bool finished_ = false;
    bool lost_ = false; // nobody is told: what ends in its batch job would let the script run on
    std::string trouble_;
    std::string note_;
    int looks_ = 0;
    std::vector<std::string> news_; // lines that no task has said yet
    Doors doors_;
    Standstill standstill_;
    std::string goes_on_from_;
};

} // namespace singularity::agent
