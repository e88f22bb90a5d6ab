// SPDX-License-Identifier: GPL-2.0-or-later
// What the agent and singularity-worker say to each other: one worker for each checkpoint, restore, recovery
// or check, one socket (SOCK_SEQPACKET) between the two. The agent's hang-up means: undo what is not done.
//
// A checkpoint of a job of several nodes has a worker for each of its nodes, which does a step when it is
// told to, and one for the checkpoint as a whole.
#pragma once

#include "agent/protocol/agent_messages.hpp"
#include "node/record.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace singularity::agent {

inline constexpr int kWorkerSocket = 3; // the worker's descriptor of it

enum class WorkMessage : std::uint16_t { // NOLINT(performance-enum-size): as on the wire
    save = 128,                          // -> progress..., [running], finished or failed
    restore, // -> progress..., found; after `go` progress..., born; after `keep` finished or failed. Of a
             // node of a job: before it is born held, until `step` resume
    recover, // -> finished or failed
    go,
    keep,
    found,
    born,    // with a pidfd
    running, // the node runs again, or what is left of it does; the rest of the work does not touch it
    finished,
    failed,
    // Of a node of a job, after `save` with the id of a checkpoint.
    stepped, // it is prepared
    round,   // -> reports
    reports,
    step, // hold -> stepped; resume -> running; store -> part; let_go -> finished; each or failed
    part,
    // Of a job.
    save_job, // -> begun; after `parts` finished or failed
    begun,
    parts,
    settle_job, // -> finished: with the id, if the checkpoint is there
    found_job,  // answer of `restore`; after `outputs` finished or failed
    outputs,
    given,    // with a descriptor for each of its keys; any number of times before `go`
    keep_end, // -> finished or failed
    forget,   // -> finished or failed
    check,    // -> checked or failed; of a node that runs, and runs on as if nobody had looked
    checked,
    held,    // of a node of a job that is restored: with its network namespace and a pidfd of its init
    network, // with the network namespace of a node that is not the only one in it; before `go`
};

// Where a job's node is, and where its images lie while they are made.
struct Workplace {
    std::string state;   // the agent's state directory
    std::string staging; // of this node
    static void fields(auto &self, auto &visit) { visit(self.state, self.staging); }
};

struct WorkSave {
    static constexpr auto kType = WorkMessage::save;
    Workplace place;
    node::Record record;
    bool go_on = false;              // the node runs on
    bool periodic = false;           // nobody has asked for this one
    std::string superseded;          // a checkpoint that goes when the new one is there; may be empty
    std::string part_of;             // the id of a job's checkpoint; empty: the node is all of it
    std::vector<char> ranks;         // of the job: kept with the node
    std::vector<std::int32_t> tasks; // that run, by their ids in the node
    // The same, as the agent knows them.
    std::vector<std::uint32_t> numbers;
    std::string store; // its directory; empty, here and below: that of who has not chosen
    static void fields(auto &self, auto &visit) {
        visit(self.place, self.record, self.periodic, self.go_on, self.superseded, self.part_of, self.ranks,
              self.tasks, self.numbers, self.store);
    }
};
struct WorkRestore {
    static constexpr auto kType = WorkMessage::restore;
    std::string what;      // a checkpoint's id, or a node's name: its newest
    std::string node;      // of a job's checkpoint; empty: the only one, or else the job
    std::uint32_t uid = 0; // only this user's; 0: anybody's
    std::string cgroups;   // /proc/PID/cgroup of who asks: the node's as well
    std::string store;
    static void fields(auto &self, auto &visit) {
        visit(self.what, self.node, self.uid, self.cgroups, self.store);
    }
};
struct WorkRecover {
    static constexpr auto kType = WorkMessage::recover;
    Workplace place;
    node::Record record;
    static void fields(auto &self, auto &visit) { visit(self.place, self.record); }
};
struct WorkCheck {
    static constexpr auto kType = WorkMessage::check;
    node::Record record;
    static void fields(auto &self, auto &visit) { visit(self.record); }
};
struct WorkGiven {
    static constexpr auto kType = WorkMessage::given;
    std::vector<std::string> keys; // at most node::kTrustedDescriptorLimit
    static void fields(auto &self, auto &visit) { visit(self.keys); }
};
// Where what belongs to a task is from its first moment on.
struct TaskCgroups {
    std::uint32_t task = 0; // as the agent knows it
    std::string cgroups;    // as of WorkRestore
    static void fields(auto &self, auto &visit) { visit(self.task, self.cgroups); }
};
struct WorkGo {
    static constexpr auto kType = WorkMessage::go;
    Workplace place;
    node::Record record;            // with its proxies, which serve
    std::vector<TaskCgroups> tasks; // others are where the node is
    static void fields(auto &self, auto &visit) { visit(self.place, self.record, self.tasks); }
};
struct WorkKeep {
    static constexpr auto kType = WorkMessage::keep;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};

struct WorkFound {
    static constexpr auto kType = WorkMessage::found;
    node::Record record;
    std::string checkpoint;
    bool periodic = false;
    std::vector<char> ranks; // as WorkSave had them
    static void fields(auto &self, auto &visit) {
        visit(self.record, self.checkpoint, self.periodic, self.ranks);
    }
};
struct WorkBorn {
    static constexpr auto kType = WorkMessage::born;
    std::int32_t pid = 0; // of init, on the host
    static void fields(auto &self, auto &visit) { visit(self.pid); }
};
struct WorkRunning {
    static constexpr auto kType = WorkMessage::running;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct WorkFinished {
    static constexpr auto kType = WorkMessage::finished;
    ImageReport report;
    static void fields(auto &self, auto &visit) { visit(self.report); }
};
struct WorkFailed {
    static constexpr auto kType = WorkMessage::failed;
    Failed error;
    bool lost = false; // the node is of no use any more and must be ended
    static void fields(auto &self, auto &visit) { visit(self.error, self.lost); }
};

struct WorkChecked {
    static constexpr auto kType = WorkMessage::checked;
    std::string obstacle; // what an image could not hold, several times in a row; empty: nothing
    static void fields(auto &self, auto &visit) { visit(self.obstacle); }
};

struct WorkNetwork {
    static constexpr auto kType = WorkMessage::network;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct WorkStepped {
    static constexpr auto kType = WorkMessage::stepped;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
struct WorkHeld {
    static constexpr auto kType = WorkMessage::held;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};
// To or from one process: what proxy/barrier has encoded.
struct ProcessMessage {
    std::uint64_t high = 0; // which
    std::uint64_t low = 0;
    std::vector<char> bytes;
    static void fields(auto &self, auto &visit) { visit(self.high, self.low, self.bytes); }
};
struct WorkRound {
    static constexpr auto kType = WorkMessage::round;
    std::vector<ProcessMessage> requests;
    std::vector<char> otherwise;   // to all others
    std::uint64_t patience_ms = 0; // for the answers
    static void fields(auto &self, auto &visit) { visit(self.requests, self.otherwise, self.patience_ms); }
};
struct WorkReports {
    static constexpr auto kType = WorkMessage::reports;
    std::vector<ProcessMessage> reports;
    static void fields(auto &self, auto &visit) { visit(self.reports); }
};
enum class PartStep : std::uint8_t { hold, resume, store, let_go };
struct WorkStep {
    static constexpr auto kType = WorkMessage::step;
    PartStep step = PartStep::let_go;
    static void fields(auto &self, auto &visit) { visit(self.step); }
};
struct WorkPart {
    static constexpr auto kType = WorkMessage::part;
    std::string name; // in the store
    ImageReport report;
    static void fields(auto &self, auto &visit) { visit(self.name, self.report); }
};

struct WorkSaveJob {
    static constexpr auto kType = WorkMessage::save_job;
    std::string job;
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    std::string directory; // of the job's files
    std::string parent;
    bool periodic = false;
    std::string superseded;
    std::vector<char> record;
    std::string store;
    static void fields(auto &self, auto &visit) {
        visit(self.job, self.uid, self.gid, self.directory, self.parent, self.periodic, self.superseded,
              self.record, self.store);
    }
};
struct WorkBegun {
    static constexpr auto kType = WorkMessage::begun;
    std::string checkpoint;
    static void fields(auto &self, auto &visit) { visit(self.checkpoint); }
};
struct WorkParts {
    static constexpr auto kType = WorkMessage::parts;
    std::vector<std::string> names;
    std::vector<std::uint64_t> outputs; // of each rank: so much of what is written down of it belongs to it
    static void fields(auto &self, auto &visit) { visit(self.names, self.outputs); }
};
struct WorkSettleJob {
    static constexpr auto kType = WorkMessage::settle_job;
    std::uint32_t uid = 0;
    std::string directory;
    std::string checkpoint;
    std::string superseded; // a checkpoint that goes if that one is there; may be empty
    std::string store;
    static void fields(auto &self, auto &visit) {
        visit(self.uid, self.directory, self.checkpoint, self.superseded, self.store);
    }
};
// In place of all checkpoints of a job that has ended: that it has, and how.
struct WorkKeepEnd {
    static constexpr auto kType = WorkMessage::keep_end;
    std::string job;
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    std::vector<char> record;
    std::string store;
    bool replaces = true; // what was saved of it before
    static void fields(auto &self, auto &visit) {
        visit(self.job, self.uid, self.gid, self.record, self.store, self.replaces);
    }
};
// All checkpoints of a user's jobs whose names begin so, in all stores; or of them these.
struct WorkForget {
    static constexpr auto kType = WorkMessage::forget;
    std::uint32_t uid = 0;
    std::string prefix;
    std::vector<std::string> only; // empty: all
    static void fields(auto &self, auto &visit) { visit(self.uid, self.prefix, self.only); }
};
struct WorkFoundJob {
    static constexpr auto kType = WorkMessage::found_job;
    std::vector<char> record;
    std::string checkpoint;
    bool periodic = false;
    static void fields(auto &self, auto &visit) { visit(self.record, self.checkpoint, self.periodic); }
};
struct WorkOutputs {
    static constexpr auto kType = WorkMessage::outputs;
    std::string directory;
    static void fields(auto &self, auto &visit) { visit(self.directory); }
};

} // namespace singularity::agent
