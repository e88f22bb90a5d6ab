// SPDX-License-Identifier: GPL-2.0-or-later
// One virtual node as the agent holds it: from the first process to the last file.
//
// States: preparing (its device proxies start), restoring (a worker makes its processes), making (processes
// exist, init does not serve yet), joining (a connection to init is there, or being tried again; its tasks
// are not known yet), running, saving (a worker has the processes: nobody else touches them), ending (killed,
// not all dead yet), gone (nothing is left; the owner drops it). Init belongs to the job's user: what it says
// is checked, and can only harm the node itself.
#pragma once

#include "agent/limits/metrics.hpp"
#include "agent/limits/program_memory.hpp"
#include "agent/output/task_log.hpp"
#include "agent/protocol/agent_messages.hpp"
#include "agent/worker/apart.hpp"
#include "agent/worker/paths.hpp"
#include "agent/worker/removal.hpp"
#include "agent/worker/worker.hpp"
#include "common/deadline.hpp"
#include "common/unique_fd.hpp"
#include "node/make.hpp"
#include "node/process.hpp"
#include "node/seqpacket.hpp"
#include "proxies.hpp"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace singularity::agent {

// What a task of a restored node gets in place of what it had.
struct GivenTask {
    Streams streams;        // those that its record names
    std::vector<char> cpus; // as of node::Program
    // Where its processes are; empty: where the node is.
    std::string cgroups{}; // NOLINT(readability-redundant-member-init): GCC warns without
};
// By the tasks' numbers, or, as number 0, for all.
using GivenTasks = std::map<std::uint32_t, GivenTask>;

// An answer to one request. The descriptors are the caller's to keep open until it returns.
using Answer = std::function<void(const std::string &packet, std::span<const int> descriptors)>;
// How a request is answered: packets are made with its token.
struct Responder {
    std::uint32_t token = 0;
    Answer answer;

    template <class Body>
    void tell(const Body &body, std::span<const int> descriptors = {}) const {
        answer(node::encode(body, token), descriptors);
    }
    void refuse(const Error &error) const;
};

class LiveNode {
  public:
    enum class State : std::uint8_t { preparing, restoring, making, joining, running, saving, ending, gone };

    // A new one. `responder` hears when it runs, or why it does not.
    // rendezvous: of its proxies with those of other nodes.
    [[nodiscard]] static Expected<LiveNode> make(node::MakePlan plan, ProxyShare share,
                                                 std::optional<Rendezvous> rendezvous, const Paths &paths,
                                                 Responder responder);
    // One that an earlier agent has made, by its record.
    [[nodiscard]] static Expected<LiveNode> adopt(node::Room room, const Paths &paths);
    // Its network namespace and its init, for who connects it.
    struct Ends {
        UniqueFd network;
        UniqueFd init;
    };
    using OnHeld = std::function<void(Ends)>;
    // From a checkpoint, of which the worker has told.
    struct RestorePlan {
        node::Record record;
        node::Room room; // prepared
        std::string cgroups;
        ProxyShare share;
        std::optional<Rendezvous> rendezvous; // of its proxies with those of other nodes
        Worker worker;
        GivenTasks given;
        OnHeld on_held;                                    // it stands still from now on, until go_on()
        std::shared_ptr<const UniqueFd> network = nullptr; // as of node::MakePlan
    };
    [[nodiscard]] static Expected<LiveNode> restore(RestorePlan plan, const Paths &paths,
                                                    Responder responder);

    [[nodiscard]] const node::Record &record() const { return record_; }
    [[nodiscard]] State state() const { return state_; }
    // As the kernel tells: there may not have been time to see to its end.
    [[nodiscard]] bool lives() const { return pidfd_ && !node::has_ended(pidfd_); }
    // What went wrong first, of that which ends it; empty: nothing.
    [[nodiscard]] const std::string &trouble() const { return trouble_; }
    // Which of its devices is gone while it runs: what uses it fails. Empty: none.
    [[nodiscard]] const std::string &lost_device() const { return lost_device_; }
    [[nodiscard]] NodeLine line() const;

    // What to poll, with POLLIN; handle() looks at all of it whoever woke us.
    void watch(std::vector<int> &fds) const;
    [[nodiscard]] std::optional<Deadline> next_deadline() const;
    void handle();

    // live_node_start.cpp. cgroups: of the task, /proc/PID/cgroup; empty: where the node is.
    void start(node::Program program, Streams descriptors, const Responder &responder,
               std::string cgroups = {});
    // live_node_tasks.cpp
    // alone: not to the task's process group, but only to the process that was started. While the node is
    // saved it waits, as for any process that is stopped.
    void signal(const Signal &request, const Responder &responder, bool alone = false);
    void wait(const Wait &request, const Responder &responder);
    void attach(std::uint32_t task, const Responder &responder);
    void log(std::uint32_t task, const Responder &responder) const;
    // Of a detached task: null if there is no such task, or its output has not been asked for yet.
    [[nodiscard]] TaskLog *output(std::uint32_t task);
    // There is none, and there will be none.
    [[nodiscard]] bool output_is_lost(std::uint32_t task) const;
    // live_node_images.cpp
    void checkpoint(bool go_on, const Responder &responder);
    // live_node_part.cpp: its part of a checkpoint of its job, step by step (worker_messages.hpp). One step
    // at a time; what the worker has answered is told, or why it has not.
    using OnStep = std::function<void(Expected<std::string> packet)>;
    struct PartPlan {
        std::string checkpoint; // of the job
        bool go_on = false;
        std::vector<char> ranks;
        std::string store;
    };
    void begin_part(PartPlan plan, OnStep on_step);
    void round(const WorkRound &round, OnStep on_step);
    void step(PartStep step, OnStep on_step);
    // It runs as before, whatever has been done.
    void let_go(OnStep on_step);

    // live_node_check.cpp. Whether it could be saved as it is: what stands in the way, or an empty text. It
    // runs on as if nobody had looked. A checkpoint that begins meanwhile ends it (ECANCELED).
    using OnCheck = std::function<void(const Expected<std::string> &obstacle)>;
    void check(OnCheck on_check);

    // It has been restored, and held.
    [[nodiscard]] Expected<void> go_on();

    [[nodiscard]] Expected<Ends> ends() const; // while it runs

    // Nobody is told if there is no responder.
    void destroy(std::optional<Responder> responder);

  private:
    struct Task {
        std::int32_t pid = 0;
        node::Phase phase = node::Phase::starting;
        node::Stdio stdio = node::Stdio::given;
        std::int32_t status = 0;
        std::optional<TaskLog> log;
        bool log_lost = false; // there was an error
        Share share;           // of Budget::tasks
    };
    // A request to init that has not been answered.
    struct Pending {
        Deadline deadline;
        std::function<void(const node::Packet &)> on_reply; // exactly one of the two is called
        std::function<void(const Error &)> on_error;
        std::size_t bytes = 0;
        // Of one in a memfd.
        ProgramMemory memory;
        node::Lent lent;
    };
    struct Waiter {
        Wait request;
        Responder responder;
    };
    struct HeldSignal {
        Signal request;
        Responder responder;
        bool alone = false;
    };

    // What is to be started in cgroups of its own.
    struct Start {
        node::Program program;
        Streams descriptors;
        Responder responder;
        std::string cgroups;
    };

    // One that is over is still there until its worker has ended.
    struct Checking {
        Worker worker;
        OnCheck on_check;
        Deadline until;
        std::shared_ptr<void> place; // of the few that a host has for them
    };

    LiveNode(node::Room room, node::Record record, const Paths &paths)
        : surroundings_(&paths), room_(std::move(room)), record_(std::move(record)),
          memory_(ProgramMemory::count(record_.spec.uid, memory_of(record_.spec))) {}

    [[nodiscard]] Expected<void> start_proxies(const std::string &cgroups, ProxyShare share,
                                               std::optional<Rendezvous> rendezvous);
    void step_proxies();
    [[nodiscard]] Expected<void> begin_making();
    void step_making();
    void look_at_deadlines();
    void fail_making(const Error &error);
    void end();    // kill
    void finish(); // nothing lives any more

    // live_node_init.cpp
    void connect_to_init();
    void drop_connection(const Error &why);
    void read_init();
    void look_at_pending();
    void take_hello(const node::InitHello &hello);
    void send_held_signals();
    void take_end(const node::InitEnded &ended);
    void open_log(std::uint32_t task, int lent);
    void remove_log(std::uint32_t task) const;
    void bind_tasks();
    // One of the two is called, at once or later.
    template <class Body>
    void ask(const Body &body, std::function<void(const node::Packet &)> on_reply,
             std::function<void(const Error &)> on_error, const Streams *streams = nullptr) {
        const auto token = next_token();
        ask_bytes(token, node::encode(body, token), std::move(on_reply), std::move(on_error), streams);
    }
    [[nodiscard]] std::uint32_t next_token();
    void ask_bytes(std::uint32_t token, const std::string &bytes,
                   std::function<void(const node::Packet &)> on_reply,
                   std::function<void(const Error &)> on_error, const Streams *streams);

    // live_node_start.cpp
    void start_here(node::Program program, Streams descriptors, const Responder &responder);
    void start_next();
    [[nodiscard]] Expected<void> move_init(const std::string &cgroups);

    // live_node_tasks.cpp
    void answer_waiters(std::uint32_t task);

    // live_node_images.cpp
    [[nodiscard]] Workplace workplace() const;
    [[nodiscard]] Expected<void> begin_saving(bool go_on, bool periodic, const PartPlan *part = nullptr);
    void save_again_later();
    void save_periodically();
    [[nodiscard]] Expected<void> begin_restoring();
    [[nodiscard]] Expected<void> recover();
    void read_worker();
    void worker_died();
    // False: the worker says what it must not.
    [[nodiscard]] bool take_news(node::Packet &packet);
    [[nodiscard]] Expected<void> take_born(std::int32_t pid, UniqueFd pidfd);
    void work_finished(const ImageReport &report);
    void work_failed(const Error &error, bool lost);
    void answer_imager();
    // What its worker was at has failed, if nothing has been counted of it yet.
    void count_failure();
    // Whether the packet is the answer to a step.
    [[nodiscard]] bool take_step(const node::Packet &packet);
    void answer_step(Expected<std::string> packet);
    [[nodiscard]] Expected<void> set_in_doubt(bool in_doubt);
    void ask_worker(const std::string &packet, OnStep on_step);
    void clear_staging();
    static void end_strays(const node::Room &room);

    // live_node_check.cpp
    void read_checker();
    void end_check(const Expected<std::string> &outcome);

    const Paths *surroundings_;
    node::Room room_;
    node::Record record_;
    ProgramMemory memory_; // of its specification
    State state_ = State::making;
    std::string trouble_;
    std::string lost_device_;
    std::optional<node::MakePlan> plan_; // of what is still to be made
    std::optional<Proxies> proxies_;
    std::unique_ptr<Worker> worker_;
    std::unique_ptr<Checking> checking_; // beside the others: it changes nothing
    Turn save_turn_;                     // of the next periodic checkpoint
    std::optional<Removal> removal_;     // of what workers have left in the staging directory
    bool last_removal_ = false;          // nothing comes into it any more
    std::optional<Responder> imager_;    // hears what becomes of the worker's work
    std::optional<ImageReport> report_;  // what there is to hear, once the node is where it must be
    std::string phase_;                  // what its worker says it does
    std::optional<Error> undone_;        // what to hear instead, once a recovery has come to its end
    bool go_on_ = false;                 // after a checkpoint
    bool periodic_ = false;              // nobody has asked for it
    std::optional<Work> counted_;        // as what: not parts of a job, which its coordinator counts
    unsigned recoveries_ = 0;            // one after the other, without one that has come to its end
    std::optional<Deadline> next_save_;
    OnStep on_step_;                                  // of a part of a checkpoint
    std::optional<bool> part_;                        // the worker is at one; whether the node goes on
    GivenTasks given_;                                // for a restore
    OnHeld on_held_;                                  // of a restore
    std::shared_ptr<const UniqueFd> network_;         // likewise, until its worker has it
    std::map<std::uint32_t, std::vector<char>> cpus_; // of tasks that are still to be bound to theirs
    std::optional<node::Making> making_;
    std::optional<Responder> maker_;   // hears how the making went
    std::optional<Deadline> patience_; // for making, joining, ending
    UniqueFd pidfd_;
    UniqueFd init_; // the connection
    std::optional<Deadline> retry_;
    std::uint32_t last_token_ = 0;
    std::uint32_t last_task_ = 0;
    std::map<std::uint32_t, Pending> pending_;
    std::map<std::uint32_t, Task> tasks_;
    std::vector<Waiter> waiters_;
    std::vector<HeldSignal> held_signals_; // until it runs
    std::deque<Start> starts_;             // one after the other
    bool starting_ = false;                // the one that was the first of them
    bool looking_at_starts_ = false;
    std::string home_; // init's own cgroups, while it is in those of a task that it starts
    std::vector<Responder> destroyers_;
};

[[nodiscard]] std::string_view to_string(LiveNode::State state);

} // namespace singularity::agent
