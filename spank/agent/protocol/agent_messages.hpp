// SPDX-License-Identifier: GPL-2.0-or-later
// What clients and the node agent say to each other on the agent's socket (SOCK_SEQPACKET). Each request gets
// exactly one reply with its token: the type named beside it, or Failed; replies may come in another order,
// and news (progress) before them. A packet that is not one of these costs its sender the connection.
#pragma once

#include "node/init_messages.hpp"
#include "node/record.hpp"

namespace singularity::agent {

inline constexpr const char *kDefaultSocket = "/run/singularity/agent.sock";
inline constexpr const char *kDefaultStaging = "/var/lib/singularity/staging";
inline constexpr const char *kDefaultState = "/run/singularity/nodes";

enum class Message : std::uint16_t { // NOLINT(performance-enum-size): as on the wire
    create = 64,                     // -> created
    start,   // -> started: with three descriptors, or getting one, as node::Stdio says
    signal,  // -> done
    wait,    // -> ended, when the task has
    attach,  // -> lent: with the other end of a terminal
    tie,     // -> done: the node ends with this connection from now on
    list,    // -> nodes
    log,     // -> lent: with one or two descriptors to read from, older first
    destroy, // -> done, when nothing is left of the node
    created,
    started,
    done,
    ended,
    lent,
    nodes,
    failed,
    checkpoint, // -> progress..., imaged
    restore,    // -> progress..., imaged: with three descriptors for a program that had three
    progress,
    imaged,
    run_job,     // -> job_made: a job of several nodes; what becomes of it is told to who follows it
    follow_job,  // -> job_news, when there are any
    list_jobs,   // -> jobs
    signal_job,  // -> done
    destroy_job, // -> done, when nothing is left of it
    tie_job,     // -> done: the job ends with this connection from now on
    cut_job,     // -> done, when no packet passes between the job's nodes, or they do again
    job_made,
    job_news,
    jobs,
    join_step,   // -> joined, when the task runs: with its three standard streams, unless it is on a terminal
    wait_rank,   // -> rank_ended, when the task of this connection has, or there is something to say before
    signal_rank, // -> done: to the task of this connection
    joined,
    rank_ended,
    begin_script, // -> script_fate, when it is to be held: the sender looks after a batch script
    hold_script,  // -> script_fate, when it is known: the batch script of the job in whose cgroup the sender
                  // is stands still
    script_fate,
    open_door,     // -> door: with a socket that listens, for commands in the nodes of the sender's step here
    watch_saves,   // -> save_begins, when that step is to be saved: its commands are to come to rest
    commands_rest, // -> done, when the save is over: none of the sender's commands runs, none can be begun
    door,
    save_begins,
    find_steps, // -> found_steps
    found_steps,
    step_runs,  // -> done, if it does
    input_read, // -> done: by the task of this connection, which has ended
    save_steps, // -> saved_steps: of a script that is saved and runs on
    saved_steps,
    watch_standstill, // -> stands_still: each one says as well that what the last has told is done
    stands_still,
    begin_apart, // -> done, when nothing of the sender's script is in the store any more
};

struct Create {
    static constexpr auto kType = Message::create;
    node::Spec spec; // an empty name is chosen by the agent, an empty address is the default one
    static void fields(auto &self, auto &visit) { visit(self.spec); }
};
struct Start {
    static constexpr auto kType = Message::start;
    std::string node;
    node::Program program;
    static void fields(auto &self, auto &visit) { visit(self.node, self.program); }
};
struct Signal {
    static constexpr auto kType = Message::signal;
    std::string node;
    std::uint32_t task = 0; // its process group; 0: every process of the node
    std::int32_t number = 0;
    static void fields(auto &self, auto &visit) { visit(self.node, self.task, self.number); }
};
struct Wait {
    static constexpr auto kType = Message::wait;
    std::string node;
    std::uint32_t task = 0;
    bool forget = false; // nobody will ask again
    static void fields(auto &self, auto &visit) { visit(self.node, self.task, self.forget); }
};
struct Attach {
    static constexpr auto kType = Message::attach;
    std::string node;
    std::uint32_t task = 0;
    static void fields(auto &self, auto &visit) { visit(self.node, self.task); }
};
struct Tie {
    static constexpr auto kType = Message::tie;
    std::string node;
    static void fields(auto &self, auto &visit) { visit(self.node); }
};
struct List {
    static constexpr auto kType = Message::list;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct Log {
    static constexpr auto kType = Message::log;
    std::string node;
    std::uint32_t task = 0;
    static void fields(auto &self, auto &visit) { visit(self.node, self.task); }
};
struct Destroy {
    static constexpr auto kType = Message::destroy;
    std::string node;
    static void fields(auto &self, auto &visit) { visit(self.node); }
};

struct Created {
    static constexpr auto kType = Message::created;
    std::string name;
    std::int32_t pid = 0; // of init, on the host
    static void fields(auto &self, auto &visit) { visit(self.name, self.pid); }
};
struct Started {
    static constexpr auto kType = Message::started;
    std::uint32_t task = 0;
    std::int32_t pid = 0; // in the node
    static void fields(auto &self, auto &visit) { visit(self.task, self.pid); }
};
struct Done {
    static constexpr auto kType = Message::done;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct Ended {
    static constexpr auto kType = Message::ended;
    std::int32_t status = 0; // as waitpid(2) gives it
    bool node_ended = false; // the task's own end was not seen: the whole node ended, by SIGKILL
    static void fields(auto &self, auto &visit) { visit(self.status, self.node_ended); }
};
struct Lent {
    static constexpr auto kType = Message::lent;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct TaskLine {
    std::uint32_t task = 0;
    std::int32_t pid = 0;
    bool running = false;
    std::int32_t status = 0;
    static void fields(auto &self, auto &visit) { visit(self.task, self.pid, self.running, self.status); }
};
struct NodeLine {
    node::Record record;
    std::string state;
    std::vector<TaskLine> tasks;
    static void fields(auto &self, auto &visit) { visit(self.record, self.state, self.tasks); }
};
struct Nodes {
    static constexpr auto kType = Message::nodes;
    std::vector<NodeLine> nodes; // those that the sender may touch
    bool complete = true;        // false: more than a datagram holds
    static void fields(auto &self, auto &visit) { visit(self.nodes, self.complete); }
};
struct Failed {
    static constexpr auto kType = Message::failed;
    std::string doing;
    std::string on;
    std::string why;
    std::int32_t code = 0;
    static void fields(auto &self, auto &visit) { visit(self.doing, self.on, self.why, self.code); }
};

struct Checkpoint {
    static constexpr auto kType = Message::checkpoint;
    std::string node;   // or job
    bool go_on = false; // else it ends, once it is saved
    static void fields(auto &self, auto &visit) { visit(self.node, self.go_on); }
};
struct Restore {
    static constexpr auto kType = Message::restore;
    std::string what;               // a checkpoint's id, or the name of a node or job: its newest
    std::uint32_t proxies = 0;      // for the devices of a node; 0: one for each
    std::vector<std::string> hosts; // for the nodes of a job, in equal shares; empty: where they were
    bool detach = false;            // a job that ran in the foreground does not any more
    static void fields(auto &self, auto &visit) { visit(self.what, self.proxies, self.hosts, self.detach); }
};
struct Progress {
    static constexpr auto kType = Message::progress;
    std::string phase;
    std::uint64_t bytes = 0;
    std::uint64_t total = 0; // 0: not known
    static void fields(auto &self, auto &visit) { visit(self.phase, self.bytes, self.total); }
};
// What a checkpoint or a restore was.
struct ImageReport {
    std::string node;
    std::string checkpoint; // id
    std::uint64_t devices_bytes = 0;
    std::uint64_t memory_bytes = 0; // that were in use on devices; only of a checkpoint
    std::uint64_t device_bytes = 0; // that the smallest of these has; 0: there is none, or nobody knows
    std::uint64_t host_bytes = 0;
    std::uint64_t stored_bytes = 0; // new in the store, compressed
    std::uint64_t processes = 0;
    std::uint64_t pause_us = 0; // that the program stood still
    std::uint64_t total_us = 0;
    std::vector<std::string> notices; // lines for the user: of a restore, the files that are not as they were
    static void fields(auto &self, auto &visit) {
        visit(self.node, self.checkpoint, self.devices_bytes, self.memory_bytes, self.device_bytes,
              self.host_bytes, self.stored_bytes, self.processes, self.pause_us, self.total_us, self.notices);
    }
};
// 0: one of them is not known.
[[nodiscard]] constexpr std::uint64_t smaller_device(std::uint64_t one, std::uint64_t other) {
    return one == 0 || (other != 0 && other < one) ? other : one;
}
struct Imaged {
    static constexpr auto kType = Message::imaged;
    ImageReport report;
    std::uint32_t task = 0;          // of a restore: the first that runs; 0: none
    bool tied = false;               // the node, or the job, ends with this connection
    bool job = false;                // of several nodes
    std::vector<std::uint64_t> read; // then: so much of each rank's output was there when it was saved
    static void fields(auto &self, auto &visit) {
        visit(self.report, self.task, self.tied, self.job, self.read);
    }
};

// Its user, group and groups are those of who asks, as the kernel knows them.
struct RunJob {
    static constexpr auto kType = Message::run_job;
    std::vector<std::string> hosts; // of each node; the agent that is asked coordinates, wherever they are
    std::uint32_t ranks_per_node = 1;
    std::uint32_t devices = 0; // of each node
    std::string backend;
    node::Program program;
    bool tied = false;                  // to this connection
    std::uint32_t every = 0;            // seconds between checkpoints that nobody asks for; 0: none
    std::vector<std::uint16_t> publish; // TCP ports of its nodes that are to be reached from outside
    static void fields(auto &self, auto &visit) {
        visit(self.hosts, self.ranks_per_node, self.devices, self.backend, self.program, self.tied,
              self.every, self.publish);
    }
};
struct JobMade {
    static constexpr auto kType = Message::job_made;
    std::string job;
    std::uint32_t ranks = 0;
    static void fields(auto &self, auto &visit) { visit(self.job, self.ranks); }
};
struct FollowJob {
    static constexpr auto kType = Message::follow_job;
    std::string job;
    std::vector<std::uint64_t> read; // of each rank's output; ranks that are missing: nothing
    std::int32_t only = -1;          // of all ranks but this one nothing is told
    bool wait = false;               // for news; else what there is
    std::uint32_t told = 0;          // so many of JobNews::told are known
    static void fields(auto &self, auto &visit) {
        visit(self.job, self.read, self.only, self.wait, self.told);
    }
};
struct JobOutput {
    std::uint32_t rank = 0;
    std::uint64_t offset = 0;
    std::vector<char> text;
    static void fields(auto &self, auto &visit) { visit(self.rank, self.offset, self.text); }
};
struct JobNews {
    static constexpr auto kType = Message::job_news;
    std::vector<JobOutput> output;
    bool ended = false; // and all output is here
    std::int32_t status = 0;
    std::string trouble;           // why it has ended, if not by itself
    std::vector<std::string> told; // lines for its user: where its ports are reached, or why they are not
    static void fields(auto &self, auto &visit) {
        visit(self.output, self.ended, self.status, self.trouble, self.told);
    }
};
struct ListJobs {
    static constexpr auto kType = Message::list_jobs;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct JobLine {
    std::string job;
    std::uint32_t uid = 0;
    std::string state;
    std::vector<std::string> hosts;
    std::uint32_t ranks = 0;
    std::uint32_t ended = 0; // ranks
    std::int64_t made = 0;
    std::int32_t status = 0;
    std::string trouble;
    std::vector<std::string> told; // as in JobNews
    static void fields(auto &self, auto &visit) {
        visit(self.job, self.uid, self.state, self.hosts, self.ranks, self.ended, self.made, self.status,
              self.trouble, self.told);
    }
};
struct Jobs {
    static constexpr auto kType = Message::jobs;
    std::vector<JobLine> jobs; // those that this agent coordinates and the sender may touch
    bool complete = true;
    static void fields(auto &self, auto &visit) { visit(self.jobs, self.complete); }
};
struct SignalJob {
    static constexpr auto kType = Message::signal_job;
    std::string job;
    std::int32_t number = 0;
    static void fields(auto &self, auto &visit) { visit(self.job, self.number); }
};
struct DestroyJob {
    static constexpr auto kType = Message::destroy_job;
    std::string job;
    static void fields(auto &self, auto &visit) { visit(self.job); }
};
struct TieJob {
    static constexpr auto kType = Message::tie_job;
    std::string job;
    static void fields(auto &self, auto &visit) { visit(self.job); }
};
struct CutJob {
    static constexpr auto kType = Message::cut_job;
    std::string job;
    bool open = false; // again
    static void fields(auto &self, auto &visit) { visit(self.job, self.open); }
};

// A task of a step of Slurm's is to run in the virtual node that the step has here. Of which step, is what
// the cgroup of who asks says. All tasks of a step on a host say the same, but for rank and program.
struct JoinStep {
    static constexpr auto kType = Message::join_step;
    std::vector<std::string> hosts; // of the step, in Slurm's order: the agent of the first coordinates
    std::uint32_t node = 0;         // which of them this one is
    std::uint32_t ranks = 1;        // of the step
    std::uint32_t ranks_here = 1;   // of them
    std::uint32_t rank = 0;
    std::uint32_t devices = 0;  // here
    std::string cluster;        // Slurm's name of it
    std::uint32_t restarts = 0; // of the job: it may have been saved before
    std::string identity;       // of the job (common/identity.hpp); empty: it has none
    std::uint32_t every = 0;    // seconds between checkpoints that nobody asks for; 0: none
    bool of_script = false;     // a batch script has begun it
    node::Program program;
    bool again = false; // it runs; an earlier agent has started it: without program and streams
    std::string store;  // its directory, one of those that there are; empty: that of who has not chosen
    // Begun by a script that is saved itself, and known to it by this; 0: by no such script, or not known.
    std::uint32_t number = 0;
    std::string checkpoint; // from which that script goes on with it; empty: it begins
    node::Image image;      // the root of its nodes
    // Which of its job's hosts, from 1 on, each of `hosts` is; empty: that is not known.
    std::vector<std::uint32_t> places;
    std::vector<std::uint16_t> publish; // TCP ports of its nodes that are to be reached from outside
    bool until_srun = false;            // a batch script that is saved until it begins a step
    std::uint32_t job_hosts = 0;        // how many hosts its job has; 0: that is not known
    static void fields(auto &self, auto &visit) {
        visit(self.hosts, self.node, self.ranks, self.ranks_here, self.rank, self.devices, self.cluster,
              self.restarts, self.identity, self.every, self.of_script, self.program, self.again, self.store,
              self.number, self.checkpoint, self.image, self.places, self.publish, self.until_srun,
              self.job_hosts);
    }
};
struct Joined {
    static constexpr auto kType = Message::joined;
    std::string node; // empty: no rank is there for it; it ends with the step
    std::uint32_t task = 0;
    std::string note;       // what its user must know
    std::string checkpoint; // it has been restored from; or empty
    static void fields(auto &self, auto &visit) { visit(self.node, self.task, self.note, self.checkpoint); }
};
struct WaitRank {
    static constexpr auto kType = Message::wait_rank;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct RankEnded {
    static constexpr auto kType = Message::rank_ended;
    std::int32_t status = 0; // as waitpid(2) gives it
    std::string trouble;     // why, if not by itself
    // Lines for its user. If there are any, it has not ended: the next wait_rank hears of that.
    std::vector<std::string> news;
    static void fields(auto &self, auto &visit) { visit(self.status, self.trouble, self.news); }
};
struct SignalRank {
    static constexpr auto kType = Message::signal_rank;
    std::int32_t number = 0;
    static void fields(auto &self, auto &visit) { visit(self.number); }
};

struct BeginScript {
    static constexpr auto kType = Message::begin_script;
    std::uint32_t restarts = 0; // of its job
    static void fields(auto &self, auto &visit) { visit(self.restarts); }
};
// Slurm has told it to end, by SIGTERM.
struct HoldScript {
    static constexpr auto kType = Message::hold_script;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct ScriptFate {
    static constexpr auto kType = Message::script_fate;
    bool runs_again =
        false; // from its beginning; the steps that it waits for go on then. Else it is to hear the signal
    static void fields(auto &self, auto &visit) { visit(self.runs_again); }
};

// Slurm's commands in a step's nodes (../commands), which wrappers run outside of them.
struct OpenDoor {
    static constexpr auto kType = Message::open_door;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct Door {
    static constexpr auto kType = Message::door;
    std::vector<std::string> commands; // paths that may be run
    static void fields(auto &self, auto &visit) { visit(self.commands); }
};
struct WatchSaves {
    static constexpr auto kType = Message::watch_saves;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct SaveBegins {
    static constexpr auto kType = Message::save_begins;
    bool ends = false;  // the step, with this save, as all that it has begun
    bool saves = false; // else it is only looked whether it could be saved
    static void fields(auto &self, auto &visit) { visit(self.ends, self.saves); }
};
struct WatchStandstill {
    static constexpr auto kType = Message::watch_standstill;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
// The sender's step stands still for this checkpoint, which is made as soon as the sender asks again.
struct StandsStill {
    static constexpr auto kType = Message::stands_still;
    std::string checkpoint;
    bool ends = false; // the step, with it
    static void fields(auto &self, auto &visit) { visit(self.checkpoint, self.ends); }
};
// Steps of the sender's script, as peers' SaveSteps. lose: one of them cannot be begun again where it was
// saved, so the job is run again, from its last checkpoint.
enum class StepsVerb : std::uint8_t { save, end, go_on, look, lose };
struct SaveSteps {
    static constexpr auto kType = Message::save_steps;
    StepsVerb verb = StepsVerb::go_on;
    std::vector<std::uint32_t> numbers;
    std::vector<std::string> hosts; // of the job
    std::uint32_t restarts = 0;     // of the job, in this run
    static void fields(auto &self, auto &visit) { visit(self.verb, self.numbers, self.hosts, self.restarts); }
};
struct SavedStep {
    bool there = false; // it runs, was saved, or has ended because of that
    bool here = false;  // it has no tasks on other hosts than the script's
    std::string checkpoint;
    static void fields(auto &self, auto &visit) { visit(self.there, self.here, self.checkpoint); }
};
struct SavedSteps {
    static constexpr auto kType = Message::saved_steps;
    std::vector<SavedStep> steps; // in the same order
    static void fields(auto &self, auto &visit) { visit(self.steps); }
};
// The sender's script, which is saved until it begins a step, is about to begin one. From now on its steps
// are saved without it, and it is run again from its first line. EALREADY: it goes on from where it was saved
// together with its steps, and so will they.
struct BeginApart {
    static constexpr auto kType = Message::begin_apart;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
// Whether this step of the sender's job runs, as far as it has tasks here.
struct StepRuns {
    static constexpr auto kType = Message::step_runs;
    std::uint32_t number = 0; // as of JoinStep
    static void fields(auto &self, auto &visit) { visit(self.number); }
};
// Which checkpoints there are of these steps of the sender's job, made in this run of it.
struct FindSteps {
    static constexpr auto kType = Message::find_steps;
    std::vector<std::uint32_t> numbers;
    std::uint32_t restarts = 0; // of the job, in this run
    std::string store;
    bool with_script = false; // also those that were made while their script ran on
    static void fields(auto &self, auto &visit) {
        visit(self.numbers, self.restarts, self.store, self.with_script);
    }
};
// By each rank, as InputRead; empty: not known of all of them. Those on other hosts than the script's tell
// nobody.
struct StepInput {
    std::vector<std::uint64_t> bytes;
    static void fields(auto &self, auto &visit) { visit(self.bytes); }
};
struct FoundSteps {
    static constexpr auto kType = Message::found_steps;
    std::vector<std::string> checkpoints; // in the same order
    std::vector<StepInput> inputs;
    static void fields(auto &self, auto &visit) { visit(self.checkpoints, self.inputs); }
};
// How much of its standard input the program of a task has read, of a step that a script goes on with.
struct InputRead {
    static constexpr auto kType = Message::input_read;
    std::uint64_t bytes = 0; // what it had read before it was restored included
    static void fields(auto &self, auto &visit) { visit(self.bytes); }
};
struct CommandsRest {
    static constexpr auto kType = Message::commands_rest;
    std::string trouble; // why they do not, and the step cannot be saved now; empty: they do
    // They do not because of an srun with which the step is saved when both end.
    bool only_for_now = false;
    // Checkpoints of steps from which the sender's commands go on: no image of the script has others.
    std::vector<std::string> named;
    static void fields(auto &self, auto &visit) { visit(self.trouble, self.only_for_now, self.named); }
};

} // namespace singularity::agent
