// SPDX-License-Identifier: GPL-2.0-or-later
// What the agent and singularity-worker say to each other: one worker for each checkpoint, restore or
// recovery, one socket (SOCK_SEQPACKET) between the two. The agent's hang-up means: undo what is not done.
#pragma once

#include "agent_messages.hpp"
#include "node/record.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace singularity::agent {

inline constexpr int kWorkerSocket = 3; // the worker's descriptor of it

enum class WorkMessage : std::uint16_t { // NOLINT(performance-enum-size): as on the wire
    save = 128,                          // -> progress..., [running], finished or failed
    restore, // -> progress..., found; after `go` progress..., born; after `keep` finished or failed
    recover, // -> finished or failed
    go,      // with a descriptor for each key of it
    keep,
    found,
    born,    // with a pidfd
    running, // the node runs again, or what is left of it does; the rest of the work does not touch it
    finished,
    failed,
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
    bool go_on = false;     // the node runs on
    bool periodic = false;  // nobody has asked for this one
    std::string superseded; // a checkpoint that goes when the new one is there; may be empty
    static void fields(auto &self, auto &visit) {
        visit(self.place, self.record, self.periodic, self.go_on, self.superseded);
    }
};
struct WorkRestore {
    static constexpr auto kType = WorkMessage::restore;
    std::string what;      // a checkpoint's id, or a node's name: its newest
    std::uint32_t uid = 0; // only this user's; 0: anybody's
    std::string cgroups;   // /proc/PID/cgroup of who asks: the node's as well
    static void fields(auto &self, auto &visit) { visit(self.what, self.uid, self.cgroups); }
};
struct WorkRecover {
    static constexpr auto kType = WorkMessage::recover;
    Workplace place;
    node::Record record;
    static void fields(auto &self, auto &visit) { visit(self.place, self.record); }
};
struct WorkGo {
    static constexpr auto kType = WorkMessage::go;
    Workplace place;
    node::Record record;           // with its proxies, which serve
    std::vector<std::string> keys; // of the descriptors that come with it
    static void fields(auto &self, auto &visit) { visit(self.place, self.record, self.keys); }
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
    static void fields(auto &self, auto &visit) { visit(self.record, self.checkpoint, self.periodic); }
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

} // namespace singularity::agent
