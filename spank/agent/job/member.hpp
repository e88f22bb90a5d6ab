// SPDX-License-Identifier: GPL-2.0-or-later
// What this host has of one job: its network, its nodes, its ranks' output and their ends. The job's
// coordinator, the agent of perhaps another host, asks for all of it; if it says nothing any more, this part
// of the job ends. An agent that comes again finds it by its record.
#pragma once

#include "agent/limits/program_memory.hpp"
#include "agent/limits/share.hpp"
#include "agent/node/live_node.hpp"
#include "agent/step/steps.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "network_client.hpp"
#include "peers/peers.hpp"
#include "shared_networks.hpp"

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace singularity::agent {

// Whoever has the nodes.
class NodeKeeper {
  public:
    virtual ~NodeKeeper() = default;
    // A network namespace that others are in as well; null: none, it gets one of its own.
    using Home = std::shared_ptr<const UniqueFd>;
    // An empty list of cgroups: the agent's own. share.count 0: a proxy for each of its devices.
    virtual void make_node(node::Spec spec, std::string cgroups, ProxyShare share,
                           std::optional<Rendezvous> rendezvous, Home home, const Responder &responder) = 0;
    // From a checkpoint of the node's job. on_found: hears what its job had kept with it, before it lives,
    // and has the streams that its tasks get; an error ends the attempt. The answer: Imaged.
    struct Restoring {
        std::string checkpoint;
        std::string store; // where it is
        node::Spec spec;   // as it must be
        std::string cgroups;
        ProxyShare share;
        std::optional<Rendezvous> rendezvous;
        std::function<Expected<GivenTasks>(const std::vector<char> &)> on_found;
        // Before the responder hears that it runs: it waits for LiveNode::go_on().
        LiveNode::OnHeld on_held;
        Home home;
    };
    virtual void restore_node(Restoring restoring, const Responder &responder) = 0;
    // Whether nothing of the batch script of this step's job can run on. stop: it is to be stopped for that.
    [[nodiscard]] virtual bool script_rests(const StepKey &key, bool stop) = 0;
    // As of HostAsker.
    virtual void run_again(Rerun rerun) = 0;
    virtual void script_saved(const StepKey &key) = 0;
    virtual void forget_image(const StepKey &key, std::string image) = 0;
    // Null if there is none. What is asked of it is done in the next round.
    [[nodiscard]] virtual LiveNode *find_node(const std::string &name) = 0;
    // The same for who asks nothing of it: it has nothing to do because of that.
    [[nodiscard]] virtual LiveNode *look_at_node(const std::string &name) = 0;
    // One of an earlier agent that could not be looked at yet.
    [[nodiscard]] virtual bool node_waits(const std::string &name) const = 0;
    // What is here of a step of Slurm's; null: nothing, or not all of it yet.
    [[nodiscard]] virtual std::shared_ptr<Step> find_step(const StepKey &key) = 0;
    // The step of a job that an earlier agent has made: its wrappers come again.
    [[nodiscard]] virtual std::shared_ptr<Step> adopt_step(const StepKey &key, const std::string &job) = 0;
};

struct MemberSetting {
    Libraries libraries;
    std::filesystem::path members; // directory of all
    std::string host;              // our own name
    std::uint16_t vxlan_port = 0;
    network::WayOut way_out;
    PortRange publish; // of this host, for ports of nodes
    std::chrono::milliseconds patience{};
    bool run_without_slurm = false; // of users
    std::shared_ptr<SharedNetworks> networks;
};

class Member : public std::enable_shared_from_this<Member> {
  public:
    using Answer = peers::Peers::Answer;

    // The answer is told when the network is there.
    [[nodiscard]] static Expected<std::shared_ptr<Member>>
    prepare(NodeKeeper &nodes, const MemberSetting &setting, const std::string &coordinator,
            const peers::wire::PrepareJob &request, Answer answer);
    [[nodiscard]] static Expected<std::shared_ptr<Member>>
    adopt(NodeKeeper &nodes, const MemberSetting &setting, const std::string &job);

    [[nodiscard]] const std::string &coordinator() const { return record_.coordinator(); }
    [[nodiscard]] const std::string &job() const { return record_.prepare().job(); }
    // A request about this job.
    void serve(const peers::wire::Envelope &request, const Answer &answer);
    // trouble: why the job ends, if not by itself.
    void end(const std::string &trouble, Answer answer, const StepFinish &how = {});
    // Nothing is left of it.
    [[nodiscard]] bool gone() const { return gone_; }

    void watch(std::vector<pollfd> &fds) const { network_->watch(fds); }
    [[nodiscard]] std::optional<Deadline> next_deadline() const;
    void handle();

  private:
    struct Rank {
        std::string node;
        std::uint32_t task = 0;
        std::optional<std::int32_t> status;
    };
    struct Following {
        peers::wire::FollowJob request;
        Answer answer;
        Deadline until;
        bool knows = false; // that tasks here have been told to end
    };
    Member(NodeKeeper &nodes, const MemberSetting &setting, SharedNetworks::Share network)
        : nodes_(&nodes), setting_(&setting), network_(std::move(network.network)),
          network_directory_(std::move(network.directory)), heard_(Deadline::after(setting.patience)) {}

    [[nodiscard]] std::filesystem::path directory() const { return setting_->members / job(); }
    [[nodiscard]] Expected<void> write() const;
    [[nodiscard]] std::vector<const peers::wire::JobNode *> own_nodes() const;
    [[nodiscard]] node::Spec spec_of(const peers::wire::JobNode &one) const;
    using Homes = std::map<std::string, NodeKeeper::Home>; // by names of nodes
    void connect(const peers::wire::ConnectJob &request, const Answer &answer);
    [[nodiscard]] Expected<void> check_store(const std::string &store) const;
    void make_nodes(const Answer &answer, const Homes &homes);
    // Of the proxies of one of its nodes with all others of the job.
    [[nodiscard]] std::optional<Rendezvous> rendezvous_of(const peers::wire::JobNode &one) const;
    // member_network.cpp. What it has of a network; nothing is left where there is an error.
    [[nodiscard]] static Expected<SharedNetworks::Share> take_network(const MemberSetting &setting,
                                                                      const peers::wire::PrepareJob &request);
    [[nodiscard]] static Expected<SharedNetworks::Share>
    adopt_network(const MemberSetting &setting, const peers::wire::MemberRecord &record);
    void prepare_network(std::uint16_t meeting_port, Answer answer);
    // Where nodes are to be in a network that is shared; none in one of its own.
    void find_homes(std::function<void(Expected<Homes>)> then);
    // Nothing has come of it.
    void give_up_network();
    void leave_network();
    void end_network();
    // To the job's network.
    void attach(const peers::wire::JobNode &one, const LiveNode::Ends &ends,
                std::function<void(Expected<void>)> done);
    // member_publish.cpp
    // What its nodes are to be reached by: a step's tasks say so, or whoever has asked for the job.
    [[nodiscard]] std::vector<std::uint16_t> wanted_ports() const;
    [[nodiscard]] bool publishes() const;
    void tell_user(std::string line);
    // Of a node that is attached. What cannot be is told to its user, and is no error.
    void publish(const peers::wire::JobNode &one, std::function<void(Expected<void>)> then);
    void has_published(const peers::wire::JobNode &one, const std::vector<network::Published> &ports);
    // The answer to connect().
    void connected(const Answer &answer, const Expected<void> &outcome) const;
    void start(const peers::wire::StartJob &request, const Answer &answer);
    [[nodiscard]] Expected<Step::Brought> what_to_start(const peers::wire::JobNode &one, std::uint32_t local);
    void started(const peers::wire::JobNode &one, std::uint32_t rank, std::uint32_t task);
    void watch_rank(std::uint32_t rank);
    void signal(const peers::wire::SignalJob &request, const Answer &answer);
    void signal_held(const Answer &answer);
    void set_cut(bool cut, std::function<void(Expected<void>)> done);
    void bind_tasks();
    [[nodiscard]] ProxyShare share_of(const peers::wire::JobNode &one) const;
    // member_devices.cpp
    void look_at_devices();
    [[nodiscard]] std::optional<Deadline> next_look_at_devices() const;
    void rank_has_failed(std::uint32_t rank, std::int32_t status);
    void rank_has_ended(std::uint32_t rank, std::int32_t status);
    void tell_failed();
    // member_restore.cpp
    // Restored nodes are held until those of all hosts are there.
    void restore(const peers::wire::JobNode &one, NodeKeeper::Home home,
                 std::function<void(Expected<void>)> then);
    void go_on(const Answer &answer);
    // How far a node of these has come.
    void tell(const std::string &node, const Expected<void> &outcome);
    [[nodiscard]] Expected<GivenTasks> take_ranks(const peers::wire::JobNode &one,
                                                  const std::vector<char> &ranks);
    void restored(const peers::wire::JobNode &one);
    void tell_user(const std::vector<std::string> &notices);
    // member_save.cpp
    void save(const peers::wire::SaveJob &request, const Answer &answer);
    void rest_and_hold(const peers::wire::SaveJob &request, const Answer &answer);
    void cut_and_save(const peers::wire::SaveJob &request, const Answer &answer);
    [[nodiscard]] Answer held(const Answer &answer);
    void look_at_saving();
    [[nodiscard]] Expected<void> no_rank_has_failed() const;
    void save_nodes(const peers::wire::SaveJob &request, const Answer &answer);
    void tell_user_once(const std::vector<std::string> &notices);
    void check(const Answer &answer);
    void look_at_nodes(const Answer &answer);
    [[nodiscard]] std::vector<char> ranks_of(const peers::wire::JobNode &one) const;
    [[nodiscard]] peers::wire::NewsOfJob news(const peers::wire::FollowJob &request);
    void look_at_following();
    void look_at_end();
    void has_ended();
    void destroy_nodes();

    NodeKeeper *nodes_;
    const MemberSetting *setting_;
    std::shared_ptr<NetworkClient> network_;
    std::string network_directory_;              // of one that is shared
    std::shared_ptr<Step> step_;                 // of Slurm's, if it is one
    std::shared_ptr<UniqueFd> rendezvous_;       // where the job's device proxies meet, if it is here
    std::shared_ptr<const UniqueFd> neighbours_; // of proxies that are started, if there are several nodes
    peers::wire::MemberRecord record_;
    ProgramMemory memory_;              // of its program
    std::vector<Share> published_;      // Budget::ports
    std::vector<std::string> for_user_; // of what is no step, to be told when its nodes are connected
    Deadline heard_;                    // of the coordinator
    std::map<std::uint32_t, Rank> ranks_;
    std::map<std::uint32_t, std::uint32_t> task_of_rank_; // Slurm's, if it is a step of that
    // A device that is gone.
    struct LostDevice {
        std::string why;
        Deadline clear;    // until it is clear whether its step ends anyway
        bool told = false; // to the coordinator, unless it does not matter
    };
    std::optional<LostDevice> lost_device_;
    std::map<std::uint32_t, std::int32_t>
        failed_; // ranks, and how they have ended, which nobody has been told
    std::optional<Deadline> tell_failed_;
    struct Coming {
        std::function<void(Expected<void>)> then; // whoever waits for its next step
        std::optional<Error> failed;              // while nobody did
    };
    std::map<std::string, Coming> coming_; // nodes that are restored
    std::optional<Following> following_;
    std::string trouble_;        // of its first node that has some
    bool told_to_end_ = false;   // tasks here, and the coordinator knows
    bool saving_ = false;        // for which Slurm's commands rest
    bool ends_saved_ = false;    // with that checkpoint
    std::string checkpoint_;     // that checkpoint's id
    std::set<std::string> told_; // notices of checkpoints
    bool ending_ = false;
    bool ends_network_ = false;
    bool gone_ = false;
    std::size_t ending_nodes_ = 0;
    std::vector<Answer> enders_;
};

// Answers of agents in short.
[[nodiscard]] peers::wire::Envelope fault(const Error &error);
[[nodiscard]] peers::wire::Envelope done(const Expected<void> &outcome = {});
// What a reply comes to: an error if there is none, or a fault.
[[nodiscard]] Expected<void> outcome_of(const Expected<peers::wire::Envelope> &reply);
// Calls `then` when it has been told so often, with the first error if there was one; at once if `count` is
// 0.
[[nodiscard]] std::function<void(Expected<void>)> when_all(std::size_t count,
                                                           std::function<void(Expected<void>)> then);

} // namespace singularity::agent
