// SPDX-License-Identifier: GPL-2.0-or-later
// A job of several nodes, as its coordinator has it: the agent that was asked for it. It asks the agents of
// all hosts, its own among them, step by step (JobRecord::State): to reach them, to prepare the job's
// network, to make its nodes and connect them, to start its ranks; then it follows them until all ranks have
// ended, or one has failed, or a host is not heard of any more. Then it ends everywhere. The record is
// written before each step, so that the next agent can go on, or end what was begun.
#pragma once

#include "agent/limits/metrics.hpp"
#include "agent/limits/program_memory.hpp"
#include "agent/limits/share.hpp"
#include "agent/node/live_node.hpp"
#include "agent/output/spool.hpp"
#include "agent/protocol/agent_messages.hpp"
#include "agent/slurm/slurm_job.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "host_asker.hpp"
#include "job_plan.hpp"
#include "job_save.hpp"
#include "let_go.hpp"
#include "peers/peers.hpp"

#include <chrono>
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

class Job : public std::enable_shared_from_this<Job> {
  public:
    using State = peers::wire::JobRecord::State;
    struct Setting {
        std::filesystem::path jobs; // directory of all
        Libraries libraries;
        std::chrono::milliseconds patience{};
        std::chrono::milliseconds check_after{}; // the start of a step's tasks; 0: never
        TellSlurm tell_slurm;
    };

    // A new one, of which record has everything that was asked for, or that is to be restored. Its directory
    // is there.
    [[nodiscard]] static Expected<std::shared_ptr<Job>> make(HostAsker &hosts, const Setting &setting,
                                                             peers::wire::JobRecord record);
    // One of an earlier agent's.
    [[nodiscard]] static Expected<std::shared_ptr<Job>> adopt(HostAsker &hosts, const Setting &setting,
                                                              const std::string &name);
    // To be called once, when it can be asked for.
    void begin();

    [[nodiscard]] const peers::wire::JobRecord &record() const { return record_; }
    [[nodiscard]] std::uint32_t ranks() const;
    [[nodiscard]] JobLine line() const;

    void follow(FollowJob request, bool holds_back, const Responder &responder);
    void signal(std::int32_t number, const Responder &responder);
    // Between its nodes no packet passes any more, or they do again.
    void cut(bool open, const Responder &responder);
    // job_images.cpp. It ends, once it is saved, unless it is to go on.
    void checkpoint(bool go_on, const Responder &responder);
    // Slurm's job's comment asks for it: it runs on, and the comment is answered.
    void checkpoint_for_comment();
    // job_with_script.cpp: a step whose batch script is saved, while both run on. It is saved and stands
    // still, for some minutes at most, until it ends, so that it is begun again from there, or runs on.
    struct Cut {
        std::string checkpoint; // empty: it does not run, or was only looked at
        std::string before;     // the one before that; may be empty
    };
    using OnCut = std::function<void(const Expected<Cut> &)>;
    void save_with_script(OnCut then);
    // The checkpoint, if it has stood still.
    [[nodiscard]] std::string end_with_script();
    void go_on_with_script();
    // A script that is saved until it begins a step begins one. Whether it has been saved before.
    [[nodiscard]] Expected<bool> begin_apart();
    // It could be saved so now, unless something stands in the way that only that would find.
    [[nodiscard]] bool may_be_cut() const;
    // It has tasks on no other host than this.
    [[nodiscard]] bool is_here() const;
    // Who wants it restored: hears when it runs.
    void tell_when_restored(Responder responder) { imager_ = std::move(responder); }
    // It ends everywhere, for this reason if there was no other before. saved: a step of Slurm's, which goes
    // on another time.
    void end(const std::string &trouble, bool saved = false);
    // The same where others than its ranks are to blame: a batch job is run again.
    // hold: why its job waits until somebody releases it; empty: it does not.
    void lose(const std::string &trouble, std::string hold = {});
    void lose_device(const std::string &host, const std::string &trouble);
    // The same, and its files go. Nobody is told if there is no responder.
    void destroy(std::optional<Responder> responder);
    [[nodiscard]] bool gone() const { return gone_; }
    [[nodiscard]] bool runs() const { return record_.state() == State::JobRecord_State_RUNNING; }

    void watch(std::vector<pollfd> &fds) const;
    [[nodiscard]] std::optional<Deadline> next_deadline() const;
    void handle();

  private:
    struct Watcher {
        FollowJob request;
        Responder responder;
        Deadline until;
    };
    struct Rank {
        Spool output;
        std::uint64_t read = 0; // by who holds it back
        std::optional<std::int32_t> status;
    };
    struct Host {
        std::optional<Deadline> lost;  // when nothing has been heard until then
        std::optional<Deadline> again; // when it is asked again
        bool given_up = false;
    };
    Job(HostAsker &hosts, const Setting &setting, peers::wire::JobRecord record)
        : hosts_(&hosts), setting_(&setting), record_(std::move(record)),
          memory_(ProgramMemory::count(record_.user().uid(), memory_of(record_.program()))),
          ranks_share_(Budget::ranks, record_.user().uid(), record_.ranks()) {}

    [[nodiscard]] std::filesystem::path directory() const { return setting_->jobs / record_.name(); }
    [[nodiscard]] Expected<void> open_outputs();
    [[nodiscard]] Expected<void> place_ranks();
    [[nodiscard]] bool write();
    [[nodiscard]] bool enter(State state); // false: it is ending, or does so now
    [[nodiscard]] const std::string &host_of(std::uint32_t rank) const;
    // All hosts of a job that runs; `responder` hears when all have done it, or the first error.
    void ask_each(const peers::wire::Envelope &request, std::string_view doing, const Responder &responder);

    // job_start.cpp
    using Request = std::function<peers::wire::Envelope(const std::string &host)>;
    using Take = std::function<void(const std::string &host, const peers::wire::Envelope &reply)>;
    // Asks all hosts the same; then goes on if all agree, or ends the job.
    void ask_all(std::string_view doing, State during, std::chrono::milliseconds patience,
                 const Request &request, const Take &take, const std::function<void()> &then);
    void reach();
    void prepare();
    void place_tasks(const std::string &host, const peers::wire::PreparedJob &prepared);
    [[nodiscard]] Expected<void> place_restored();
    [[nodiscard]] bool has_devices() const;
    void connect();
    void start();
    void has_been_started();
    void keep_members();

    // job_run.cpp
    void follow_all();
    void follow_host(const std::string &host);
    [[nodiscard]] peers::wire::Envelope follow_request(const std::string &host,
                                                       std::chrono::milliseconds patience) const;
    void heard(const std::string &host, Expected<peers::wire::Envelope> reply);
    // Whether there was any output.
    [[nodiscard]] bool take(const std::string &host, const peers::wire::NewsOfJob &news);
    void look_at_ranks();
    void trim(Rank &rank);
    void drain(const std::string &host, int times);
    void end_host(const std::string &host);
    void host_has_ended();
    void look_at_watchers();
    [[nodiscard]] JobNews news(const FollowJob &request) const;

    // job_slurm.cpp
    void told_to_end();
    [[nodiscard]] Expected<OwnedJob> slurm_job() const;
    [[nodiscard]] Expected<SlurmRequest>
        about_slurm_job(Expected<SlurmRequest> (*what)(const Libraries &, const OwnedJob &)) const;
    void handle_slurm();
    void slurm_has_told(const Expected<SlurmJob> &about);
    void save_in_doubt(const std::string &trouble);
    void go_on_to_end(const std::string &trouble);
    void could_not_be_saved(const Error &why);
    void tell_what_is_lost(const std::string &why);
    void tell_user(const std::string &words);
    void rest();
    void look_at_script();
    void save_at_last();
    void note(std::vector<std::string> words) const;
    // Where its ports are reached, or that they are not any more.
    void note_places(bool are_there = true) const;
    void answer_comment(std::string_view words);
    [[nodiscard]] std::string work_done() const; // for note()
    void keep_end();
    void handle_keeper();

    // job_images.cpp
    [[nodiscard]] Expected<void> save(bool go_on, bool periodic);
    [[nodiscard]] JobSave::Plan save_plan(bool go_on, bool periodic) const;
    [[nodiscard]] JobSave::Owner save_owner(bool go_on, bool periodic);
    void saved(const Expected<ImageReport> &outcome, bool go_on, bool periodic);
    void cannot_be_saved(const Error &why);
    void settle();
    void save_again_later();
    void save_periodically();
    void has_been_restored();
    void answer_imager();

    // job_with_script.cpp
    [[nodiscard]] bool stands_still() const { return is_cut_for_.has_value() || leaving_ != nullptr; }
    void has_been_cut();
    void leave_cut(std::function<void()> then);
    void has_left_cut(const std::string &image);
    void handle_cut();

    // job_check.cpp
    struct Findings {
        std::size_t left = 0; // hosts that have not answered
        bool obstacle = false;
        bool failed = false;
    };
    void check_later();
    void check();
    void checked(const std::string &host, const Expected<peers::wire::Envelope> &reply, Findings &findings);

    HostAsker *hosts_;
    const Setting *setting_;
    peers::wire::JobRecord record_;
    ProgramMemory memory_; // of its program
    Share ranks_share_;    // of Budget::ranks
    std::vector<Rank> ranks_;
    std::vector<int> node_of_rank_; // its index in the record
    std::map<std::string, Host> where_;
    std::map<std::string, std::uint32_t> addresses_; // of hosts, once they have been reached
    std::map<std::string, Offer> offers_;            // of hosts of a step that is restored
    std::vector<Watcher> watchers_;
    std::vector<Responder> destroyers_;
    struct Stop {
        barrier::Total issued;
        std::time_t when = 0;
    };
    Stop last_stop_; // of its ranks, to be saved
    std::shared_ptr<JobSave> saving_;
    Work saved_as_ = Work::asked;       // how that is counted
    std::optional<Responder> imager_;   // hears of a checkpoint, or a restore
    std::optional<ImageReport> report_; // what there is to hear once the job has ended
    std::optional<Deadline> next_save_;
    Turn save_turn_; // of a checkpoint that is periodic, or that the job's comment asks for
    std::optional<Deadline> next_check_;
    OnCut on_cut_;                       // it is being saved for its script
    std::string before_cut_;             // its checkpoint
    std::optional<Deadline> is_cut_for_; // it stands still, saved for its script
    std::shared_ptr<LetGo> leaving_;     // it is let go after that; nobody may save it meanwhile
    std::vector<std::function<void()>> after_leaving_;
    bool cut_unwanted_ = false; // its script has given up before it was saved
    std::chrono::milliseconds check_pause_{};
    unsigned checks_failed_ = 0; // one after the other
    std::uint64_t check_ = 0;    // whose answers count
    Deadline::Clock::time_point began_ = Deadline::Clock::now();
    std::optional<Deadline> keep_; // when its members hear of us again
    std::string rendezvous_;       // where its device proxies meet; while they are made
    std::size_t hosts_left_ = 0;   // that have not ended
    // What becomes of a step that Slurm has told to end.
    enum class Yield : std::uint8_t { no, asking, doubting, saving, requeueing, resting };
    Yield yield_ = Yield::no;
    std::string doubt_;        // why nobody knows whether it runs again
    bool requeue_ = false;     // it is ours to say that it runs again
    bool stop_script_ = false; // Slurm says so when the script ends
    std::string batch_host_;
    std::optional<SlurmRequest> slurm_request_;
    std::optional<Deadline> look_again_; // at its script
    bool comment_asks_ = false;          // for the checkpoint that is made
    std::optional<Worker> keeper_;       // writes down how it has ended
    bool said_step_runs_ = false;        // that there are no checkpoints because of an srun
    bool is_saved_ = false;              // and stands still
    bool cut_short_ = false;  // its ranks have been told to end, and may have more to do in the next run
    bool ends_saved_ = false; // its tasks end without a word
    bool lost_ = false;       // Slurm ends them
    bool held_back_ = false;  // somebody reads all output: it waits for him
    bool destroy_ = false;
    bool gone_ = false;
};

[[nodiscard]] std::string_view to_string(peers::wire::JobRecord::State state);

} // namespace singularity::agent
