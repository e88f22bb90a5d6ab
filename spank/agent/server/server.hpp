// SPDX-License-Identifier: GPL-2.0-or-later
// The agent's socket and its one loop. Nothing in it blocks; every wait of a client's has its deadline in
// LiveNode.
#pragma once

#include "agent/job/job_keeper.hpp"
#include "agent/limits/metrics.hpp"
#include "agent/node/adoption.hpp"
#include "agent/node/live_node.hpp"
#include "agent/node/local_trees.hpp"
#include "agent/slurm/peer_credentials.hpp"
#include "agent/slurm/slurm_watch.hpp"
#include "agent/step/reruns.hpp"
#include "agent/step/steps.hpp"
#include "agent/worker/worker.hpp"
#include "common/config.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::agent {

struct ServerOptions {
    std::filesystem::path socket;
    Paths places;
    std::string host; // our own name
    Config::Agents agents;
    Config::Network network;
    Config::Elastic elastic;
    Config::Containers containers;
    Config::LocalDirectories local;
};

class Server : private NodeKeeper {
  public:
    // The socket listens, and the nodes of an earlier agent are found again.
    [[nodiscard]] static Expected<std::unique_ptr<Server>> open(ServerOptions options);
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;
    Server(Server &&) = delete;
    Server &operator=(Server &&) = delete;
    ~Server() override;

    // Until SIGTERM or SIGINT. The nodes live on.
    [[nodiscard]] Expected<void> serve();

  private:
    struct Client {
        UniqueFd socket;
        PeerCredentials credentials;
        bool gone = false;
        Streams brought;            // with its last request
        std::shared_ptr<Step> step; // of whose rank it is the wrapper
        std::uint32_t rank = 0;
    };
    struct Held {
        std::unique_ptr<LiveNode> node;
        std::weak_ptr<Client> tied_to;
        std::optional<Deadline>
            tie_patience; // a tied node of an earlier agent: its owner comes again, or it ends
        bool woken = false;
    };
    // A restore whose worker looks for the checkpoint: which node or job it will be is not known yet.
    struct Finding {
        Worker worker;
        std::shared_ptr<Client> client; // null: for a job of ours
        Responder responder;
        Restore request;
        std::string cgroups;
        Streams given;
        std::shared_ptr<Step> step;              // that is begun again
        std::optional<Restoring> of_job;         // what it must be
        std::optional<JobKeeper::Restoring> job; // what it is
        // Nothing is restored: who looks hears what there is.
        std::function<void(const Expected<WorkFoundJob> &)> only_looks;
        bool over = false;
    };
    // A batch script, whose wrapper is connected.
    struct Script {
        std::uint32_t uid = 0;
        std::uint32_t job = 0;
        std::uint32_t restarts = 0; // of that, when it began
        std::weak_ptr<Client> client;
        std::optional<Responder> beginner; // hears that it is to be stopped
        std::optional<Responder> holder;   // who has stopped it hears what becomes of the job
        bool stop = false;                 // by us
        std::optional<SlurmRequest> subprocess;
        std::optional<Deadline> ask_again;
        Turn turn; // to ask
        bool runs_again = false;
        std::optional<Deadline> left; // it has ended, and until then it is to be known whether its job has
        bool begins = false;          // it is run again, and slurmctld is asked to do so at once
        bool was_begun = false;       // it has been asked so
        bool reminds = false;         // slurmctld is asked once more to run it again
        bool ended = false;           // slurmctld said so of its job; killed just then, it would not know
        bool over = false;
        // Of its steps, in the order of their ends: what each task has read of its input.
        struct Input {
            std::uint32_t number = 0; // of the step
            std::map<std::uint32_t, std::uint64_t> read;
        };
        std::vector<Input> inputs;
        // Checkpoints of its steps, from this run: those that some image of the script may name, and those
        // that the one that is made names.
        std::set<std::string> steps_saved;
        std::set<std::string> steps_named;
    };
    // Of one script at a time: as many as commands run (../commands).
    static constexpr std::size_t kStepsLimit = 256;
    // A job that ends with its client, or after an agent's death if he does not come again.
    struct JobTie {
        std::weak_ptr<Client> owner;
        std::optional<Deadline> patience;
    };
    explicit Server(ServerOptions options)
        : options_(std::move(options)), slurm_watch_(options_.places.libraries, options_.elastic.look_every),
          local_trees_(options_.places.libraries, options_.local, options_.containers.writable,
                       options_.host) {}

    [[nodiscard]] Expected<void> prepare();
    // server_adopt.cpp. What an earlier agent has left, and this one could not look at yet.
    [[nodiscard]] Expected<void> look_for_earlier();
    void adopt_waiting();
    // True: nothing more is to be done with its record.
    [[nodiscard]] bool adopt_node(const std::string &name);
    void adopt_jobs();
    [[nodiscard]] std::size_t waiting() const { return waiting_nodes_.size() + jobs_->waiting(); }
    [[nodiscard]] bool node_waits(const std::string &name) const override {
        return waiting_nodes_.contains(name);
    }
    [[nodiscard]] Expected<bool> take_signals() const; // false: the end
    void accept_clients();
    [[nodiscard]] std::optional<std::string> one_connection_more(uid_t uid, std::size_t has) const;
    void read_client(const std::shared_ptr<Client> &client);
    void end_ties();
    void collect();
    [[nodiscard]] int poll_timeout() const;

    // server_metrics.cpp
    void write_metrics();
    [[nodiscard]] Gauges gauges() const;

    // server_requests.cpp
    // False: the packet is none of ours.
    [[nodiscard]] static Responder responder_for(const std::shared_ptr<Client> &client, std::uint32_t token);
    [[nodiscard]] bool handle(const std::shared_ptr<Client> &client, node::Packet &packet);
    void create(const std::shared_ptr<Client> &client, Create request, const Responder &responder);
    [[nodiscard]] Expected<void> room_for_one_more(bool for_root, const node::Spec &spec) const;
    [[nodiscard]] Expected<void> choose_shown(node::Spec &spec) const;
    // A node of which is known that it may be made.
    void make_checked(node::Spec spec, std::string cgroups, ProxyShare share,
                      std::optional<Rendezvous> rendezvous, const std::shared_ptr<Client> &owner, Home home,
                      const Responder &responder);
    void list(const std::shared_ptr<Client> &client, const Responder &responder) const;
    void checkpoint(const Client &client, const Checkpoint &request, const Responder &responder);
    // The node, if there is one that the client may touch; else the responder has been told.
    [[nodiscard]] Held *find(const Client &client, const std::string &name, const Responder &responder);

    // server_jobs.cpp
    [[nodiscard]] Expected<void> open_jobs();
    void make_node(node::Spec spec, std::string cgroups, ProxyShare share,
                   std::optional<Rendezvous> rendezvous, Home home, const Responder &responder) override;
    void restore_node(Restoring restoring, const Responder &responder) override;
    [[nodiscard]] LiveNode *find_node(const std::string &name) override;
    [[nodiscard]] LiveNode *look_at_node(const std::string &name) override;
    [[nodiscard]] std::shared_ptr<Job> find_job(const Client &client, const std::string &name,
                                                const Responder &responder);
    [[nodiscard]] bool handle_job(const std::shared_ptr<Client> &client, const node::Packet &packet,
                                  Message type, const Responder &responder);
    void run_job(const std::shared_ptr<Client> &client, RunJob request, const Responder &responder);
    void list_jobs(const Client &client, const Responder &responder) const;
    void end_job_ties();

    // server_steps.cpp
    [[nodiscard]] std::shared_ptr<Step> find_step(const StepKey &key) override;
    [[nodiscard]] std::shared_ptr<Step> adopt_step(const StepKey &key, const std::string &job) override;
    [[nodiscard]] bool handle_step(const std::shared_ptr<Client> &client, node::Packet &packet, Message type,
                                   const Responder &responder);
    void join_step(const std::shared_ptr<Client> &client, JoinStep request, Streams descriptors,
                   const Responder &responder);
    // All tasks of its first host are here.
    void begin_step(const std::shared_ptr<Step> &step);
    // From its program's beginning. note: what the user must know.
    void start_step(Step &step, const std::string &note);
    // As it was when it was saved, if it was.
    [[nodiscard]] Expected<void> find_saved(const std::shared_ptr<Step> &step);
    void find_no_saved(Step &step, const Error &why);
    void begin_first(Step &step, const Error &why);
    void begin_anew(Step &step, const Error &why);
    void look_at_steps();
    static void fail_step(Step &step, const std::string &why);

    // server_stops.cpp
    void look_at_stops();

    // server_scripts.cpp
    [[nodiscard]] bool handle_script(const std::shared_ptr<Client> &client, const node::Packet &packet,
                                     Message type, const Responder &responder);
    void look_at_scripts();
    void run_again(Rerun rerun) override { reruns_.add(std::move(rerun)); }
    void look_at_script(Script &script);
    void slurm_has_told(Script &script, const SlurmJob &about);
    void remind(Script &script);
    void begin_again(Script &script);
    void forget(const Script &script);
    void checkpoint_for_comment(std::uint32_t slurm_job);
    // Before the first step of a script that is saved until then.
    void begin_apart(const Client &client, const Responder &responder);
    void begin_forgetting();
    [[nodiscard]] bool script_rests(const StepKey &key, bool stop) override;

    // server_commands.cpp
    [[nodiscard]] bool handle_commands(const std::shared_ptr<Client> &client, const node::Packet &packet,
                                       Message type, const Responder &responder);
    void open_door(const std::shared_ptr<Client> &client, const Responder &responder);
    void step_runs(const Client &client, std::uint32_t number, const Responder &responder) const;
    void input_read(const Client &client, const InputRead &about, const Responder &responder);
    // By all of them, in their order; nothing where one is missing.
    [[nodiscard]] StepInput input_of(const Client &script, std::uint32_t number, std::uint32_t ranks) const;
    // What there is of steps, as far as has been found by now.
    struct StepsLook {
        std::shared_ptr<Client> client;
        std::uint32_t job = 0;
        FindSteps request;
        std::string store;
        std::string cgroups;
        Responder responder;
        FoundSteps found;
    };
    void find_steps(const std::shared_ptr<Client> &client, const FindSteps &request,
                    const Responder &responder);
    void find_next_step(const std::shared_ptr<StepsLook> &look);

    // server_saves.cpp
    void save_steps(const Client &client, const SaveSteps &request, const Responder &responder);
    void commands_rest(const std::shared_ptr<Client> &client, const CommandsRest &rest,
                       const Responder &responder);
    void script_saved(const StepKey &key) override;
    void forget_image(const StepKey &key, std::string image) override;
    void forget_images(std::uint32_t uid, std::uint32_t job, std::vector<std::string> images);
    // Null: there is none of this job.
    [[nodiscard]] Script *script_of_job(std::uint32_t uid, std::string_view step);

    // server_restore.cpp
    void restore(const std::shared_ptr<Client> &client, const Restore &request, Streams given,
                 const Responder &responder);
    void read_finding(Finding &finding);
    // The node, or why it cannot be restored.
    [[nodiscard]] Expected<void> restore_found(Finding &finding, WorkFound &&found);
    // Whether it may be restored for who asks.
    [[nodiscard]] Expected<void> check_found(const Finding &finding, const WorkFound &found) const;
    // A job: its worker goes on with what its coordinator needs.
    [[nodiscard]] Expected<void> restore_found_job(Finding &finding, const WorkFoundJob &found);
    [[nodiscard]] Expected<void> begin_found_job(Finding &finding);
    void give_up(Finding &finding, const Error &error);
    // The newest checkpoint of a job of this user's.
    void look_for_saved(const std::string &job, const std::shared_ptr<Client> &client,
                        const std::string &cgroups, const std::string &store,
                        std::function<void(const Expected<WorkFoundJob> &)> then);

    // server_slurm.cpp
    void look_at_slurm();
    [[nodiscard]] SlurmWatch::Here here_of_slurm() const;
    [[nodiscard]] bool is_used(const std::string &local_tree) const;

    ServerOptions options_;
    SlurmWatch slurm_watch_;
    LocalTrees local_trees_;
    UniqueFd lock_; // on the state directory: one agent at a time
    UniqueFd listener_;
    UniqueFd signals_;
    std::optional<Deadline> accept_again_;
    std::vector<std::shared_ptr<Client>> clients_;
    std::map<std::string, Held> nodes_;
    std::set<std::string> waiting_nodes_; // of an earlier agent, and not found again yet
    std::set<std::string> adopted_nodes_; // whose jobs may still wait
    AdoptAgain adopt_again_;
    std::optional<Deadline> adopt_before_others_; // nobody else is served until then
    std::vector<std::unique_ptr<Finding>> findings_;
    std::uint64_t last_name_ = 0;
    std::unique_ptr<JobKeeper> jobs_;
    std::map<std::string, JobTie> job_ties_;
    std::map<StepKey, std::shared_ptr<Step>> steps_;
    std::vector<Script> scripts_;
    Reruns reruns_{options_.places.libraries};
    struct Forgetting {
        WorkForget work;
        Turn turn;
        std::optional<Responder> waiter; // hears when it is done
    };
    struct Forgetter {
        Worker worker;
        std::optional<Responder> waiter;
    };
    std::vector<Forgetting> to_forget_; // as soon as its user has room for a worker
    std::vector<Forgetter> forgetting_;
    std::time_t started_ = 0;
    std::optional<Deadline> next_stops_;               // nothing: nobody could have been stopped
    std::optional<Deadline> next_metrics_;             // nothing: they are written nowhere
    std::string metrics_trouble_;                      // why they could not be written
    std::vector<std::shared_ptr<Step>> waiting_steps_; // for what is left of their last run
};

// What its job is made of, and compared with.
[[nodiscard]] JobKeeper::JobRequest request_of_step(const Step &step);

} // namespace singularity::agent
